"""Estimates of vectors with a bounded norm are drawn as means in a box of the same shape are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shufflesum.domain import Ball
from shufflesum.estimate import BallEstimate, estimate_of
from shufflesum.mechanisms import ReplaceBits
from shufflesum.plans import Plan
from shufflesum.plots import estimate_chart, rendered
from shufflesum.testing import no_guarantee


@dataclass(frozen=True)
class Drawn:
    """Means and intervals without anything else."""

    mean: NDArray[np.float64]
    ends: tuple[NDArray[np.float64], NDArray[np.float64]]

    def confidence_interval(self, level: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self.ends


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (5, "Coordinate"),
        (50, "Coordinate"),
        ((4, 6), "90 % intervals: ±"),
        ({"weight": (4, 6), "bias": (4,)}, "Coordinate"),
    ],
    ids=["few", "many", "matrix", "layers"],
)
def test_a_ball_is_drawn_as_a_box_of_its_shape(shape: Any, said: str) -> None:
    plan = Plan(Ball(shape, 2.0, seed=bytes(16)), ReplaceBits(3, 0.5, 3.0), no_guarantee(users=10))
    ones = np.random.default_rng(1).integers(0, 31, plan.cells // 2)
    estimate = estimate_of(plan, 10, 0, np.stack([30 - ones, ones], axis=1).reshape(-1), None, 1)
    assert isinstance(estimate, BallEstimate)
    same = Drawn(estimate.mean, estimate.confidence_interval(0.9))
    ours, boxs = (estimate_chart(one, title="t", level=0.9, truth=same.mean) for one in (estimate, same))
    assert ours.to_dict() == boxs.to_dict()
    svg, _ = rendered(ours)
    assert said in svg
