from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.batch.report_folders import (
    every_byte_changed,
    noiseless_plan,
    records_of,
)
from tests.refusals import refusal

from shufflesum._machine import WriteError
from shufflesum.batch.files import (
    StagedFolder,
    describe_inputs,
    open_dataset,
    write_part,
)
from shufflesum.batch.identity import Identity
from shufflesum.errors import DataError, FileError, PrivacyError, ReportsError

PLAN = noiseless_plan()
REPORTS = Identity.for_plan(PLAN)
WORK = {"step": "test", "inputs": [["a", 1, 2]]}


def put(folder: StagedFolder, name: str, rows: int = 1) -> None:
    write_part(folder.path, name, [records_of([0] * rows, folder.identity)], folder.identity)


def interrupt(output: Path, error: BaseException, **arguments: Any) -> None:
    def run() -> None:
        with StagedFolder(output, WORK, REPORTS, **arguments) as folder:
            put(folder, "part-0", 2)
            raise error

    with pytest.raises(type(error)):
        run()


@pytest.mark.parametrize("restart", [False, True])
def test_what_an_interrupted_run_did_stays_where_the_next_may_not_begin(tmp_path: Path, restart: bool) -> None:
    def refuse(run: str) -> None:
        assert (run == REPORTS.contribution_ids[0]) != restart
        raise PrivacyError("budget-spent", "no")

    interrupt(tmp_path / "out", KeyboardInterrupt())
    mine = Identity.for_plan(PLAN)
    with (
        refusal("budget-spent", error=PrivacyError),
        StagedFolder(tmp_path / "out", WORK, mine, restart=restart, begin=refuse),
    ):
        pass
    with StagedFolder(tmp_path / "out", WORK, mine) as folder:
        assert (folder.parts, folder.identity) == ({"part-0": 2}, REPORTS)


def test_a_folder_appears_whole_and_only_at_the_end(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with StagedFolder(output, WORK, REPORTS) as folder:
        put(folder, "part-0")
        (folder.path / "_scratch").mkdir()
        (folder.path / ".part-1.parquet").write_bytes(b"left by a crash")
        assert not output.exists()
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert sorted(path.name for path in output.iterdir()) == ["_shufflesum.json", "part-0.parquet"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert open_dataset(output, stage="reports").identity == REPORTS


def test_only_shuffled_reports_can_be_read_by_others(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        for identity, mode in ((REPORTS, 0o700), (REPORTS.shuffled(99), 0o755)):
            with StagedFolder(tmp_path / identity.stage, WORK, identity) as folder:
                put(folder, "part-0")
            assert stat.S_IMODE((tmp_path / identity.stage).stat().st_mode) == mode
    finally:
        os.umask(before)


def test_an_output_that_exists_is_never_replaced(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    with refusal("exists", error=FileError), StagedFolder(output, WORK, REPORTS):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_output_made_by_somebody_else_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    output = tmp_path / "out"

    def run() -> None:
        with StagedFolder(output, WORK, REPORTS) as folder:
            put(folder, "part-0")
            output.mkdir()

    with refusal("exists", error=FileError):
        run()
    assert list(output.iterdir()) == []
    output.rmdir()
    with StagedFolder(output, WORK, REPORTS) as folder:
        assert folder.parts == {"part-0": 1}
    assert open_dataset(output, stage="reports").rows == 1


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(143), MemoryError(), WriteError("unwritable", "full"), OSError(28)]
)
def test_an_interrupted_run_is_taken_up_again(tmp_path: Path, error: BaseException) -> None:
    output = tmp_path / "out"
    interrupt(output, error)
    assert not output.exists()
    with StagedFolder(output, WORK, Identity.for_plan(PLAN)) as folder:
        assert folder.parts == {"part-0": 2}
        assert folder.identity == REPORTS  # the parts that are there already have it
        put(folder, "part-1")
    assert open_dataset(output, stage="reports").rows == 3


@pytest.mark.parametrize(
    "error",
    [
        DataError("out-of-bounds", "row 3"),
        ReportsError("mixed-reports", "mixed"),
        FileError("damaged", "cut"),
        ValueError("bug"),
    ],
)
def test_bad_input_leaves_nothing_behind(tmp_path: Path, error: Exception) -> None:
    interrupt(tmp_path / "out", error)
    assert list(tmp_path.iterdir()) == []


def test_other_work_is_not_taken_up(tmp_path: Path) -> None:
    output = tmp_path / "out"
    interrupt(output, KeyboardInterrupt())
    for work, identity in (
        (WORK | {"inputs": [["a", 1, 3]]}, REPORTS),
        (WORK, Identity.for_plan(noiseless_plan(levels=9))),
    ):
        with refusal("resume-mismatch", "restart=True", error=FileError), StagedFolder(output, work, identity):
            pass
    with StagedFolder(output, WORK | {"inputs": []}, REPORTS, restart=True) as folder:
        assert folder.parts == {}
        put(folder, "part-7")
    assert [file.path.name for file in open_dataset(output, stage="reports").files] == ["part-7.parquet"]


def test_leftovers_that_are_no_finished_parts_are_done_again(tmp_path: Path) -> None:
    output = tmp_path / "out"
    interrupt(output, KeyboardInterrupt())
    partial = tmp_path / ".out.partial"
    (partial / "part-1.parquet").write_bytes(b"")
    other = Identity.for_plan(PLAN)
    write_part(partial, "part-2", [records_of([0], other)], other)
    with StagedFolder(output, WORK, REPORTS) as folder:
        assert folder.parts == {"part-0": 2}
    assert open_dataset(output, stage="reports").rows == 2


def test_a_damaged_note_of_the_work_is_refused_and_a_missing_one_starts_anew(tmp_path: Path) -> None:
    output = tmp_path / "out"
    interrupt(output, KeyboardInterrupt())
    note = tmp_path / ".out.partial" / "_work.json"
    assert json.loads(note.read_text())["work"] == WORK
    for _ in every_byte_changed(note):
        with refusal("damaged", "restart=True", error=FileError), StagedFolder(output, WORK, REPORTS):
            pass
    note.unlink()
    with StagedFolder(output, WORK, REPORTS) as folder:
        assert folder.parts == {}
        put(folder, "part-0")


def test_two_runs_cannot_share_an_output(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with StagedFolder(output, WORK, REPORTS) as folder:
        put(folder, "part-0")
        with refusal("in-use", error=FileError), StagedFolder(output, WORK, REPORTS):
            pass
        assert folder.parts == {"part-0": 1}
    assert open_dataset(output, stage="reports").rows == 1


def test_an_output_in_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with (
        refusal("unwritable", error=FileError),
        StagedFolder(tmp_path / "no" / "out", WORK, REPORTS),
    ):
        pass


def test_changed_inputs_are_described_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1\n")
    os.utime(path, ns=(0, 1))
    before = describe_inputs([path])
    os.utime(path, ns=(0, 2))
    assert describe_inputs([path]) != before
    path.unlink()
    with refusal("unreadable", "a.csv", error=FileError):
        describe_inputs([path])
