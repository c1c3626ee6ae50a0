"""Estimates of vectors with a bounded norm are drawn as means of arrays of the same shape are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shufflesum.domains import L2Ball
from shufflesum.domains.l2_ball.estimate import L2BallEstimate
from shufflesum.estimate import estimate_of
from shufflesum.mechanisms import OneBit
from shufflesum.plans import Plan
from shufflesum.plots import estimate_chart, rendered
from shufflesum.testing import no_guarantee


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
def test_a_ball_is_drawn_as_arrays_of_its_shape_are(shape: Any, said: str) -> None:
    plan = Plan(L2Ball(shape, 2.0, seed=bytes(16)), OneBit(3, 0.5, 3.0), no_guarantee(users=10))
    ones = np.random.default_rng(1).integers(0, 31, plan.cells // 2)
    estimate = estimate_of(plan, 10, 0, np.stack([30 - ones, ones], axis=1).reshape(-1), None, 1)
    assert isinstance(estimate, L2BallEstimate)
    svg, _ = rendered(estimate_chart(estimate, title="t", level=0.9, truth=estimate.mean))
    assert said in svg
