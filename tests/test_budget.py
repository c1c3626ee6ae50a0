"""A budget is never exceeded and nothing is entered twice, whatever is asked of it, and in which order."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.budgets import DELTA, EPSILON, LARGE, NUMBERS, SMALL, THRICE, limits_of
from tests.refusals import refusal

import shufflesum as ss
from shufflesum import budget as budget_module
from shufflesum.budget import Budget, Content, PlanCost, compose, costs_of
from shufflesum.cautions import EnteredAgainWarning
from shufflesum.errors import FileError, PrivacyError
from shufflesum.plans import Plan
from shufflesum.privacy.engine.filters import BasicFilter, GaussianFilter, RenyiFilter
from shufflesum.protocol import Tally
from shufflesum.testing import unprotected_plan


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


def within_limits(budget: Budget) -> bool:
    return limits_of(budget).admits(entry.cost for entry in budget.entries) and budget.spent <= 1


def fill(budget: Budget, plan: Plan) -> int:
    begun = 0
    with refusal("budget-spent", error=PrivacyError):
        while True:
            budget.begin(plan)
            begun += 1
    return begun


def test_plans_are_entered_until_the_next_would_exceed_the_budget(path: Path) -> None:
    budget = Budget.create(path, EPSILON, DELTA)
    assert (budget.spent, budget.entries, budget.closed) == (0, (), False)
    begun = fill(budget, SMALL)
    assert begun == fill(Budget(EPSILON, DELTA), SMALL) == len(budget.entries) >= 5
    assert within_limits(budget)
    assert compose([SMALL] * begun).epsilon(DELTA) <= EPSILON
    # not much is given away either: a fifth in epsilon is less than a half in plans
    assert compose([SMALL] * (begun + begun // 2)).epsilon(DELTA) > EPSILON
    assert not budget.fits(SMALL)
    assert Budget.open(path).spent == budget.spent


def test_what_plans_of_several_kinds_spend_together_is_at_most_the_budget(path: Path) -> None:
    budget, run = Budget.create(path, EPSILON, DELTA), list[Plan]()
    for plan in (NUMBERS, LARGE, THRICE, *(SMALL for _ in range(50))):
        if budget.fits(plan):
            budget.begin(plan)
            run.append(plan)
    assert len({plan.id for plan in run}) == 4
    together = compose(run)
    assert together.delta(EPSILON) <= DELTA
    assert together.epsilon(DELTA) > 0.7 * EPSILON  # it is well spent


def test_counts_with_laplace_noise_are_added_up_by_their_epsilons(path: Path) -> None:
    budget, labels = Budget.create(path, 1.5, 1e-5), ss.Categories(["a", "b", "c"])

    def ask(epsilon: float) -> None:
        ss.aggregate(["a", "b", "c"] * 300, domain=labels, epsilon=epsilon, delta=1e-6, budget=budget)

    ask(1.0)
    assert budget.spent == pytest.approx(1 / 1.5, rel=1e-6)
    assert limits_of(Budget.open(path)) == limits_of(budget) == BasicFilter(1.5, 1e-5)
    with refusal("budget-spent"):
        ask(0.6)
    largest = budget.ask(users=900, domain=labels, noise_by="curator")
    assert 0.4 < largest.epsilon <= 0.51  # within some per cent
    ask(0.49)
    assert within_limits(budget)


def test_two_continuations_that_each_fit_exactly_are_not_both_had(path: Path) -> None:
    """Whichever is chosen after the first result, the other does not fit any more."""
    budget = Budget.create(path, EPSILON, DELTA)
    budget.begin(SMALL)
    limits = limits_of(budget)
    ways = [costs_of(plan)(limits) for plan in (LARGE, NUMBERS)]
    while limits.admits([*(entry.cost for entry in budget.entries), *ways]):
        budget.begin(SMALL)
    assert budget.fits(LARGE)
    assert budget.fits(NUMBERS)
    both = Budget.open(path)
    both.begin(LARGE)
    with refusal("budget-spent"):
        both.begin(NUMBERS)
    assert within_limits(both)


def test_a_plan_that_was_entered_before_costs_as_much_again_without_being_computed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait for the lock meanwhile."""
    budget = Budget.create(path, EPSILON, DELTA)
    budget.begin(SMALL)
    monkeypatch.setattr(budget_module, "costs_of", None)
    budget.begin(SMALL)
    budget.enter(SMALL, "task")
    first, *others = budget.entries
    assert [entry.cost for entry in others] == [first.cost] * 2


