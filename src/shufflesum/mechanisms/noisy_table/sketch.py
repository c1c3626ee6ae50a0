"""Words under `noisy-table`: the error of one word's count in a sketch, and how wide and deep a planner makes it.

Every user reports their word's bucket under every function, so a word's count is the mean of its cells over functions,
and drawing a function costs nothing (docs/accuracy.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from shufflesum.encodings import OneHot
from shufflesum.mechanisms.mechanism import ExpectedError, Search
from shufflesum.mechanisms.noisy_slots import HARMONIC, SEEN, TELLING_FUNCTIONS, ZIPF_SQUARES
from shufflesum.privacy.engine.gaussian import gaussian_noise

MOST_WIDTH = 2**24
_DEPTHS = (8, 12, 16, 24, 32)
_MOST_CELLS = 1 << 22  # that one process draws noise for unasked
_REACH = 7.5  # about half-lengths of distributions, in deviations: what a cell adds to a batch, on average
_SMALL = 0.05  # collisions of such a part of the noise ask for no wider sketch


def sketch_error(encoding: OneHot, users: int, variance: float) -> ExpectedError:
    """Squared error of a word's frequency if words follow Zipf's law, and frequent ones are subtracted.

    Noise of this variance in each of S cells, of which the mean is taken. Words of fewer than c users are too rare to
    be seen and subtracted: by the sum of their squares over S B they bring users c/(H S B), H the harmonic sum. Where
    functions are too few to tell, all words collide.
    """
    tables, cells = encoding.layout
    noise, per_cell = variance / tables, users / (tables * cells)
    if tables < TELLING_FUNCTIONS:
        collisions = per_cell * users * ZIPF_SQUARES / HARMONIC**2
        return ExpectedError(collisions, rounding=0.0, noise=noise) * users**-2
    error = noise
    for _ in range(20):  # c is a few standard errors, which depend on c
        error = noise + per_cell * max(1.0, SEEN * math.sqrt(error) / HARMONIC)
    return ExpectedError(error - noise, rounding=0.0, noise=noise) * users**-2


def sketch_sizes(encoding: OneHot, search: Search) -> Iterator[OneHot]:
    """A few depths, each as wide as collisions ask for and dummies allow."""
    guarantee = search.guarantee
    deviation = gaussian_noise(guarantee.epsilon, guarantee.delta) * math.sqrt(guarantee.rounds)
    for depth in (encoding.tables,) if encoding.tables else _DEPTHS:
        noise = 2 * deviation**2 * (2 if search.noise_by == "servers" else 1)  # of a word, nearly
        small = guarantee.users * SEEN * math.sqrt(noise) / (HARMONIC * depth * _SMALL * noise)
        room = _MOST_CELLS / depth
        if search.noise_by != "curator":
            room = search.max_dummies / (depth * max(1.0, _REACH * deviation * math.sqrt(2 * depth)))
        width = encoding.cells or int(min(max(64, small), max(2, room), MOST_WIDTH))
        yield replace(encoding, tables=depth, cells=width)
