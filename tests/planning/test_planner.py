from __future__ import annotations

import inspect
import math
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any, Literal, get_type_hints

import numpy as np
import pytest
from tests.plan_builders import replace_of, with_mechanism
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.cautions import UninformativePlanWarning
from shufflesum.domains import Arrays
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.planning import PlanOptions, alternatives, published_plan
from shufflesum.testing import SeededSource

WRONG_RR: Any = ss.RandomizedResponse.Options  # for values that types would refuse
WRONG_NC: Any = ss.NoisyCounts.Options
BASE: dict[str, Any] = {"users": 3000, "shape": 4, "epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"epsilon": 0.0}, ("out-of-range", "epsilon is 0.0")),
        ({"epsilon": -1.0}, ("out-of-range", "epsilon is -1.0")),
        ({"epsilon": math.nan}, ("out-of-range", "epsilon is nan")),
        ({"epsilon": math.inf}, ("out-of-range", "epsilon is inf")),
        ({"delta": 0.0}, ("out-of-range", "delta is 0.0", "0 and 1")),
        ({"delta": 1.0}, ("out-of-range", "delta is 1.0")),
        ({"delta": -1e-6}, ("out-of-range", "delta is -1e-06")),
        ({"delta": math.nan}, ("out-of-range", "delta is nan")),
        ({"users": 0}, ("out-of-range", "users is 0")),
        ({"users": 2.5}, ("wrong-type", "users is 2.5")),
        ({"mechanism": ss.RandomizedResponse.Options(coordinates=0)}, ("out-of-range", "coordinates is 0", "1 and 4")),
        ({"mechanism": ss.RandomizedResponse.Options(coordinates=5)}, ("out-of-range", "coordinates is 5", "1 and 4")),
        ({"mechanism": WRONG_RR(coordinates=1.5)}, ("wrong-type", "coordinates is 1.5")),
        (
            {"mechanism": ss.RandomizedResponse.Options(coordinates=3), "max_reports": 2},
            ("conflicting-arguments", "coordinates is 3", "max_reports = 2"),
        ),
        (
            {"mechanism": WRONG_RR(coordinates="3"), "max_reports": 2},
            ("wrong-type", "coordinates is '3'"),
        ),
        ({"max_reports": 0}, ("out-of-range", "max_reports is 0")),
        ({"max_reports": 2.0}, ("wrong-type", "max_reports is 2.0")),
        ({"mechanism": ss.RandomizedResponse.Options(levels=0)}, ("out-of-range", "levels is 0", "1 and 999")),
        ({"mechanism": ss.RandomizedResponse.Options(levels=1000)}, ("out-of-range", "levels is 1000", "1 and 999")),
        (
            {"mechanism": ss.RandomizedResponse.Options(levels=0), "accountant": "paper"},
            ("out-of-range", "levels is 0", "1 and 32766"),
        ),
        (
            {"mechanism": ss.RandomizedResponse.Options(levels=32767), "accountant": "paper"},
            ("out-of-range", "levels is 32767", "1 and 32766"),
        ),
        ({"mechanism": WRONG_RR(levels=2.0)}, ("wrong-type", "levels is 2.0")),
        (
            {"mechanism": WRONG_RR(sampling="poisson")},
            ("unknown-choice", "sampling is 'poisson'", "stratified", "uniform"),
        ),
        ({"accountant": "none"}, ("unknown-choice", "accountant is 'none'", "exact", "paper")),
        ({"honest_fraction": 0.0}, ("out-of-range", "honest_fraction is 0.0")),
        ({"honest_fraction": 1.01}, ("out-of-range", "honest_fraction is 1.01")),
        ({"rounds": 0}, ("out-of-range", "rounds is 0")),
        ({"assumed_std": -0.1}, ("out-of-range", "assumed_std is -0.1")),
        ({"assumed_std": math.nan}, ("out-of-range", "assumed_std is nan")),
        ({"assumed_std": "small"}, ("wrong-type", "assumed_std is 'small'")),
        ({"bounds": (1.0, 1.0)}, ("bad-bounds", "bounds")),
        ({"bounds": (2.0, 1.0)}, ("bad-bounds", "bounds")),
        ({"bounds": (0.0, math.inf)}, ("bad-bounds", "bounds", "inf")),
        ({"bounds": (0.0, [1, 2, 3])}, ("bad-bounds", "bounds")),
        ({"bounds": 3.0}, ("bad-bounds", "bounds")),
        ({"shape": 0}, ("out-of-range", "shape 0")),
        ({"shape": 2.5}, ("wrong-type", "shape 2.5")),
        ({"shape": 2**31}, ("too-many-cells", "2147483648", "2147483647")),
        ({"shape": 10**9, "mechanism": ss.RandomizedResponse.Options(levels=4)}, ("out-of-range", "levels is 4")),
        ({"rounds": 2, "accountant": "paper"}, ("impossible-combination", "rounds is 2", "accountant='exact'")),
        (
            {"mechanism": ss.RandomizedResponse.Options(coordinates=2, sampling="stratified"), "accountant": "paper"},
            ("impossible-combination", "sampling='uniform'"),
        ),
    ],
    ids=str,
)
def test_bad_parameters_are_refused_by_name(change: dict[str, Any], refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=ParameterError):
        ss.plan(**BASE | change)


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        {},
        pytest.param({"mechanism": ss.RandomizedResponse.Options(coordinates=1)}, marks=pytest.mark.slow),
        {"max_reports": 2},
        pytest.param({"mechanism": ss.RandomizedResponse.Options(levels=1)}, marks=pytest.mark.slow),
        {"mechanism": ss.RandomizedResponse.Options(coordinates=3, levels=7)},
        {"mechanism": ss.RandomizedResponse.Options(coordinates=2, sampling="uniform")},
        pytest.param({"mechanism": ss.RandomizedResponse.Options(sampling="uniform")}, marks=pytest.mark.slow),
        {"honest_fraction": 0.5},
        {"rounds": 3},
        {"epsilon": 0.3},
        pytest.param({"epsilon": 4.0, "delta": 0.01}, marks=pytest.mark.slow),
        {"shape": ss.Symmetric(3)},
        {"shape": ()},
        {"mechanism": "randomized-response"},
        pytest.param({"mechanism": "noisy-counts"}, marks=pytest.mark.slow),  # as without a choice
        {"mechanism": ss.NoisyCounts.Options(digits=2), "rounds": 2},
        {"noise_by": "curator"},
        {"mechanism": "noisy-counts", "max_reports": 30},
        {"users": 10**6, "accountant": "paper", "delta": 1e-3},
        {
            "users": 10**8,
            "accountant": "paper",
            "mechanism": ss.RandomizedResponse.Options(coordinates=2),
            "epsilon": 2.0,
        },
    ],
    ids=str,
)
def test_every_plan_is_certified_at_the_noise_it_uses(change: dict[str, Any]) -> None:
    asked = BASE | change
    plan = ss.plan(**asked)
    plan.verify()
    assert ss.Plan.from_json(plan.to_json()) == plan
    chosen = {**asdict(plan.guarantee), **asdict(plan.mechanism), "mechanism": plan.mechanism.kind}  # type: ignore[call-overload]
    options = asked.get("mechanism")
    if options is not None and not isinstance(options, str):
        fixed = {name: value for name, value in asdict(options).items() if value is not None}
        asked = {**asked, **fixed, "mechanism": options.family}
    assert {name: value for name, value in asked.items() if name in chosen}.items() <= chosen.items()
    assert plan.reports <= asked.get("max_reports", 10**6)
    assert plan.noise_by == asked.get("noise_by", "users")
    assert plan.local_epsilon is None or plan.mechanism.kind == "randomized-response"


