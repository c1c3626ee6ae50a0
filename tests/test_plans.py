from __future__ import annotations

import hashlib
import json
import math
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan_builders import replace_of, with_guarantee, with_mechanism
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.domains import Arrays, OpenVocabulary
from shufflesum.errors import FileError, ParameterError, PlanError
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.mechanisms.noisy_slots import NoisySlots
from shufflesum.mechanisms.randomized_response.mechanism import MAX_LEVELS
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.testing import unprotected_plan

VECTORS = Path(__file__).parent / "vectors"
PLAN = ss.plan(
    users=3000,
    shape=(2, 3),
    epsilon=1.0,
    delta=1e-6,
    bounds=(-1.5, 2.5),
    mechanism=ss.RandomizedResponse.Options(coordinates=2, levels=2),
)
NOISE = replace_of(PLAN).noise_probability
PARAMETERS = ("format", "domain", "mechanism", "guarantee")
MISSING = object()


def edited(changes: dict[str, Any]) -> dict[str, Any]:
    """PLAN's file with changes at paths such as `guarantee.users`; what becomes MISSING is left out."""
    file: dict[str, Any] = json.loads(PLAN.to_json())
    for path, value in changes.items():
        *above, name = path.split(".")
        place = file
        for step in above:
            place = place[step]
        if value is MISSING:
            del place[name]
        else:
            place[name] = value
    return file


