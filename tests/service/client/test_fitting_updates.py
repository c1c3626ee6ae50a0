"""Updates within a ball, as clients hand them in: arrays, layers, or all layers in one vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal
from tests.service.client.scripted_shuffler import Shuffler, task_for

from shufflesum.domains import L2Ball
from shufflesum.errors import DataError
from shufflesum.mechanisms import OneBit
from shufflesum.plans import Plan
from shufflesum.service.client import Client
from shufflesum.testing import no_guarantee
from shufflesum.wire import Task

LAYERS = {"weight": (2, 3), "bias": (2,)}
UPDATE = {"weight": np.arange(6.0).reshape(2, 3), "bias": np.array([-7.0, 8.0])}
FLAT = np.array([0, 1, 2, 3, 4, 5, -7, 8.0])


def asked(shuffler: Shuffler, shape: Any) -> Task:
    """A task that sends many bits without noise, so that they show the vector; its clipping norm is 1."""
    plan = Plan(L2Ball(shape, 1.0, seed=bytes(16)), OneBit(256, 1.0, 3.0), no_guarantee(users=1))
    return task_for(shuffler, plan=plan)


def sent(task: Task, cells: list[int]) -> Any:
    """The vector that an upload tells, with a standard error of at most 3/sqrt(8 x 256) = 0.067 in each entry."""
    table = np.bincount(np.array(cells), minlength=task.plan.cells)
    return task.plan.mechanism.decode(task.plan.encoding, table, 1).mean.reshape(-1)


@pytest.mark.parametrize(
    ("shape", "held"),
    [
        (LAYERS, UPDATE),
        (LAYERS, FLAT),
        ([(2, 3), (2,)], list(UPDATE.values())),
        ([(2, 3), (2,)], FLAT),
        ((2, 4), FLAT.reshape(2, 4)),
        (8, FLAT.tolist()),
        (8, FLAT.astype(np.float32)),
    ],
    ids=["names", "names, flat", "list", "list, flat", "matrix", "numbers", "single precision"],
)
def test_one_users_update_is_scaled_down_to_the_radius_and_sent(
    connect: Callable[..., Client], shuffler: Shuffler, shape: Any, held: Any
) -> None:
    task = asked(shuffler, shape)
    connect(task).upload(held)
    (cells,) = shuffler.cells(task)
    # Sums of bits are sub-Gaussian: eight such entries are together 0.7 off with probability below 1e-14.
    direction = FLAT / np.linalg.norm(FLAT)
    assert np.linalg.norm(sent(task, cells) - direction) < 0.7
    assert np.linalg.norm(direction - direction[::-1]) > 1.2  # so an update in another order would be seen


@pytest.mark.parametrize(
    ("shape", "held", "problem"),
    [
        (LAYERS, dict(reversed(UPDATE.items())), "layers-mismatch"),
        (LAYERS, list(UPDATE.values()), "layers-mismatch"),
        (LAYERS, UPDATE | {"bias": np.zeros(3)}, "wrong-shape"),
        (LAYERS, UPDATE | {"bias": np.array([0.0, np.nan])}, "missing-value"),
        (LAYERS, np.full(8, np.inf), "out-of-bounds"),
        (LAYERS, np.zeros(7), "layers-mismatch"),
        ((2, 4), FLAT, "wrong-shape"),
        (8, FLAT * 1j, "not-numbers"),
    ],
)
def test_what_is_no_update_of_the_task_is_refused_and_nothing_sent(
    connect: Callable[..., Client], shuffler: Shuffler, shape: Any, held: Any, problem: str
) -> None:
    with refusal(problem, error=DataError):
        connect(asked(shuffler, shape)).upload(held)
    assert shuffler.bodies == []


@pytest.mark.parametrize("flat", [False, True])
def test_one_bad_update_among_many_sends_nothing(
    connect: Callable[..., Client], shuffler: Shuffler, flat: bool
) -> None:
    plan = Plan(L2Ball(LAYERS, 1.0, seed=bytes(16)), OneBit(1, 1.0, 8.0), no_guarantee(users=1))
    bad = FLAT * np.nan if flat else {"weight": np.zeros((2, 3)), "bias": np.array([np.nan, 0.0])}
    rows: Any = [FLAT if flat else UPDATE] * 300 + [bad]  # more than go out together
    with refusal("missing-value", "row 300", error=DataError):
        connect(task_for(shuffler, plan=plan)).upload_many(
            np.stack(rows) if flat else rows, [f"user {i}" for i in range(301)]
        )
    assert shuffler.bodies == []
