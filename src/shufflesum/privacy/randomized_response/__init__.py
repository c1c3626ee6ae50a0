"""Randomized response: t of d coordinates are reported, each replaced by a uniform value at random.

`accountant` is the front. Behind it: `schemes` (many reports, in independent blocks or in subsets that overlap, and how
little noise is enough), `blanket` (one report: the privacy blanket), `direct` (bounds from the counts themselves: two
values, and concrete adjacent data sets), `published` (the formulas of the paper).
"""

from __future__ import annotations

from shufflesum.privacy.engine.composition import MOST_COMPOSITIONS
from shufflesum.privacy.randomized_response import published
from shufflesum.privacy.randomized_response.accountant import RandomizedResponseAccountant, Sampling
from shufflesum.privacy.randomized_response.blanket import MOST_LEVELS, MOST_VALUES
from shufflesum.privacy.randomized_response.schemes import Blocks, guess_noise_probability

__all__ = [
    "MOST_COMPOSITIONS",
    "MOST_LEVELS",
    "MOST_VALUES",
    "Blocks",
    "RandomizedResponseAccountant",
    "Sampling",
    "guess_noise_probability",
    "published",
]
