"""What `noisy-counts` refuses, by name: numbers out of range, false claims, impossible tables, and sending under a plan
for one process."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.plan_builders import encoding_for
from tests.refusals import refusal

import shufflesum as ss
from shufflesum import Analyzer, Randomizer
from shufflesum.aggregation import aggregate_batches
from shufflesum.batch.local import open_users, randomize
from shufflesum.batch.targets import PlainTarget
from shufflesum.cells import BLANK, MOST_CELLS
from shufflesum.domains import Arrays
from shufflesum.encodings import MultiHot
from shufflesum.errors import ParameterError, PlanError, ReportsError
from shufflesum.mechanisms import NoisyCounts, NoisyTable
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.release import min_malicious, release, why_broken
from shufflesum.reports import Counts, Reports
from shufflesum.sealing import SEALED_BYTES, Opener
from shufflesum.wire import Task, Upload

KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))
PLAN = ss.plan(users=500, shape=3, epsilon=2.0, delta=1e-6, mechanism=ss.NoisyCounts.Options(digits=2))
ALONE = ss.plan(
    users=500, shape=3, epsilon=2.0, delta=1e-6, mechanism=ss.NoisyCounts.Options(digits=2), noise_by="curator"
)


assert isinstance(ALONE.mechanism, NoisyTable)
TABLE = ALONE.mechanism


def add_of(plan: Plan) -> NoisyCounts:
    assert isinstance(plan.mechanism, NoisyCounts)
    return plan.mechanism


ADD = add_of(PLAN)


def task_of(plan: Plan) -> Task:
    return Task(
        "digits", plan, KEY.public_key().public_bytes_raw(), "http://127.0.0.1:1", datetime(2099, 1, 1, tzinfo=UTC)
    )


# Numbers


@pytest.mark.parametrize("digits", [0, 17, -1])
def test_there_are_1_to_16_digits(digits: int) -> None:
    with refusal("out-of-range", "digits", error=ParameterError):
        NoisyCounts(digits, (1,) * max(digits, 0), (0.5,) * max(digits, 0), 4)
    with refusal("out-of-range", "digits", error=ParameterError):
        ss.plan(users=500, shape=3, epsilon=2.0, delta=1e-6, mechanism=ss.NoisyCounts.Options(digits=digits))


def test_16_digits_work() -> None:
    plan = ss.plan(users=5000, shape=1, epsilon=4.0, delta=1e-3, mechanism=ss.NoisyCounts.Options(digits=16))
    rows = np.random.default_rng(1).random((5000, 1))
    estimate = Analyzer(plan).analyze(Randomizer(plan).randomize(rows))
    assert abs(estimate.mean[0] - rows.mean()) < 8 * estimate.standard_error[0]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"trials": (1,)}, "conflicting-arguments"),
        ({"probabilities": (0.5,) * 3}, "conflicting-arguments"),
        ({"trials": (0, 1)}, "out-of-range"),
        ({"trials": (2**53, 1)}, "out-of-range"),
        ({"trials": (1.5, 1)}, "wrong-type"),
        ({"probabilities": (1.0, 0.5)}, "out-of-range"),
        ({"probabilities": (-(2.0**-53), 0.5)}, "out-of-range"),
        ({"probabilities": (2.0**-54, 0.5)}, "out-of-range"),
        ({"probabilities": (math.nan, 0.5)}, ("out-of-range", "wrong-type")),
        ({"cap": -1}, "out-of-range"),
        ({"cap": MOST_CELLS + 1}, "out-of-range"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(changed: dict[str, Any], problem: str | tuple[str, ...]) -> None:
    with refusal(problem, error=ParameterError):
        replace(ADD, **changed)


def test_cells_end_below_2_to_the_32() -> None:
    most = encoding_for(Arrays((2**32 - 2) // 2, (0.0, 1.0)), NoisyCounts)
    assert isinstance(most, MultiHot)
    more = replace(most, coordinates=most.coordinates + 1)
    NoisyCounts(2, (1, 1), (0.5, 0.5), 0).check(most)
    with refusal("too-many-cells", error=ParameterError):
        NoisyCounts(2, (1, 1), (0.5, 0.5), 2).check(more)
    with refusal("too-many-reports", error=ParameterError):
        NoisyCounts(2, (2, 2), (0.5, 0.5), 3).check(most)


def test_users_times_trials_stay_below_2_to_the_53() -> None:
    guarantee = Guarantee(1.0, 1e-6, users=2**20)
    encoding = encoding_for(Arrays(1, (0.0, 1.0)), NoisyCounts)
    for trials, problem in ((2**33 - 1, None), (2**33, "out-of-range")):
        mechanism = NoisyCounts(1, (trials,), (2.0**-40,), 10**6)
        if problem is None:
            mechanism.accountant(encoding, guarantee)
            continue
        with refusal(problem, "2**53", error=ParameterError):
            mechanism.accountant(encoding, guarantee)
        with refusal(problem, "2**53", error=PlanError):
            Plan(Arrays(1, (0.0, 1.0)), mechanism, guarantee).verify()


# Claims


def with_less_noise(plan: Plan, part: float) -> Plan:
    mechanism = add_of(plan)
    chances = tuple(math.floor(part * p * 2**53) / 2**53 for p in mechanism.probabilities)
    return replace(plan, mechanism=replace(mechanism, probabilities=chances))


@pytest.mark.parametrize(
    "false",
    [
        with_less_noise(PLAN, 0.98),
        replace(
            ALONE, mechanism=replace(TABLE, noise=tuple(replace(one, scale=0.98 * one.scale) for one in TABLE.noise))
        ),
        replace(PLAN, mechanism=replace(ADD, cap=(ADD.cap or 0) - 2)),
        replace(PLAN, guarantee=replace(PLAN.guarantee, rounds=2)),
        replace(PLAN, guarantee=replace(PLAN.guarantee, honest_fraction=0.97)),
        replace(PLAN, guarantee=replace(PLAN.guarantee, delta=0.97e-6)),
        replace(PLAN, guarantee=replace(PLAN.guarantee, accountant="paper")),
    ],
    ids=["noise", "noise in one process", "cap", "rounds", "honest", "delta", "paper"],
)
def test_a_plan_whose_certificate_does_not_hold_is_refused_wherever_plans_are_read(false: Plan) -> None:
    for honest in (PLAN, ALONE):
        assert Plan.from_json(honest.to_json()) == honest
    with refusal("claim-not-confirmed", error=PlanError):
        false.verify()
    with refusal("claim-not-confirmed", error=PlanError):
        Plan.from_json(false.to_json())


def test_a_plan_without_any_noise_or_with_too_many_trials_is_refused_by_name() -> None:
    for changed in ({"probabilities": [0.0, 0.0]}, {"trials": [2**45, 1]}):
        document = json.loads(PLAN.to_json())
        document["mechanism"] |= changed
        with refusal("out-of-range", error=PlanError):
            Plan.from_json(json.dumps(document))


# Tables


def counts_of(table: list[int], blanks: int, rejected: int = 0) -> Counts:
    counts = Counts(PLAN)
    counts.table[:] = table
    counts.blanks, counts.rejected = blanks, rejected
    return counts


def test_a_cell_with_more_reports_than_honest_users_send_is_refused() -> None:
    users, q = 500, ADD.trials[1]
    for more in (0, 1):
        table = [0, users * (1 + q) + more, 0, 0, 0, 0]
        counts = counts_of(table, users * PLAN.reports - sum(table))
        assert min_malicious(counts) == more
        if more:
            with refusal("guarantee-broken", error=ReportsError):
                release(counts)
            assert release(counts, without_guarantee=True).broken
        else:
            assert why_broken(counts) is None


@pytest.mark.parametrize("table", [[0] * 6, [1] * 6])
def test_reports_that_are_no_whole_number_of_users_are_refused(table: list[int]) -> None:
    whole = 500 * PLAN.reports - sum(table)
    assert why_broken(counts_of(table, whole)) is None
    with refusal("guarantee-broken", error=ReportsError):
        release(counts_of(table, whole + 1))  # a blank too many
    with refusal("guarantee-broken", error=ReportsError):
        release(counts_of([table[0] + 1, *table[1:]], whole))  # a report too many
    with refusal("too-few-users", error=ReportsError):
        release(counts_of(table, whole - 1))
    with refusal("guarantee-broken", error=ReportsError):
        release(counts_of(table, whole - 1, rejected=1))


# Sending


@pytest.mark.long
def test_nothing_can_be_sent_under_a_plan_for_one_process(tmp_path: Path) -> None:
    np.save(tmp_path / "users.npy", np.zeros((500, 3)))
    with refusal("one-process-only", error=PlanError):
        Randomizer(ALONE)
    with refusal("one-process-only", error=PlanError):
        Analyzer(ALONE)
    with refusal("one-process-only", error=PlanError):
        PlainTarget(ALONE)
    with refusal("one-process-only", error=PlanError):
        task_of(ALONE)  # and without a task there is no client, no shuffler and no analyzer
    document = json.loads(task_of(PLAN).to_json())
    document["plan"] = json.loads(ALONE.to_json())
    with refusal(("one-process-only", "changed-afterwards", "malformed")):
        Task.from_json(json.dumps(document))
    randomize(open_users(tmp_path / "users.npy"), tmp_path / "sent", PlainTarget(PLAN), workers=1)
    assert aggregate_batches([np.zeros((500, 3))], ALONE).users == 500
    assert aggregate_batches([np.zeros((500, 3))], PLAN).users == 500  # one process may use a plan for sending


def test_nothing_in_an_upload_depends_on_the_data_but_what_is_sealed() -> None:
    task = task_of(PLAN)
    lengths = set()
    for value in (0.0, 1.0, 0.4):
        for _ in range(20):
            reports = Randomizer(PLAN).randomize(np.full((1, 3), value))
            assert len(reports) == PLAN.reports
            upload = Upload.seal(task, reports, 1)
            assert len(upload.sealed) == PLAN.reports * SEALED_BYTES
            lengths.add(len(upload.encode()))
    assert lengths == {task.upload_bytes}


def test_blanks_are_sealed_like_other_reports_and_come_anywhere_in_an_upload() -> None:
    """The first report of 60 uploads of a user whose digits are all 1; unshuffled, a blank would never come first."""
    task = task_of(PLAN)
    opener = Opener(KEY, processes=1)
    firsts = []
    for _ in range(60):
        sealed = Upload.seal(task, Randomizer(PLAN).randomize(np.ones((1, 3))), 1).sealed
        firsts.append(int(task.open_reports(sealed[:SEALED_BYTES], 1, opener)[0].cells[0]))
    assert BLANK in firsts  # more than a third are blank: missed once in 10^10 times
    assert any(first != BLANK for first in firsts)


def test_more_reports_than_a_users_are_no_upload() -> None:
    reports = Randomizer(PLAN).randomize(np.zeros((1, 3)))
    for cells in (reports.cells[:-1], np.append(reports.cells, BLANK)):
        with refusal(("wrong-length", "mixed-reports"), error=ReportsError):
            Upload.seal(task_of(PLAN), Reports(PLAN.id, cells.astype(np.uint32)), 1)