def test_a_forked_process_cannot_spend_what_is_in_memory_once_more() -> None:
    budget = Budget(EPSILON, DELTA)
    budget.begin(SMALL)
    budget._process += 1  # as if another process had made it
    with refusal("in-use", "Budget.create", error=FileError):
        budget.begin(SMALL)
    assert len(budget.entries) == 1


def test_a_refusal_names_the_file_if_there_is_one(path: Path) -> None:
    for budget, name in (
        (Budget.create(path, EPSILON / 10, DELTA), str(path)),
        (Budget(EPSILON / 10, DELTA), "this budget"),
    ):
        with refusal("budget-spent", f"{name}: plan"):
            budget.begin(LARGE)


def test_what_is_spent_can_be_printed(path: Path) -> None:
    budget = Budget.create(path, EPSILON, DELTA)
    assert str(budget).splitlines() == [f"epsilon {EPSILON}, delta {DELTA} for everything that is asked; 0 % spent"]
    budget.begin(THRICE)
    budget.enter(SMALL, "task 1")
    title, _, first, second = str(Budget.open(path)).splitlines()
    assert f"{100 * budget.spent:.3g} % spent" in title
    assert [THRICE.id[:8], "1 of 3"] == [word for word in (THRICE.id[:8], "1 of 3") if word in first]
    assert "task 1" in second


def test_the_rounds_of_a_plan_cost_once(path: Path) -> None:
    budget = Budget.create(path, EPSILON, DELTA)
    first = budget.begin(THRICE)
    spent = budget.spent
    assert [budget.begin(THRICE).begun for _ in range(2)] == [2, 3]
    assert budget.spent == spent
    assert len(budget.entries) == 1
    assert first.plan == THRICE.id
    with pytest.warns(EnteredAgainWarning, match=f"{budget.price(first)} %"):
        assert budget.begin(THRICE).begun == 1
    assert budget.spent == pytest.approx(2 * spent)


def test_a_collection_is_entered_once_however_often_it_is_asked(path: Path) -> None:
    budget = Budget.create(path, EPSILON, DELTA)
    entered = budget.enter(LARGE, "task 1")
    assert budget.enter(LARGE, "task 1") == entered
    assert Budget.open(path).enter(LARGE, "task 1") == entered
    assert len(budget.entries) == 1
    for act in (budget.enter, lambda plan, name: budget.begin(plan, collection=name)):
        with refusal("plan-mismatch", "task 1"):
            act(SMALL, "task 1")
    budget.enter(LARGE, "task 2")
    assert len(budget.entries) == 2
    budget.begin(LARGE)  # a run under the plan does not use up what is kept for a collection
    assert [(entry.collection, entry.begun) for entry in budget.entries] == [("task 1", 0), ("task 2", 0), (None, 1)]


@pytest.mark.parametrize("collection", [None, "task"])
def test_the_same_run_costs_once_and_every_other_one_costs_again(path: Path, collection: str | None) -> None:
    budget = Budget.create(path, EPSILON, DELTA)
    if collection:
        budget.enter(SMALL, collection)
    for _ in range(2):  # taken up, or found finished
        assert budget.begin(SMALL, collection=collection, run="first folder").runs == ("first folder",)
        assert Budget.open(path).begin(SMALL, collection=collection, run="first folder").begun == 1
    assert len(budget.entries) == 1
    budget.begin(SMALL, collection=collection, run="second folder")
    budget.begin(SMALL, collection=collection)  # nobody knows whose it is
    assert [entry.runs for entry in budget.entries] == [("first folder",), ("second folder",), ()]
    assert budget.spent == pytest.approx(3 * budget.parts[0][0])


def test_a_store_that_counts_rounds_itself_takes_all_and_another_store_costs_again(path: Path) -> None:
    budget = Budget.create(path, EPSILON, DELTA)
    budget.enter(THRICE, "task")
    for store in ("first store", "first store", "second store", "first store"):
        held = budget.begin(THRICE, collection="task", run=store, rounds=3)
        assert (held.begun, held.runs) == (3, (store,))
    assert [entry.runs for entry in budget.entries] == [("first store",), ("second store",)]
    with pytest.warns(EnteredAgainWarning):
        budget.begin(THRICE, collection="task", run="folder")  # what a store holds is not for folders
    assert [entry.begun for entry in budget.entries] == [3, 3, 1]
    budget.begin(THRICE, collection="task", run="third store", rounds=3)  # nor is what a folder has begun for a store
    assert [entry.begun for entry in budget.entries] == [3, 3, 1, 3]
    assert budget.enter(THRICE, "task") == budget.entries[0]
    for rounds in (0, 4):
        with refusal("out-of-range", "rounds"):
            budget.begin(THRICE, rounds=rounds)


