from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pyarrow import feather, parquet
from tests.batch.report_folders import (
    KEY,
    grid_rows,
    noiseless_plan,
    noiseless_task,
    shuffle_folder,
    snapshot,
)
from tests.refusals import refusal

from shufflesum.batch.files import open_dataset, read_records
from shufflesum.batch.identity import PLAIN, SEALED
from shufflesum.batch.local import count, open_users, randomize
from shufflesum.batch.targets import PlainTarget, SealedTarget
from shufflesum.domains import Arrays
from shufflesum.errors import DataError, FileError, ParameterError, ReportsError
from shufflesum.tables.sources import ReadOptions
from shufflesum.wire import TaskError

PLAN = noiseless_plan()
TASK = noiseless_task(PLAN)
TARGET = PlainTarget(PLAN)
SECRET = SealedTarget(TASK, private_key=KEY)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 100 users."""
    for kind in (PLAIN, SEALED):
        monkeypatch.setattr(type(kind), "part_reports", 300)


def save(path: Path, rows: Any) -> Path:
    np.save(path, rows)
    return path


def table_of(folder: Path, work: Path) -> Any:
    """The table of counts of a folder of plain reports, by way of a shuffle."""
    counts, _ = count(open_dataset(shuffle_folder(folder, work), stage="shuffled"), TARGET)
    assert counts.rejected == 0
    return counts.table


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_user_is_in_exactly_one_part(tmp_path: Path, kind: Any, workers: int) -> None:
    rows, table = grid_rows(1050, PLAN)
    done: list[int] = []
    dataset = randomize(
        open_users(save(tmp_path / "u.npy", rows)),
        tmp_path / "r",
        TARGET,
        format=kind,
        workers=workers,
        progress=done.append,
    )
    assert [file.rows for file in dataset.files] == [300] * 10 + [150]
    assert {file.path.suffix for file in dataset.files} == {f".{kind}"}
    assert done == sorted(done)
    assert done[-1] == 1050
    # Noiseless and with all coordinates, a part is the very rows of its users, in order.
    fourth = pa.Table.from_batches(read_records(dataset.files[3], 1000)).column("cell").to_numpy().reshape(100, 3)
    np.testing.assert_array_equal(fourth, rows[300:400] * 4 + [0, 5, 10])
    np.testing.assert_array_equal(table_of(tmp_path / "r", tmp_path / "s"), table)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", ["npy", "parquet", "csv"])
def test_a_folder_of_files_is_one_sequence_of_users(tmp_path: Path, kind: str) -> None:
    rows, table = grid_rows(530, PLAN)
    folder = tmp_path / "users"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    for name, part in zip("abc", np.split(rows, [130, 135]), strict=True):
        path = folder / f"{name}.{kind}"
        columns = pa.table({f"x{i}": part[:, i] for i in range(3)})
        if kind == "npy":
            save(path, part)
        elif kind == "parquet":
            parquet.write_table(columns, path)
        else:
            np.savetxt(path, part, delimiter=",", header="x0,x1,x2", comments="")
    dataset = randomize(open_users(folder), tmp_path / "r", TARGET)
    assert [file.rows for file in dataset.files] == [300] * 5 + [90]
    np.testing.assert_array_equal(table_of(tmp_path / "r", tmp_path / "s"), table)


@pytest.mark.parametrize("kind", ["npy", "parquet", "csv", "arrow"])
def test_empty_files_among_the_users_are_skipped_and_named(tmp_path: Path, kind: str) -> None:
    rows = grid_rows(20, PLAN)[0]
    folder = tmp_path / "users"
    folder.mkdir()
    for name in ("a", "c"):
        (folder / f"{name}.{kind}").touch()
    with refusal("no-rows", "2 files", error=FileError):
        open_users(folder)
    for name, part in {"b": rows, "d": rows[:0]}.items():
        path, columns = folder / f"{name}.{kind}", pa.table({f"x{i}": part[:, i] for i in range(3)})
        if kind == "npy":
            save(path, part)
        elif kind == "parquet":
            parquet.write_table(columns, path)
        elif kind == "csv":
            np.savetxt(path, part, delimiter=",", header="x0,x1,x2", comments="")
        else:
            feather.write_feather(columns, str(path))
    with pytest.warns(UserWarning, match=f"a.{kind}, c.{kind}, d.{kind}"):
        users = open_users(folder)
    assert (users.rows, [path.name for path in users.paths]) == (20, [f"b.{kind}"])
    with refusal("no-rows", error=FileError):  # alone it is no mere part of the data
        open_users(folder / f"a.{kind}")


def test_pieces_respect_files_parts_and_size(tmp_path: Path) -> None:
    folder = tmp_path / "users"
    folder.mkdir()
    save(folder / "a.npy", np.arange(7.0).reshape(7, 1))
    save(folder / "b.npy", np.arange(7.0, 12.0).reshape(5, 1))
    pieces = list(open_users(folder).pieces(Arrays((1,), (0, 12)), 5, 3))
    assert [(p.path.name, p.row_in_file, p.row, len(p.rows)) for p in pieces] == [
        ("a.npy", 0, 0, 3),
        ("a.npy", 3, 3, 2),
        ("a.npy", 5, 5, 2),
        ("b.npy", 0, 7, 3),
        ("b.npy", 3, 10, 2),
    ]
    assert np.concatenate([p.rows for p in pieces]).reshape(-1).tolist() == list(range(12))


def test_files_that_differ_in_shape_names_or_kind_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "users"
    folder.mkdir()
    with refusal("no-rows", error=FileError):
        open_users(folder)
    save(folder / "a.npy", np.zeros((2, 3)))
    save(folder / "b.npy", np.zeros((2, 4)))
    with refusal("wrong-shape", "b.npy", "4", error=FileError):
        open_users(folder)
    (folder / "b.npy").unlink()
    (folder / "c.csv").write_text("x\n1\n")
    with refusal("mixed-files", error=FileError):
        open_users(folder)
    (folder / "a.npy").unlink()
    (folder / "d.csv").write_text("y\n1\n")
    with refusal("mixed-files", "d.csv", error=FileError):
        open_users(folder)


@pytest.mark.parametrize("kind", ["csv", "no-header", "parquet"])
def test_a_user_in_two_files_is_refused(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "users"
    folder.mkdir()
    users = [("a", [1, 2]), ("b", [3, 2])]
    for name, ids in users:
        if kind == "parquet":
            # Numbers here, text there: still the same person.
            column = pa.array(ids) if name == "a" else pa.array([str(i) for i in ids]).dictionary_encode()
            parquet.write_table(pa.table({"id": column, "x": [0.5, 0.5]}), folder / f"{name}.parquet")
        else:
            head = "" if kind == "no-header" else "id,x\n"
            (folder / f"{name}.csv").write_text(head + "".join(f"{i},0.5\n" for i in ids))
    column_name = "0" if kind == "no-header" else "id"
    with refusal("repeated-user", "'2'", "has 2", error=DataError):
        open_users(folder, ReadOptions(user_column=column_name))
    assert open_users(folder, ReadOptions(["1:2"] if kind == "no-header" else ["x"])).rows == 4


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("bad", "problem"),
    [(np.nan, "missing-value"), (np.inf, "out-of-bounds"), (-0.1, "out-of-bounds"), (1.5, "out-of-bounds")],
)
def test_a_bad_row_is_named_and_leaves_nothing(tmp_path: Path, bad: float, problem: str) -> None:
    rows, _ = grid_rows(900, PLAN)
    folder = tmp_path / "users"
    folder.mkdir()
    save(folder / "a.npy", rows[:400])
    broken = rows[400:].copy()
    broken[345, 2] = bad
    save(folder / "b.npy", broken)
    before = snapshot(tmp_path)
    with refusal(problem, "b.npy", "row 345", "coordinate 2", error=DataError):
        randomize(open_users(folder), tmp_path / "r", TARGET)
    assert snapshot(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["users"]


def test_clip_and_missing_are_passed_on(tmp_path: Path) -> None:
    rows = np.full((10, 3), 2.0)
    rows[:, 1] = np.nan
    randomize(open_users(save(tmp_path / "u.npy", rows)), tmp_path / "r", TARGET, clip=True, missing="midpoint")
    expected = np.zeros(15, dtype=int)
    expected[[4, 7, 14]] = 10
    np.testing.assert_array_equal(table_of(tmp_path / "r", tmp_path / "s"), expected)


def test_rows_of_another_shape_and_an_output_that_exists_are_refused(tmp_path: Path) -> None:
    with refusal("wrong-shape", "4", error=DataError):
        randomize(open_users(save(tmp_path / "u.npy", np.zeros((2, 4)))), tmp_path / "r", TARGET)
    users = open_users(save(tmp_path / "u.npy", np.zeros((2, 3))))
    (tmp_path / "r").mkdir()
    with refusal("exists", error=FileError):
        randomize(users, tmp_path / "r", TARGET)
    with refusal("out-of-range", "memory=", error=ParameterError):
        randomize(users, tmp_path / "other", TARGET, memory=10**6)
    with refusal("out-of-range", error=ParameterError):
        randomize(users, tmp_path / "other", TARGET, workers=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r", "u.npy"]


@pytest.mark.usefixtures("small_parts")
def test_an_input_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "u.npy", grid_rows(1000, PLAN)[0])
    with refusal("changed-meanwhile", error=FileError):
        randomize(open_users(path), tmp_path / "r", TARGET, progress=lambda _: os.utime(path))
    assert [found.name for found in tmp_path.iterdir()] == ["u.npy"]


RANDOMIZE = """
import sys
from tests.batch.report_folders import noiseless_plan
from shufflesum.batch.identity import PLAIN
from shufflesum.batch.local import randomize
from shufflesum.batch.targets import PlainTarget
from shufflesum.batch.local import open_users

