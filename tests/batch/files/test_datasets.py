from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.batch.report_folders import (
    every_byte_changed,
    noiseless_plan,
    noiseless_task,
    records_of,
    snapshot,
    write_folder,
)
from tests.refusals import refusal

from shufflesum._machine import WriteError
from shufflesum.batch.files import (
    Format,
    open_dataset,
    read_records,
    write_manifest,
    write_part,
)
from shufflesum.batch.identity import PLAIN, Identity
from shufflesum.errors import DataError, FileError, ParameterError, ReportsError

PLAN = noiseless_plan()
REPORTS = Identity.for_plan(PLAN)
FORMATS: tuple[Format, ...] = ("parquet", "arrow")


def random_cells(rows: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 15, rows)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_folder_gives_back_what_was_written(tmp_path: Path, kind: Format) -> None:
    cells = random_cells(1000)
    dataset = open_dataset(write_folder(tmp_path / "r", REPORTS, cells[:400], cells[400:], kind=kind), stage="reports")
    assert dataset.identity == REPORTS
    assert [file.rows for file in dataset.files] == [400, 600]
    assert dataset.rows == 1000
    batches = [batch for file in dataset.files for batch in read_records(file, 64)]
    assert max(map(len, batches)) <= 64
    assert pa.Table.from_batches(batches).column("cell").to_pylist() == cells.tolist()


@pytest.mark.parametrize("kind", FORMATS)
def test_groups_of_a_file_can_be_read_by_themselves(tmp_path: Path, kind: Format) -> None:
    rows = (1 << 21) + 5
    cells = random_cells(rows)
    batch = PLAIN.records(cells.astype(np.uint32))
    pieces = [batch.slice(start, 700_001) for start in range(0, rows, 700_001)]  # cut otherwise than the file will be
    assert write_part(tmp_path, "part", pieces, REPORTS, kind) == rows
    (file,) = open_dataset(tmp_path, stage="reports").files
    assert (file.rows, file.groups) == (rows, 3)
    sizes = [sum(map(len, read_records(file, 1 << 20, [group]))) for group in range(3)]
    assert sizes == [1 << 20, 1 << 20, 5]
    last = pa.Table.from_batches(read_records(file, 1 << 20, [2]))
    assert last.column("cell").to_pylist() == cells[-5:].tolist()


def test_a_file_says_nothing_about_its_rows_but_the_rows(tmp_path: Path) -> None:
    write_folder(tmp_path / "r", REPORTS, random_cells(1000))
    metadata = parquet.ParquetFile(tmp_path / "r" / "part-0.parquet").metadata
    assert metadata.row_group(0).column(0).statistics is None
    assert set(metadata.metadata) == {b"shufflesum", b"shufflesum.part", b"ARROW:schema"}


def test_sealed_reports_are_kept_as_they_are(tmp_path: Path) -> None:
    identity = Identity.for_task(noiseless_task(PLAN), 1)
    column = pa.array([os.urandom(52) for _ in range(100)], pa.binary(52))
    write_part(tmp_path, "part", [pa.RecordBatch.from_arrays([column], names=["sealed"])], identity)
    dataset = open_dataset(tmp_path / "part.parquet", stage="reports")
    assert dataset.identity == identity
    (batch,) = read_records(dataset.files[0], 1000)
    assert batch.column("sealed").equals(column)


def test_a_single_file_and_reports_of_several_sites_can_be_opened(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "r", REPORTS, [1, 7])
    other = Identity.for_plan(PLAN)
    write_part(folder, "other-site", [records_of([13], other)], other, "arrow")
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.parquet.crc").write_bytes(b"hidden")
    assert open_dataset(folder, stage="reports").identity == REPORTS.merge(other)
    assert open_dataset(folder / "part-0.parquet", stage="reports").rows == 2


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("keep", [0, 3, 0.3, 0.9])
def test_a_file_cut_short_is_refused(tmp_path: Path, kind: Format, keep: float) -> None:
    folder = write_folder(tmp_path / "r", REPORTS, random_cells(1000), random_cells(1000), kind=kind)
    damaged = folder / f"part-1.{kind}"
    data = damaged.read_bytes()
    damaged.write_bytes(data[: int(keep if keep >= 1 else keep * len(data))])
    before = snapshot(folder)
    with refusal("damaged", "part-1", str(kind), error=FileError):
        open_dataset(folder, stage="reports")
    assert snapshot(folder) == before


def test_a_changed_byte_among_the_reports_is_noticed(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "r", REPORTS, random_cells(1000))
    path = folder / "part-0.parquet"
    data = bytearray(path.read_bytes())
    start = parquet.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    data[start + 200] ^= 1
    path.write_bytes(data)
    (file,) = open_dataset(folder, stage="reports").files
    with refusal("damaged", error=FileError):
        list(read_records(file, 100))


@pytest.mark.parametrize("content", [b"cell\n1\n", b"PAR1" * 10, b"ARROW1\0\0" * 10])
@pytest.mark.parametrize("kind", FORMATS)
def test_something_else_under_that_name_is_refused(tmp_path: Path, kind: Format, content: bytes) -> None:
    (tmp_path / f"x.{kind}").write_bytes(content)
    with refusal("damaged", error=FileError):
        open_dataset(tmp_path, stage="reports")


