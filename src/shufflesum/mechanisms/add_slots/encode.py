"""Rows to reports under `add` with slots: the user's own cell, then every slot a uniform cell or a blank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.cells import BLANK
from shufflesum.domain import Categories, Hashed
from shufflesum.mechanisms.add_slots.truth import truth_of
from shufflesum.mechanisms.rounding import scratch
from shufflesum.randomness import RandomSource, Words
from shufflesum.randomness.draws import PROBABILITY_BITS, bounded
from shufflesum.randomness.trials import successes

if TYPE_CHECKING:
    from shufflesum.mechanisms.add_slots.mechanism import AddSlots

__all__ = ["SlotsEncoder"]

_MOST_WORDS = 1 << 15  # drawn at a time: 256 KiB, within a core's cache


@kernel
def _choose(drawn: Words, numerator: np.uint64, out: Words) -> int:
    """Decide, 64 slots at a time, which are noise (0) and which blank; returns how many are decided.

    It stops where the words left might not suffice for the next 64.
    """
    used, decided = 0, 0
    while decided < out.size and drawn.size - used >= PROBABILITY_BITS:
        here = min(64, out.size - decided)
        hits, used = successes(drawn, used, numerator, np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - here))
        for i in range(here):
            out[decided + i] = np.uint32(0 if (hits >> np.uint64(i)) & np.uint64(1) else BLANK)
        decided += here
    return decided


@kernel
def _fill(drawn: Words, cells: np.uint64, out: Words, start: int) -> int:
    """Put uniform cells into the noise slots from `start` on; returns where it stopped for want of words."""
    used = 0
    for i in range(start, out.size):
        if out[i] != np.uint32(BLANK):
            cell = np.int64(-1)
            while cell < 0:
                if used == drawn.size:
                    return i
                cell = bounded(drawn[used], cells)
                used += 1
            out[i] = np.uint32(cell)
    return int(out.size)


class SlotsEncoder:
    """The users' own cells and their slots, with secure randomness unless a test gives another source."""

    def __init__(self, mechanism: AddSlots, domain: Categories | Hashed, source: RandomSource) -> None:
        self._source = source
        self._truth = truth_of(domain, source)
        self._slots = mechanism.slots
        self._cells = np.uint64(mechanism.cells(domain))
        self._numerator = np.uint64(mechanism.chance * 2.0**PROBABILITY_BITS)

    def encode(self, prepared: Any, first_row: int) -> NDArray[np.uint32]:
        """The cells that these users send: their own and their slots, as many for each, user after user."""
        own = self._truth(prepared, first_row)
        slots: Words = np.empty(len(own) * self._slots, dtype=np.uint32)
        decided = filled = 0
        while decided < slots.size:
            decided += _choose(self._words(np.uint64, slots.size - decided), self._numerator, slots[decided:])
        while filled < slots.size:
            filled = _fill(self._words(np.uint32, slots.size - filled), self._cells, slots, filled)
        sent = np.empty((len(own), 1 + self._slots), dtype=np.uint32)
        sent[:, 0] = own
        sent[:, 1:] = slots.reshape(len(own), self._slots)
        return sent.reshape(-1)

    def _words(self, dtype: type[np.unsignedinteger[Any]], slots: int) -> Words:
        drawn = scratch(f"slots {dtype.__name__}", min(slots + PROBABILITY_BITS, _MOST_WORDS), dtype)
        self._source.fill(drawn)
        return drawn
