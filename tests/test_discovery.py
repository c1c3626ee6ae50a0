"""Labels found in one process: the law of what is released, what is listed, and what is refused before it costs.

False alarms: at most 1e-6 for each statistical test.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles import partition_selection as oracle
from tests.oracles.partition_selection import Twin, Users
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM, chi_square

import shufflesum as ss
from shufflesum import discovery
from shufflesum.budget import Budget
from shufflesum.discovery import Holdings
from shufflesum.errors import DataError, ParameterError, PrivacyError
from shufflesum.mechanisms import PartitionSelection
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee, PartitionSelectionAccountant
from shufflesum.randomness import table_draws
from shufflesum.testing import SeededSource

GUARANTEE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
DRAWS = 2000

pytestmark = pytest.mark.filterwarnings("ignore::shufflesum.cautions.UninformativePlanWarning")  # of so few users


def tiny_plan(users: int, max_items: int | None) -> Plan:
    """With so little noise that all outcomes can be counted, and a guarantee as weak as it is."""
    mechanism = PartitionSelection(ss.NoiseDistribution(1.0, 1.3, 1), ss.NoiseDistribution(1.0, 2.5, 1))
    noise = mechanism.noise, mechanism.rest_noise
    delta = PartitionSelectionAccountant(*noise, max_items or 1).delta_upper(2.0)
    return Plan(ss.UnlistedLabels(max_items), mechanism, Guarantee(2.0, delta, users))


def released(users: Users, plan: Plan, draws: int) -> Counter[Any]:
    """How often each outcome is released."""
    source = SeededSource(5)
    values: Any = users if plan.domain.max_items is not None else [held for (held,) in users]  # type: ignore[attr-defined]
    found: Counter[Any] = Counter()
    for _ in range(draws):
        estimate = ss.discover(values, plan=plan, source=source)
        table = estimate.table.tolist()
        found[tuple(zip(estimate.labels, table[:-1], strict=True)), table[-1]] += 1
    return found


def agreement(found: Counter[Any], law: dict[Any, Fraction]) -> float:
    """The p-value of these outcomes under the law; those that are rare are one."""
    draws = found.total()
    often = [outcome for outcome, chance in law.items() if chance * draws >= 10]
    seldom = float(1 - sum((law[outcome] for outcome in often), Fraction(0)))
    if set(found) - set(law):
        return 0.0
    counts = [found[outcome] for outcome in often]
    chances = [float(law[outcome]) for outcome in often]
    if seldom * draws < 5:
        return chi_square(counts, np.array(chances) / sum(chances))
    return chi_square([*counts, draws - sum(counts)], [*chances, seldom])


MIXED: dict[str, tuple[Users, int | None]] = {
    "one label each": ((("a",), ("a",), ("b",)), None),
    "lists of which one counts": ((("a", "b"), ("a",), (), ("a", "c")), 1),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MIXED)
def test_outcomes_have_the_enumerated_law(name: str) -> None:
    users, max_items = MIXED[name]
    plan = tiny_plan(len(users), max_items)
    mechanism: Any = plan.mechanism
    twin = Twin(mechanism.noise.weights, mechanism.rest_noise.weights, 2, max_items or 1)
    found = released(users, plan, DRAWS)
    assert agreement(found, oracle.law(users, twin)) > FALSE_ALARM
    other = Twin(ss.NoiseDistribution(1.0, 0.6, 1).weights, twin.rest, 2, twin.max_items)
    assert agreement(found, oracle.law(users, other)) < FALSE_ALARM


def too_low(self: PartitionSelection, counts: Any, source: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    noisy = counts + table_draws(source, self.noise.thresholds, len(counts))
    places = np.flatnonzero(noisy >= 2 * self.noise.half_length)
    return places, noisy[places]


SABOTAGED: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "a threshold lower by one": (PartitionSelection, "listed", too_low),
    "a rest without noise": (PartitionSelection, "noisy_rest", lambda self, users, source: users + 1),
    "all of a list": (discovery, "_drawn", lambda owners, most, source: np.ones(len(owners), np.bool_)),
    "the first of a list": (
        discovery,
        "_drawn",
        lambda owners, most, source: np.diff(owners, prepend=-1) > 0,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SABOTAGED)
def test_a_sabotaged_twin_has_another_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    users, max_items = MIXED["lists of which one counts"]
    plan = tiny_plan(len(users), max_items)
    mechanism: Any = plan.mechanism
    twin = Twin(mechanism.noise.weights, mechanism.rest_noise.weights, 2, 1)
    where, what, wrong = SABOTAGED[name]
    monkeypatch.setattr(where, what, wrong)
    if name == "a threshold lower by one":
        with refusal("malformed"):  # the estimate itself has no place for such a count
            released(users, plan, DRAWS)
        return
    found = released(users, plan, DRAWS)
    assert agreement(found, oracle.law(users, twin)) < FALSE_ALARM


# ---- what is listed


def words(**held: int) -> list[str]:
    return [word for word, users in held.items() for _ in range(users)]


def test_what_sixty_users_hold_is_listed_and_what_nobody_holds_never() -> None:
    plan = ss.plan(users=1000, domain=ss.UnlistedLabels(), noise_by="curator", **GUARANTEE)
    mechanism: Any = plan.mechanism
    assert mechanism.found_from(0.99) <= 60
    assert mechanism.found_from(1.0) == 2 * mechanism.noise.half_length + 1 <= 60  # whatever the noise
    values = words(sixty=60, many=500, few=5) + [f"alone {i}" for i in range(435)]
    for seed in range(50):
        found = ss.discover(values, plan=plan, source=SeededSource(seed))
        assert {"sixty", "many"} <= set(found.labels) <= set(values)
    places, _ = mechanism.listed(np.zeros(10_000, np.int64), SeededSource(1))
    assert places.size == 0


def test_labels_stand_by_their_counts_and_not_in_the_order_of_the_data() -> None:
    values = words(b=200, a=400, c=300, e=100, d=100)
    found = ss.discover(values, **GUARANTEE, source=SeededSource(1))
    assert found.labels[:3] == ("a", "c", "b")
    again = ss.discover(values[::-1], **GUARANTEE, source=SeededSource(1))
    assert set(again.labels) == set(found.labels)
    assert list(again.counts) == sorted(again.counts, reverse=True)


def test_labels_are_one_however_they_are_typed() -> None:
    cafe = ["caf\u00e9", "cafe\u0301", " caf\u00e9 "] * 100
    found = ss.discover(cafe, **GUARANTEE)
    assert found.labels == ("caf\u00e9",)
    mixed = ["STRASSE", "stra\u00dfe", "Strasse"] * 100
    assert len(ss.discover(mixed, **GUARANTEE).labels) == 3
    assert ss.discover(mixed, **GUARANTEE, ignore_case=True).labels == ("strasse",)
    wide = ["\uff21\ufb01", "Afi"] * 100
    assert len(ss.discover(wide, **GUARANTEE).labels) == 2
    assert ss.discover(wide, **GUARANTEE, normalization="NFKC").labels == ("Afi",)
    assert ss.discover([1, 1.0, "1", True] * 100, **GUARANTEE).labels == ("1", "true")


def test_nothing_is_listed_among_few_users() -> None:
    found = ss.discover(["a", "b", "c"], **GUARANTEE, source=SeededSource(2))
    assert found.labels == ()
    assert found.not_listed()[1:] == (0, 3)
    assert "No label is listed" in " ".join(found.remarks())
    assert len(found.to_table()) == 0


def test_labels_that_a_list_names_twice_count_once_and_those_beyond_are_drawn() -> None:
    lists = [["a", "a", " a"], ["a", "b"], []] * 200
    found = ss.discover(lists, **GUARANTEE, max_items=2, source=SeededSource(2))
    assert dict(zip(found.labels, found.counts.tolist(), strict=True)) == pytest.approx({"a": 400, "b": 200}, abs=65)
    drawn = ss.discover([["a", "b", "c", "d"]] * 4000, **GUARANTEE, max_items=1, source=SeededSource(2))
    assert drawn.counts == pytest.approx([1000] * 4, abs=200)  # seven standard deviations of a binomial
    assert drawn.not_listed()[0] == pytest.approx(0, abs=160)


def test_the_rest_are_users_who_hold_anything_that_is_not_listed() -> None:
    lists = [["a", f"own {i}"] for i in range(500)] + [["a"]] * 500 + [[]] * 100
    found = ss.discover(lists, **GUARANTEE, max_items=2, source=SeededSource(2))
    value, low, high = found.not_listed(0.99)
    assert found.labels == ("a",)
    assert low <= 500 <= high
    assert value == pytest.approx(500, abs=160)


def test_which_labels_of_a_user_count_does_not_depend_on_what_others_hold() -> None:
    """The random numbers of a user go with the user's own list: others change codes, but not the choice."""
    mine = ["x", "y", "z", "x"]
    chosen = []
    for others in ([["z", "y", "x"]] * 5, [["q"]] * 5, [["y", "a", "z"]] * 5):
        plan = tiny_plan(6, 1)
        holdings = Holdings(plan)
        holdings.add([mine, *others])
        owners, codes = discovery._distinct(np.concatenate(holdings._owners), np.concatenate(holdings._codes))
        texts = list(holdings._places)
        kept = discovery._drawn(owners, 1, SeededSource(3))
        chosen.append([texts[code] for code in codes[kept & (owners == 0)].tolist()])
    assert chosen[0] == chosen[1] == chosen[2]
    assert len(chosen[0]) == 1


