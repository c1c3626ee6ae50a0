"""Each round by itself: randomized, shuffled, counted, estimated, and never mixed with another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal
from tests.round_dependent import FALSE_ALARM_OF_BALLS, TURNING, turn_boxes, turned_rows

import shufflesum as ss
from shufflesum.aggregation import aggregate_batches
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.domains.l2_ball.estimate import L2BallEstimate
from shufflesum.errors import DataError, ParameterError, ReportsError
from shufflesum.mechanisms import NoisySlots
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.protocol import Tally
from shufflesum.release import release
from shufflesum.reports import Counts
from shufflesum.testing import unprotected_plan

PLAN = unprotected_plan(users=4, shape=3, coordinates=3, levels=4, rounds=3)
ROWS = np.array([[0.0, 0.25, 0.5], [0.25, 0.5, 0.75], [0.5, 0.75, 1.0], [1.0, 1.0, 1.0]])


def test_all_roles_use_the_domain_of_their_round(monkeypatch: pytest.MonkeyPatch) -> None:
    turn_boxes(monkeypatch)
    for number in (1, 2, 3):
        rows = number * ROWS
        reports = ss.shuffle(ss.Randomizer(PLAN, round_number=number).randomize(rows))
        assert (reports.round_number, reports[:2].round_number) == (number, number)
        estimate = ss.Analyzer(PLAN, round_number=number).analyze(reports)
        tally = Tally(PLAN, round_number=number)
        tally.add(rows)
        by_batches = aggregate_batches([rows[:1], rows[1:]], PLAN, workers=2, round_number=number)
        for found in (estimate, release(tally.counts()), by_batches):
            assert found.round_number == number
            np.testing.assert_allclose(found.mean, rows.mean(axis=0), rtol=1e-12)
            np.testing.assert_array_equal(found.table, estimate.table)


def test_values_of_another_round_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    turn_boxes(monkeypatch)
    for take in (ss.Randomizer(PLAN).randomize, Tally(PLAN).add):
        with refusal("out-of-bounds", error=DataError):
            take(2 * ROWS)


def test_pieces_and_blocks_are_of_their_round() -> None:
    randomizer = ss.Randomizer(PLAN, round_number=2)
    blocks = list(randomizer.blocks(ROWS))
    assert {block.round_number for block in blocks} == {2}
    assert ss.Reports.concatenate(blocks).round_number == 2
    with refusal("round-mismatch", "[1, 2]", error=ReportsError):
        ss.Reports.concatenate([*blocks, ss.Randomizer(PLAN).randomize(ROWS)])


def test_reports_and_shards_of_another_round_are_refused_and_change_nothing() -> None:
    first, second = ss.Analyzer(PLAN), ss.Analyzer(PLAN, round_number=2)
    assert (first.round_number, second.round_number) == (1, 2)
    reports = ss.Randomizer(PLAN, round_number=2).randomize(ROWS)
    with refusal("round-mismatch", "round 2", "round 1", error=ReportsError):
        first.add(reports)
    second.add(reports)
    with refusal("round-mismatch", error=ReportsError):
        first.merge(second)
    assert first._counts.received == 0
    assert second.estimate().round_number == 2


def test_tallies_of_two_rounds_are_not_merged() -> None:
    first, second = Tally(PLAN), Tally(PLAN, round_number=2)
    second.add(ROWS)
    with refusal("round-mismatch", error=ReportsError):
        first.merge(second)
    assert (first.users, second.counts().users) == (0, 4)


ROLES: dict[str, Callable[[Any], object]] = {
    "randomizer": lambda number: ss.Randomizer(PLAN, round_number=number),
    "analyzer": lambda number: ss.Analyzer(PLAN, round_number=number),
    "tally": lambda number: Tally(PLAN, round_number=number),
    "counts": lambda number: Counts(PLAN, number),
    "plan": PLAN.check_round,
}


@pytest.mark.parametrize("role", ROLES)
def test_rounds_that_the_plan_does_not_cover_are_refused(role: str) -> None:
    for number in (1, 2, 3):
        ROLES[role](number)
    for number in (-1, 0, 4):
        with refusal("out-of-range", f"round_number is {number}", "1 and 3", error=ParameterError):
            ROLES[role](number)
    for wrong in ("1", 1.0, True, None):
        with refusal("wrong-type", "round_number", error=ParameterError):
            ROLES[role](wrong)


def test_reports_have_a_round_from_one_on() -> None:
    with refusal("out-of-range", "round_number is 0", error=ParameterError):
        ss.Reports(PLAN.id, np.zeros(3, dtype=np.uint32), 0)


def test_estimates_of_labels_and_words_are_of_their_round(tmp_path: Path) -> None:
    rounds: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-3, "rounds": 2, "users": 200}
    for domain, rows in (
        (ss.Categories(["a", "b"]), ["a", "b"] * 100),
        (ss.MultiChoice(["a", "b"], max_choices=1), [["a"], ["b"]] * 100),
        (ss.OpenVocabulary(64), ["a", "b"] * 100),
    ):
        plan = ss.plan(domain=domain, **rounds)
        reports = ss.shuffle(ss.Randomizer(plan, round_number=2).randomize(rows))
        estimate = ss.Analyzer(plan, round_number=2).analyze(reports)
        assert estimate.round_number == 2
        assert "round 2" in repr(estimate)
        if isinstance(estimate, ss.VocabularyEstimate):
            assert estimate.counts_of(["a"]).round_number == 2
            estimate.save(tmp_path / "estimate.json")
            loaded = ss.VocabularyEstimate.load(tmp_path / "estimate.json")
            assert loaded.counts_of(["a"]).counts == estimate.counts_of(["a"]).counts


def test_every_domain_says_what_it_is_in_a_round() -> None:
    for domain in (
        PLAN.domain,
        ss.Categories(["a", "b"]),
        ss.MultiChoice(["a", "b"], max_choices=1),
        ss.GroupBy(["a", "b"], 2),
    ):
        assert domain.of_round(2) == domain


def test_words_are_reported_and_counted_under_the_functions_of_their_round() -> None:
    """Without noise all reports of a word lie in its cells of that round, and its count is exact."""
    domain = ss.OpenVocabulary(1000, 4, bytes(16))
    plan = Plan(domain, NoisySlots(1, 0.0), Guarantee(float("inf"), 1.0, 4, rounds=3, accountant="none"))
    for number in (1, 2, 3):
        tally = Tally(plan, round_number=number)
        tally.add(["tea"] * 40)
        reports = ss.Randomizer(plan, round_number=number).randomize(["tea"] * 40)
        ((*buckets,),) = domain.of_round(number).bucket_table([b"tea"])
        for estimate in (
            ss.Analyzer(plan, round_number=number).analyze(ss.shuffle(reports)),
            release(tally.counts()),
        ):
            assert isinstance(estimate, ss.VocabularyEstimate)
            assert estimate.cells[np.arange(4), buckets].sum() == 40
            assert estimate.counts_of(["tea"]).counts == pytest.approx([40])


# The rotation of each round: randomizer and analyzer must use the same, or nothing can be read


def off(estimate: Estimate, truth: np.ndarray) -> bool:
    """Whether the estimate is farther from the truth than chance allows; a false alarm has chance 1e-7 at most."""
    assert isinstance(estimate, L2BallEstimate)
    distance = float(np.linalg.norm(estimate.mean - truth))
    return distance > estimate.error_norm(1 - FALSE_ALARM_OF_BALLS)


def test_each_round_is_read_with_its_own_rotation() -> None:
    rows = turned_rows()
    truth = rows.mean(axis=0)
    for number in (1, 2, 3):
        reports = ss.shuffle(ss.Randomizer(TURNING, round_number=number).randomize(rows))
        assert not off(ss.Analyzer(TURNING, round_number=number).analyze(reports), truth)
        assert not off(aggregate_batches([rows], TURNING, workers=1, round_number=number), truth)
        for other in {1, 2, 3} - {number}:  # said to be of another round, all is lost, and it is noticed
            moved = ss.Reports(reports.plan_id, reports.cells, other)
            assert off(ss.Analyzer(TURNING, round_number=other).analyze(moved), truth)


def test_a_round_that_is_not_told_to_the_randomizer_is_noticed() -> None:
    rows = turned_rows()
    reports = ss.Randomizer(TURNING).randomize(rows)
    relabelled = ss.Reports(reports.plan_id, reports.cells, 2)
    assert off(ss.Analyzer(TURNING, round_number=2).analyze(relabelled), rows.mean(axis=0))
