"""Numbers that were counted in bins: their quantiles, and bounds that hold most of them, with confidence.

A bin is all that a count knows of a number, so nothing here is finer than the bins are (docs/accuracy.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice, check_number
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.estimate.base import Floats, tail_of
from shufflesum.estimate.ranking import nearest_counts
from shufflesum.mechanisms import Target
from shufflesum.mechanisms.frequencies import Frequencies, unlikely
from shufflesum.mechanisms.randomized_response.decode import RandomizedResponseFrequencies

if TYPE_CHECKING:
    from shufflesum.plans import Plan

_FARTHEST, _NEAREST = 1e30, 1e-30
_OCCUPIED = 0.999  # one bin that is taken for occupied by mistake may put a bound anywhere
_SAME = 1e-12  # frequencies that differ by no more may be equal but for rounding


def _logarithmic_bins(steps: Sequence[float]) -> tuple[float, ...]:
    fine = [float(f"{step}e{power}") for power in range(-6, 12) for step in steps]
    sizes = [_NEAREST, 1e-24, 1e-18, 1e-15, 1e-12, 1e-9, *fine, 1e12, 1e15, 1e18, 1e21, 1e24, _FARTHEST]
    largest = float(np.finfo(np.float64).max)
    # a bin holds its lower edge: so a whole 100 is among 50 to 100, and -100 among -100 to -50
    rising = [math.nextafter(size, math.inf) for size in sizes]
    return (-largest, *(-size for size in reversed(sizes)), *rising, largest)


WIDE_BINS = _logarithmic_bins((1, 2, 5))
"""Public edges for numbers of which nothing is known: 1, 2, 5, 10, ... from a millionth to a million millions.

Of both signs, with coarser steps beyond, up to the largest double, and one bin for 0 and what is nearly 0.
"""

QUANTILE_BINS = _logarithmic_bins([round(10 ** (step / 24), 1) for step in range(24)])
"""The same in 24 steps from each power of ten to the next: 1, 1.1, 1.2, 1.3, 1.5, ..., 8.3, 9.1, 10.

