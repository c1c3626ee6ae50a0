"""Rows are checked, before anything is drawn, as strictly as they are when they are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum import protocol
from shufflesum.domains import Arrays, Domain, L2Ball
from shufflesum.errors import ShufflesumError
from shufflesum.mechanisms import NoisyCounts, NoisySlots, OneBit, RandomizedResponse
from shufflesum.mechanisms.mechanism import Mechanism
from shufflesum.protocol import Randomizer, Tally, check_rows
from shufflesum.testing import no_guarantee

USERS = 5000  # more than are taken at once


def rows_with(bad: Any, good: Any = 0.5) -> Any:
    rows = np.full(USERS, good, dtype=np.float32)
    rows[-2] = bad
    return rows


def plan_for(domain: Domain) -> ss.Plan:
    """Some plan, with any noise."""
    mechanism: Mechanism = NoisyCounts(1, (40,), (1 / 16,), 60)
    match domain:
        case ss.Categories():
            mechanism = RandomizedResponse(1, domain.cells - 1, 0.25)
        case ss.GroupBy():
            mechanism = NoisyCounts(1, (40, 40), (1 / 16, 1 / 16), 90)
        case ss.OpenVocabulary():
            mechanism = NoisySlots(3, 0.25)
        case L2Ball():
            mechanism = OneBit(8, 0.5, 2.0)
    return ss.Plan(domain, mechanism, no_guarantee(2))


BALL = L2Ball(1, clipping_norm=1.0, seed=bytes(16))
GROUPS, NOBODY = ss.GroupBy(["a", "b"], (1,)), np.full((USERS, 1), 0.5)
CASES: dict[str, tuple[Domain, Any, dict[str, Any]]] = {
    "numbers": (Arrays(1, (0, 1)), np.full((USERS, 1), 0.5), {}),
    "out of bounds": (Arrays(1, (0, 1)), rows_with(1.5)[:, None], {}),
    "infinite": (Arrays(1, (0, 1)), rows_with(np.inf)[:, None], {}),
    "missing": (Arrays(1, (0, 1)), rows_with(np.nan)[:, None], {}),
    "clipped": (Arrays(1, (0, 1)), rows_with(-np.inf)[:, None], {"clip": True}),
    "missing and clipped": (Arrays(1, (0, 1)), rows_with(np.nan)[:, None], {"clip": True}),
    "midpoint": (Arrays(1, (0, 1)), rows_with(np.nan)[:, None], {"missing": "midpoint"}),
    "midpoint, out of bounds": (Arrays(1, (0, 1)), rows_with(9)[:, None], {"missing": "midpoint"}),
    "at a bound in single precision": (Arrays(1, (0, 1)), rows_with(1.0)[:, None], {}),
    "labels": (ss.Categories(3), rows_with(2, 0).astype(int), {}),
    "no label": (ss.Categories(3), rows_with(3, 0).astype(int), {}),
    "a negative label": (ss.Categories(3), rows_with(-1, 0).astype(int), {}),
    "another label": (ss.Categories(3, other=True), rows_with(-1, 0).astype(int), {}),
    "clipped labels": (ss.Categories(3), rows_with(2, 0).astype(int), {"clip": True}),
    "bins": (ss.Categories(bins=[0, 1, 2]), rows_with(2), {}),
    "no bin": (ss.Categories(bins=[0, 1, 2]), rows_with(3), {}),
    "no bin, clipped": (ss.Categories(bins=[0, 1, 2]), rows_with(3), {"clip": True}),
    "missing in bins": (ss.Categories(bins=[0, 1, 2]), rows_with(np.nan), {}),
    "choices": (ss.MultiChoice(3, max_choices=1), [[0]] * USERS, {}),
    "too many choices": (ss.MultiChoice(3, max_choices=1), [[0]] * (USERS - 1) + [[0, 1]], {}),
    "groups": (GROUPS, (["a"] * USERS, NOBODY), {}),
    "no group": (GROUPS, (["a"] * (USERS - 1) + ["c"], NOBODY), {}),
    "out of bounds in a group": (GROUPS, (["a"] * USERS, rows_with(2)[:, None]), {}),
    "words": (ss.OpenVocabulary(16, 2, bytes(16)), ["word"] * USERS, {}),
    "no word": (ss.OpenVocabulary(16, 2, bytes(16)), ["word"] * (USERS - 1) + [""], {}),
    "a ball": (BALL, rows_with(-1)[:, None], {}),
    "beyond a ball": (BALL, rows_with(2)[:, None], {}),
    "clipped to a ball": (BALL, rows_with(2)[:, None], {"clip": True}),
}


def refused(check: Callable[[], None]) -> tuple[str, str, int | None] | None:
    try:
        check()
    except ShufflesumError as error:
        return str(error.problem), str(error), error.row
    return None


def refusal_of(case: str) -> tuple[str, str, int | None] | None:
    domain, rows, choices = CASES[case]
    return refused(lambda: check_rows(plan_for(domain), rows, first_row=7, **choices))


@pytest.mark.parametrize("case", CASES)
def test_what_a_tally_takes_is_taken_and_what_it_refuses_is_refused_alike(case: str) -> None:
    domain, rows, choices = CASES[case]
    plan = plan_for(domain)
    assert refusal_of(case) == refused(lambda: Tally(plan, **choices).add(rows, first_row=7))


def test_both_kinds_are_among_them() -> None:
    """The twin: were nothing refused, or everything, the test above would say nothing."""
    found = {case for case in CASES if refusal_of(case)}
    assert {"out of bounds", "no label", "out of bounds in a group", "beyond a ball"} < found
    assert not found & {"numbers", "clipped", "midpoint", "labels", "another label", "groups", "a ball"}


@pytest.mark.parametrize("role", [Randomizer, Tally])
@pytest.mark.parametrize(
    "domain", [ss.Categories(3), ss.MultiChoice(3, max_choices=1), ss.OpenVocabulary(16, 2, bytes(16))]
)
def test_clipped_labels_are_refused_before_there_are_any(role: Any, domain: Domain) -> None:
    role(plan_for(domain))
    with refusal("impossible-combination"):
        role(plan_for(domain), clip=True)


@pytest.mark.parametrize("taken", [True, False])
def test_a_row_far_down_is_named_by_its_number(taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whichever block of rows it is, and however many rows came before."""
    monkeypatch.setattr(protocol, "rows_at_once", lambda *_: 10)
    rows = np.full((35, 1), 0.5)
    rows[27] = 7.0
    plan = plan_for(Arrays(1, (0, 1)))
    with refusal("out-of-bounds", "row 127"):
        Tally(plan).add(rows, first_row=100) if taken else check_rows(plan, rows, first_row=100)