def test_mixed_plans_and_stages_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "r", REPORTS, [0])
    other = Identity.for_plan(noiseless_plan(levels=7))
    write_part(folder, "other", [records_of([0], other)], other)
    with refusal("mixed-reports", error=ReportsError):
        open_dataset(folder, stage="reports")
    with refusal("wrong-stage", error=ReportsError):
        open_dataset(folder / "part-0.parquet", stage="shuffled")
    shuffled = write_folder(tmp_path / "s", REPORTS.shuffled(99), [0])
    with refusal("wrong-stage", error=ReportsError):
        open_dataset(shuffled, stage="reports")
    again = REPORTS.shuffled(99)
    write_part(shuffled, "again", [records_of([0], again)], again)
    with refusal("mixed-reports", error=ReportsError):
        open_dataset(shuffled, stage="shuffled")


def test_parquet_files_that_hold_no_reports_are_refused(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"cell": [1]}), tmp_path / "x.parquet")
    with refusal("malformed", error=ReportsError):
        open_dataset(tmp_path, stage="reports")
    schema = pa.schema([("coordinate", pa.uint32())], metadata={"shufflesum": REPORTS.to_json()})
    parquet.write_table(pa.table({"coordinate": pa.array([1], pa.uint32())}, schema=schema), tmp_path / "x.parquet")
    with refusal("unknown-column", "'cell'", error=ReportsError):
        open_dataset(tmp_path, stage="reports")


def test_folders_without_reports_are_refused(tmp_path: Path) -> None:
    with refusal("unreadable", error=FileError):
        open_dataset(tmp_path / "nowhere", stage="reports")
    with refusal("no-rows", error=FileError):
        open_dataset(tmp_path, stage="reports")
    with refusal("no-rows", error=ReportsError):
        open_dataset(write_folder(tmp_path / "empty", REPORTS, []), stage="reports")
    for odd in ("notes.txt", "part-0.csv"):
        folder = write_folder(tmp_path / odd, REPORTS, [0])
        (folder / odd).touch()
        with refusal("unknown-file-type", error=FileError):
            open_dataset(folder, stage="reports")
    (tmp_path / "notes.txt" / "notes.txt").unlink()
    (tmp_path / "notes.txt" / "inner.parquet").mkdir()
    with refusal("unknown-file-type", error=FileError):
        open_dataset(tmp_path / "notes.txt", stage="reports")


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    folder = write_folder(tmp_path / "listed", REPORTS, [0, 6], [12])
    write_manifest(folder, REPORTS)
    assert open_dataset(folder, stage="reports").rows == 3
    return folder


def test_a_single_file_knows_how_much_was_written_with_it(listed: Path) -> None:
    one, two = (open_dataset(listed / f"part-{number}.parquet", stage="reports") for number in (0, 1))
    assert (one.rows, one.written, one.whole) == (2, 3, False)
    assert (two.rows, two.written, two.whole) == (1, 3, False)
    other = write_folder(listed.parent / "other", REPORTS, [0])
    (other / "part-0.parquet").rename(listed / "stray.parquet")
    assert open_dataset(listed / "stray.parquet", stage="reports").written is None
    write_part(listed, "part-1", [records_of([12, 12], REPORTS)], REPORTS)
    with refusal("changed-afterwards", "part-1.parquet", "has 2", error=ReportsError):
        open_dataset(listed / "part-1.parquet", stage="reports")


def test_a_missing_and_an_extra_file_do_not_pass_for_the_whole(listed: Path) -> None:
    (listed / "part-1.parquet").rename(listed / "part-9.parquet")
    with refusal("changed-afterwards", "part-1.parquet", error=ReportsError):
        open_dataset(listed, stage="reports")
    (listed / "part-1.parquet").write_bytes((listed / "part-9.parquet").read_bytes())
    with refusal("changed-afterwards", "part-9.parquet", "_shufflesum.json", error=ReportsError):
        open_dataset(listed, stage="reports")


def test_a_file_of_other_rows_or_of_another_run_does_not_pass(listed: Path) -> None:
    write_part(listed, "part-1", [records_of([12, 12], REPORTS)], REPORTS)
    with refusal("changed-afterwards", error=ReportsError):
        open_dataset(listed, stage="reports")
    other = Identity.for_plan(PLAN)
    write_part(listed, "part-1", [records_of([12], other)], other)
    with refusal("changed-afterwards", error=ReportsError):
        open_dataset(listed, stage="reports")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"files": [3]}', '{"files": [], "identity": {}, "format": "x"}']
)
def test_a_damaged_manifest_is_refused(listed: Path, text: str) -> None:
    (listed / "_shufflesum.json").write_text(text)
    with refusal("format-mismatch" if '"x"' in text else "damaged", "_shufflesum.json", error=FileError):
        open_dataset(listed, stage="reports")


@pytest.mark.long
def test_any_change_of_a_manifest_is_noticed(listed: Path) -> None:
    for _ in every_byte_changed(listed / "_shufflesum.json"):
        with refusal(("damaged", "format-mismatch"), "_shufflesum.json", error=FileError):
            open_dataset(listed, stage="reports")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The closest thing to a full disk that needs no disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_full_disk_leaves_no_part(tmp_path: Path, kind: Format) -> None:
    batch = records_of(random_cells(100_000), REPORTS)
    with largest_file(4096), refusal("unwritable", "part", error=WriteError):
        write_part(tmp_path, "part", [batch], REPORTS, kind)
    assert list(tmp_path.iterdir()) == []


def test_a_part_whose_batches_fail_does_not_appear(tmp_path: Path) -> None:
    def batches() -> Iterator[Any]:
        yield records_of([0], REPORTS)
        raise DataError("out-of-bounds", "a bad row")

    with refusal("out-of-bounds", error=DataError):
        write_part(tmp_path, "part", batches(), REPORTS)
    assert list(tmp_path.iterdir()) == []
    with refusal("unknown-choice", error=ParameterError):
        write_part(tmp_path, "part", [], REPORTS, "csv")  # type: ignore[arg-type]
