from __future__ import annotations

import os
import shutil
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
from pyarrow import parquet
from tests.batch.report_folders import (
    KEY,
    batch_of,
    grid_rows,
    noiseless_plan,
    noiseless_task,
    shuffle_folder,
    snapshot,
    write_folder,
)

from shufflesum.batch import local
from shufflesum.batch.datasets import open_dataset, read_batches, write_part
from shufflesum.batch.identity import Identity
from shufflesum.batch.inputs import open_users
from shufflesum.batch.local import count, file_digests, randomize
from shufflesum.errors import DataError, FileError, ParameterError, ReportsError
from shufflesum.protocol import Counts
from shufflesum.wire import TaskError

PLAN = noiseless_plan()
TASK = noiseless_task(PLAN)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 100 users."""
    monkeypatch.setattr(local, "_PART_REPORTS", {False: 300, True: 300})


def save(path: Path, rows: Any) -> Path:
    np.save(path, rows)
    return path


def table_of(folder: Path, work: Path) -> Any:
    """The table of counts of a folder of plain reports, by way of a shuffle."""
    counts, _ = count(open_dataset(shuffle_folder(folder, work), stage="shuffled"), PLAN)
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
        PLAN,
        format=kind,
        workers=workers,
        progress=done.append,
    )
    assert [file.rows for file in dataset.files] == [300] * 10 + [150]
    assert {file.path.suffix for file in dataset.files} == {f".{kind}"}
    assert done == sorted(done)
    assert done[-1] == 1050
    # Noiseless and with all coordinates, a part is the very rows of its users, in order.
    fourth = pa.Table.from_batches(read_batches(dataset.files[3], 1000)).column("value").to_numpy().reshape(100, 3)
    np.testing.assert_array_equal(fourth, rows[300:400] * PLAN.levels)
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
    dataset = randomize(open_users(folder), tmp_path / "r", PLAN)
    assert [file.rows for file in dataset.files] == [300] * 5 + [90]
    np.testing.assert_array_equal(table_of(tmp_path / "r", tmp_path / "s"), table)


def test_pieces_respect_files_parts_and_size(tmp_path: Path) -> None:
    folder = tmp_path / "users"
    folder.mkdir()
    save(folder / "a.npy", np.arange(7.0).reshape(7, 1))
    save(folder / "b.npy", np.arange(7.0, 12.0).reshape(5, 1))
    pieces = list(open_users(folder).pieces(5, 3))
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
    with pytest.raises(FileError, match="is an empty folder"):
        open_users(folder)
    save(folder / "a.npy", np.zeros((2, 3)))
    save(folder / "b.npy", np.zeros((2, 4)))
    with pytest.raises(FileError, match=r"b\.npy: its rows have shape \(4,\)"):
        open_users(folder)
    (folder / "b.npy").unlink()
    (folder / "c.csv").write_text("x\n1\n")
    with pytest.raises(FileError, match=r"several kinds \(\.csv, \.npy\)"):
        open_users(folder)
    (folder / "a.npy").unlink()
    (folder / "d.csv").write_text("y\n1\n")
    with pytest.raises(FileError, match=r"d\.csv: its columns are not named"):
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
    with pytest.raises(DataError, match="user '2' has 2 rows"):
        open_users(folder, user_column=column_name)
    assert open_users(folder, columns=["1:2"] if kind == "no-header" else ["x"]).rows == 4


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.1, 1.5])
def test_a_bad_row_is_named_and_leaves_nothing(tmp_path: Path, bad: float) -> None:
    rows, _ = grid_rows(900, PLAN)
    folder = tmp_path / "users"
    folder.mkdir()
    save(folder / "a.npy", rows[:400])
    broken = rows[400:].copy()
    broken[345, 2] = bad
    save(folder / "b.npy", broken)
    before = snapshot(tmp_path)
    with pytest.raises(DataError, match=r"b\.npy: row 345, coordinate 2"):
        randomize(open_users(folder), tmp_path / "r", PLAN)
    assert snapshot(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["users"]


def test_clip_and_missing_are_passed_on(tmp_path: Path) -> None:
    rows = np.full((10, 3), 2.0)
    rows[:, 1] = np.nan
    randomize(open_users(save(tmp_path / "u.npy", rows)), tmp_path / "r", PLAN, clip=True, missing="midpoint")
    expected = np.zeros((3, 5), dtype=int)
    expected[[0, 2], 4], expected[1, 2] = 10, 10
    np.testing.assert_array_equal(table_of(tmp_path / "r", tmp_path / "s"), expected)


def test_rows_of_another_shape_and_an_output_that_exists_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a row has shape \(4,\)"):
        randomize(open_users(save(tmp_path / "u.npy", np.zeros((2, 4)))), tmp_path / "r", PLAN)
    users = open_users(save(tmp_path / "u.npy", np.zeros((2, 3))))
    (tmp_path / "r").mkdir()
    with pytest.raises(FileError, match="exists"):
        randomize(users, tmp_path / "r", PLAN)
    with pytest.raises(ParameterError, match="--memory"):
        randomize(users, tmp_path / "other", PLAN, memory=10**6)
    with pytest.raises(ParameterError, match="workers"):
        randomize(users, tmp_path / "other", PLAN, workers=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r", "u.npy"]


@pytest.mark.usefixtures("small_parts")
def test_an_input_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "u.npy", grid_rows(1000, PLAN)[0])
    with pytest.raises(FileError, match="was changed while it was read"):
        randomize(open_users(path), tmp_path / "r", PLAN, progress=lambda _: os.utime(path))
    assert [found.name for found in tmp_path.iterdir()] == ["u.npy"]


RANDOMIZE = """
import sys
from tests.batch.report_folders import noiseless_plan
from shufflesum.batch import local
from shufflesum.batch.inputs import open_users

