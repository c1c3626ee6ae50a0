"""How a shuffle is cut into buckets, parts and runs, so that it stays within the memory allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from shufflesum.errors import ParameterError

__all__ = ["Layout"]

SMALLEST_MEMORY = 40 << 20

_WORKER_BYTES = 20 << 20  # what reading and writing one file at a time takes, beside the items themselves
_BUCKET_BYTES = 3 << 19  # fits into a core's cache, where a random permutation is cheap
_PART_BYTES = 32 << 20
_RUN_BYTES = 8 << 20
_MOST_CACHED_BUCKETS = 1 << 10  # with more of them, writing to all at once is what misses the cache
_MOST_BUCKETS = 1 << 16
_MOST_UNITS = 256  # their spill files are open all at once


@dataclass(frozen=True, slots=True)
class Layout:
    """How a shuffle is cut: a matter of the number and size of the reports and of the memory, never of the input.

    `buckets` and `parts` are powers of two; a part is written from a whole number of buckets that follow one another.
    Runs of `run_rows` reports are scattered at a time.
    """

    rows: int
    buckets: int
    parts: int
    run_rows: int
    in_memory: bool
    workers: int

    @classmethod
    def plan(cls, rows: int, item_bytes: int, *, memory: int, workers: int) -> Self:
        """The layout for so many reports that stays within `memory` bytes."""
        if memory < SMALLEST_MEMORY:
            raise ParameterError(
                "out-of-range",
                f"memory is {memory / 1e6:.3g} MB; a shuffle needs at least {SMALLEST_MEMORY / 1e6:.0f} MB",
            )
        if workers < 1:
            raise ParameterError("out-of-range", f"workers is {workers}; at least one is needed")
        workers = min(workers, memory // (2 * _WORKER_BYTES))
        free = memory - workers * _WORKER_BYTES
        total = rows * item_bytes
        in_memory = total + workers * 4 * min(total, _RUN_BYTES) <= free
        share = (free - total * in_memory) // workers
        # In the first pass a run is there twice, with two random bytes each; in the second a bucket, with four.
        run_bytes = min(share // 3, _RUN_BYTES) if in_memory else share // 3
        wanted = min(_power_of_two(total / _BUCKET_BYTES), _MOST_CACHED_BUCKETS)
        buckets = max(1, wanted)
        while _likely_most(rows / buckets) * item_bytes > share // 4 and buckets <= _MOST_BUCKETS:
            buckets *= 2
        if buckets > _MOST_BUCKETS:
            raise ParameterError(
                "out-of-range",
                f"{total / 1e9:,.0f} GB of reports cannot be shuffled within {memory / 1e6:,.0f} MB; "
                "give more memory, or fewer workers",
            )
        parts = min(buckets, _power_of_two(total / _PART_BYTES / 2))
        return cls(rows, buckets, parts, max(1, run_bytes // item_bytes), in_memory, workers)

    @property
    def unit_rows(self) -> int:
        """About how many reports are scattered before that is recorded as done."""
        return max(self.run_rows, -(-self.rows // _MOST_UNITS))

    def buckets_of(self, part: int) -> range:
        """The buckets that a part is written from, in order."""
        each = self.buckets // self.parts
        return range(part * each, (part + 1) * each)


def _power_of_two(least: float) -> int:
    """The smallest power of two that is no less."""
    return 1 << max(0, math.ceil(math.log2(least))) if least > 1 else 1


def _likely_most(mean: float) -> float:
    """A bucket is larger than this once in 10**9 times."""
    return mean + 6 * math.sqrt(mean) + 12
