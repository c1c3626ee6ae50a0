"""The steps on files, end to end: made-up heartbeats always, the recorded ones where they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.batch.report_folders import KEY, noiseless_task
from tests.batch.spark_frames import largest_error

import shufflesum as ss
from experiments.data import load
from shufflesum.batch.files import open_dataset
from shufflesum.batch.local import count, open_users, randomize
from shufflesum.batch.shuffle import shuffle
from shufflesum.batch.targets import PlainTarget, SealedTarget
from shufflesum.release import release
from shufflesum.synthetic import heartbeats


def beats_of(kind: str) -> NDArray[Any]:
    if kind == "made up":
        return heartbeats(20_000, 100, seed=3)
    archive = os.environ.get("SHUFFLESUM_HEARTBEATS")
    if not archive:
        pytest.skip("SHUFFLESUM_HEARTBEATS does not name the .npz archive of the heartbeats")
    return np.asarray(load(Path(archive)).beats[:50_000, :100])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["made up", "recorded"])
def test_the_error_is_what_the_plan_predicts(tmp_path: Path, kind: str) -> None:
    beats = beats_of(kind)
    plan = ss.plan(users=len(beats), shape=100, bounds=(0.0, 1.0), epsilon=0.95, delta=1e-6)
    np.save(tmp_path / "users.npy", beats)
    randomize(open_users(tmp_path / "users.npy"), tmp_path / "reports", PlainTarget(plan))
    shuffle(tmp_path / "reports", tmp_path / "shuffled")
    counts, _ = count(open_dataset(tmp_path / "shuffled", stage="shuffled"), PlainTarget(plan))
    error = float(np.sum((release(counts).mean - beats.mean(axis=0)) ** 2))
    # From above with a false alarm of 1e-6; below a tenth of what is predicted something was not random.
    assert plan.expected_error.total / 10 <= error <= largest_error(plan.expected_error.total, 100)


def test_sealed_digits_noise_and_blanks_are_counted_as_they_were_sent(tmp_path: Path) -> None:
    """Under `noisy-counts`: nobody but the analyzer sees which reports are blank."""
    beats = heartbeats(300, 4, seed=3)
    plan = ss.plan(
        users=len(beats),
        shape=4,
        bounds=(0.0, 1.0),
        epsilon=4.0,
        delta=1e-4,
        mechanism=ss.NoisyCounts.Options(digits=2),
    )
    target = SealedTarget(noiseless_task(plan), private_key=KEY)
    np.save(tmp_path / "users.npy", beats)
    randomize(open_users(tmp_path / "users.npy"), tmp_path / "reports", target)
    shuffle(tmp_path / "reports", tmp_path / "shuffled", task=target.task)
    counts, _ = count(open_dataset(tmp_path / "shuffled", stage="shuffled"), target)
    assert (counts.users, counts.rejected) == (300, 0)
    assert 0 < counts.blanks < counts.received == 300 * plan.reports
    error = float(np.sum((release(counts).mean - beats.mean(axis=0)) ** 2))
    assert error <= largest_error(plan.expected_error.total, 4)