local._PART_REPORTS = {False: 3000, True: 3000}
local.randomize(open_users(sys.argv[1]), sys.argv[2], noiseless_plan(), workers=2)
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
        randomize(users, tmp_path / "r", PLAN, workers=1, progress=stop)
    kept = finished(tmp_path / ".r.partial")
    assert kept
    for change in ({"clip": True}, {"format": "arrow"}, {"missing": "midpoint"}):
        with pytest.raises(FileError, match="--restart"):
            randomize(users, tmp_path / "r", PLAN, **change)
    with pytest.raises(FileError, match="--restart"):
        randomize(users, tmp_path / "r", replace(PLAN, users=5))
    randomize(users, tmp_path / "r", PLAN)
    np.testing.assert_array_equal(table_of(tmp_path / "r", tmp_path / "s"), table)


@pytest.mark.usefixtures("small_parts")
def test_restart_forgets_what_was_done(tmp_path: Path) -> None:
    rows, table = grid_rows(1000, PLAN)
    users = open_users(save(tmp_path / "u.npy", rows))

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        randomize(users, tmp_path / "r", PLAN, clip=True, workers=1, progress=stop)
    randomize(users, tmp_path / "r", PLAN, restart=True)
    np.testing.assert_array_equal(table_of(tmp_path / "r", tmp_path / "s"), table)


@pytest.mark.parametrize("workers", [1, 2])
def test_sealed_reports_go_all_the_way(tmp_path: Path, workers: int) -> None:
    rows, table = grid_rows(800, PLAN)
    users = open_users(save(tmp_path / "u.npy", rows))
    dataset = randomize(users, tmp_path / "r", TASK, workers=workers)
    assert dataset.identity.sealed
    assert dataset.rows == 2400
    shuffled = open_dataset(shuffle_folder(tmp_path / "r", tmp_path / "s"), stage="shuffled")
    counts, _ = count(shuffled, TASK, private_key=KEY, workers=workers)
    np.testing.assert_array_equal(counts.table, table)
    assert counts.rejected == 0
    with pytest.raises(ParameterError, match="--key"):
        count(shuffled, TASK)
    with pytest.raises(ParameterError, match="this private key belongs to"):
        count(shuffled, TASK, private_key=X25519PrivateKey.generate(), workers=1)
    with pytest.raises(ReportsError, match="these reports are sealed"):
        count(shuffled, PLAN)
    with pytest.raises(ReportsError, match="sealed for task"):
        count(shuffled, replace(TASK, name="another"), private_key=KEY)


def test_an_expired_task_and_a_round_it_does_not_cover_are_refused(tmp_path: Path) -> None:
    users = open_users(save(tmp_path / "u.npy", np.zeros((2, 3))))
    with pytest.raises(TaskError, match="ran out"):
        randomize(users, tmp_path / "r", replace(TASK, expires=datetime(2020, 1, 1, tzinfo=UTC)))
    with pytest.raises(ReportsError, match="covers rounds 1 to 1"):
        randomize(users, tmp_path / "r", TASK, round_number=2)
    assert [path.name for path in tmp_path.iterdir()] == ["u.npy"]


SHUFFLED = Identity.for_plan(PLAN).shuffled()


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("workers", [1, 4])
def test_counting_on_any_number_of_threads_gives_the_same_table(tmp_path: Path, kind: Any, workers: int) -> None:
    random = np.random.default_rng(3)
    coordinates, values = random.integers(0, 4, 300_000), random.integers(0, 6, 300_000)
    parts = [(coordinates[i::3], values[i::3]) for i in range(3)]
    dataset = open_dataset(write_folder(tmp_path / "s", SHUFFLED, *parts, kind=kind), stage="shuffled")
    done: list[int] = []
    counts, digests = count(dataset, PLAN, workers=workers, progress=done.append)
    expected = np.zeros((4, 6), dtype=int)
    np.add.at(expected, (coordinates, values), 1)
    np.testing.assert_array_equal(counts.table, expected[:3, :5])
    assert counts.rejected == 300_000 - expected[:3, :5].sum()
    assert done[-1] == 300_000
    assert digests == file_digests(dataset)
    assert len(set(digests.values())) == 3


