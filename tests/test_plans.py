from __future__ import annotations

import hashlib
import json
import math
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shufflesum as ss
from shufflesum.contract import MAX_LEVELS, Guarantee, Plan
from shufflesum.domain import Domain
from shufflesum.errors import FileError, ParameterError, PlanError
from shufflesum.testing import unprotected_plan

PLAN = ss.plan(users=3000, shape=(2, 3), epsilon=1.0, delta=1e-6, bounds=(-1.5, 2.5), reports=2, levels=2)
PARAMETERS = [
    *("format", "structure", "bounds", "users", "reports", "levels", "noise_probability"),
    *("sampling", "epsilon", "delta", "accountant", "honest_fraction", "rounds"),
]


def signed(**changes: Any) -> str:
    """PLAN's file with changes, and the id a forger would compute for it."""
    file = json.loads(PLAN.to_json()) | changes
    canonical = json.dumps({name: file[name] for name in PARAMETERS}, sort_keys=True, separators=(",", ":"))
    return json.dumps(file | {"id": hashlib.sha256(canonical.encode()).hexdigest()})


@st.composite
def claimed_plans(draw: st.DrawFn) -> Plan:
    """Plans of all structures, with awkward numbers, claiming anything."""
    kind = draw(st.sampled_from(["dense", "symmetric", "span"]))
    finite = st.floats(-1e6, 1e6)
    if kind == "span":
        weights = draw(st.lists(st.floats(0.5, 2), min_size=3, max_size=3))
        structure: Any = ss.Span(np.diag(weights) + np.tri(3) * 0.3)
    elif kind == "symmetric":
        structure = ss.Symmetric(draw(st.integers(1, 4)))
    else:
        structure = draw(st.lists(st.integers(1, 4), max_size=3).map(tuple))
    low = draw(finite)
    domain = Domain.of(structure, (low, low + draw(st.floats(1e-3, 1e6))))
    if kind == "dense" and draw(st.booleans()):
        lows = np.array(draw(st.lists(finite, min_size=domain.dimension, max_size=domain.dimension)))
        lows = lows.reshape(domain.shape)
        domain = Domain.of(structure, (lows, lows + draw(st.floats(1e-3, 10))))
    return Plan(
        users=draw(st.integers(1, 10**10)),
        domain=domain,
        reports=draw(st.integers(1, domain.dimension)),
        levels=draw(st.integers(1, MAX_LEVELS)),
        noise_probability=draw(st.integers(0, 2**53)) / 2**53,
        sampling=draw(st.sampled_from(["stratified", "uniform"])),
        guarantee=Guarantee(
            draw(st.floats(1e-300, 1e300)),
            draw(st.floats(1e-300, 1, exclude_max=True)),
            draw(st.sampled_from(["exact", "paper"])),
        ),
        honest_fraction=draw(st.floats(1e-300, 1)),
        rounds=draw(st.integers(1, 10**6)),
    )


@given(plan=claimed_plans())
def test_plans_come_back_from_json_to_the_last_bit(plan: Plan) -> None:
    text = plan.to_json()
    back = Plan.decode_unverified(text)  # without the claim, which these plans do not keep
    assert back == plan
    assert hash(back) == hash(plan)
    assert back.id == plan.id
    assert back.to_json() == text


@given(plan=claimed_plans(), other=claimed_plans())
def test_ids_tell_plans_apart(plan: Plan, other: Plan) -> None:
    assert (plan == other) == (plan.id == other.id)
    assert replace(plan, users=plan.users % 10**10 + 1).id != plan.id


def test_a_verified_plan_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(PLAN.to_json())
    assert Plan.load(path) == Plan.from_json(PLAN.to_json().encode()) == Plan.from_json(signed()) == PLAN


def test_a_plan_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(FileError, match=f"cannot read plan {path}"):
            Plan.load(path)


