from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal
from tests.service.client.scripted_shuffler import Shuffler, task_for

from shufflesum import Span, Symmetric
from shufflesum.errors import DataError
from shufflesum.service.client import (
    Client,
)
from shufflesum.testing import unprotected_plan
from shufflesum.wire import Task


def test_taking_part_does_not_depend_on_the_data(
    connect: Callable[..., Client], shuffler: Shuffler, task: Task
) -> None:
    connect().upload([-7.0, np.inf, np.nan])
    ((low, high, middle),) = shuffler.reports(task)
    assert (low, high, middle) == ((0, 0), (1, 10), (2, 5))
    assert len(shuffler.bodies[0]) == task.upload_bytes


@pytest.mark.parametrize(
    "vector",
    [
        np.ma.masked_array([0.1, 0.2, 0.3], mask=[False, True, False]),
        ["a", "b", "c"],
        [0.1, [0.2], 0.3],
        [0.1, 0.2j, 0.3],
    ],
    ids=["masked", "words", "ragged", "complex"],
)
def test_what_is_no_array_of_numbers_is_refused_and_nothing_sent(
    connect: Callable[..., Client], shuffler: Shuffler, vector: Any
) -> None:
    with refusal("not-numbers", error=DataError):
        connect().upload(vector)
    assert shuffler.bodies == []


def test_masked_matrices_keep_what_they_withhold(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    plan = unprotected_plan(users=1, shape=Symmetric(2), coordinates=3, levels=10)
    client = connect(task_for(shuffler, plan=plan))
    with refusal("not-numbers", error=DataError):
        client.upload_many(np.ma.masked_array([np.eye(2)], mask=[[[True, False], [False, False]]]), ["anna"])
    assert shuffler.bodies == []


@pytest.mark.parametrize("row", [[np.nan, np.inf, -1e300], [1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [5, 5, 0]])
def test_an_array_outside_the_span_is_moved_onto_it(
    connect: Callable[..., Client], shuffler: Shuffler, row: list[float]
) -> None:
    plan = unprotected_plan(users=1, shape=Span(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])), coordinates=2, levels=10)
    spanned = task_for(shuffler, plan=plan)
    connect(spanned).upload(row)
    assert [coordinate for coordinate, _ in shuffler.reports(spanned)[0]] == [0, 1]


def test_a_matrix_that_is_not_symmetric_is_averaged_with_its_mirror(
    connect: Callable[..., Client], shuffler: Shuffler
) -> None:
    plan = unprotected_plan(users=1, shape=Symmetric(2), coordinates=3, levels=10)
    mirrored = task_for(shuffler, plan=plan)
    connect(mirrored).upload([[0.0, 0.2], [0.4, np.nan]])
    assert shuffler.reports(mirrored) == [[(0, 0), (1, 3), (2, 5)]]
