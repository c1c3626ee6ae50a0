"""Domains that are others in each round, of which all roles must speak alike."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from shufflesum.domains import Arrays, Bounds, L2Ball
from shufflesum.mechanisms import OneBit
from shufflesum.plans import Plan
from shufflesum.testing import no_guarantee

__all__ = ["FALSE_ALARM_OF_BALLS", "TURNING", "turn_boxes", "turned_rows"]


def turn_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the bounds of a box are n times as far apart in round n: 2 is a value of the second round only.

    Whoever encodes or decodes with the domain of another round is out of bounds, or out by a factor.
    """

    def of_round(box: Arrays, number: int) -> Arrays:
        lower, width = float(box.lower.min()), float(box.width.max())
        return Arrays(box.structure, Bounds(lower, lower + number * width), box.columns)

    monkeypatch.setattr(Arrays, "of_round", of_round)


TURNING = Plan(
    L2Ball(48, clipping_norm=1.0, seed=bytes(range(16))),
    OneBit(bits=4, amplitude=0.5, tau=4.0),
    no_guarantee(users=500, rounds=3),
)
"""Vectors that are rotated otherwise in each round; with this seed, each rotation turns half of the signs."""

FALSE_ALARM_OF_BALLS = 1e-7


def turned_rows() -> NDArray[np.float64]:
    """Users in the ball, around a vector with no small entry: the wrong signs cannot pass for the right ones."""
    generator = np.random.default_rng(3)
    middle = 0.8 * generator.choice([-1.0, 1.0], 48) / np.sqrt(48)
    rows: NDArray[np.float64] = middle + 0.1 * generator.normal(size=(500, 48)) / np.sqrt(48)
    return rows
