"""What could still be asked of a budget: the largest epsilon that fits, wherever the search for it begins."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.budgets import DELTA, EPSILON, LARGE, SMALL, limits_of
from tests.refusals import refusal

import shufflesum as ss
from shufflesum import budget as budget_module
from shufflesum.budget import Budget
from shufflesum.errors import PrivacyError
from shufflesum.plans import Plan


def test_what_could_still_be_asked_fits_and_little_more_would() -> None:
    budget = Budget(EPSILON, DELTA)
    budget.begin(LARGE)
    before = budget.entries
    found = budget.ask(users=500, domain=ss.Categories(3))
    assert budget.entries == before
    assert budget.fits(found)
    assert not budget.fits(ss.plan(users=500, domain=ss.Categories(3), epsilon=1.1 * found.epsilon, delta=found.delta))
    budget.begin(found)
    with refusal("budget-spent"):
        budget.begin(found)


def spent_but_for(budget: Budget, loss: float, delta: float) -> Budget:
    """The budget with one entry that leaves these parts of both limits."""
    budget.begin(SMALL)
    limits = limits_of(budget)
    whole = {"loss_cost": (1 - loss) * limits.loss_limit, "delta_cost": (1 - delta) * limits.delta_limit}
    entry = msgspec.structs.replace(budget.entries[0], **whole)
    budget._content = msgspec.structs.replace(budget._content, entries=(entry,))
    return budget


@pytest.mark.parametrize(("loss", "delta", "most"), [(0.0, 0.5, 0), (1e-13, 0.5, 1), (0.5, 0.0, 7)], ids=str)
def test_where_nothing_fits_any_more_that_is_soon_said(
    loss: float, delta: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is out of reach at one epsilon is not tried at smaller ones; the search takes larger and larger steps."""
    budget, tried = spent_but_for(Budget(EPSILON, DELTA), loss, delta), list[float]()

    def counted(**choices: Any) -> Plan:
        tried.append(choices["epsilon"])
        return ss.plan(**choices)

    monkeypatch.setattr(budget_module, "make_plan", counted)
    with refusal("budget-spent"):
        budget.ask(users=3_000, domain=ss.Categories(3))
    assert len(tried) <= most


def test_what_can_be_planned_for_is_found_between_too_dear_and_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be a smallest epsilon that a mechanism can have: steps towards it must not miss what still fits."""
    budget, tried = Budget(EPSILON, DELTA), list[float]()
    budget.begin(LARGE)

    def down_to_some(**choices: Any) -> Plan:
        tried.append(choices["epsilon"])
        if choices["epsilon"] < 0.62 * tried[0]:
            raise PrivacyError("privacy-out-of-reach", "less cannot be planned for")
        return ss.plan(**choices)

    usual = budget.ask(users=500, domain=ss.Categories(3))
    monkeypatch.setattr(budget_module, "make_plan", down_to_some)
    monkeypatch.setattr(budget_module, "_first", lambda _: 1.45 * usual.epsilon)
    found = budget.ask(users=500, domain=ss.Categories(3))
    assert min(tried) < 0.62 * tried[0]  # a step went beyond
    assert 0.93 * usual.epsilon < found.epsilon
    assert budget.fits(found)


@pytest.mark.parametrize("start", [0.02, 0.3, 0.97, 1.0, 1.08, 3.0, 50.0])
def test_wherever_the_search_begins_it_finds_the_same(monkeypatch: pytest.MonkeyPatch, start: float) -> None:
    budget = Budget(EPSILON, DELTA)
    budget.begin(LARGE)
    usual = budget.ask(users=500, domain=ss.Categories(3))
    monkeypatch.setattr(budget_module, "_first", lambda _: start * usual.epsilon)
    found = budget.ask(users=500, domain=ss.Categories(3))
    assert found.epsilon == pytest.approx(usual.epsilon, rel=0.075)
    assert not budget.fits(ss.plan(users=500, domain=ss.Categories(3), epsilon=found.epsilon / 0.92, delta=found.delta))


def test_what_cannot_be_planned_at_all_is_refused_for_that() -> None:
    with refusal("not-certified", "1e-300"):
        Budget(EPSILON, DELTA).ask(users=500, domain=ss.Categories(3), delta=1e-300)


def test_what_is_asked_for_has_a_tenth_of_delta_as_people_write_it() -> None:
    assert 0.1 * 1e-5 != 1e-6
    for delta, tenth in ((1e-5, 1e-6), (3e-5, 3e-6), (7e-4, 7e-5)):
        assert Budget(3.0, delta).ask(users=5_000, domain=ss.Categories(3)).delta == tenth