def signed(changes: dict[str, Any]) -> str:
    """PLAN's file with changes, and the id a forger would compute for it."""
    file = edited(changes)
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
    domain = Arrays(structure, (low, low + draw(st.floats(1e-3, 1e6))))
    if kind == "dense" and draw(st.booleans()):
        lows = np.array(draw(st.lists(finite, min_size=domain.dimension, max_size=domain.dimension)))
        lows = lows.reshape(domain.shape)
        domain = Arrays(structure, (lows, lows + draw(st.floats(1e-3, 10))))
    return Plan(
        domain,
        RandomizedResponse(
            coordinates=draw(st.integers(1, domain.dimension)),
            levels=draw(st.integers(1, MAX_LEVELS)),
            noise_probability=draw(st.integers(0, 2**53)) / 2**53,
            sampling=draw(st.sampled_from(["stratified", "uniform"])),
        ),
        Guarantee(
            epsilon=draw(st.floats(1e-300, 1e300)),
            delta=draw(st.floats(1e-300, 1, exclude_max=True)),
            users=draw(st.integers(1, 10**10)),
            honest_fraction=draw(st.floats(1e-300, 1)),
            rounds=draw(st.integers(1, 10**6)),
            accountant=draw(st.sampled_from(["exact", "paper"])),
        ),
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
    assert with_guarantee(plan, users=plan.users % 10**10 + 1).id != plan.id


def test_a_verified_plan_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(PLAN.to_json())
    assert Plan.load(path) == Plan.from_json(PLAN.to_json().encode()) == Plan.from_json(signed({})) == PLAN


def test_a_plan_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with refusal("unreadable", str(path), error=FileError):
            Plan.load(path)


CHANGES: dict[str, Any] = {
    "format": "shufflesum-plan-3",
    "domain.kind": "l2-ball",
    "domain.structure": {"kind": "dense", "shape": [3, 2]},
    "domain.bounds": [-1.5, 2.6],
    "mechanism.kind": "noisy-counts",
    "mechanism.coordinates": 1,
    "mechanism.levels": 3,
    "mechanism.noise_probability": 0.5,
    "mechanism.sampling": "uniform",
    "guarantee.epsilon": 0.5,
    "guarantee.delta": 1e-7,
    "guarantee.users": 2999,
    "guarantee.honest_fraction": 0.5,
    "guarantee.rounds": 2,
    "guarantee.accountant": "paper",
    "id": "0" * 64,
    "dimension": 7,
    "cells": 17,
    "reports": 3,
}


@pytest.mark.parametrize("path", CHANGES)
def test_a_plan_changed_in_any_field_is_refused(path: str) -> None:
    assert edited({path: CHANGES[path]}) != edited({})
    with pytest.raises(PlanError):
        Plan.from_json(json.dumps(edited({path: CHANGES[path]})))
    with refusal("format-mismatch" if path == "format" else "malformed", path.rpartition(".")[2], error=PlanError):
        Plan.from_json(json.dumps(edited({path: MISSING})))


def test_every_field_but_the_predictions_is_among_the_changed_ones() -> None:
    parts = ("domain", "mechanism", "guarantee")
    fields = {
        f"{name}.{field}" if name in parts else name
        for name, value in edited({}).items()
        for field in (value if name in parts else [""])
    }
    assert fields - set(CHANGES) == {"expected_error", "local_epsilon", "bytes_per_user"}


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
    with refusal("changed-afterwards", error=PlanError):
        Plan.from_json(json.dumps(json.loads(PLAN.to_json()) | lie))


def test_predictions_must_follow_in_any_unit() -> None:
    text = ss.plan(users=3000, shape=2, epsilon=1.0, delta=1e-6, bounds=(0, 1e-7)).to_json()
    file = json.loads(text)
    assert 0 < file["expected_error"]["total"] < 1e-12
    assert Plan.from_json(text).to_json() == text
    file["expected_error"]["total"] = 0.0
    with refusal("changed-afterwards", error=PlanError):
        Plan.from_json(json.dumps(file))


@pytest.mark.parametrize(
    ("mechanism", "claim", "problem"),
    [
        ({}, {"delta": 1e-7}, "claim-not-confirmed"),
        ({}, {"delta": 0.99e-6}, "claim-not-confirmed"),
        ({}, {"epsilon": 0.99}, "claim-not-confirmed"),
        ({}, {"users": 2900}, "claim-not-confirmed"),
        ({}, {"rounds": 2}, "claim-not-confirmed"),
        ({}, {"honest_fraction": 0.9}, "claim-not-confirmed"),
        ({}, {"accountant": "paper"}, "impossible-combination"),
        ({}, {"accountant": "paper", "rounds": 2}, "impossible-combination"),
        ({}, {"accountant": "none"}, "no-guarantee"),
        ({}, {"accountant": "none", "epsilon": math.inf}, "no-guarantee"),
        ({"noise_probability": math.floor(NOISE * 0.999 * 2**53) / 2**53}, {}, "claim-not-confirmed"),
        ({"noise_probability": 0.0}, {}, "not-certified"),
        ({"coordinates": 3}, {}, "claim-not-confirmed"),
        ({"levels": 5}, {}, "claim-not-confirmed"),
    ],
    ids=str,
)
def test_a_false_claim_is_refused_though_all_else_in_its_file_is_right(
    mechanism: dict[str, Any], claim: dict[str, Any], problem: str
) -> None:
    text = with_guarantee(with_mechanism(PLAN, **mechanism), **claim).to_json()
    Plan.decode_unverified(text)
    with refusal(problem, error=PlanError):
        Plan.from_json(text)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"guarantee.delta": 0.0}, "out-of-range"),
        ({"guarantee.delta": 1.0}, "out-of-range"),
        ({"guarantee.delta": 2.0}, "out-of-range"),
        ({"guarantee.delta": -0.1}, "out-of-range"),
        ({"guarantee.epsilon": None}, "out-of-range"),
        ({"guarantee.epsilon": 0.0}, "out-of-range"),
        ({"guarantee.epsilon": -1.0}, "out-of-range"),
        ({"guarantee.users": 0}, "out-of-range"),
        ({"guarantee.users": -5}, "out-of-range"),
        ({"guarantee.users": 10**11}, "out-of-range"),
        ({"guarantee.users": 3000.5}, "malformed"),
        ({"guarantee.users": "3000"}, "malformed"),
        ({"guarantee.accountant": "trust me"}, "malformed"),
        ({"guarantee.honest_fraction": 0.0}, "out-of-range"),
        ({"guarantee.honest_fraction": 1.5}, "out-of-range"),
        ({"guarantee.rounds": 0}, "out-of-range"),
        ({"guarantee.more": 1}, "malformed"),
        ({"guarantee": None}, "malformed"),
        ({"mechanism.coordinates": 0}, "malformed"),
        ({"mechanism.coordinates": 7}, "out-of-range"),
        ({"mechanism.levels": 0}, "malformed"),
        ({"mechanism.levels": 40_000}, "out-of-range"),
        ({"mechanism.noise_probability": 1.5}, "malformed"),
        ({"mechanism.noise_probability": -0.5}, "malformed"),
        ({"mechanism.noise_probability": 2.0**-54}, "malformed"),
        ({"mechanism.sampling": "poisson"}, "malformed"),
        ({"mechanism.more": 1}, "malformed"),
        ({"mechanism": None}, "malformed"),
        ({"domain.bounds": [1, 1]}, "bad-bounds"),
        ({"domain.bounds": [1.0]}, "malformed"),
        ({"domain.bounds": "wide"}, "malformed"),
        ({"domain.structure": {"kind": "dense", "shape": [-1]}}, "out-of-range"),
        ({"domain.structure": {"kind": "dense", "shape": [2**20, 2**20]}}, "too-many-cells"),
        ({"domain.structure": {"kind": "ring"}}, "malformed"),
        ({"domain.structure": None}, "malformed"),
        ({"domain.more": 1}, "malformed"),
        ({"domain": None}, "malformed"),
        ({"more": 1}, "malformed"),
    ],
    ids=str,
)
def test_what_no_plan_may_hold_is_refused_though_its_id_is_right(change: dict[str, Any], problem: str) -> None:
    with refusal(problem, error=PlanError):
        Plan.from_json(signed(change))


