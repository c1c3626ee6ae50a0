"""The bounds of the mechanism `replace`: t of d coordinates are reported, each replaced by noise at random.

`setting` is the front. Behind it: `blanket` (one report; its sums are `pairs` and `one_value`), `composed` (many; its
lower bounds are `concrete`), `pooled` (a lower bound for any way of choosing coordinates), `binary` (two values, one
coordinate), `uniform` (the paper's sampling), `calibration` (how little noise is enough), `local` (without the
shuffler), `published` (the formulas of the paper).
"""

from __future__ import annotations

from shufflesum.privacy.engine.composition import MOST_COMPOSITIONS
from shufflesum.privacy.replace import published
from shufflesum.privacy.replace.blanket import MOST_LEVELS, MOST_USERS, MOST_VALUES
from shufflesum.privacy.replace.calibration import guess_noise_probability
from shufflesum.privacy.replace.composed import Blocks
from shufflesum.privacy.replace.local import local_epsilon
from shufflesum.privacy.replace.setting import Sampling, Setting

__all__ = [
    "MOST_COMPOSITIONS",
    "MOST_LEVELS",
    "MOST_USERS",
    "MOST_VALUES",
    "Blocks",
    "Sampling",
    "Setting",
    "guess_noise_probability",
    "local_epsilon",
    "published",
]