def test_plans_fixed_in_advance_are_composed_exactly_and_no_other_is_taken(path: Path) -> None:
    plans = [SMALL, LARGE, THRICE]
    exact = compose(plans).epsilon(DELTA) + 1e-6
    with refusal("budget-spent"):
        Budget.create(path, exact - 0.01, DELTA, plans=plans)
    assert not path.exists()
    budget = Budget.create(path, exact, DELTA, plans=plans)
    assert budget.closed
    assert budget.spent == 1
    for plan in (NUMBERS, replace(SMALL, guarantee=replace(SMALL.guarantee, epsilon=0.31))):
        with refusal("budget-closed"):
            budget.begin(plan)
        assert not budget.fits(plan)
    assert budget.begin(SMALL).begun == 1
    with refusal("budget-closed"):
        budget.begin(SMALL)
    assert budget.enter(LARGE, "task") == budget.enter(LARGE, "task")
    assert [entry.collection for entry in budget.entries if entry.plan == LARGE.id] == ["task"]
    for _ in range(2):
        assert budget.begin(LARGE, collection="task", run="store").begun == 1
    for collection in (None, "task", "other task"):
        with refusal("budget-closed"):
            budget.begin(LARGE, collection=collection, run="other store")
    with refusal("budget-closed"):
        budget.begin(LARGE)
    assert [budget.begin(THRICE).begun for _ in range(3)] == [1, 2, 3]
    with refusal("budget-closed"):
        budget.ask(users=500, shape=2)
    # the filter alone would not have taken them
    chosen = Budget(exact, DELTA)
    with refusal("budget-spent"):
        for plan in plans:
            chosen.begin(plan)


def test_the_first_plan_chooses_how_noise_is_measured_for_all(path: Path) -> None:
    budget = Budget.create(path, EPSILON, DELTA)
    assert budget._now().limits is None
    budget.begin(SMALL)
    limits = limits_of(budget)
    budget.begin(NUMBERS)
    budget.enter(LARGE, "task")
    assert limits_of(budget) == limits_of(Budget.open(path)) == limits
    assert [entry.cost for entry in budget.entries] == [costs_of(plan)(limits) for plan in (SMALL, NUMBERS, LARGE)]


def test_who_was_first_meanwhile_has_chosen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both computed their charges for limits of their own; the second one's would mean something else."""
    budget, other, compute = Budget.create(path, EPSILON, DELTA), Budget.open(path), budget_module._cost
    monkeypatch.setattr(budget_module, "filter_for", lambda *_: GaussianFilter(EPSILON, DELTA, 0.5))

    def slowly(content: Content, plan: Plan) -> PlanCost | None:
        found = compute(content, plan)
        if not other.entries:
            monkeypatch.setattr(
                budget_module, "filter_for", lambda epsilon, delta, _: RenyiFilter(epsilon, delta, 0.5, 9.0)
            )
            monkeypatch.setattr(budget_module, "_cost", compute)
            other.begin(LARGE)
        return found

    monkeypatch.setattr(budget_module, "_cost", slowly)
    budget.begin(SMALL)
    limits = limits_of(budget)
    assert limits == RenyiFilter(EPSILON, DELTA, 0.5, 9.0)
    assert [entry.cost for entry in budget.entries] == [costs_of(plan)(limits) for plan in (LARGE, SMALL)]


def test_a_second_name_of_the_file_is_no_second_budget(path: Path) -> None:
    budget, other, pointer = Budget.create(path, EPSILON, DELTA), path.with_name("other"), path.with_name("pointer")
    pointer.symlink_to(path)
    Budget.open(pointer).begin(SMALL)
    assert len(budget.entries) == 1
    other.hardlink_to(path)
    for name in (path, other, pointer):
        with refusal("in-use", "names", error=FileError):
            Budget.open(name)
    with refusal("in-use", error=FileError):
        budget.begin(SMALL)
    other.unlink()
    assert len(budget.entries) == 1


PEOPLE = np.arange(500) % 3 / 2
DRAWN: dict[str, Any] = {
    "a mean": lambda budget: ss.aggregate(PEOPLE, epsilon=0.9, delta=1e-5, budget=budget).plan,
    "a plan of before": lambda budget: ss.aggregate(PEOPLE.astype(int), plan=LARGE, budget=budget).plan,
    "a variance": lambda budget: ss.moments(PEOPLE, epsilon=0.9, delta=1e-5, budget=budget).estimate.plan,
    "bounds": lambda budget: (
        ss.suggest_bounds(1 + PEOPLE, epsilon=0.9, delta=1e-5, share=1, budget=budget).estimate.plan
    ),
}


