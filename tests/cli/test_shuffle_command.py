"""`shufflesum shuffle`, by way of files, as a data team would run it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyarrow import parquet
from tests.batch.report_folders import records_of, snapshot, write_folder
from tests.cli.conftest import SCRIPT
from tests.refusals import lacking

import shufflesum as ss
from shufflesum.batch.files import open_dataset, write_part
from shufflesum.batch.identity import Identity
from shufflesum.keys import generate_private_key, write_key_pair
from shufflesum.testing import unprotected_plan
from shufflesum.wire import Task, Upload

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.cli.conftest import Command, Within

PLAN = ss.plan(
    users=2000, shape=3, epsilon=1.0, delta=1e-6, mechanism=ss.RandomizedResponse.Options(coordinates=2, levels=3)
)
SMALL = ss.plan(
    users=100, shape=2, epsilon=2.0, delta=1e-3, mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=1)
)


@pytest.fixture
def reports(folder: Path, command: Command, crowd: NDArray[np.float64]) -> Path:
    """The reports of 5,000 users."""
    np.save(folder / "users.npy", crowd)
    (folder / "plan.json").write_text(PLAN.to_json())
    assert command("randomize", "users.npy", "--plan", "plan.json", "-o", "reports").code == 0
    return folder / "reports"


@pytest.fixture
def task(folder: Path) -> Task:
    """A task of 100 users, in task.json, with its analyzer's key in analyzer.key."""
    private = generate_private_key()
    write_key_pair(folder / "analyzer", private)
    task = Task(
        name="batch",
        plan=SMALL,
        analyzer_key=private.public_key().public_bytes_raw(),
        shuffler="https://shuffler.example.org",
        expires=datetime(2099, 1, 1, tzinfo=UTC),
    )
    (folder / "task.json").write_text(task.to_json())
    return task


def rows_of(path: Path) -> list[tuple[int, ...]]:
    table = parquet.read_table(path).to_pydict()
    return list(zip(*table.values(), strict=True))


def test_from_users_over_reports_and_a_shuffle_to_their_mean(
    reports: Path, folder: Path, command: Command, within: Within, crowd: NDArray[np.float64]
) -> None:
    before = snapshot(reports)
    done = command("shuffle", reports, "-o", "shuffled", "--memory", "100MB", "--workers", 2)
    assert done.code == 0, done.err
    assert done.out == "wrote shuffled: 10,000 reports in 1 file\n"
    assert done.err == ""
    sent, shuffled = rows_of(reports), rows_of(folder / "shuffled")
    assert sent != shuffled
    assert sorted(sent) == sorted(shuffled)
    found = command("analyze", "shuffled", "--plan", "plan.json", "--json")
    assert found.estimate["users"] == 5000
    assert within(found.estimate, crowd.mean(axis=0))
    assert not within(found.estimate, crowd.mean(axis=0) + 0.5)
    after = snapshot(reports)
    assert after.pop("_released.db")
    assert after == before


def test_late_files_wait_for_the_next_batch(folder: Path, command: Command) -> None:
    first, late = (Identity.for_plan(unprotected_plan(users=100, shape=4)) for _ in range(2))
    write_folder(folder / "monday", first, [0] * 100)
    write_folder(folder / "tuesday", late, [2] * 100)
    assert command("shuffle", "monday", "-o", "one", "--released", "released.db").code == 0
    assert command("shuffle", "tuesday", "-o", "two", "--released", "released.db").code == 0
    assert not (folder / "monday" / "_released.db").exists()
    shutil.copytree(folder / "monday", folder / "both")
    shutil.copy(folder / "tuesday" / "part-0.parquet", folder / "both" / "part-1.parquet")
    done = command("shuffle", "both", "-o", "three", "--released", "released.db")
    assert (done.code, done.out) == (2, "")
    assert "[released-before]" in done.err
    assert not (folder / "three").exists()
    done = command("shuffle", "both", "-o", "three", "--released", "no/such/released.db")
    assert lacking(done.err, "[unwritable]", "--released") == []


def test_folders_of_several_owners_are_one_batch(folder: Path, command: Command) -> None:
    identities = [Identity.for_plan(unprotected_plan(users=100, shape=4)) for _ in range(3)]
    for number, identity in enumerate(identities):
        write_folder(folder / f"hospital-{number}", identity, [2 * number] * 40)
    done = command("shuffle", "hospital-0", "hospital-1", "hospital-2", "-o", "shuffled")
    assert (done.code, done.out) == (0, "wrote shuffled: 120 reports in 1 file\n"), done.err
    assert sorted(rows_of(folder / "shuffled")) == [(2 * number,) for number in range(3) for _ in range(40)]
    done = command("shuffle", "hospital-0", "hospital-0/", "-o", "twice")
    assert done.code == 2
    assert lacking(done.err, "[counted-twice]", "hospital-0", "2 times") == []


def test_the_output_can_be_arrow_files(reports: Path, folder: Path, command: Command) -> None:
    assert command("shuffle", reports, "-o", "shuffled", "--format", "arrow").code == 0
    dataset = open_dataset(folder / "shuffled", stage="shuffled")
    assert {file.path.suffix for file in dataset.files} == {".arrow"}
    assert dataset.rows == 10_000