Fine enough for quantiles of numbers of which nothing is known: an edge is at most 16 % above the one before, on average
10 %.
"""


@dataclass(frozen=True, slots=True)
class Quantile:
    """The least value that a part `q` of the users does not exceed, with an interval that holds it."""

    q: float
    value: float
    lower: float
    upper: float
    level: float
    target: Target


@dataclass(frozen=True, slots=True)
class BinBounds:
    """Bounds between two edges, and which part of the users is within: estimated, and with confidence `level`."""

    lower: float
    upper: float
    within: float
    within_lower: float
    within_upper: float
    level: float


@dataclass(frozen=True, slots=True, eq=False)
class Binned:
    """A table whose cells from `first` on count one number of each user in bins with these edges."""

    plan: Plan
    table: NDArray[np.int64]
    users: int
    edges: tuple[float, ...]
    first: int = 0

    @property
    def bins(self) -> int:
        """How many there are."""
        return len(self.edges) - 1

    def within(self, start: int, stop: int, tail: float) -> tuple[float, float, float]:
        """The part of the users in bins `start` up to `stop`, and ends that it lies beyond with this chance, each."""
        weights = np.zeros(len(self.table))
        weights[self.first + start : self.first + stop] = 1.0
        found = self._means.combine(weights, tail, "users")
        return found.value, found.lower, found.upper

    def quantile(self, q: float, level: float, target: Target) -> Quantile:
        """The q-quantile of these users, or of the population they were drawn from.

        The interval reaches from edge to edge, and holds it with at least this probability: an exact test at one edge
        decides on either end (docs/accuracy.md). From the left, edges are passed as long as so few reports below them
        are unlikely if the quantile is below; from the right, as long as so many are if it is not.
        """
        check_number("q", q)
        check_choice("target", target, ("users", "population"))
        if not 0 < q < 1:
            raise ParameterError(
                "out-of-range", f"q is {q}; a quantile lies strictly between 0 and 1, the median at 0.5"
            )
        tail = tail_of(level)
        found, reports = self._means, np.cumsum(self.table[self.first : self.first + self.bins])
        fewest, most = (q, q) if target == "population" else self._holders(q)

        def unlikely_below(edge: int, held: float) -> tuple[bool, bool]:
            return unlikely(*found.coins(edge, held, target), int(reports[edge - 1]), tail)

        low, high = 0, self.bins
        while low + 1 < self.bins and unlikely_below(low + 1, fewest)[0]:
            low += 1
        while high - 1 > low and unlikely_below(high - 1, most)[1]:
            high -= 1
        lower, upper = _plain(self.edges[low]), _plain(self.edges[high])
        return Quantile(q, min(max(self._value(q), lower), upper), lower, upper, level, target)

    def suggest(self, cover: float, level: float, together: int = 1) -> BinBounds:
        """Edges that hold this part of the users who are in certainly occupied bins, as much left out on either side.

        A bin is certainly occupied if its count is above what noise alone may bring to any bin, at this level or 99.9 %
        if that is more. What is said of the users within holds for whichever edges come out, and in `together` such
        suggestions at once.
        """
        check_cover(cover)
        found = self._means
        mine = slice(self.first, self.first + self.bins)
        lowest, _ = found.interval(tail_of(max(level, _OCCUPIED), together * self.bins), "users")
        occupied = lowest[mine] > 0
        # users beyond what can be computed with are within no bounds
        computable = np.abs([_plain(edge) for edge in self.edges]) <= _FARTHEST
        counts = np.where(occupied & computable[:-1] & computable[1:], found.mean[mine], 0.0)
        if occupied.any() and not counts.any():
            raise ParameterError(
                "bad-bounds",
                f"values lie beyond {_FARTHEST:g} in size, and no bounds can hold them; divide them by a public number",
            )
        if not counts.any():
            raise PrivacyError(
                "nothing-but-noise",
                f"no bin holds certainly anybody among the noise: {self.users} users are too few for epsilon "
                f"{self.plan.epsilon:g}; spend more on it (epsilon, share, --share), or give fewer, wider bins (bins)",
            )
        reached = np.cumsum(counts) / counts.sum()
        left = (1 - cover) / 2
        start = int(np.searchsorted(reached, left, side="right"))
        stop = int(np.searchsorted(reached, min(1 - left, reached[-1]) - _SAME, side="left")) + 1
        choices = self.bins * (self.bins + 1) // 2
        part, lower, upper = self.within(start, stop, tail_of(level, together * choices))
        low, high = _bound(self.edges[start]), _bound(self.edges[stop])
        if not low < high:  # nothing but 0
            high = _NEAREST
        return BinBounds(low, high, _part(part), _part(lower), _part(upper), level)

    @property
    def _means(self) -> Frequencies | RandomizedResponseFrequencies:
        found = self.plan.mechanism.decode(self.plan.encoding, self.table, self.users)
        assert isinstance(
            found, Frequencies | RandomizedResponseFrequencies
        )  # all that labels and choices are decoded to
        return found

    def _holders(self, q: float) -> tuple[float, float]:
        """The fewest users below an edge, as a part, if the quantile is below it, and the most if it is not."""
        return math.ceil((q - _SAME) * self.users) / self.users, (math.ceil((q + _SAME) * self.users) - 1) / self.users

    def _value(self, q: float) -> float:
        """By the possible counts nearest to those estimated, evenly spread over their bins."""
        mine = slice(self.first, self.first + self.bins)
        found = self._means.mean[mine]
        reached: Floats = np.append(0.0, np.cumsum(nearest_counts(self.users * found, self.users, self.users)))
        wanted = q * self.users
        at = min(max(int(np.searchsorted(reached, wanted)), 1), self.bins)
        low, high = (min(max(edge, -_FARTHEST), _FARTHEST) for edge in self.edges[at - 1 : at + 1])
        held = reached[at] - reached[at - 1]
        return low + (high - low) * (float((wanted - reached[at - 1]) / held) if held > 0 else 0.5)


def check_cover(cover: float) -> None:
    """Refuse what is no part of the users."""
    check_number("cover", cover)
    if not 0 < cover <= 1:
        raise ParameterError("out-of-range", f"cover is {cover}; it must be a part of the users, above 0 and at most 1")


def _part(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _plain(edge: float) -> float:
    """An edge without its last bit where that only says that the bin below holds the plain number, too."""
    plain = float(f"{edge:.15g}")
    return plain if math.nextafter(plain, math.inf) == edge else edge


def _bound(edge: float) -> float:
    """An edge as a bound: 0 for what is nearly 0."""
    plain = _plain(edge)
    return 0.0 if abs(plain) <= _NEAREST else plain
