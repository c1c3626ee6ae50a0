"""What concrete neighbours show: a vector against its opposite, spread over some of the coordinates.

In the rotated coordinates the victim holds y in so many of them, against -y, and 0 elsewhere; the others are all at
one end of the box, or half of them at either end. Any rotation maps some vectors of the ball to these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from shufflesum.privacy.ball.others import law
from shufflesum.privacy.engine.composition import ComposedLower, Copies, compose_pairs, pure_noise
from shufflesum.privacy.engine.laws import Floats
from shufflesum.privacy.engine.losses import MOST_ERROR, grid_of_atoms

__all__ = ["neighbours_below"]

_SPREADS = (1.0, 1 / 2, 1 / 5, 1 / 9)  # parts of the coordinates; and as few as the norm allows
_NODES = 40  # of the grid per deviation of one loss
_KEPT_ERROR = 0.2 * MOST_ERROR


@lru_cache(maxsize=64)
def neighbours_below(honest_users: int, coordinates: int, amplitude: float, tau: float, repeated: int) -> ComposedLower:
    """Compose all of these pairs, each coordinate `repeated` times (bits x rounds), from below."""
    half = (honest_users - 1) // 2
    choices: list[list[Copies]] = []
    for spread, y in _spreads(coordinates, tau):
        for high in sorted({0, half}):
            upper, lower, error = _worlds(high, honest_users - 1 - high, amplitude, amplitude * y)
            if not error < _KEPT_ERROR:
                continue
            # so many that rounding errors stay small: fewer coordinates are neighbours as well
            copies = min(spread * repeated, max(1, int(_KEPT_ERROR / error)))
            finer = _NODES * min(8.0, max(1.0, 64.0 / copies))
            losses = np.log(upper / lower)
            step = float(np.sqrt(np.dot(upper, losses**2))) / finer
            pairs = ((upper, lower), (lower, upper)) if 2 * high != honest_users - 1 else ((upper, lower),)
            choices += [[(grid_of_atoms(first, second, step, error), copies)] for first, second in pairs]
    return compose_pairs(choices) if choices else ComposedLower((pure_noise(),))


def _spreads(coordinates: int, tau: float) -> Iterator[tuple[int, float]]:
    """Numbers of coordinates, and the largest y that the norm allows there: spread y^2 <= coordinates/tau^2."""
    fewest = min(coordinates, math.ceil(coordinates / tau**2))
    for spread in sorted({max(fewest, math.ceil(part * coordinates)) for part in (*_SPREADS, 0.0)}):
        yield spread, min(1.0, math.sqrt(coordinates / spread) / tau * (1.0 - 2.0**-50))


def _worlds(high: int, low: int, amplitude: float, s: float) -> tuple[Floats, Floats, float]:
    """The laws of the count with the victim at s and at -s, where both are known, and their relative error."""
    terms, _, below, above, widening, _ = law(high, low, amplitude)
    whole = np.pad(terms / (1.0 + below + above), (int(below == 0.0), int(above == 0.0)))
    one, zero = whole[:-1], whole[1:]
    upper, lower = (0.5 * ((1.0 + sign) * one + (1.0 - sign) * zero) for sign in (s, -s))
    both = (upper > 1e-290) & (lower > 1e-290)  # an outcome may be left out
    return upper[both], lower[both], widening + 1e-14
