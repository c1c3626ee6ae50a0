"""Rows under `noisy-slots`: the user's own cell, then every slot a uniform cell or a blank; or all as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.encodings import OneHot, OwnCells
from shufflesum.mechanisms.mechanism import CountTable
from shufflesum.randomness import RandomSource, add_uniform, binomials, uniform_or_blank

if TYPE_CHECKING:
    from shufflesum.mechanisms.noisy_slots.mechanism import NoisySlots


class NoisySlotsEncoder:
    """The users' own cells and their slots, with secure randomness unless a test gives another source."""

    def __init__(self, mechanism: NoisySlots, encoding: OneHot, source: RandomSource) -> None:
        self._mechanism, self._source, self._cells = mechanism, source, encoding.size

    def encode(self, block: OwnCells) -> NDArray[np.uint32]:
        """The cells that these users send: their own and their slots, as many for each, user after user."""
        block.check()
        own, slots = block.draw(self._source), self._mechanism.slots
        sent = np.empty((len(own), 1 + slots), dtype=np.uint32)
        sent[:, 0] = own
        noise = uniform_or_blank(self._source, len(own) * slots, self._mechanism.chance, self._cells)
        sent[:, 1:] = noise.reshape(len(own), slots)
        return sent.reshape(-1)


class NoisySlotsTally:
    """Counts of all rows added so far; the noise comes last, for all users at once, by the same law as their slots'."""

    def __init__(self, mechanism: NoisySlots, encoding: OneHot, source: RandomSource) -> None:
        self._mechanism, self._cells, self._source = mechanism, encoding.size, source

    def add(self, block: OwnCells, table: CountTable) -> None:
        """Count the users' own cells."""
        own = block.draw(self._source)
        cells = own if own.dtype in (np.uint32, np.int64) else own.astype(np.int64)
        if _count(cells, table):
            block.refuse(cells)

    def noise(self, users: int) -> CountTable:
        """Binomial(users x slots, chance) dummy reports, each in a uniform cell."""
        noise = np.zeros(self._cells, dtype=np.int64)
        (reports,) = binomials(self._source, users * self._mechanism.slots, self._mechanism.chance, 1)
        add_uniform(self._source, int(reports), noise)
        return noise


@kernel
def _count(cells: NDArray[Any], table: NDArray[Any]) -> int:
    """Add cells to the table; returns how many are none of its cells, negative ones among them, and were left out."""
    outside = 0
    for cell in cells:
        if 0 <= cell < table.size:
            table[cell] += 1
        else:
            outside += 1
    return outside
