"""Noise by the shuffler, by both servers, or by one process: what each role sees and adds, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.cells import BLANK
from shufflesum.domains import Domain
from shufflesum.errors import FileError, PlanError, ReportsError
from shufflesum.protocol import Analyzer, Randomizer, Tally, added_reports, shuffle
from shufflesum.release import release
from shufflesum.reports import Counts, Reports
from shufflesum.testing import SeededSource

TARGET: Any = {"epsilon": 1.0, "delta": 1e-6}
LABELS = np.array([0, 1, 1, 2, 2, 2, 4])


def planned(noise_by: Any, domain: Domain | None = None, **more: Any) -> ss.Plan:
    return ss.plan(users=100, domain=domain or ss.Categories(5), noise_by=noise_by, **TARGET, **more)


@pytest.mark.parametrize(("epsilon", "error"), [(1.0, 2.80), (4.0, 0.60)])
def test_the_error_of_a_count_is_a_curators_or_with_two_draws_the_square_root_of_two_times_that(
    epsilon: float, error: float
) -> None:
    times: float
    noise_by: Any
    for noise_by, times in (("curator", 1.0), ("shuffler", 1.0), ("servers", 2**0.5)):
        plan = ss.plan(users=1000, domain=ss.Categories(7), epsilon=epsilon, delta=1e-6, noise_by=noise_by)
        each = 1000 * (plan.expected_error.total / 7) ** 0.5
        assert each == pytest.approx(times * error, abs=0.006)


def test_one_process_draws_the_noise_unless_it_is_told_otherwise() -> None:
    estimate = ss.aggregate(LABELS, domain=ss.Categories(5), **TARGET)
    assert estimate.plan.noise_by == "curator"
    assert estimate.count_standard_error == pytest.approx(2.80, abs=0.006)
    users = ss.aggregate(LABELS.repeat(100), domain=ss.Categories(5), noise_by="users", **TARGET)
    assert users.plan.noise_by == "users"


@pytest.mark.parametrize("noise_by", ["shuffler", "servers"])
@pytest.mark.parametrize(
    ("domain", "rows", "truth"),
    [
        (ss.Categories(5), LABELS, [1, 2, 3, 0, 1]),
        (ss.MultiChoice(4, max_choices=2), [[0, 1], [], [1]], [1, 2, 0, 0]),
        (ss.MultiChoice(70, max_choices=70), [list(range(70)), [0, 69]], [2, *[1] * 68, 2]),
    ],
)
def test_the_truth_arrives_with_a_draw_in_each_cell(noise_by: str, domain: Domain, rows: Any, truth: list[int]) -> None:
    plan = planned(noise_by, domain)
    reports = Randomizer(plan).randomize(rows)
    users = len(rows)
    assert len(reports) == users * plan.reports
    shuffled = shuffle(reports, plan=plan)
    analyzer = Analyzer(plan)
    analyzer.add(shuffled)
    estimate = analyzer.estimate()
    assert estimate.users == users
    most = int(plan.mechanism.most_drawn(plan.encoding)[0])
    off = estimate.table - np.array(truth)
    assert (off >= 0).all()
    assert (off <= (2 if noise_by == "servers" else 1) * most).all()
    assert estimate.counts == pytest.approx(off + np.array(truth) - (1 if noise_by == "shuffler" else 2) * most / 2)


def test_where_reports_may_be_blank_each_position_holds_a_public_number_of_reports() -> None:
    plan = planned("shuffler", ss.MultiChoice(4, max_choices=2))
    most = int(plan.mechanism.most_drawn(plan.encoding)[0])
    batches: Any = ([[0, 1], [2], []], [[], [], []])
    for rows in batches:
        assert shuffle(Randomizer(plan).randomize(rows), plan=plan).by_position == (3 + most,) * 4
    many = planned("shuffler", ss.MultiChoice(70, max_choices=3))
    most = int(many.mechanism.most_drawn(many.encoding)[0])
    assert shuffle(Randomizer(many).randomize([[0], []]), plan=many).by_position == (2 * 3 + 70 * most,)


def test_every_position_is_permuted_by_itself() -> None:
    """Else the order of one position would tell that of another."""
    plan = planned("shuffler", ss.MultiChoice(2, max_choices=2))
    rows = [[0, 1]] * 40 + [[]] * 40
    shuffled = shuffle(Randomizer(plan).randomize(rows), plan=plan)
    first, second = shuffled.cells.reshape(2, -1)
    held = (first != BLANK) & (second != BLANK)
    # if both had one order, all 40 pairs would stand together; by chance 40 of 138 do so for each of 40: a quarter
    assert 2 <= held.sum() <= 38
    assert (first[:40] != BLANK).sum() < 40


def test_what_the_shuffler_adds_follows_the_draw() -> None:
    plan = planned("shuffler", ss.MultiChoice(3, max_choices=1))
    most = int(plan.mechanism.most_drawn(plan.encoding)[0])
    added = added_reports(plan, np.array([0, 2, most]))
    assert [np.count_nonzero(each == cell) for cell, each in enumerate(added)] == [0, 2, most]
    assert [np.count_nonzero(each == BLANK) for each in added] == [most, most - 2, 0]


def test_nothing_exact_is_seen_of_an_analyzer_that_draws() -> None:
    """Its table holds its draw before the first report; blanks and rejected reports are not counted."""
    plan = planned("servers", ss.MultiChoice(4, max_choices=2))
    counts = Counts(plan, source=SeededSource(3))
    drawn = counts.table.copy()
    assert (drawn == plan.mechanism.draw(plan.encoding, SeededSource(3))).all()
    shuffled = shuffle(Randomizer(plan).randomize([[0, 1], [3]]), plan=plan, source=SeededSource(4))
    foreign = shuffled.cells.copy()
    foreign[-1] = 0  # a cell of another position
    counts.add(Reports(plan.id, foreign, by_position=shuffled.by_position, users=2))
    assert (counts.blanks, counts.rejected) == (0, 0)
    own = shuffled.cells[:-1]
    assert (counts.table - drawn == np.bincount(own[own != BLANK], minlength=4)).all()


def test_shards_have_one_draw_together() -> None:
    plan = planned("servers")
    shuffled = shuffle(Randomizer(plan).randomize(LABELS), plan=plan)
    one, other = Counts(plan, source=SeededSource(1)), Counts(plan, source=SeededSource(2))
    one.add(shuffled[:50])
    other.add(shuffled[50:])
    one.merge(other)
    drawn = plan.mechanism.draw(plan.encoding, SeededSource(1))
    assert (one.table - drawn == np.bincount(shuffled.cells, minlength=5)).all()
    assert release(one).users == len(LABELS)


def test_pieces_keep_their_positions() -> None:
    plan = planned("shuffler", ss.MultiChoice(4, max_choices=2))
    shuffled = shuffle(Randomizer(plan).randomize([[0, 1], [3]]), plan=plan)
    pieces = [shuffled[:100], shuffled[100:170], shuffled[170:]]
    assert [sum(piece.by_position or ()) for piece in pieces] == [100, 70, len(shuffled) - 170]
    whole = Reports.concatenate(pieces)
    assert whole.by_position == shuffled.by_position
    assert (whole.cells == shuffled.cells).all()
    with refusal("mixed-reports", error=ReportsError):
        Reports.concatenate(pieces[::-1])
    with refusal("wrong-type", error=ReportsError):
        shuffled[::2]


def test_a_part_of_a_batch_or_one_counted_twice_is_not_released() -> None:
    for domain, rows in ((ss.Categories(5), LABELS.repeat(100)), (ss.MultiChoice(4, max_choices=2), [[0]] * 5)):
        plan = planned("shuffler", domain)
        shuffled = shuffle(Randomizer(plan).randomize(rows), plan=plan)
        for pieces in ([shuffled, shuffled], [shuffled[: len(shuffled) // 2]]):
            analyzer = Analyzer(plan)
            for piece in pieces:
                analyzer.add(piece)
            with refusal("not-whole", error=ReportsError):
                analyzer.estimate()


def test_one_user_is_enough() -> None:
    plan = planned("servers")
    analyzer = Analyzer(plan)
    analyzer.add(shuffle(Randomizer(plan).randomize([2]), plan=plan))
    assert analyzer.estimate().users == 1
    assert plan.smallest_batch == 1
    with refusal("too-few-users", error=ReportsError):
        Analyzer(plan).estimate()


def test_what_was_not_shuffled_with_the_plan_is_refused() -> None:
    plan, other = planned("shuffler"), planned("servers")
    reports = Randomizer(plan).randomize(LABELS)
    for given in (reports, shuffle(reports)):  # a permutation alone is no noise
        with refusal("wrong-stage", error=ReportsError):
            Analyzer(plan).add(given)
    with refusal("plan-mismatch", error=ReportsError):
        shuffle(reports, plan=other)
    shuffled = shuffle(reports, plan=plan)
    with refusal("wrong-stage", error=ReportsError):
        shuffle(shuffled, plan=plan)
    with refusal("not-whole", error=ReportsError):
        three = planned("shuffler", ss.MultiChoice(3, max_choices=1))
        shuffle(Randomizer(three).randomize([[1]])[:2], plan=three)
    with refusal("mixed-reports", error=ReportsError):
        counts = Counts(plan)
        counts.add(shuffled)
        counts.add(shuffle(Randomizer(plan).randomize(LABELS[:3]), plan=plan))


def test_under_a_plan_of_one_process_nothing_is_sent() -> None:
    plan = planned("curator")
    with refusal("one-process-only", error=PlanError):
        Analyzer(plan)
    with refusal("one-process-only", error=PlanError):
        shuffle(Randomizer(planned("shuffler")).randomize(LABELS), plan=plan)


def test_files_and_servers_do_not_take_what_they_do_not_carry() -> None:
    with refusal("impossible-combination", error=PlanError):
        planned("servers").check_carried()
    planned("users").check_carried()


def test_a_tally_draws_for_both_servers() -> None:
    plan = planned("servers")
    most = int(plan.mechanism.most_drawn(plan.encoding)[0])
    totals = []
    for seed in range(200):
        tally = Tally(plan, source=SeededSource(seed))
        tally.add(LABELS)
        totals.append(tally.counts().table - np.bincount(LABELS, minlength=5))
    found = np.array(totals)
    # 1,000 draws of variance 2 x 7.835 around 2 L; ten standard errors of the mean, and of the variance
    assert abs(found.mean() - most) <= 10 * (15.67 / 1000) ** 0.5
    assert 10.0 <= found.var() <= 22.0  # of one draw it would be 7.8, of three 23.5


def test_honest_users_are_not_asked_for() -> None:
    for noise_by in ("curator", "shuffler", "servers"):
        with refusal("impossible-combination"):
            planned(noise_by, honest_fraction=0.9)
    with refusal("impossible-combination"):
        ss.plan(users=100, domain=ss.L2Ball(3, clipping_norm=1.0), noise_by="servers", **TARGET)
    with refusal("impossible-combination"):
        ss.plan(users=100, shape=3, noise_by="curator", mechanism="randomized-response", **TARGET)


def test_a_plan_file_keeps_the_distribution_and_nothing_else() -> None:
    plan = planned("servers", ss.MultiChoice(4, max_choices=2))
    assert ss.Plan.from_json(plan.to_json()) == plan
    content = json.loads(plan.to_json())
    content["mechanism"]["noise"][0]["colour"] = "blue"
    with refusal("malformed", error=PlanError):
        ss.Plan.from_json(json.dumps(content))
    content = json.loads(plan.to_json())
    content["mechanism"]["noise"][0]["scale"] /= 2
    with refusal("changed-afterwards", error=PlanError):
        ss.Plan.from_json(json.dumps(content))


def test_less_noise_than_claimed_is_refused() -> None:
    plan = planned("curator")
    mechanism = ss.NoisyTable("curator", (), (ss.NoiseDistribution(1.0, 1.9, 29),))
    with refusal("claim-not-confirmed", error=PlanError):
        ss.Plan(plan.domain, mechanism, plan.guarantee).verify()


def test_a_saved_estimate_is_read_back_and_an_impossible_table_is_not(tmp_path: Path) -> None:
    estimate = ss.aggregate(LABELS, domain=ss.Categories(5), **TARGET)
    path = tmp_path / "counts.json"
    estimate.save(path)
    assert (ss.CountEstimate.load(path).counts == estimate.counts).all()
    table = estimate.table.copy()
    table[0] = len(LABELS) + 2 * 29 + 1
    replace(estimate, table=table).save(path)
    with refusal("changed-afterwards", error=FileError):
        ss.CountEstimate.load(path)


def test_malicious_users_move_a_count_by_one_each_or_by_their_choices_in_a_common_position() -> None:
    assert planned("servers").max_shift(3) == pytest.approx(3 / 100)
    assert planned("servers", ss.MultiChoice(64, max_choices=5)).max_shift(1) == pytest.approx(1 / 100)
    assert planned("servers", ss.MultiChoice(65, max_choices=5)).max_shift(1) == pytest.approx(5 / 100)
