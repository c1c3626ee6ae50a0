from __future__ import annotations

import math
from itertools import islice
from typing import Any

import pytest
from tests.refusals import refusal

from shufflesum.domain import Box
from shufflesum.errors import PrivacyError
from shufflesum.mechanisms import Replace
from shufflesum.mechanisms.replace.moves import ReplaceMoves, halvings, most_levels, published_choice
from shufflesum.privacy import Guarantee
from shufflesum.privacy.replace import Setting

DOMAIN = Box.of(8, (0.0, 1.0))
GUARANTEE = Guarantee(1.0, 1e-6, users=5000)


def moves(**fixed: Any) -> ReplaceMoves:
    return ReplaceMoves(DOMAIN, GUARANTEE, **{"coordinates": [8, 4, 2, 1], **fixed})


def points(found: Any) -> set[tuple[int, int]]:
    return {(mechanism.coordinates, mechanism.levels) for mechanism in found}


@pytest.mark.long
def test_whatever_the_planner_is_handed_is_certified_and_hardly_noisier_than_needed() -> None:
    tried = moves()
    start, *others = tried.starts()
    for mechanism in [start, *others, *islice(tried.neighbours(start), 3)]:
        accounting = mechanism.accounting(DOMAIN.neighbours, GUARANTEE)
        accounting.check_claim(GUARANTEE)
        assert accounting.setting.delta_upper(0.995 * mechanism.noise_probability, 1.0) > 1e-6


def test_moves_are_one_step_in_coordinates_and_a_small_or_a_large_one_in_levels() -> None:
    tried = moves()
    assert points(tried.neighbours(Replace(4, 3, 0.5))) == {(8, 3), (2, 3), (4, 2), (4, 4)}
    assert points(tried.neighbours(Replace(8, 1, 0.5))) == {(4, 1), (8, 2)}
    assert points(tried.neighbours(Replace(1, 48, 0.5))) == {(2, 48), (1, 45), (1, 47), (1, 49), (1, 51)}


def test_what_the_caller_fixed_stays_fixed() -> None:
    assert points(moves(levels=[3]).neighbours(Replace(4, 3, 0.5))) == {(8, 3), (2, 3)}
    assert points(moves(coordinates=[4]).neighbours(Replace(4, 3, 0.5))) == {(4, 2), (4, 4)}
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
    monkeypatch.setattr(Setting, "smallest_noise_probability", lambda *_: pytest.fail("certified again"))
    assert tried.certified(2, 3) is first


def test_a_known_spread_asks_for_more_levels() -> None:
    """Where users hardly differ, rounding is what costs."""
    narrow, worst = (moves(coordinates=[1], spread=spread).best_with(1).levels for spread in (0.01, None))
    assert narrow > worst


def test_coordinates_are_halved_from_the_cap_down() -> None:
    assert halvings(DOMAIN, GUARANTEE) == [8, 4, 2, 1]
    assert halvings(DOMAIN, GUARANTEE, 5) == [5, 2, 1]
    assert halvings(DOMAIN, GUARANTEE, 500) == [8, 4, 2, 1]
    assert halvings(DOMAIN, Guarantee(1.0, 1e-6, users=5000, rounds=300_000)) == [3, 1]


def test_levels_end_where_reports_or_the_accountant_do() -> None:
    assert (most_levels(DOMAIN, certified=True), most_levels(DOMAIN, certified=False)) == (999, 32_766)
    assert most_levels(Box.of(2**24, (0.0, 1.0)), certified=True) == 254
    assert most_levels(Box.of((2**32 - 2) // 3, (0.0, 1.0)), certified=True) == 2
    assert most_levels(Box.of((2**32 - 2) // 3 + 1, (0.0, 1.0)), certified=True) == 1
    assert most_levels(Box.of(2**31 - 1, (0.0, 1.0)), certified=False) == 1  # no domain has more coordinates


def test_the_papers_choice_has_its_levels_sampling_and_noise() -> None:
    guarantee = Guarantee(0.95, 0.5, users=50_000, accountant="paper")
    hundred = Box.of(100, (0.0, 1.0))
    chosen = published_choice(hundred, guarantee, 1, None, None)
    assert (chosen.coordinates, chosen.sampling) == (1, "stratified")
    assert published_choice(hundred, guarantee, 1, 3, None).noise_probability == pytest.approx(0.17053, abs=1e-5)
    chosen.accounting(hundred.neighbours, guarantee).check_claim(guarantee)
    many = Guarantee(2.0, 1e-6, users=10**8, accountant="paper")
    assert published_choice(DOMAIN, many, 2, None, None).sampling == "uniform"
    with refusal("privacy-out-of-reach", error=PrivacyError):
        published_choice(hundred, Guarantee(0.95, 1e-6, users=50_000, accountant="paper"), 1, 3, None)
    assert math.isfinite(chosen.expected_error(hundred, 50_000).total)