@pytest.mark.parametrize("max_items", [None, 2])
def test_pieces_give_what_the_whole_gives(max_items: int | None) -> None:
    one = words(a=300, b=200, c=3)
    values: list[Any] = one if max_items is None else [[word, f"{word}{word}", "x"] for word in one]
    plan = ss.plan(users=len(values), domain=ss.UnlistedLabels(max_items), noise_by="curator", **GUARANTEE)
    whole, pieces = Holdings(plan), Holdings(plan)
    whole.add(values)
    for start in range(0, len(values), 100):
        pieces.add(values[start : start + 100])
    found = [each.find(source=SeededSource(4)) for each in (whole, pieces)]
    assert found[0].labels == found[1].labels
    assert found[0].table.tolist() == found[1].table.tolist()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_columns_and_lists_of_data_frames_are_read(library: str) -> None:
    frames = pytest.importorskip(library)
    made: Any = frames.table if library == "pyarrow" else frames.DataFrame
    names, lists = words(a=100, b=100), [["a", "b"], ["b"]] * 100
    column = made({"word": names})["word"]
    found = ss.discover(column, **GUARANTEE)
    assert set(found.labels) == {"a", "b"}
    column = made({"words": lists})["words"]
    assert ss.discover(column, **GUARANTEE, max_items=2).labels == ("b", "a")
    assert len(ss.discover(names, **GUARANTEE).to_frame()) == 2


