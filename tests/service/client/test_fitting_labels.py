"""Labels, lists of labels, groups and words on their way into a task, without noise so that it can be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal
from tests.service.client.scripted_shuffler import Shuffler, task_for

from shufflesum import Categories, GroupBy, MultiChoice, OpenVocabulary
from shufflesum.cells import BLANK
from shufflesum.domains import Arrays, Domain
from shufflesum.errors import DataError
from shufflesum.mechanisms import NoisyCounts, NoisySlots, RandomizedResponse
from shufflesum.mechanisms.mechanism import Mechanism
from shufflesum.plans import Plan
from shufflesum.service.client import Client
from shufflesum.testing import no_guarantee
from shufflesum.wire import Task

SLOTS = NoisySlots(2, 0.0)
ANSWERS = ["yes", "no", "unsure"]
WORDS = OpenVocabulary(width=100, depth=3, key=bytes(range(16)))


def task_of(shuffler: Shuffler, domain: Domain, mechanism: Mechanism = SLOTS) -> Task:
    return task_for(shuffler, plan=Plan(domain, mechanism, no_guarantee(1)))


def choices_task(shuffler: Shuffler) -> Task:
    return task_of(shuffler, MultiChoice(ANSWERS, max_choices=2), NoisyCounts(1, (1,), (0.0,), 1))


def groups_task(shuffler: Shuffler) -> Task:
    return task_of(
        shuffler, GroupBy(["at", "de"], Arrays(2, bounds=(0, 3))), NoisyCounts(2, (1, 1, 1), (0.0, 0.0, 0.0), 1)
    )


@pytest.mark.parametrize(
    ("domain", "label", "cell"),
    [
        (Categories(ANSWERS), " no ", 1),
        (Categories(ANSWERS, other=True), "perhaps", 3),
        (Categories(ANSWERS, other=True), None, 3),
        (Categories(4), np.int64(2), 2),
        (Categories([False, True]), True, 1),
        (Categories(bins=[0, 18, 65]), 30, 1),
        (Categories(bins=[0, 18, 65]), -np.inf, 0),
        (Categories(bins=[0, 18, 65], other=True), 120.0, 2),
        (Categories(bins=[0, 18, 65], other=True), None, 2),
    ],
)
@pytest.mark.parametrize("mechanism", ["noisy-slots", "randomized-response"])
def test_a_label_is_the_cell_of_its_place(
    connect: Callable[..., Client], shuffler: Shuffler, domain: Categories, label: Any, cell: int, mechanism: str
) -> None:
    replaced = RandomizedResponse(1, domain.cells - 1, 0.0)
    task = task_of(shuffler, domain, SLOTS if mechanism == "noisy-slots" else replaced)
    connect(task).upload(label)
    assert shuffler.cells(task) == [[cell, BLANK, BLANK] if mechanism == "noisy-slots" else [cell]]
    assert len(shuffler.bodies[0]) == task.upload_bytes


@pytest.mark.parametrize(
    ("held", "cells"),
    [
        (["no", "yes"], [0, 1]),
        ({"unsure"}, [2]),
        ([], []),
        (None, []),
        (["no", "no", " no"], [1]),
        ([False, False, True], [2]),
    ],
)
def test_choices_are_the_cells_of_all_that_are_chosen(
    connect: Callable[..., Client], shuffler: Shuffler, held: Any, cells: list[int]
) -> None:
    task = choices_task(shuffler)
    connect(task).upload(held)
    assert shuffler.cells(task) == [cells + [BLANK] * (task.plan.reports - len(cells))]
    assert len(shuffler.bodies[0]) == task.upload_bytes


def test_of_too_many_choices_some_are_taken_at_random(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    """Each pair is missing from 60 draws with probability (2/3)^60 = 3e-11."""
    task = choices_task(shuffler)
    connect(task).upload_many([ANSWERS] * 60, [str(user) for user in range(60)])
    sent = {tuple(cell for cell in cells if cell != BLANK) for cells in shuffler.cells(task)}
    assert sent == {(0, 1), (0, 2), (1, 2)}
    assert {len(body) for body in shuffler.bodies} == {task.upload_bytes}


def test_a_group_is_counted_and_its_array_clipped(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    """Of bounds 0 to 3 two digits are the value itself; a group has 2 x 2 cells and one that counts."""
    task = groups_task(shuffler)
    client = connect(task)
    client.upload(("de", [2.0, 99.0]), user="Ada")
    client.upload(["at", [np.nan, -np.inf]], user="Grace")
    ada, grace = ([cell for cell in cells if cell != BLANK] for cells in shuffler.cells(task))
    assert ada == [5 + 1, 5 + 2, 5 + 3, 5 + 4]
    assert grace in ([0, 4], [1, 4])  # the middle, 1.5, is rounded to 1 or 2
    assert {len(body) for body in shuffler.bodies} == {task.upload_bytes}


def test_a_word_is_one_of_its_hashes(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    """None of the three functions is missing from 60 draws but with probability 3 (2/3)^60 = 8e-11."""
    task = task_of(shuffler, WORDS)
    words = ["Stra\u00dfe", "e\u0301 "] * 30
    connect(task).upload_many(words, [str(user) for user in range(60)])
    first, second = WORDS.bucket_table(["Stra\u00dfe".encode(), "\u00e9".encode()])
    sent = [cells[0] for cells in shuffler.cells(task)]
    assert {cell // 100 for cell in sent} == {0, 1, 2}
    assert all(cell % 100 in (first[cell // 100], second[cell // 100]) for cell in sent)
    assert {len(body) for body in shuffler.bodies} == {task.upload_bytes}


@pytest.mark.parametrize(
    ("make", "held", "problem"),
    [
        (lambda shuffler: task_of(shuffler, Categories(ANSWERS)), "perhaps", "unknown-label"),
        (lambda shuffler: task_of(shuffler, Categories(ANSWERS)), None, "missing-value"),
        (lambda shuffler: task_of(shuffler, Categories(ANSWERS)), ["yes"], "wrong-type"),
        (lambda shuffler: task_of(shuffler, Categories(4)), 4, "unknown-label"),
        (lambda shuffler: task_of(shuffler, Categories(4)), -1, "unknown-label"),
        (lambda shuffler: task_of(shuffler, Categories(bins=[0, 1, 2])), np.nan, "missing-value"),
        (lambda shuffler: task_of(shuffler, Categories(bins=[0, 1, 2])), "1", "not-numbers"),
        (choices_task, ["yes", "perhaps"], "unknown-label"),
        (choices_task, "yes", "wrong-type"),
        (groups_task, ("fr", [1, 1]), "unknown-label"),
        (groups_task, [1, 1], "wrong-shape"),
        (groups_task, ("at", [1, 1, 1]), "wrong-shape"),
        (groups_task, "at", "wrong-type"),
        (lambda shuffler: task_of(shuffler, WORDS), "  ", "missing-value"),
        (lambda shuffler: task_of(shuffler, WORDS), ["word"], "wrong-type"),
    ],
)
def test_what_has_no_place_in_the_plan_is_refused_and_nothing_sent(
    connect: Callable[..., Client], shuffler: Shuffler, make: Callable[[Shuffler], Task], held: Any, problem: str
) -> None:
    client = connect(make(shuffler))
    with refusal(problem, error=DataError):
        client.upload(held)
    assert shuffler.bodies == []


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (lambda shuffler: task_of(shuffler, Categories(ANSWERS)), [*["yes"] * 700, "perhaps"]),
        (lambda shuffler: task_of(shuffler, Categories(4)), np.r_[np.zeros(700, dtype=int), 4]),
        (choices_task, [*[["yes"], []] * 350, ["no", "perhaps"]]),
        (groups_task, ([*["at"] * 700, "fr"], np.zeros((701, 2)))),
        (lambda shuffler: task_of(shuffler, WORDS), [*["word"] * 700, None]),
    ],
    ids=["text", "integers", "choices", "groups", "words"],
)
def test_the_last_of_many_rows_is_refused_before_the_first_is_sent(
    connect: Callable[..., Client], shuffler: Shuffler, make: Callable[[Shuffler], Task], rows: Any
) -> None:
    client = connect(make(shuffler))
    with refusal(("unknown-label", "missing-value"), "row 700:", error=DataError):
        client.upload_many(rows, [str(user) for user in range(701)])
    assert shuffler.bodies == []
