"""Rows under `noisy-counts`: what is true, noise in every cell, and blanks up to the same number for all users.

In one process digits are summed, and the noise of each cell is drawn once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.cells import BLANK, count_cells
from shufflesum.encodings import ChosenCells, GroupedValues, MultiHot, Values
from shufflesum.mechanisms.mechanism import CountTable
from shufflesum.mechanisms.rounding import Rounding, scratch
from shufflesum.randomness import PROBABILITY_BITS, RandomSource, UInts, binomials, ones_of, successes

if TYPE_CHECKING:
    from shufflesum.mechanisms.noisy_counts.mechanism import NoisyCounts


_LEAST_WORDS = 1 << 15  # drawn at a time: 256 KiB, within a core's cache


@kernel
def _add_noise(
    drawn: UInts, used: int, cells: UInts, starts: NDArray[np.int64], numerators: UInts, sent: UInts, count: int
) -> tuple[int, int]:
    """One user's dummy reports after the first `count`; returns how many there are then, and how many words are used.

    -1 where there is no room for all; there they are to be drawn again. `cells` holds the cell of each trial, those of
    digit j from starts[j] on.
    """
    for j in range(numerators.size):
        for first in range(starts[j], starts[j + 1], 64):
            wanted = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(max(0, 64 - (starts[j + 1] - first)))
            hits, used = successes(drawn, used, numerators[j], wanted)
            while hits:
                if count == sent.size:
                    return -1, used
                lowest = hits & (~hits + np.uint64(1))
                sent[count] = cells[first + np.int64(ones_of(lowest - np.uint64(1)))]
                count += 1
                hits ^= lowest
    return count, used


@kernel
def _write_digits(
    rounded: UInts, firsts: UInts, digits: int, counted: bool, out: UInts, ones: NDArray[np.int64]
) -> None:
    """Write the cells of the digits that are 1, from each user's first cell on, and the count's; and how many."""
    users, dimension = rounded.shape
    for i in range(users):
        sent, written = out[i], 0
        for c in range(dimension):
            value, cell = rounded[i, c], firsts[i] + np.uint32(c * digits)
            for j in range(digits):  # written always, kept where the digit is 1: no branch to mispredict
                sent[written] = np.uint32(cell + np.uint32(j))
                written += int((value >> j) & 1)
        if counted:
            sent[written] = np.uint32(firsts[i] + np.uint32(dimension * digits))
            written += 1
        ones[i] = written


@kernel
def _write_choices(codes: UInts, out: UInts, ones: NDArray[np.int64]) -> None:
    """Write the cells that are chosen, and how many."""
    for i in range(codes.shape[0]):
        written = 0
        for c in range(codes.shape[1]):
            if codes[i, c] != np.uint32(BLANK):
                out[i, written] = codes[i, c]
                written += 1
        ones[i] = written


@kernel
def _send_noise(
    ones: NDArray[np.int64],
    drawn: UInts,
    reserve: int,
    cells: UInts,
    starts: NDArray[np.int64],
    numerators: UInts,
    cap: int,
    out: UInts,
) -> int:
    """Write noise and blanks after the users' own reports; returns how many users are done when words run out."""
    used = 0
    for i in range(ones.size):
        sent = out[i]
        count = -1
        while count < 0:
            if drawn.size - used < reserve:
                return i
            count, used = _add_noise(drawn, used, cells, starts, numerators, sent[: ones[i] + cap], ones[i])
        sent[count:] = np.uint32(BLANK)
    return int(ones.size)