def test_categories_of_pandas_that_nobody_holds_are_not_there() -> None:
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(pandas.Categorical(words(a=100), categories=["nobody", "a", ""]))
    found = ss.discover(column, **GUARANTEE)
    assert found.labels == ("a",)


# ---- what is refused, and what it costs


def test_missing_labels_are_refused_or_left_out() -> None:
    with refusal("missing-value", "row 1", error=DataError):
        ss.discover(["a", None], **GUARANTEE)
    with refusal("missing-value", "row 1", error=DataError):
        ss.discover([["a"], None], **GUARANTEE, max_items=1)
    with refusal("missing-value", "row 1", error=DataError):
        ss.discover([["a"], ["b", " "]], **GUARANTEE, max_items=1)
    found = ss.discover(["a", None, "a"] * 100, **GUARANTEE, missing="drop")
    assert (found.users, found.left_out) == (200, 100)
    found = ss.discover([["a"], None, []] * 100, **GUARANTEE, max_items=1, missing="drop")
    assert (found.users, found.left_out) == (200, 100)


def test_what_is_no_label_is_refused_with_its_row() -> None:
    with refusal("wrong-type", "row 1", error=DataError):
        ss.discover(["a", b"\xff"], **GUARANTEE)
    with refusal("wrong-type", "row 0", error=DataError):
        ss.discover(["\ud800", "a"], **GUARANTEE)
    with refusal("wrong-type", "max_items", error=DataError):
        ss.discover([["a"], ["b"]], **GUARANTEE)
    with refusal("wrong-type", "list", error=DataError):
        ss.discover(["a", "b"], **GUARANTEE, max_items=2)
    with refusal("wrong-type", error=DataError):
        ss.discover(np.ones((3, 2), np.bool_), **GUARANTEE, max_items=2)
    with refusal("no-rows", error=DataError):
        ss.discover([], **GUARANTEE)
    with refusal("no-rows", error=DataError):
        ss.discover([], **GUARANTEE, max_items=2)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"epsilon": 1.0}, "missing-argument"),
        ({"delta": 1e-6}, "missing-argument"),
        ({**GUARANTEE, "max_items": 0}, "out-of-range"),
        ({**GUARANTEE, "max_items": 1.5}, "wrong-type"),
        ({**GUARANTEE, "ignore_case": "yes"}, "wrong-type"),
        ({**GUARANTEE, "normalization": "NFD"}, "unknown-choice"),
        ({**GUARANTEE, "missing": "midpoint"}, "unknown-choice"),
        ({"epsilon": 0.0, "delta": 1e-6}, "out-of-range"),
        ({"epsilon": 1e-5, "delta": 1e-6}, "privacy-out-of-reach"),
        ({"epsilon": 1.0, "plan": tiny_plan(2, None)}, "conflicting-arguments"),
        ({"ignore_case": True, "plan": tiny_plan(2, None)}, "conflicting-arguments"),
        ({"normalization": "NFKC", "plan": tiny_plan(2, None)}, "conflicting-arguments"),
        ({"plan": tiny_plan(2, None), "round_number": 2}, "out-of-range"),
        ({"plan": tiny_plan(5, None)}, "too-few-users"),
    ],
)
def test_arguments_that_say_nothing_are_refused(given: dict[str, Any], problem: str) -> None:
    with refusal(problem):
        ss.discover(["a", "b"], **given)