CHANGES: dict[str, Any] = {
    "format": "shufflesum-plan-2",
    "structure": {"kind": "dense", "shape": [3, 2]},
    "bounds": [-1.5, 2.6],
    "users": 2999,
    "reports": 1,
    "levels": 3,
    "noise_probability": 0.5,
    "sampling": "uniform",
    "epsilon": 0.5,
    "delta": 1e-7,
    "accountant": "paper",
    "honest_fraction": 0.5,
    "rounds": 2,
    "id": "0" * 64,
    "dimension": 7,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_plan_changed_in_any_field_is_refused(name: str) -> None:
    file = json.loads(PLAN.to_json())
    assert file[name] != CHANGES[name]
    with pytest.raises(PlanError):
        Plan.from_json(json.dumps(file | {name: CHANGES[name]}))
    del file[name]
    with pytest.raises(PlanError, match=f"missing required field `{name}`"):
        Plan.from_json(json.dumps(file))


def test_every_field_but_the_predictions_is_among_the_changed_ones() -> None:
    assert set(json.loads(PLAN.to_json())) - set(CHANGES) == {"expected_error", "local_epsilon", "bytes_per_user"}


@pytest.mark.parametrize(
    "lie",
    [
        {"local_epsilon": 0.01},
        {"local_epsilon": None},
        {"expected_error": {"total": 0.0}},
        {"expected_error": json.loads(PLAN.to_json())["expected_error"] | {"total": 1e-9}},
        {"expected_error": json.loads(PLAN.to_json())["expected_error"] | {"bias": 0.0}},
        {"bytes_per_user": {}},
    ],
)
def test_predictions_in_a_file_must_follow_from_its_parameters(lie: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="changed after it was made"):
        Plan.from_json(json.dumps(json.loads(PLAN.to_json()) | lie))


def test_predictions_must_follow_in_any_unit() -> None:
    text = ss.plan(users=3000, shape=2, epsilon=1.0, delta=1e-6, bounds=(0, 1e-7)).to_json()
    file = json.loads(text)
    assert 0 < file["expected_error"]["total"] < 1e-12
    assert Plan.from_json(text).to_json() == text
    file["expected_error"]["total"] = 0.0
    with pytest.raises(PlanError, match="changed after it was made"):
        Plan.from_json(json.dumps(file))


@pytest.mark.parametrize(
    "lie",
    [
        {"delta": 1e-7},
        {"delta": 0.99e-6},
        {"epsilon": 0.99},
        {"users": 2900},
        {"noise_probability": math.floor(PLAN.noise_probability * 0.999 * 2**53) / 2**53},
        {"noise_probability": 0.0},
        {"reports": 3},
        {"rounds": 2},
        {"honest_fraction": 0.9},
        {"levels": 5},
        {"accountant": "paper"},
        {"accountant": "paper", "rounds": 2},
        {"accountant": "none"},
        {"accountant": "none", "epsilon": None},
    ],
    ids=str,
)
def test_a_false_claim_is_refused_though_its_id_is_right(lie: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        Plan.from_json(signed(**lie))


@pytest.mark.parametrize(
    "change",
    [
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": 2.0},
        {"delta": -0.1},
        {"epsilon": None},
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"users": 0},
        {"users": -5},
        {"users": 10**11},
        {"users": 3000.5},
        {"users": "3000"},
        {"reports": 0},
        {"reports": 7},
        {"levels": 0},
        {"levels": 40_000},
        {"noise_probability": 1.5},
        {"noise_probability": -0.5},
        {"noise_probability": 2.0**-54},
        {"sampling": "poisson"},
        {"accountant": "trust me"},
        {"honest_fraction": 0.0},
        {"honest_fraction": 1.5},
        {"rounds": 0},
        {"bounds": [1, 1]},
        {"bounds": [1.0]},
        {"bounds": "wide"},
        {"structure": {"kind": "dense", "shape": [-1]}},
        {"structure": {"kind": "dense", "shape": [2**20, 2**20]}},
        {"structure": {"kind": "ring"}},
        {"structure": None},
        {"more": 1},
    ],
    ids=str,
)
def test_what_no_plan_may_hold_is_refused_though_its_id_is_right(change: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        Plan.from_json(signed(**change))


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "{}", b"\xff\xfe", "\ud800", '{"format": NaN}', '{"structure":' + "[" * 100_000, PLAN.id],
    ids=lambda text: repr(text)[:20],
)
def test_what_is_no_plan_is_refused(text: str | bytes) -> None:
    with pytest.raises(PlanError, match="not a plan"):
        Plan.from_json(text)


