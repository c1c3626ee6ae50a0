"""Rows to reports under `add`: the digits that are 1, noise in every cell, and blanks up to the same number for all.

A trial of noise succeeds if a uniform number, bit after bit from the top, is below its probability. A word gives the
next bit of 64 trials at once, until all of them are decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.cells import BLANK
from shufflesum.domain import Domain
from shufflesum.mechanisms.rounding import Rounding, scratch
from shufflesum.randomness import RandomSource, Words
from shufflesum.randomness.binomial import ones_of
from shufflesum.randomness.draws import PROBABILITY_BITS

if TYPE_CHECKING:
    from shufflesum.mechanisms.add.mechanism import Add

__all__ = ["AddEncoder"]

_LEAST_WORDS = 1 << 15  # drawn at a time: 256 KiB, within a core's cache


@kernel
def _successes(drawn: Words, used: int, numerator: np.uint64, wanted: np.uint64) -> tuple[np.uint64, int]:
    """Which of up to 64 trials, the bits of `wanted`, succeed; and how many words have been used."""
    undecided, successes = wanted, np.uint64(0)
    place = np.uint64(1) << np.uint64(PROBABILITY_BITS - 1)
    while undecided and place:
        word = drawn[used]
        used += 1
        if numerator & place:
            successes |= undecided & ~word
            undecided &= word
        else:
            undecided &= ~word
        place >>= np.uint64(1)
    return successes, used


@kernel
def _add_noise(
    drawn: Words,
    used: int,
    cells: Words,
    starts: NDArray[np.int64],
    numerators: Words,
    sent: Words,
    count: int,
) -> tuple[int, int]:
    """One user's noise reports after the first `count`; returns how many there are then, and how many words are used.

    -1 where there is no room for all; there they are to be drawn again. `cells` holds the cell of each trial, those of
    digit j from starts[j] on.
    """
    for j in range(numerators.size):
        for first in range(starts[j], starts[j + 1], 64):
            wanted = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(max(0, 64 - (starts[j + 1] - first)))
            hits, used = _successes(drawn, used, numerators[j], wanted)
            while hits:
                if count == sent.size:
                    return -1, used
                lowest = hits & (~hits + np.uint64(1))
                sent[count] = cells[first + np.int64(ones_of(lowest - np.uint64(1)))]
                count += 1
                hits ^= lowest
    return count, used


@kernel
def _send(
    rounded: Words,
    drawn: Words,
    reserve: int,
    cells: Words,
    starts: NDArray[np.int64],
    numerators: Words,
    cap: int,
    out: Words,
) -> int:
    """Write the reports of one user after another; returns how many users are done when too few words are left."""
    users, dimension = rounded.shape
    digits, used = numerators.size, 0
    for i in range(users):
        sent = out[i]
        ones = 0
        for c in range(dimension):
            value, cell = rounded[i, c], c * digits
            for j in range(digits):  # written always, kept where the digit is 1: no branch to mispredict
                sent[ones] = np.uint32(cell + j)
                ones += (value >> j) & 1
        count = -1
        while count < 0:
            if drawn.size - used < reserve:
                return i
            count, used = _add_noise(drawn, used, cells, starts, numerators, sent[: ones + cap], ones)
        sent[count:] = np.uint32(BLANK)
    return int(users)


class AddEncoder:
    """Rounds, spells out in digits, and adds noise, with secure randomness unless a test gives another source."""

    def __init__(self, mechanism: Add, domain: Domain, source: RandomSource) -> None:
        self._source = source
        self._rounding = Rounding(mechanism.levels, domain, source)
        self._reports = mechanism.reports(domain)
        self._cap = self._reports - mechanism.cells(domain)
        self._numerators = np.array([p * 2.0**PROBABILITY_BITS for p in mechanism.probabilities], dtype=np.uint64)
        all_cells = np.arange(mechanism.cells(domain), dtype=np.uint32).reshape(-1, mechanism.digits)
        self._cells = np.concatenate([np.tile(all_cells[:, j], q) for j, q in enumerate(mechanism.trials)])
        trials = domain.dimension * np.array(mechanism.trials, dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(trials)])
        self._reserve = PROBABILITY_BITS * int(np.sum(-(-trials // 64)))  # the most that one user's noise can take

    def encode(self, coordinates: NDArray[Any], first_row: int) -> NDArray[np.uint32]:
        """The cells that users of (m, d) coordinates send, as many for each, blanks among them, user after user."""
        users = len(coordinates)
        rounded = self._rounding.of(coordinates, first_row)
        cells = np.empty((users, self._reports), dtype=np.uint32)
        done = 0
        while done < users:
            drawn = scratch("noise", max(_LEAST_WORDS, 4 * self._reserve), np.uint64)
            self._source.fill(drawn)
            done += _send(
                rounded[done:],
                drawn,
                self._reserve,
                self._cells,
                self._starts,
                self._numerators,
                self._cap,
                cells[done:],
            )
        return cells.reshape(-1)
