"""Whatever is asked of a budget at random, of plans of every mechanism and domain, is what a plain model says."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.budgets import DELTA, EPSILON, PLANS
from tests.refusals import refusal

import shufflesum as ss
from shufflesum import budget as budget_module
from shufflesum.budget import Budget, costs_of, filter_for
from shufflesum.domains import DOMAINS
from shufflesum.mechanisms import MECHANISMS
from shufflesum.plans import Plan
from shufflesum.privacy.engine.filters import PrivacyCost, PrivacyFilter, total


@cache
def plans() -> tuple[Plan, ...]:
    """Of every mechanism and of every kind of domain, with epsilons all over, in one round or in several."""
    key = bytes(range(16))
    wanted: tuple[dict[str, Any], ...] = (
        {"domain": ss.L2Ball(20, clipping_norm=1.0), "epsilon": 0.4},
        {"domain": ss.MultiChoice(4, max_choices=2), "epsilon": 0.6},
        {"domain": ss.OpenVocabulary(50, 8, key), "epsilon": 0.35, "rounds": 2},
        {"domain": ss.GroupBy(["a", "b"], 1), "epsilon": 0.7},
        {"shape": 3, "epsilon": 0.25, "mechanism": "randomized-response"},
        {"domain": ss.Categories(3), "epsilon": 0.8, "mechanism": "randomized-response", "rounds": 2},
        {"shape": 2, "epsilon": 0.45, "mechanism": "noisy-counts"},
        {"domain": ss.Survey({"a": ["x", "y"], "b": [True, False]}), "epsilon": 0.55, "noise_by": "servers"},
        {"domain": ss.UnlistedLabels(), "epsilon": 0.15, "noise_by": "curator"},
        {"domain": ss.Categories(3), "epsilon": 0.2, "noise_by": "curator"},
        {"shape": 2, "epsilon": 0.3, "noise_by": "curator"},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ss.ShufflesumWarning)  # some are too noisy to be of use
        return (*PLANS, *(ss.plan(**{"users": 500, "delta": 1e-5, **choices}) for choices in wanted))


@pytest.mark.long
def test_the_plans_that_are_drawn_from_are_of_every_mechanism_and_domain() -> None:
    assert {plan.mechanism.kind for plan in plans()} == set(MECHANISMS)
    assert {type(plan.domain) for plan in plans()} == set(DOMAINS.values())


@cache
def filter_of(which: int) -> PrivacyFilter:
    """What a plan chooses, where it is the first."""
    return filter_for(EPSILON, DELTA, costs_of(plans()[which]))


@cache
def cost_of(plan: Plan, within: PrivacyFilter) -> PrivacyCost:
    return costs_of(plan)(within)


class Model:
    """What must be: nothing is drawn that no charge covers, and as little as that is charged."""

    def __init__(self) -> None:
        self.limits: PrivacyFilter | None = None
        self.spent = list[PrivacyCost]()
        self.tasks = dict[str, int]()  # the plan of each
        self.left = dict[tuple[int, str | None], list[int]]()  # rounds of each entry that nobody has begun
        self.runs = set[tuple[int, str | None, str]]()

    def fits(self, which: int) -> bool:
        """Whether a plan fits, that was not entered yet; the first one chooses."""
        limits = self.limits or filter_of(which)
        return limits.admits([*self.spent, cost_of(plans()[which], limits)])

    def problem(self, which: int, collection: str | None, run: str | None, rounds: int) -> str | None:
        """Why it must be refused; else it is noted down. No rounds: the collection is only entered."""
        key = which, collection
        left = self.left.get(key, [])
        if collection is not None and self.tasks.get(collection, which) != which:
            return "plan-mismatch"
        known = bool(left) if rounds == 0 else run is not None and (*key, run) in self.runs
        room = [place for place, free in enumerate(left) if free >= rounds]
        if not known and not room:
            if not self.fits(which):
                return "budget-spent"
            self.limits = self.limits or filter_of(which)
            self.spent.append(cost_of(plans()[which], self.limits))
            room = [len(left)]
            self.left[key] = left = [*left, plans()[which].rounds]
        if not known and rounds:
            left[room[0]] -= rounds
            self.runs |= {(*key, run)} if run else set()
        if collection is not None:
            self.tasks[collection] = which
        return None


STEPS = st.lists(
    st.tuples(
        st.deferred(lambda: st.integers(0, len(plans()) - 1)),
        st.sampled_from(["enter", "begin", "hold", "look"]),
        st.sampled_from([None, "task 1", "task 2"]),
        st.sampled_from([None, "a", "b"]),
    ),
    max_size=25,
)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::shufflesum.cautions.EnteredAgainWarning")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_nothing_that_is_asked_exceeds_it_or_is_entered_twice(
    steps: list[tuple[int, str, str | None, str | None]],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path_factory.mktemp("budget") / "budget.db"
    model, handles = Model(), [Budget.create(path, EPSILON, DELTA), Budget.open(path)]
    # computed once
    monkeypatch.setattr(budget_module, "costs_of", lambda plan: lambda within: cost_of(plan, within))
    for number, (which, act, collection, run) in enumerate(steps):
        budget, plan = handles[number % 2], plans()[which]
        if act == "look":
            assert budget.fits(plan) == model.fits(which)
            continue
        name, rounds = collection or "task 3", plan.rounds if act == "hold" else 1
        asked = (which, name, None, 0) if act == "enter" else (which, collection, run, rounds)
        problem = model.problem(*asked)
        with refusal(problem) if problem else nullcontext():
            budget.enter(plan, name) if act == "enter" else budget.begin(
                plan, collection=collection, run=run, rounds=rounds
            )
    entries = Budget.open(path).entries
    assert total(entry.cost for entry in entries) == total(model.spent)
    assert model.limits is None or model.limits.admits(model.spent)
    left = sorted(free for each in model.left.values() for free in each)
    assert sorted(entry.rounds - entry.begun for entry in entries) == left