def test_a_planned_noise_probability_is_hardly_more_than_needed() -> None:
    plan = ss.plan(
        users=50_000,
        shape=100,
        epsilon=0.95,
        delta=1e-6,
        mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=3),
    )
    assert plan.privacy.delta(0.95).upper <= 1e-6
    less = math.floor(replace_of(plan).noise_probability * 0.999 * 2**53) / 2**53
    assert with_mechanism(plan, noise_probability=less).privacy.delta(0.95).upper > 1e-6


def test_options_are_all_optional_arguments_of_plan() -> None:
    """Whoever passes options on (`aggregate`, `plan_for_error`, commands) then misses none."""
    parameters = inspect.signature(ss.plan).parameters.values()
    optional = {parameter.name for parameter in parameters if parameter.default is not inspect.Parameter.empty}
    assert PlanOptions.__required_keys__ == frozenset()
    assert PlanOptions.__optional_keys__ == optional - {"domain", "shape"}
    types, choices = get_type_hints(ss.plan), get_type_hints(PlanOptions)
    assert {name: types[name] for name in choices} == choices


@pytest.mark.long
def test_max_reports_caps_what_a_user_sends() -> None:
    """Each coordinate is a report, so without a cap all four would be sent."""
    paper = BASE | {"mechanism": "randomized-response"}
    assert ss.plan(**paper).reports == 4
    for cap in (1, 2, 3):
        assert ss.plan(**paper, max_reports=cap).reports <= cap
        assert ss.plan(**BASE, max_reports=cap).mechanism.kind == "randomized-response"
    assert ss.plan(**paper, max_reports=4) == ss.plan(**paper, max_reports=10**6) == ss.plan(**paper)


