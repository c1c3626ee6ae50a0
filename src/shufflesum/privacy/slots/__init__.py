"""The bounds of noise in slots: a user sends its true cell, and slots that are a uniform cell or blank.

`law` (two noisy counts that share their noise), `composed` (the front: one round or several), `calibration` (how little
noise is enough).
"""

from __future__ import annotations

from shufflesum.privacy.slots.calibration import noise_per_cell_guess, rough_noise_per_cell, smallest_chance
from shufflesum.privacy.slots.composed import MOST_CELLS, Slots

__all__ = ["MOST_CELLS", "Slots", "noise_per_cell_guess", "rough_noise_per_cell", "smallest_chance"]
