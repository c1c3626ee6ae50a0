"""Rows to reports under `add` with slots: the user's own cell, then every slot a uniform cell or a blank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain import Categories, Hashed
from shufflesum.mechanisms.add_slots.truth import truth_of
from shufflesum.randomness import RandomSource
from shufflesum.randomness.trials import uniform_or_blank

if TYPE_CHECKING:
    from shufflesum.mechanisms.add_slots.mechanism import AddSlots

__all__ = ["SlotsEncoder"]


class SlotsEncoder:
    """The users' own cells and their slots, with secure randomness unless a test gives another source."""

    def __init__(self, mechanism: AddSlots, domain: Categories | Hashed, source: RandomSource) -> None:
        self._mechanism, self._source = mechanism, source
        self._truth = truth_of(domain, source)
        self._cells = mechanism.cells(domain)

    def encode(self, prepared: Any, first_row: int) -> NDArray[np.uint32]:
        """The cells that these users send: their own and their slots, as many for each, user after user."""
        own, slots = self._truth(prepared, first_row), self._mechanism.slots
        sent = np.empty((len(own), 1 + slots), dtype=np.uint32)
        sent[:, 0] = own
        noise = uniform_or_blank(self._source, len(own) * slots, self._mechanism.chance, self._cells)
        sent[:, 1:] = noise.reshape(len(own), slots)
        return sent.reshape(-1)
