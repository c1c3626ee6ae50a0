"""Rows to reports under `add`: what is true, noise in every cell, and blanks up to the same number for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.cells import BLANK
from shufflesum.domain import Domain, Grouped
from shufflesum.mechanisms.rounding import rounding_of, scratch
from shufflesum.randomness import RandomSource, Words
from shufflesum.randomness.binomial import ones_of
from shufflesum.randomness.draws import PROBABILITY_BITS
from shufflesum.randomness.trials import successes

if TYPE_CHECKING:
    from shufflesum.mechanisms.add.mechanism import Add

__all__ = ["AddEncoder"]

_LEAST_WORDS = 1 << 15  # drawn at a time: 256 KiB, within a core's cache


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
    rounded: Words, firsts: Words, digits: int, counted: bool, out: Words, ones: NDArray[np.int64]
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
def _write_choices(codes: Words, out: Words, ones: NDArray[np.int64]) -> None:
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
    drawn: Words,
    reserve: int,
    cells: Words,
    starts: NDArray[np.int64],
    numerators: Words,
    cap: int,
    out: Words,
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


class AddEncoder:
    """Writes what is true, and adds noise, with secure randomness unless a test gives another source."""

    def __init__(self, mechanism: Add, domain: Domain, source: RandomSource) -> None:
        self._source, self._domain = source, domain
        self._layout = layout = mechanism.layout(domain)
        self._rounding = rounding_of(mechanism.levels, domain, source)
        self._reports = mechanism.reports(domain)
        self._cap = self._reports - layout.most_true
        self._numerators = np.array([p * 2.0**PROBABILITY_BITS for p in mechanism.probabilities], dtype=np.uint64)
        self._cells = np.concatenate([np.tile(layout.cells_of(j), q) for j, q in enumerate(mechanism.trials)])
        trials = np.array(layout.sizes, dtype=np.int64) * np.array(mechanism.trials, dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(trials)])
        self._reserve = PROBABILITY_BITS * int(np.sum(-(-trials // 64)))  # the most that one user's noise can take

    def encode(self, prepared: Any, first_row: int) -> NDArray[np.uint32]:
        """The cells that these users send, as many for each, blanks among them, user after user."""
        groups, coordinates = prepared if isinstance(prepared, Grouped) else (None, prepared)
        users = len(coordinates)
        cells = np.empty((users, self._reports), dtype=np.uint32)
        ones = np.empty(users, dtype=np.int64)
        if self._rounding is None:
            _write_choices(coordinates, cells, ones)
        else:
            firsts = np.zeros(users, np.uint32) if groups is None else groups * np.uint32(self._layout.group_cells)
            rounded = self._rounding.of(coordinates, first_row)
            _write_digits(rounded, firsts, self._layout.digits, self._layout.counted, cells, ones)
        done = 0
        while done < users:
            drawn = scratch("noise", max(_LEAST_WORDS, 4 * self._reserve), np.uint64)
            self._source.fill(drawn)
            done += _send_noise(
                ones[done:],
                drawn,
                self._reserve,
                self._cells,
                self._starts,
                self._numerators,
                self._cap,
                cells[done:],
            )
        return cells.reshape(-1)