def test_plans_of_other_kinds_and_other_ways_are_refused() -> None:
    with refusal("impossible-combination", "Categories", error=ParameterError):
        ss.discover(["a", "b"], plan=ss.plan(users=2, domain=ss.Categories(["a", "b"]), **GUARANTEE))
    with refusal("impossible-combination", "noise_by", "curator", error=ParameterError):
        ss.plan(users=100, domain=ss.UnlistedLabels(), **GUARANTEE)
    with refusal("one-process-only", "discover", error=ParameterError):
        ss.aggregate(["a", "b"], domain=ss.UnlistedLabels(), **GUARANTEE)
    plan = ss.plan(users=100, domain=ss.UnlistedLabels(), noise_by="curator", **GUARANTEE)
    with refusal("one-process-only"):
        ss.Randomizer(plan)
    with refusal("conflicting-arguments", "bounds"):
        ss.plan(users=100, domain=ss.UnlistedLabels(), bounds=(0, 1), noise_by="curator", **GUARANTEE)


def test_an_altered_plan_is_refused() -> None:
    plan = ss.plan(users=2, domain=ss.UnlistedLabels(), noise_by="curator", **GUARANTEE)
    object.__setattr__(plan, "mechanism", PartitionSelection(*[ss.NoiseDistribution(1.0, 1.0, 5)] * 2))
    with refusal(("changed-afterwards", "claim-not-confirmed")):
        ss.discover(["a", "b"], plan=plan)


def test_the_budget_is_charged_before_anything_is_drawn_and_only_for_what_is_valid() -> None:
    budget = Budget(5.0, 1e-4)
    for values in (["a", None], [["a"]]):
        with refusal(("missing-value", "wrong-type")):
            ss.discover(values, **GUARANTEE, budget=budget)
    assert budget.spent == 0

    class Spent(SeededSource):
        def fill(self, out: Any) -> None:
            assert budget.spent > 0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ss.discover(words(a=100), **GUARANTEE, budget=budget, source=Spent(1))
    (entry,) = budget.entries
    assert (entry.epsilon, entry.delta, entry.begun) == (1.0, 1e-6, 1)
    small = Budget(0.5, 1e-7)
    with refusal("budget-spent", error=PrivacyError):
        ss.discover(words(a=100), **GUARANTEE, budget=small)


def test_rounds_of_a_plan_are_counted_in_a_budget() -> None:
    plan = ss.plan(users=200, domain=ss.UnlistedLabels(), noise_by="curator", rounds=2, **GUARANTEE)
    budget = Budget(5.0, 1e-4)
    numbers = [ss.discover(words(a=200), plan=plan, budget=budget).round_number for _ in range(2)]
    assert numbers == [1, 2]
    assert len(budget.entries) == 1


def test_labels_are_found_only_once_in_the_same_rows() -> None:
    holdings = Holdings(tiny_plan(2, None))
    holdings.add(["a", "b"])
    holdings.find()
    with refusal("batch-closed"):
        holdings.find()
    with refusal("batch-closed"):
        holdings.add(["c"])
    with refusal("only-once"):
        copy.copy(Holdings(tiny_plan(2, None)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_copy_finds_nothing() -> None:
    holdings = Holdings(tiny_plan(2, None))
    holdings._process = -1  # another process made it
    with refusal("only-once"):
        holdings.add(["a", "b"])