def test_a_large_file_is_shared_among_threads_by_its_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_UNIT_ROWS", 1 << 20)
    rows = (1 << 21) + 7
    random = np.random.default_rng(4)
    columns = [
        pa.array(random.integers(0, 3, rows, dtype=np.uint32)),
        pa.array(random.integers(0, 5, rows, dtype=np.uint16)),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SHUFFLED.arrow_schema())
    write_part(tmp_path, "part", [batch], SHUFFLED)
    done: list[int] = []
    counts, _ = count(open_dataset(tmp_path, stage="shuffled"), PLAN, workers=2, progress=done.append)
    assert sorted(done) in ([7, rows], [1 << 21, rows])  # two groups of a million rows to one thread
    expected = np.zeros((3, 5), dtype=int)
    np.add.at(expected, (columns[0].to_numpy(), columns[1].to_numpy()), 1)
    np.testing.assert_array_equal(counts.table, expected)


def test_what_is_not_of_this_plan_is_refused(tmp_path: Path) -> None:
    dataset = open_dataset(write_folder(tmp_path / "s", SHUFFLED, ([0], [0])), stage="shuffled")
    with pytest.raises(ReportsError, match="analyze reports with the plan"):
        count(dataset, noiseless_plan(levels=9))
    with pytest.raises(ReportsError, match="not sealed"):
        count(dataset, TASK, private_key=KEY)
    with pytest.raises(ReportsError, match="other users or reports"):
        count(replace(dataset, identity=replace(SHUFFLED, users=1)), PLAN)
    with pytest.raises(ParameterError, match="--memory"):
        count(dataset, PLAN, memory=1000)


def test_a_copy_under_another_name_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "s", SHUFFLED, ([0], [0]), ([1], [1]))
    shutil.copy(folder / "part-1.parquet", folder / "zzz.parquet")
    with pytest.raises(ReportsError, match=r"zzz\.parquet are the same part, part-1, of one batch"):
        open_dataset(folder, stage="shuffled")
    table = parquet.read_table(folder / "part-1.parquet")
    nameless = table.replace_schema_metadata({b"shufflesum": table.schema.metadata[b"shufflesum"]})
    for name in ("part-1", "zzz"):  # as files of Spark, which do not know their names
        parquet.write_table(nameless, folder / f"{name}.parquet")
    dataset = open_dataset(folder, stage="shuffled")
    with pytest.raises(ReportsError, match=r"zzz\.parquet: is a copy of part-1\.parquet"):
        count(dataset, PLAN)
    with pytest.raises(ReportsError, match="is a copy of"):
        file_digests(dataset)


def test_parts_that_hold_the_same_reports_or_none_are_no_copies(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "s", SHUFFLED, ([0], [0]), ([0], [0]), ([], []))
    shutil.copy(folder / "part-2.parquet", folder / "part-3.parquet")  # as Spark leaves empty ones
    counts, digests = count(open_dataset(folder, stage="shuffled"), PLAN)
    assert counts.accepted == 2
    assert sorted(path.name for path in digests) == ["part-0.parquet", "part-1.parquet"]


def test_a_file_that_is_damaged_inside_is_refused(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    parts = [(random.integers(0, 3, 5000), random.integers(0, 5, 5000)) for _ in range(3)]
    folder = write_folder(tmp_path / "s", SHUFFLED, *parts)
    path = folder / "part-1.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x55
    path.write_bytes(data)
    dataset = open_dataset(folder, stage="shuffled")
    with pytest.raises(FileError, match=r"part-1\.parquet: cannot be read"):
        count(dataset, PLAN)


def test_a_file_replaced_after_it_was_opened_is_noticed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "s", SHUFFLED, ([0, 1], [0, 1]))
    dataset = open_dataset(folder, stage="shuffled")
    write_part(folder, "part-0", [batch_of([0], [0], SHUFFLED)], SHUFFLED)
    with pytest.raises(FileError, match="2 reports were announced and 1 read"):
        count(dataset, PLAN)


def test_large_tables_of_counts_take_fewer_threads() -> None:
    each = 8 * Counts(PLAN).table.size
    assert local._workers(8, 3 * (each + local._COUNT_BYTES), each + local._COUNT_BYTES) == 3