def test_of_plans_as_good_the_one_with_the_fewest_reports_is_chosen() -> None:
    chosen = ss.plan(**BASE)
    assert chosen.mechanism.kind == "noisy-counts"
    others = [one for one in alternatives(chosen) if one.reports <= 64 * one.dimension]
    least = min(one.expected_error.total for one in others)
    assert chosen.expected_error.total <= 1.05 * least
    assert all(one.expected_error.total > 1.05 * least for one in others if one.reports < chosen.reports)
    capped = ss.plan(**BASE, max_reports=chosen.reports - 1)
    assert capped.reports < chosen.reports
    assert capped.expected_error.total > chosen.expected_error.total


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (
            {"mechanism": "subtract"},
            ("unknown-choice", "mechanism is 'subtract'", "randomized-response", "noisy-counts"),
        ),
        (
            {"mechanism": ss.NoisyCounts.Options(digits=3), "accountant": "paper"},
            ("conflicting-arguments", "'noisy-counts'", "accountant='paper'"),
        ),
        (
            {"shape": None, "domain": ss.Categories(3), "mechanism": ss.NoisyCounts.Options(digits=3)},
            ("impossible-combination", "digits"),
        ),
        ({"mechanism": ss.NoisyCounts.Options(digits=0)}, ("out-of-range", "digits is 0", "1 and 16")),
        ({"mechanism": ss.NoisyCounts.Options(digits=17)}, ("out-of-range", "digits is 17")),
        ({"mechanism": WRONG_NC(digits=2.0)}, ("wrong-type", "digits is 2.0")),
    ],
    ids=str,
)
def test_mechanisms_and_options_that_do_not_fit_are_refused(given: dict[str, Any], refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=ParameterError):
        ss.plan(**BASE | given)


def test_add_under_a_cap_that_it_cannot_keep_says_what_it_needs() -> None:
    with refusal("privacy-out-of-reach", "max_reports is 3", "mechanism 'randomized-response'", error=PrivacyError):
        ss.plan(**BASE, mechanism="noisy-counts", max_reports=3)


@pytest.mark.filterwarnings("ignore::shufflesum.cautions.UninformativePlanWarning")
def test_a_small_crowd_is_not_asked_for_masses_of_dummy_reports_unasked() -> None:
    few: dict[str, Any] = {"users": 20, "shape": 20, "epsilon": 0.5, "delta": 1e-6}
    assert ss.plan(**few).mechanism.kind == "randomized-response"
    assert ss.plan(**few, mechanism="noisy-counts").reports > 64 * 20


def test_many_rounds_leave_fewer_coordinates_to_choose_from() -> None:
    assert ss.plan(users=10**5, shape=1000, epsilon=1.0, delta=1e-8, rounds=2000).reports <= 500