def test_a_plan_of_the_format_before_is_refused_by_name_with_what_to_do() -> None:
    text = (VECTORS / "old_plan_1.json").read_text()
    assert json.loads(text)["format"] == "shufflesum-plan-1"
    with refusal("format-mismatch", "'shufflesum-plan-1'", "reads 'shufflesum-plan-2'", error=PlanError):
        Plan.from_json(text)


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "{}", b"\xff\xfe", "\ud800", '{"format": NaN}', '{"domain":' + "[" * 100_000, PLAN.id],
    ids=lambda text: repr(text)[:20],
)
def test_what_is_no_plan_is_refused(text: str | bytes) -> None:
    with refusal("format-mismatch" if text == "{}" else "malformed", "shufflesum plan -o FILE", error=PlanError):
        Plan.from_json(text)


def test_numbers_of_numpy_and_whole_floats_give_the_same_plan() -> None:
    by_hand: Any = {"coordinates": np.uint8(2), "levels": np.int32(2), "noise_probability": np.float64(NOISE)}
    claim: Any = {"delta": np.float64(1e-6), "users": np.int64(3000), "honest_fraction": 1, "rounds": np.uint8(1)}
    given_by_hand = Plan(PLAN.domain, RandomizedResponse(**by_hand), Guarantee(epsilon=1, **claim))
    assert given_by_hand == PLAN
    assert given_by_hand.id == PLAN.id
    assert Plan.from_json(given_by_hand.to_json()).to_json() == PLAN.to_json()


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"users": 0}, ("out-of-range", "users is 0")),
        ({"users": 2.5}, ("wrong-type", "users is 2.5")),
        ({"users": True}, ("wrong-type", "users is True")),
        ({"rounds": 0}, ("out-of-range", "rounds is 0")),
        ({"honest_fraction": math.nan}, ("out-of-range", "honest_fraction is nan")),
        ({"epsilon": 0.0}, ("out-of-range", "epsilon is 0.0")),
        ({"epsilon": math.inf, "accountant": "paper"}, ("out-of-range", "epsilon is inf")),
        ({"epsilon": math.nan}, ("out-of-range", "epsilon is nan")),
        ({"delta": 0.0}, ("out-of-range", "delta is 0.0")),
        ({"delta": 1.0}, ("out-of-range", "delta is 1.0")),
        ({"accountant": "me"}, ("unknown-choice", "accountant is 'me'")),
    ],
    ids=str,
)
def test_what_is_no_guarantee_is_refused(change: dict[str, Any], refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=ParameterError):
        with_guarantee(PLAN, **change)


