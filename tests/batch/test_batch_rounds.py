"""Files of one round from users to estimate, by the domain of that round; two rounds are never one batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.batch.report_folders import KEY, noiseless_plan, noiseless_task
from tests.plan_builders import with_guarantee
from tests.refusals import refusal
from tests.round_dependent import FALSE_ALARM_OF_BALLS, TURNING, turn_boxes, turned_rows

from shufflesum.batch.files import open_dataset
from shufflesum.batch.local import count, open_users, randomize
from shufflesum.batch.shuffle import shuffle
from shufflesum.batch.targets import PlainTarget, SealedTarget, Target
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.domains.l2_ball.estimate import L2BallEstimate
from shufflesum.errors import DataError, FileError, ReportsError
from shufflesum.plans import Plan
from shufflesum.release import release

TWO: Plan = with_guarantee(noiseless_plan(users=4), rounds=2)


def made(folder: Path, rows: np.ndarray, target: Target, name: str) -> Path:
    np.save(folder / "users.npy", rows)
    randomize(open_users(folder / "users.npy"), folder / name, target, workers=1)
    return folder / name


def analyzed(folder: Path, target: Target) -> Estimate:
    dataset = open_dataset(folder, stage="shuffled")
    found: Estimate = release(count(dataset, target, workers=1)[0], whole=dataset.whole)
    return found


def test_vectors_are_rotated_back_as_their_files_say(tmp_path: Path) -> None:
    rows = turned_rows()
    shuffle(made(tmp_path, rows, PlainTarget(TURNING, 3), "reports"), tmp_path / "shuffled")
    estimate = analyzed(tmp_path / "shuffled", PlainTarget(TURNING))
    assert isinstance(estimate, L2BallEstimate)
    assert estimate.round_number == 3
    assert np.linalg.norm(estimate.mean - rows.mean(axis=0)) < estimate.error_norm(1 - FALSE_ALARM_OF_BALLS)


@pytest.mark.parametrize("sealed", [False, True])
def test_both_kinds_of_reports_are_of_their_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    turn_boxes(monkeypatch)
    task = noiseless_task(TWO)
    first, second = (SealedTarget(task, n, KEY) if sealed else PlainTarget(TWO, n) for n in (1, 2))
    rows = np.array([[0.0, 1.0, 2.0]] * 4)
    with refusal("out-of-bounds", error=DataError):
        made(tmp_path, rows, first, "one")
    made(tmp_path, rows / 2, first, "one")
    made(tmp_path, rows, second, "two")
    with refusal("round-mismatch", "round 1", "round 2", error=ReportsError):
        shuffle([tmp_path / "one", tmp_path / "two"], tmp_path / "both")
    for name, target, factor in (("one", second, 0.5), ("two", first, 1.0)):
        shuffle(tmp_path / name, tmp_path / f"{name}-shuffled")
        # Whatever round the analyzer's target says: that of the files counts.
        assert analyzed(tmp_path / f"{name}-shuffled", target).mean == pytest.approx(factor * rows[0])


def test_an_interrupted_run_of_another_round_is_other_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    np.save(tmp_path / "users.npy", np.zeros((4, 3)))
    users = open_users(tmp_path / "users.npy")
    with monkeypatch.context() as patched:
        patched.setattr("shufflesum.batch.files.write_part", interrupted)
        with pytest.raises(KeyboardInterrupt):
            randomize(users, tmp_path / "reports", PlainTarget(TWO, 1), workers=1)
    with refusal("resume-mismatch", error=FileError):
        randomize(users, tmp_path / "reports", PlainTarget(TWO, 2), workers=1)
    assert randomize(users, tmp_path / "reports", PlainTarget(TWO, 1), workers=1).identity.round_number == 1