def test_uploads_of_clients_are_shuffled_and_the_analyzer_opens_them(
    folder: Path, task: Task, command: Command, within: Within
) -> None:
    randomizer = ss.Randomizer(SMALL)
    rows = np.tile([[0.1, 0.9]], (150, 1))
    uploads = [Upload.seal(task, randomizer.randomize(row[None]), 1).encode() for row in rows]
    (folder / "uploads").mkdir()
    (folder / "uploads" / "monday.upload").write_bytes(b"".join(uploads[:80]))
    (folder / "uploads" / "tuesday.upload").write_bytes(b"".join(uploads[70:]))
    done = command("shuffle", "uploads", "--task", "task.json", "-o", "shuffled")
    assert done.code == 0, done.err
    assert done.out == "10 of the uploads came before and do not count again\nwrote shuffled: 150 reports in 1 file\n"
    found = command("analyze", "shuffled", "--task", "task.json", "--key", "analyzer.key", "--json")
    assert found.estimate["users"] == 150


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere", "-o", "shuffled"), ("[unreadable]", "nowhere")),
        (("reports", "-o", "reports"), ("[exists]", "reports")),
        (("reports", "-o", "no/such/folder"), ("[unwritable]", "no/such/folder")),
        (("reports", "-o", "shuffled", "--memory", "5MB"), ("[out-of-range]", "memory is 5 MB")),
        (("reports", "-o", "shuffled", "--memory", "much"), ("'much'",)),
        (
            ("reports", "-o", "shuffled", "--master", "local[2]"),
            ("[conflicting-arguments]", "--master", "--engine spark"),
        ),
        (
            ("reports", "-o", "shuffled", "--conf", "spark.executor.memory=4g"),
            ("[conflicting-arguments]", "--conf", "--engine spark"),
        ),
        (
            ("reports", "-o", "shuffled", "--engine", "spark", "--conf", "executor.memory=4g"),
            ("spark.executor.memory",),
        ),
        (
            ("reports", "-o", "shuffled", "--engine", "spark", "--restart"),
            ("[conflicting-arguments]", "--restart", "--engine local"),
        ),
        (("plan.json", "-o", "shuffled"), ("[unknown-file-type]", "plan.json")),
        (("few", "-o", "shuffled"), ("[too-few-users]", "99 reports", "100 users")),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(
    reports: Path, folder: Path, command: Command, arguments: tuple[str, ...], said: tuple[str, ...]
) -> None:
    identity = Identity.for_plan(unprotected_plan(users=100, shape=4))
    write_folder(folder / "few", identity, [0] * 99)
    before = snapshot(folder)
    done = command("shuffle", *arguments)
    assert (done.code, done.out) == (2, "")
    assert lacking(done.err, *said) == []
    assert snapshot(folder) == before
    assert not list(folder.glob(".*.partial"))


def test_the_same_commands_again_say_so_and_succeed(reports: Path, folder: Path, command: Command) -> None:
    again = ("shuffle", "reports", "-o", "shuffled", "--released", "released.db")
    assert command(*again).out.startswith("wrote shuffled: ")
    before = snapshot(folder)
    done = command(*again, "--memory", "500MB")
    assert (done.code, done.err) == (0, "")
    assert lacking(done.out, "finished before", "shuffled: ") == []
    # The same output from other input, in another format, or unknown to the list that is named: as any that exists.
    write_folder(folder / "other", Identity.for_plan(unprotected_plan(users=1, shape=4)), [0] * 99)
    before = snapshot(folder)
    for other in (
        ("shuffle", "other", "-o", "shuffled", "--released", "released.db"),
        ("shuffle", "reports", "-o", "shuffled"),
        (*again, "--format", "arrow"),
    ):
        assert "[exists]" in command(*other).err
    assert snapshot(folder) == before
    os.rename(folder / "shuffled" / "part-00000.parquet", folder / "part-00000.parquet")
    assert "[exists]" in command(*again).err


def test_reports_of_another_task_and_uploads_without_one_are_refused(
    reports: Path, folder: Path, task: Task, command: Command
) -> None:
    assert "[task-mismatch]" in command("shuffle", reports, "--task", "task.json", "-o", "out").err
    (folder / "uploads").mkdir()
    (folder / "uploads" / "one.upload").write_bytes(b"x")
    assert lacking(command("shuffle", "uploads", "-o", "out").err, "[missing-argument]", "--task") == []
    done = command("shuffle", "uploads", "--task", "task.json", "-o", "out")
    assert lacking(done.err, "[damaged]", "one.upload", "1 bytes") == []
    assert not (folder / "out").exists()


def test_a_polite_kill_leaves_work_that_the_same_command_finishes(folder: Path, command: Command) -> None:
    identity = Identity.for_plan(unprotected_plan(users=100, shape=1 << 20, levels=9))
    batch = records_of(range(1 << 20), identity)
    (folder / "reports").mkdir()
    write_part(folder / "reports", "part", [batch] * 4, identity)
    arguments = ["shuffle", "reports", "-o", "shuffled", "--memory", "42MB"]
    with subprocess.Popen([SCRIPT, *arguments], stderr=subprocess.PIPE) as process:
        partial = folder / ".shuffled.partial" / "_spill"
        while not list(partial.glob("*.index")) and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert b"note: .shuffled.partial keeps what is done" in process.stderr.read()
    assert process.returncode == 143
    assert not (folder / "shuffled").exists()
    assert (folder / ".shuffled.partial").exists()
    other = command("shuffle", "reports", "-o", "shuffled", "--memory", "1GB")
    assert other.code == 2
    assert lacking(other.err, "[resume-mismatch]", "--restart") == []
    done = command(*arguments)
    assert done.code == 0
    assert "found .shuffled.partial, which an interrupted run left" in done.err
    assert not (folder / ".shuffled.partial").exists()
    assert open_dataset(folder / "shuffled", stage="shuffled").rows == 4 << 20
    shutil.rmtree(folder / "shuffled")
    assert command(*arguments, "--restart").code == 0
