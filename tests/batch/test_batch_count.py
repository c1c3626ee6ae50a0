from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet
from tests.batch.report_folders import (
    KEY,
    noiseless_plan,
    noiseless_task,
    records_of,
    write_folder,
)
from tests.refusals import refusal

from shufflesum.batch import local as step
from shufflesum.batch.files import file_digests, open_dataset, write_part
from shufflesum.batch.identity import PLAIN, Identity
from shufflesum.batch.local import count
from shufflesum.batch.targets import PlainTarget, SealedTarget, workers_within
from shufflesum.errors import FileError, ParameterError, ReportsError
from shufflesum.reports import Counts

PLAN = noiseless_plan()
TASK = noiseless_task(PLAN)
TARGET = PlainTarget(PLAN)
SHUFFLED = Identity.for_plan(PLAN).shuffled(99)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("workers", [1, 4])
def test_counting_on_any_number_of_threads_gives_the_same_table(tmp_path: Path, kind: Any, workers: int) -> None:
    random = np.random.default_rng(3)
    cells = random.integers(0, 24, 300_000)
    parts = [cells[i::3] for i in range(3)]
    dataset = open_dataset(write_folder(tmp_path / "s", SHUFFLED, *parts, kind=kind), stage="shuffled")
    done: list[int] = []
    counts, digests = count(dataset, TARGET, workers=workers, progress=done.append)
    np.testing.assert_array_equal(counts.table, np.bincount(cells)[:15])
    assert counts.rejected == np.count_nonzero(cells >= 15)
    assert done[-1] == 300_000
    assert digests == file_digests(dataset)
    assert len(set(digests.values())) == 3


def test_a_large_file_is_shared_among_threads_by_its_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "_UNIT_ROWS", 1 << 20)
    rows = (1 << 21) + 7
    random = np.random.default_rng(4)
    cells = random.integers(0, 15, rows, dtype=np.uint32)
    write_part(tmp_path, "part", [PLAIN.records(cells)], SHUFFLED)
    done: list[int] = []
    counts, _ = count(open_dataset(tmp_path, stage="shuffled"), TARGET, workers=2, progress=done.append)
    assert done == [1 << 21, rows]  # two groups of a million rows to one thread
    np.testing.assert_array_equal(counts.table, np.bincount(cells))


def test_what_is_not_of_this_plan_is_refused(tmp_path: Path) -> None:
    dataset = open_dataset(write_folder(tmp_path / "s", SHUFFLED, [0]), stage="shuffled")
    with refusal("plan-mismatch", error=ReportsError):
        count(dataset, PlainTarget(noiseless_plan(levels=9)))
    with refusal("not-sealed", error=ReportsError):
        count(dataset, SealedTarget(TASK, private_key=KEY))
    with refusal("changed-afterwards", error=ReportsError):
        count(replace(dataset, identity=replace(SHUFFLED, users=1)), TARGET)
    with refusal("out-of-range", "memory=", error=ParameterError):
        count(dataset, TARGET, memory=1000)


def test_a_copy_under_another_name_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "s", SHUFFLED, [0], [6])
    shutil.copy(folder / "part-1.parquet", folder / "zzz.parquet")
    with refusal("counted-twice", "zzz.parquet", "part-1", error=ReportsError):
        open_dataset(folder, stage="shuffled")
    table = parquet.read_table(folder / "part-1.parquet")
    nameless = table.replace_schema_metadata({b"shufflesum": table.schema.metadata[b"shufflesum"]})
    for name in ("part-1", "zzz"):  # as files of Spark, which do not know their names
        parquet.write_table(nameless, folder / f"{name}.parquet")
    with refusal("counted-twice", "part-1.parquet", "zzz.parquet", error=FileError):
        open_dataset(folder, stage="shuffled")


def test_parts_that_hold_the_same_reports_or_none_are_no_copies(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "s", SHUFFLED, [0], [0], [])
    shutil.copy(folder / "part-2.parquet", folder / "part-3.parquet")  # as Spark leaves empty ones
    counts, digests = count(open_dataset(folder, stage="shuffled"), TARGET)
    assert counts.accepted == 2
    assert sorted(path.name for path in digests) == ["part-0.parquet", "part-1.parquet"]


def test_a_file_that_is_damaged_inside_is_refused(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    parts = [random.integers(0, 15, 5000) for _ in range(3)]
    folder = write_folder(tmp_path / "s", SHUFFLED, *parts)
    path = folder / "part-1.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x55
    path.write_bytes(data)
    dataset = open_dataset(folder, stage="shuffled")
    with refusal("damaged", "part-1.parquet", error=FileError):
        count(dataset, TARGET)


def test_a_file_replaced_after_it_was_opened_is_noticed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "s", SHUFFLED, [0, 6])
    dataset = open_dataset(folder, stage="shuffled")
    write_part(folder, "part-0", [records_of([0], SHUFFLED)], SHUFFLED)
    with refusal("changed-meanwhile", "2 reports", "and 1", error=FileError):
        count(dataset, TARGET)


def test_large_tables_of_counts_take_fewer_threads() -> None:
    each = 8 * Counts(PLAN).table.size
    assert workers_within(8, 3 * (each + step._COUNT_BYTES), each + step._COUNT_BYTES) == 3