type(PLAIN).part_reports = 3000
randomize(open_users(sys.argv[1]), sys.argv[2], PlainTarget(noiseless_plan()), workers=2)
"""


def finished(partial: Path) -> list[Path]:
    return sorted(partial.glob("part-*.parquet"))


def test_a_killed_run_is_taken_up_and_ends_with_the_very_table(tmp_path: Path) -> None:
    rows, table = grid_rows(400_000, PLAN)
    users = save(tmp_path / "u.npy", rows)
    call = [sys.executable, "-c", RANDOMIZE, str(users), str(tmp_path / "r")]
    partial = tmp_path / ".r.partial"
    with subprocess.Popen(call) as process:
        deadline = time.monotonic() + 60
        while len(finished(partial)) < 5 and time.monotonic() < deadline:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "the run ended before it could be killed"
    kept = {path.name: path.stat().st_mtime_ns for path in finished(partial)}
    assert 5 <= len(kept) < 400
    assert not (tmp_path / "r").exists()
    subprocess.run(call, check=True)
    dataset = open_dataset(tmp_path / "r", stage="reports")
    assert len(dataset.files) == 400
    assert {file.path.name: file.path.stat().st_mtime_ns for file in dataset.files}.items() >= kept.items()
    np.testing.assert_array_equal(table_of(tmp_path / "r", tmp_path / "s"), table)
    assert not partial.exists()


@pytest.mark.usefixtures("small_parts")
def test_an_interrupted_run_goes_on_only_with_the_same_work(tmp_path: Path) -> None:
    rows, table = grid_rows(1000, PLAN)
    users = open_users(save(tmp_path / "u.npy", rows))

    def stop(done: int) -> None:
        if done >= 500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        randomize(users, tmp_path / "r", TARGET, workers=1, progress=stop)
    kept = finished(tmp_path / ".r.partial")
    assert kept
    for change in ({"clip": True}, {"format": "arrow"}, {"missing": "midpoint"}):
        with refusal("resume-mismatch", "restart=True", error=FileError):
            randomize(users, tmp_path / "r", TARGET, **change)
    with refusal("resume-mismatch", "restart=True", error=FileError):
        randomize(users, tmp_path / "r", PlainTarget(noiseless_plan(users=5)))
    randomize(users, tmp_path / "r", TARGET)
    np.testing.assert_array_equal(table_of(tmp_path / "r", tmp_path / "s"), table)


@pytest.mark.usefixtures("small_parts")
def test_restart_forgets_what_was_done(tmp_path: Path) -> None:
    rows, table = grid_rows(1000, PLAN)
    users = open_users(save(tmp_path / "u.npy", rows))

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        randomize(users, tmp_path / "r", TARGET, clip=True, workers=1, progress=stop)
    randomize(users, tmp_path / "r", TARGET, restart=True)
    np.testing.assert_array_equal(table_of(tmp_path / "r", tmp_path / "s"), table)


def test_the_same_again_draws_nothing_and_anything_else_is_refused(tmp_path: Path) -> None:
    users = open_users(save(tmp_path / "u.npy", grid_rows(100, PLAN)[0]))
    first = randomize(users, tmp_path / "r", TARGET)
    before = snapshot(tmp_path)
    again = randomize(users, tmp_path / "r", TARGET, workers=1, restart=True)
    assert (again.identity, snapshot(tmp_path)) == (first.identity, before)
    for change in ({"clip": True}, {"format": "arrow"}, {"missing": "midpoint"}):
        with refusal("exists", error=FileError):
            randomize(users, tmp_path / "r", TARGET, **change)
    with refusal("exists", error=FileError):
        randomize(users, tmp_path / "r", PlainTarget(noiseless_plan(users=5)))
    assert snapshot(tmp_path) == before
    os.utime(tmp_path / "u.npy")
    with refusal("exists", error=FileError):
        randomize(users, tmp_path / "r", TARGET)


def test_what_was_handed_on_is_not_drawn_again_unasked(tmp_path: Path) -> None:
    users = open_users(save(tmp_path / "u.npy", grid_rows(100, PLAN)[0]))
    first = randomize(users, tmp_path / "r", TARGET)
    os.rename(tmp_path / "r", tmp_path / "at the shuffler")
    with refusal("randomized-before", "restart=True", error=ReportsError):
        randomize(users, tmp_path / "r", TARGET)
    assert not (tmp_path / "r").exists()
    assert randomize(users, tmp_path / "r", TARGET, restart=True).identity != first.identity
    (tmp_path / "r" / "part-000000.parquet").unlink()
    with refusal("no-rows", error=FileError):  # no longer what was finished
        randomize(users, tmp_path / "r", TARGET)
    (tmp_path / ".r.finished").write_text("{")
    with refusal("damaged", error=FileError):
        randomize(users, tmp_path / "r", TARGET)


def test_a_run_stopped_at_its_very_end_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, table = grid_rows(1000, PLAN)
    users = open_users(save(tmp_path / "u.npy", rows))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", stop)
    with pytest.raises(KeyboardInterrupt):
        randomize(users, tmp_path / "r", TARGET)
    monkeypatch.undo()
    assert (tmp_path / ".r.finished").exists()
    randomize(users, tmp_path / "r", TARGET)
    np.testing.assert_array_equal(table_of(tmp_path / "r", tmp_path / "s"), table)


@pytest.mark.parametrize("workers", [1, 2])
def test_sealed_reports_go_all_the_way(tmp_path: Path, workers: int) -> None:
    rows, table = grid_rows(800, PLAN)
    users = open_users(save(tmp_path / "u.npy", rows))
    dataset = randomize(users, tmp_path / "r", SECRET, workers=workers)
    assert dataset.identity.kind is SEALED
    assert dataset.rows == 2400
    shuffled = open_dataset(shuffle_folder(tmp_path / "r", tmp_path / "s"), stage="shuffled")
    counts, _ = count(shuffled, SECRET, workers=workers)
    np.testing.assert_array_equal(counts.table, table)
    assert counts.rejected == 0
    with refusal("missing-argument", "key=", error=ParameterError):
        count(shuffled, SealedTarget(TASK))
    with refusal("key-mismatch", error=ParameterError):
        count(shuffled, replace(SECRET, private_key=X25519PrivateKey.generate()), workers=1)
    with refusal("sealed", error=ReportsError):
        count(shuffled, TARGET)
    with refusal("task-mismatch", error=ReportsError):
        count(shuffled, replace(SECRET, task=replace(TASK, name="another")))


def test_an_expired_task_and_a_round_it_does_not_cover_are_refused(tmp_path: Path) -> None:
    users = open_users(save(tmp_path / "u.npy", np.zeros((2, 3))))
    with refusal("expired", error=TaskError):
        randomize(users, tmp_path / "r", SealedTarget(replace(TASK, expires=datetime(2020, 1, 1, tzinfo=UTC))))
    with refusal("wrong-round", "rounds 1", "to 1", error=ReportsError):
        randomize(users, tmp_path / "r", SealedTarget(TASK, 2))
    assert [path.name for path in tmp_path.iterdir()] == ["u.npy"]