def test_a_plan_has_no_more_coordinates_than_its_domain() -> None:
    with refusal("out-of-range", "is 7", "between 1", "and 6", error=ParameterError):
        with_mechanism(PLAN, coordinates=7)


@pytest.mark.parametrize(
    ("dimension", "levels"), [(2**30, 3), (2**31 - 1, 2), (2**17 + 5, 32766)], ids=["2**32", "three", "many levels"]
)
def test_a_plan_whose_last_cell_would_be_the_blank_or_beyond_is_refused(dimension: int, levels: int) -> None:
    with refusal("too-many-cells", str(dimension * (levels + 1)), error=ParameterError):
        Plan(Arrays(dimension, (0, 1)), RandomizedResponse(1, levels, 0.5), PLAN.guarantee)


def test_the_largest_plan_leaves_the_blank_and_the_number_below_it_alone() -> None:
    largest = Plan(Arrays((2**32 - 2) // 2, (0, 1)), RandomizedResponse(1, 1, 0.5), PLAN.guarantee)
    assert largest.cells == 2**32 - 2  # numbered from 0 to 2**32 - 3
    with refusal("too-many-cells", "4294967295"):
        Plan(Arrays((2**32 - 1) // 3, (0, 1)), RandomizedResponse(1, 2, 0.5), PLAN.guarantee)


def test_plans_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        PLAN.domain = Arrays(1, (0, 1))  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        PLAN.guarantee.users = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        replace_of(PLAN).noise_probability = 0.0  # type: ignore[misc]


def test_a_plan_says_what_follows_from_it() -> None:
    plan = unprotected_plan(users=100, shape=7, coordinates=3, levels=4, noise_probability=0.25)
    assert (plan.cells, plan.reports, plan.least_reports) == (35, 3, 300)
    assert plan.bytes_per_user == {"raw": 12, "sealed": 156}
    assert plan.local_epsilon == pytest.approx(3 * math.log(1 + 5 * 0.75 / 0.25))
    assert with_guarantee(plan, honest_fraction=0.019).honest_users == 1
    assert with_guarantee(plan, honest_fraction=1e-9).honest_users == 1


def test_honest_users_are_the_exact_floor_of_the_stored_fraction() -> None:
    """The double 0.96 lies below 0.96, and 39,225 times it below 37,656, though the product of floats rounds to it."""
    assert 39_225 * 0.96 == 37_656
    plan = unprotected_plan(users=39_225, shape=1)
    assert with_guarantee(plan, honest_fraction=0.96).honest_users == 37_655
    assert with_guarantee(plan, honest_fraction=math.nextafter(0.96, 1)).honest_users == 37_656


def test_predicted_errors_are_in_the_users_units() -> None:
    unit = unprotected_plan(users=100, shape=2, levels=3, noise_probability=0.25)
    wide = unprotected_plan(users=100, shape=2, levels=3, noise_probability=0.25, bounds=([0, -10], [1, 10]))
    assert wide.expected_error.total == pytest.approx(unit.expected_error.total * (1 + 400) / 2)
    assert not unit.worse_than_guessing
    assert unprotected_plan(users=2, shape=2, noise_probability=0.9).worse_than_guessing


def test_a_plan_for_words_needs_the_key_of_its_hash() -> None:
    slots, guarantee = NoisySlots(1, 0.5), Guarantee(1.0, 1e-6, 1000)
    assert Plan(OpenVocabulary(10, 8, bytes(16)), slots, guarantee).cells == 80
    with refusal("missing-argument", "key", error=ParameterError):
        Plan(OpenVocabulary(10, 8), slots, guarantee)
