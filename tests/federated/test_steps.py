from __future__ import annotations

import math

import numpy as np
import pytest
from tests.refusals import refusal

from shufflesum.errors import ParameterError
from shufflesum.federated import SGD, Adam, Momentum, OptimizerState, Step

UPDATES = [np.array([1.0, -2.0]), np.array([0.5, 4.0]), np.array([0.0, 1.0])]


def moves(step: Step) -> list[list[float]]:
    memory, found = OptimizerState(), []
    for update in UPDATES:
        move, memory = step.move(update, memory)
        found.append(move.tolist())
    assert memory.steps == len(UPDATES)
    return found


def test_a_plain_step_is_the_update_times_the_rate() -> None:
    assert moves(SGD(0.5)) == [[0.5, -1.0], [0.25, 2.0], [0.0, 0.5]]


def test_momentum_adds_up_what_fades() -> None:
    assert moves(Momentum(2.0, 0.5)) == [[2.0, -4.0], [2.0, 6.0], [1.0, 5.0]]


def test_adam_is_as_in_its_paper() -> None:
    rate, first, second, floor = 0.1, 0.9, 0.99, 1e-3
    m, v = [0.0, 0.0], [0.0, 0.0]
    for number, (found, update) in enumerate(zip(moves(Adam(rate, first, second, floor)), UPDATES, strict=True), 1):
        for i in range(2):
            m[i] = first * m[i] + (1 - first) * update[i]
            v[i] = second * v[i] + (1 - second) * update[i] ** 2
            expected = rate * (m[i] / (1 - first**number)) / (math.sqrt(v[i] / (1 - second**number)) + floor)
            assert math.isclose(found[i], expected, rel_tol=1e-12, abs_tol=1e-15)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SGD(0.0),
        lambda: SGD(math.nan),
        lambda: Momentum(1.0, 1.0),
        lambda: Momentum(math.inf),
        lambda: Adam(0.1, beta_1=-0.1),
        lambda: Adam(0.1, beta_2=1.0),
        lambda: Adam(0.1, epsilon=0.0),
    ],
)
def test_what_is_no_rate_is_refused(make: object) -> None:
    assert callable(make)
    with refusal("out-of-range", error=ParameterError):
        make()