@pytest.mark.parametrize("what", DRAWN)
@pytest.mark.filterwarnings("ignore::shufflesum.ShufflesumWarning")
def test_what_is_drawn_with_a_budget_is_in_its_file_before(
    path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    seen, draw = [], Tally.__init__

    def watched(self: Tally, *arguments: Any, **choices: Any) -> None:
        seen.append([entry.plan for entry in Budget.open(path).entries])
        draw(self, *arguments, **choices)

    monkeypatch.setattr(Tally, "__init__", watched)
    plan = DRAWN[what](Budget.create(path, EPSILON, DELTA))
    assert seen
    assert all(entered == [plan.id] for entered in seen)
    path.unlink()
    seen.clear()
    with refusal("budget-spent"):
        DRAWN[what](Budget.create(path, EPSILON / 10, DELTA))
    assert not seen


REFUSED: dict[str, tuple[str, Any]] = {
    "out of bounds": ("out-of-bounds", lambda budget: mean_of(3 * PEOPLE, budget)),
    "missing": ("missing-value", lambda budget: mean_of(np.where(PEOPLE, PEOPLE, np.nan), budget)),
    "no workers": ("out-of-range", lambda budget: mean_of(PEOPLE, budget, workers=0)),
    "no such round": ("out-of-range", lambda budget: mean_of(PEOPLE, budget, round_number=2)),
    "no such choice": ("unknown-choice", lambda budget: mean_of(PEOPLE, budget, missing="nothing")),
    "no label": ("unknown-label", lambda budget: ss.aggregate(np.full(500, 3), plan=LARGE, budget=budget)),
    "clipped labels": (
        "impossible-combination",
        lambda budget: ss.aggregate(PEOPLE.astype(int), plan=LARGE, budget=budget, clip=True),
    ),
    "a variance": ("out-of-bounds", lambda budget: ss.moments(3 * PEOPLE, epsilon=0.9, delta=1e-5, budget=budget)),
    "bounds": (
        "missing-value",
        lambda budget: ss.suggest_bounds(np.full(500, np.nan), epsilon=0.9, delta=1e-5, share=1, budget=budget),
    ),
}


def mean_of(rows: Any, budget: Budget, **choices: Any) -> ss.Estimate:
    found: ss.Estimate = ss.aggregate(rows, epsilon=0.9, delta=1e-5, budget=budget, **choices)
    return found


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_before_anything_is_drawn_costs_nothing(what: str) -> None:
    budget = Budget(EPSILON, DELTA)
    problem, ask = REFUSED[what]
    with refusal(problem):
        ask(budget)
    assert budget.entries == ()


def test_the_round_of_an_estimate_is_the_budgets_unless_it_is_given() -> None:
    budget, rows = Budget(3 * EPSILON, DELTA), PEOPLE.astype(int)
    assert [ss.aggregate(rows, plan=THRICE, budget=budget).round_number for _ in range(3)] == [1, 2, 3]
    with pytest.warns(EnteredAgainWarning, match="%"):
        assert ss.aggregate(rows, plan=THRICE, budget=budget).round_number == 1
    assert ss.aggregate(rows, plan=THRICE, budget=budget, round_number=3).round_number == 3


@pytest.mark.parametrize("accountant", ["none", "paper"])
def test_only_certified_plans_can_be_entered(accountant: str) -> None:
    paper = {"accountant": "paper", "mechanism": ss.RandomizedResponse.Options(coordinates=1, sampling="uniform")}
    plan = (
        unprotected_plan(users=10, shape=1)
        if accountant == "none"
        else ss.plan(users=100_000, shape=1, epsilon=0.5, delta=1e-6, **paper)  # type: ignore[arg-type]
    )
    budget = Budget(EPSILON, DELTA)
    with refusal("not-certified"):
        budget.begin(plan)
    assert budget.entries == ()


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-6), (-1, 1e-6), (1, 0), (1, 1), (math.inf, 0.1)])
def test_what_is_no_budget_is_refused(epsilon: float, delta: float) -> None:
    with refusal("out-of-range"):
        Budget(epsilon, delta)


def test_a_budget_that_forgets_a_charge_would_be_found_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: what each plan is compared with is not all that was spent."""
    budget = Budget.create(path, EPSILON, DELTA)
    admits = Content.admits
    monkeypatch.setattr(
        Content,
        "admits",
        lambda content, cost: admits(msgspec.structs.replace(content, entries=content.entries[:-1]), cost),
    )
    while len(budget.entries) < 50:
        try:
            budget.begin(LARGE)
        except PrivacyError:
            break
    assert not within_limits(budget)