def test_numbers_of_numpy_plan_the_same() -> None:
    plain = ss.plan(
        users=3000,
        shape=4,
        epsilon=1,
        delta=1e-6,
        mechanism=ss.RandomizedResponse.Options(coordinates=2, levels=3),
        rounds=1,
    )
    numpy = ss.plan(
        users=np.int64(3000),  # type: ignore[arg-type]
        shape=np.int64(4),  # type: ignore[arg-type]
        epsilon=np.float64(1),
        delta=np.float64(1e-6),
        mechanism=ss.RandomizedResponse.Options(coordinates=np.int32(2), levels=np.uint8(3)),  # type: ignore[arg-type]
        rounds=np.int64(1),  # type: ignore[arg-type]
    )
    assert numpy == plain
    assert numpy.to_json() == plain.to_json()


@pytest.mark.long
def test_the_planners_choice_is_no_worse_than_any_small_choice_by_hand() -> None:
    chosen = ss.plan(**BASE).expected_error.total
    for coordinates in (1, 2, 4):
        for levels in (1, 2, 3, 5, 8):
            by_hand = ss.plan(**BASE, mechanism=ss.RandomizedResponse.Options(coordinates=coordinates, levels=levels))
            assert chosen <= 1.05 * by_hand.expected_error.total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "values"), [("users", [2000, 2100, 10_000, 50_000]), ("epsilon", [0.5, 0.55, 2.0, 4.0])]
)
def test_more_users_and_more_epsilon_are_never_worse(name: str, values: list[float]) -> None:
    errors = [ss.plan(**BASE | {name: value, "shape": 10}).expected_error.total for value in values]
    for before, after in pairwise(errors):
        assert after <= 1.05 * before


def test_a_delta_that_cannot_be_certified_is_refused() -> None:
    with refusal("not-certified", "1e-15", error=PrivacyError):
        ss.plan(users=1, shape=4, epsilon=0.1, delta=1e-30)


@pytest.mark.parametrize("delta", [1e-13, 1e-16])
@pytest.mark.parametrize("mechanism", ["noisy-counts", "randomized-response"])
def test_a_delta_below_what_composition_certifies_is_refused(
    mechanism: Literal["noisy-counts", "randomized-response"], delta: float
) -> None:
    with refusal("not-certified", str(delta), error=PrivacyError):
        ss.plan(users=50_000, shape=10, epsilon=1.0, delta=delta, mechanism=mechanism)


def test_published_noise_above_one_is_refused_with_the_knobs_to_turn() -> None:
    with refusal("privacy-out-of-reach", "is 1.35", error=PrivacyError):
        ss.plan(
            users=50_000,
            shape=100,
            epsilon=0.95,
            delta=1e-6,
            mechanism=ss.RandomizedResponse.Options(levels=3),
            accountant="paper",
        )


def test_the_published_plan_has_the_papers_noise() -> None:
    plan = ss.plan(
        users=50_000,
        shape=100,
        epsilon=0.95,
        delta=0.5,
        mechanism=ss.RandomizedResponse.Options(levels=3),
        accountant="paper",
    )
    mechanism = replace_of(plan)
    assert mechanism.noise_probability == pytest.approx(0.17053, abs=1e-5)
    assert (mechanism.coordinates, mechanism.sampling) == (1, "stratified")


def test_a_plan_worse_than_guessing_is_warned_about() -> None:
    with pytest.warns(UninformativePlanWarning, match="worse than guessing"):
        ss.plan(users=30, shape=10, epsilon=0.5, delta=1e-6, mechanism=ss.RandomizedResponse.Options(coordinates=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("users", [3_000, 4_000, 6_000, 10_000, 20_000, 50_000, 200_000]),
        ("epsilon", [0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 3.0]),
    ],
)
def test_composed_plans_never_grow_worse_by_more_than_half_a_percent(name: str, values: list[float]) -> None:
    base = {"users": 10_000, "epsilon": 1.0, "shape": 50, "delta": 1e-6}
    errors = [ss.plan(**base | {name: value}).expected_error.total for value in values]  # type: ignore[arg-type]
    assert all(after <= 1.05 * before for before, after in pairwise(errors))