class NoisyCountsEncoder:
    """Writes what is true, and adds noise, with secure randomness unless a test gives another source."""

    def __init__(self, mechanism: NoisyCounts, encoding: MultiHot, source: RandomSource) -> None:
        self._source = source
        self._layout = layout = mechanism.layout(encoding)
        self._rounding = None if layout.scale is None else Rounding(mechanism.levels, layout.scale, source)
        self._reports = mechanism.reports(encoding)
        self._cap = self._reports - layout.most_true
        self._numerators = np.array([p * 2.0**PROBABILITY_BITS for p in mechanism.probabilities], dtype=np.uint64)
        self._cells = np.concatenate([np.tile(layout.cells_of(j), q) for j, q in enumerate(mechanism.trials)])
        trials = np.array(layout.sizes, dtype=np.int64) * np.array(mechanism.trials, dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(trials)])
        self._reserve = PROBABILITY_BITS * int(np.sum(-(-trials // 64)))  # the most that one user's noise can take

    def encode(self, block: ChosenCells | GroupedValues | Values) -> NDArray[np.uint32]:
        """The cells that these users send, as many for each, blanks among them, user after user."""
        users = len(block)
        cells = np.empty((users, self._reports), dtype=np.uint32)
        ones = np.empty(users, dtype=np.int64)
        if isinstance(block, ChosenCells):
            _write_choices(block.cells, cells, ones)
        else:
            assert self._rounding is not None  # numbers have a scale
            if isinstance(block, GroupedValues):
                firsts, numbers = block.groups * np.uint32(self._layout.group_cells), block.numbers
            else:
                firsts, numbers = np.zeros(users, np.uint32), block
            rounded = self._rounding.of(numbers)
            _write_digits(rounded, firsts, self._layout.digits, self._layout.counted, cells, ones)
        done = 0
        while done < users:
            drawn = scratch("noise", max(_LEAST_WORDS, 4 * self._reserve), np.uint64)
            self._source.fill(drawn)
            done += _send_noise(
                ones[done:], drawn, self._reserve, self._cells, self._starts, self._numerators, self._cap, cells[done:]
            )
        return cells.reshape(-1)


_MOST_ROWS = (1 << 16) - 1  # whose digits, added up, fit 16 bits
_VALUES = 1024  # added at once: short rows are taken together


@kernel
def _sum_digits(rounded: NDArray[Any], sums: NDArray[Any]) -> None:
    """Add binary digits to sums (digits, values), over and over, as many values at once; vectorised, being plain."""
    size = sums.shape[1]
    for first in range(0, rounded.size, size):
        values = rounded[first : first + size]
        for j in range(sums.shape[0]):
            digit = sums[j]
            shift = np.uint16(j)
            for c in range(values.size):
                digit[c] += np.uint16((values[c] >> shift) & np.uint16(1))


@kernel
def _sum_grouped(rounded: UInts, groups: UInts, digits: int, table: CountTable) -> None:
    """Add binary digits, and one for each user, to the cells of the users' groups: table is (groups, cells)."""
    for i in range(rounded.shape[0]):
        cells = table[groups[i]]
        for c in range(rounded.shape[1]):
            value = rounded[i, c]
            for j in range(digits):
                cells[c * digits + j] += np.int64((value >> j) & 1)
        cells[rounded.shape[1] * digits] += 1


class NoisyCountsTally:
    """Sums of what is true of all rows added so far; the noise comes last, for all users at once."""

    def __init__(self, mechanism: NoisyCounts, encoding: MultiHot, source: RandomSource) -> None:
        self._mechanism = mechanism
        self._layout = layout = mechanism.layout(encoding)
        self._source = source
        self._rounding = None if layout.scale is None else Rounding(mechanism.levels, layout.scale, source)

    def add(self, block: ChosenCells | GroupedValues | Values, table: CountTable) -> None:
        """Add the digits, or the chosen labels, of these users to the table of all cells."""
        if isinstance(block, ChosenCells):
            count_cells(block.cells.reshape(-1), table)  # who chose fewer labels sends blanks, which are left out
            return
        assert self._rounding is not None  # numbers have a scale
        if isinstance(block, GroupedValues):
            rounded = self._rounding.of(block.numbers)
            _sum_grouped(rounded, block.groups, self._layout.digits, table.reshape(self._layout.groups, -1))
        else:
            self._add_values(self._rounding.of(block), table)

    def _add_values(self, rounded: NDArray[np.uint16], table: CountTable) -> None:
        digits, dimension = self._layout.digits, self._layout.coordinates
        at_once = max(1, _VALUES // dimension)
        for start in range(0, len(rounded), _MOST_ROWS):
            sums = np.zeros((digits, at_once, dimension), dtype=np.uint16)
            _sum_digits(rounded[start : start + _MOST_ROWS].reshape(-1), sums.reshape(digits, -1))
            table += sums.sum(axis=1, dtype=np.int64).T.reshape(-1)

    def noise(self, users: int) -> CountTable:
        """Binomial(users x trials, probability) for each cell, under a plan with a cap as well.

        The free law needs no charge; to draw again by what users together drew would need a proof of its own.
        """
        mechanism, layout = self._mechanism, self._layout
        noise = np.zeros(layout.size, dtype=np.int64)
        for j, (trials, probability) in enumerate(zip(mechanism.trials, mechanism.probabilities, strict=True)):
            noise[layout.cells_of(j)] = binomials(self._source, users * trials, probability, layout.sizes[j])
        return noise
