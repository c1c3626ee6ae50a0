"""`shufflesum randomize`, `shuffle` and `analyze` on vectors with a bounded norm, plain and sealed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import lacking

import shufflesum as ss
from shufflesum.keys import generate_private_key, write_key_pair
from shufflesum.wire import Task

if TYPE_CHECKING:
    from tests.cli.conftest import Command

USERS = 300


@pytest.fixture
def updates(folder: Path) -> NDArray[np.float32]:
    rows = np.linspace(-0.3, 0.3, 15) + np.random.default_rng(6).normal(0.0, 0.02, (USERS, 15))
    np.save(folder / "updates.npy", rows.astype(np.float32).reshape(USERS, 3, 5))
    return rows.astype(np.float32).reshape(USERS, 3, 5)


@pytest.fixture
def target(folder: Path) -> Task:
    """A plan for two rounds, plan.json, and a task of it, task.json, whose analyzer's key is analyzer.key."""
    with pytest.warns(UserWarning, match="`Arrays` serve better"):
        plan = ss.plan(
            users=USERS, domain=ss.L2Ball((3, 5), clipping_norm=1.0), epsilon=8.0, delta=1e-3, rounds=2, max_reports=16
        )
    (folder / "plan.json").write_text(plan.to_json())
    key = generate_private_key()
    write_key_pair(folder / "analyzer", key)
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    task = Task("updates", plan, key.public_key().public_bytes_raw(), "https://shuffler.example.org", expires)
    (folder / "task.json").write_text(task.to_json())
    return task


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_the_second_round_is_rotated_back_with_its_own_signs(
    command: Command, target: Task, updates: NDArray[np.float32], sealed: bool
) -> None:
    given = ("--task", "task.json") if sealed else ("--plan", "plan.json")
    key = ("--key", "analyzer.key") if sealed else ()
    made = command("randomize", "updates.npy", *given, "--round", 2, "-o", "reports")
    assert made.code == 0, made.err
    assert command("shuffle", "reports", "-o", "shuffled").code == 0
    found = command("analyze", "shuffled", *given, *key, "--json", "--plot", "out.svg").estimate
    mean, error = np.array(found["mean"]), np.array(found["standard_error"])
    # Seven standard errors of sums of thousands of bits: below 1e-9 in all entries.
    assert np.all(np.abs(mean - updates.mean(axis=0)) < 7 * error)
    assert np.any(np.abs(mean + updates.mean(axis=0)) > 7 * error)


def test_a_longer_vector_is_refused_and_leaves_nothing(
    command: Command, target: Task, updates: NDArray[np.float32], folder: Path
) -> None:
    updates[7] *= 10
    np.save(folder / "updates.npy", updates)
    done = command("randomize", "updates.npy", "--plan", "plan.json", "-o", "reports")
    assert (done.code, lacking(done.err, "[out-of-bounds]", "row 7", "--clip")) == (2, [])
    assert not (folder / "reports").exists()
    assert command("randomize", "updates.npy", "--plan", "plan.json", "--clip", "-o", "reports").code == 0