def test_a_known_spread_makes_for_a_better_plan() -> None:
    target: dict[str, Any] = {"users": 50_000, "shape": 100, "epsilon": 1.0, "delta": 1e-6, "max_reports": 1}
    narrow, cautious = ss.plan(**target, assumed_std=0.1), ss.plan(**target)
    assert narrow.error_at_std(0.1).total < 0.9 * cautious.error_at_std(0.1).total
    assert cautious.expected_error.total < narrow.expected_error.total
    assert ss.plan(**target, assumed_std=0.5).error_at_std(0.5).total == pytest.approx(
        cautious.expected_error.total, rel=1e-3
    )
    scaled = ss.plan(**target, assumed_std=1.0, bounds=(-3.0, 7.0))
    assert replace_of(scaled).levels == replace_of(narrow).levels
    assert scaled.error_at_std(1.0).total == pytest.approx(100 * narrow.error_at_std(0.1).total)


def test_the_error_at_a_spread_is_an_upper_bound_of_what_is_seen() -> None:
    """Users who differ little: the mean squared error of 40 runs, against twice what its own noise allows."""
    plan = ss.plan(
        users=2000,
        shape=20,
        epsilon=1.0,
        delta=1e-6,
        mechanism=ss.RandomizedResponse.Options(coordinates=2),
        assumed_std=0.05,
    )
    rows = np.random.default_rng(1).normal(0.4, 0.05, (2000, 20)).clip(0, 1)
    truth, spread = rows.mean(axis=0), float(rows.std(axis=0).max())
    errors = []
    for seed in range(40):
        reports = ss.Randomizer(plan, source=SeededSource(seed)).randomize(rows)
        errors.append(float(np.sum((ss.Analyzer(plan).analyze(reports).mean - truth) ** 2)))
    predicted = plan.error_at_std(spread).total
    assert 0.3 * predicted < np.mean(errors) < 1.1 * predicted
    assert predicted < 0.9 * plan.expected_error.total


def test_what_a_spread_costs_in_sampling_does_not_depend_on_the_bounds() -> None:
    plan = ss.plan(
        users=5000, shape=10, epsilon=1.0, delta=1e-6, mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=20)
    )
    unequal = replace(plan, domain=Arrays(10, (0.0, np.linspace(1, 3, 10))))
    assert unequal.error_at_std(0.01).sampling == pytest.approx(plan.error_at_std(0.01).sampling)
    assert unequal.error_at_std(0.01).noise > plan.error_at_std(0.01).noise
    assert unequal.error_at_std(9.0).total <= unequal.expected_error.total * (1 + 1e-12)


@pytest.mark.long
def test_alternatives_are_the_same_collection_with_fewer_and_fewer_coordinates() -> None:
    chosen = ss.plan(**BASE, rounds=2, honest_fraction=0.9, bounds=(-1, 1))
    others = alternatives(chosen)
    assert [other.reports for other in others if other.mechanism.kind == "randomized-response"] == [1, 2, 4]
    digits = [other.mechanism.digits for other in others if isinstance(other.mechanism, ss.NoisyCounts)]
    assert digits == list(range(1, len(digits) + 1))
    assert chosen in others
    for other in others:
        assert (other.domain, other.guarantee) == (chosen.domain, chosen.guarantee)
        other.verify()


@pytest.mark.long
def test_the_papers_plan_for_the_same_collection_is_one_round_of_one_coordinate() -> None:
    ours = ss.plan(users=10**6, shape=10, epsilon=2.0, delta=1e-3, rounds=3, honest_fraction=0.9)
    theirs = published_plan(ours, 0.9)
    theirs.verify()
    assert theirs.domain == ours.domain
    assert theirs.guarantee == replace(ours.guarantee, epsilon=0.9, rounds=1, accountant="paper")
    assert replace_of(theirs).coordinates == 1