def test_numbers_of_numpy_and_whole_floats_give_the_same_plan() -> None:
    given_by_hand = Plan(
        users=np.int64(3000),  # type: ignore[arg-type]
        domain=PLAN.domain,
        reports=np.uint8(2),  # type: ignore[arg-type]
        levels=np.int32(2),  # type: ignore[arg-type]
        noise_probability=np.float64(PLAN.noise_probability),
        sampling="stratified",
        guarantee=Guarantee(1, np.float64(1e-6), "exact"),
        honest_fraction=1,
        rounds=1,
    )
    assert given_by_hand == PLAN
    assert given_by_hand.id == PLAN.id
    assert Plan.from_json(given_by_hand.to_json()).to_json() == PLAN.to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": 0}, "users is 0; it must lie between 1 and"),
        ({"users": 2.5}, "users is 2.5; it must be a whole number"),
        ({"users": True}, "users is True; it must be a whole number"),
        ({"levels": 0}, "levels is 0"),
        ({"levels": 32767}, "levels is 32767; it must lie between 1 and 32766"),
        ({"reports": 7}, "reports is 7; it must lie between 1 and 6"),
        ({"rounds": 0}, "rounds is 0"),
        ({"sampling": "all"}, "sampling is 'all'; it must be one of stratified, uniform"),
        ({"honest_fraction": math.nan}, "honest_fraction is nan"),
        ({"noise_probability": math.nan}, "noise_probability is nan"),
        ({"noise_probability": 1e-17}, "noise_probability is 1e-17"),
        ({"domain": Domain.of(2**31 - 1, (0, 1)), "levels": 2}, "report cells"),
    ],
)
def test_plans_outside_the_protocol_or_the_report_format_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        replace(PLAN, **change)


@pytest.mark.parametrize(
    ("epsilon", "delta", "accountant", "message"),
    [
        (0.0, 0.1, "exact", "epsilon is 0.0"),
        (math.inf, 0.1, "paper", "epsilon is inf"),
        (math.nan, 0.1, "exact", "epsilon is nan"),
        (1.0, 0.0, "exact", "delta is 0.0"),
        (1.0, 1.0, "exact", "delta is 1.0"),
        (1.0, 0.1, "me", "accountant is 'me'"),
    ],
)
def test_what_is_no_guarantee_is_refused(epsilon: float, delta: float, accountant: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Guarantee(epsilon, delta, accountant)


def test_plans_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        PLAN.users = 1  # type: ignore[misc]


def test_a_plan_says_what_follows_from_it() -> None:
    plan = unprotected_plan(users=100, shape=7, reports=3, levels=4, noise_probability=0.25)
    assert plan.block_starts.tolist() == [0, 2, 4]
    np.testing.assert_allclose(plan.sampling_probabilities, 1 / np.array([2, 2, 2, 2, 3, 3, 3]))
    assert plan.least_reports == 300
    assert plan.bytes_per_user == {"raw": 18, "sealed": 162}
    assert plan.local_epsilon == pytest.approx(3 * math.log(1 + 5 * 0.75 / 0.25))
    uniform = replace(plan, sampling="uniform")
    np.testing.assert_allclose(uniform.sampling_probabilities, 3 / 7)
    assert replace(plan, honest_fraction=0.019).honest_users == 1
    assert replace(plan, honest_fraction=1e-9).honest_users == 1


def test_predicted_errors_are_in_the_users_units() -> None:
    unit = unprotected_plan(users=100, shape=2, levels=3, noise_probability=0.25)
    wide = unprotected_plan(users=100, shape=2, levels=3, noise_probability=0.25, bounds=([0, -10], [1, 10]))
    assert wide.expected_error.total == pytest.approx(unit.expected_error.total * (1 + 400) / 2)
    assert not unit.worse_than_guessing
    assert unprotected_plan(users=2, shape=2, noise_probability=0.9).worse_than_guessing
