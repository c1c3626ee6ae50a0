from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from tests.plan_builders import encoding_for
from tests.refusals import refusal

from shufflesum.domains import Arrays
from shufflesum.encodings import Levels
from shufflesum.errors import PrivacyError
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.mechanisms.randomized_response.mechanism import (
    _Neighbourhood,
    coordinate_grid,
    most_levels,
    published_choice,
)
from shufflesum.privacy import Guarantee, RandomizedResponseAccountant


def levels_of(dimension: int) -> Levels:
    encoding = encoding_for(Arrays(dimension, (0.0, 1.0)), RandomizedResponse)
    assert isinstance(encoding, Levels)
    return encoding


EIGHT = levels_of(8)
GUARANTEE = Guarantee(1.0, 1e-6, users=5000)


def moves(**fixed: Any) -> _Neighbourhood:
    return _Neighbourhood(EIGHT, GUARANTEE, **{"coordinates": [8, 4, 2, 1], **fixed})


def points(found: Any) -> set[tuple[int, int]]:
    return {(mechanism.coordinates, mechanism.levels) for mechanism in found}


@pytest.mark.long
def test_whatever_the_planner_is_handed_is_certified_and_hardly_noisier_than_needed() -> None:
    tried = moves()
    start, *others = tried.starts()
    for mechanism in [start, *others, *islice(tried.neighbours(start), 3)]:
        accountant = mechanism.accountant(EIGHT, GUARANTEE)
        accountant.check_claim(GUARANTEE)
        less = replace(accountant, noise_probability=0.995 * mechanism.noise_probability)
        assert less.delta_upper(1.0) > 1e-6


def test_moves_are_one_step_in_coordinates_and_a_small_or_a_large_one_in_levels() -> None:
    tried = moves()
    assert points(tried.neighbours(RandomizedResponse(4, 3, 0.5))) == {(8, 3), (2, 3), (4, 2), (4, 4)}
    assert points(tried.neighbours(RandomizedResponse(8, 1, 0.5))) == {(4, 1), (8, 2)}
    assert points(tried.neighbours(RandomizedResponse(1, 48, 0.5))) == {(2, 48), (1, 45), (1, 47), (1, 49), (1, 51)}


def test_what_the_caller_fixed_stays_fixed() -> None:
    assert points(moves(levels=[3]).neighbours(RandomizedResponse(4, 3, 0.5))) == {(8, 3), (2, 3)}
    assert points(moves(coordinates=[4]).neighbours(RandomizedResponse(4, 3, 0.5))) == {(4, 2), (4, 4)}
    fixed = moves(coordinates=[2], levels=[3], sampling="uniform")
    assert {mechanism.sampling for mechanism in fixed.starts()} == {"uniform"}
    assert points(fixed.starts()) == {(2, 3)}
    assert points(fixed.neighbours(next(fixed.starts()))) == set()


def test_one_level_is_always_a_start_because_the_guess_does_not_know_its_tighter_bound() -> None:
    assert (8, 1) in points(moves().starts())
    assert {levels for _, levels in points(moves(levels=[5]).starts())} == {5}


def test_each_point_is_certified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = moves()
    first = tried.certified(2, 3)
    monkeypatch.setattr(
        RandomizedResponseAccountant, "smallest_noise_probability", lambda *_: pytest.fail("certified again")
    )
    assert tried.certified(2, 3) is first


def test_a_known_spread_asks_for_more_levels() -> None:
    """Where users hardly differ, rounding is what costs."""
    narrow, worst = (moves(coordinates=[1], assumed_std=std).best_with(1).levels for std in (0.01, None))
    assert narrow > worst


def test_coordinates_are_halved_from_the_cap_down() -> None:
    assert coordinate_grid(EIGHT, GUARANTEE) == [8, 4, 2, 1]
    assert coordinate_grid(EIGHT, GUARANTEE, 5) == [5, 2, 1]
    assert coordinate_grid(EIGHT, GUARANTEE, 500) == [8, 4, 2, 1]
    assert coordinate_grid(EIGHT, Guarantee(1.0, 1e-6, users=5000, rounds=300_000)) == [3, 1]


def test_levels_end_where_reports_or_the_accountant_do() -> None:
    assert (most_levels(EIGHT, certified=True), most_levels(EIGHT, certified=False)) == (999, 32_766)
    assert most_levels(levels_of(2**24), certified=True) == 254
    assert most_levels(levels_of((2**32 - 2) // 3), certified=True) == 2
    assert most_levels(levels_of((2**32 - 2) // 3 + 1), certified=True) == 1
    assert most_levels(levels_of(2**31 - 1), certified=False) == 1  # no domain has more coordinates


def test_the_papers_choice_has_its_levels_sampling_and_noise() -> None:
    guarantee = Guarantee(0.95, 0.5, users=50_000, accountant="paper")
    hundred = levels_of(100)
    chosen = published_choice(hundred, guarantee, 1, None, None)
    assert (chosen.coordinates, chosen.sampling) == (1, "stratified")
    assert published_choice(hundred, guarantee, 1, 3, None).noise_probability == pytest.approx(0.17053, abs=1e-5)
    chosen.accountant(hundred, guarantee).check_claim(guarantee)
    many = Guarantee(2.0, 1e-6, users=10**8, accountant="paper")
    assert published_choice(EIGHT, many, 2, None, None).sampling == "uniform"
    with refusal("privacy-out-of-reach", error=PrivacyError):
        published_choice(hundred, Guarantee(0.95, 1e-6, users=50_000, accountant="paper"), 1, 3, None)
    assert math.isfinite(chosen.expected_error(hundred, 50_000).total)
