import csv
import json
import os
import stat
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet as arrow_parquet
from tests.plan_builders import with_guarantee
from tests.refusals import refusal

from shufflesum.domains import Span
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.errors import FileError, MissingExtraError
from shufflesum.release import release
from shufflesum.reports import Counts
from shufflesum.tables.writers import WRITABLE, StagedOutputs, estimate_to_json, write_estimate
from shufflesum.testing import unprotected_plan


def estimated(shape: Any, table: list[list[int]], rejected: int = 0) -> Estimate:
    """The estimate from counts of values 0 and 1, without noise, bounds 0 and 10, with nine honest users of ten."""
    plan = with_guarantee(unprotected_plan(users=1, shape=shape, bounds=(0.0, 10.0)), honest_fraction=0.9)
    counts = Counts(plan)
    counts.table[:] = np.reshape(table, -1)
    counts.rejected = rejected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nobody reported one of the entries
        found: Estimate = release(counts, without_guarantee=True)
        return found


MATRIX = estimated((2, 3), [[3, 1], [0, 0], [1, 1], [4, 4], [1, 3], [5, 5]], rejected=2)
BROKEN = estimated((2, 3), [[1, 1]] * 6, rejected=4)
NUMBER = estimated((), [[1, 1]])
PLAN = MATRIX.plan.summary()


def test_json_keeps_the_shape_and_turns_nan_into_null() -> None:
    found = estimate_to_json(MATRIX, 0.5)
    assert np.isnan(MATRIX.mean[0, 1])
    assert found["mean"] == [[2.5, None, 5.0], [5.0, 7.5, 5.0]]
    assert found["sum"] == [[75.0, None, 150.0], [150.0, 225.0, 150.0]]
    assert (found["users"], found["rejected_reports"], found["confidence_level"]) == (30, 2, 0.5)
    assert found["report_counts"] == [[4, 0, 2], [8, 4, 10]]
    lower, upper = MATRIX.confidence_interval(0.5)
    for told, true in zip(
        [found["standard_error"], *found["confidence_interval"]], [MATRIX.standard_error, lower, upper], strict=True
    ):
        np.testing.assert_array_equal(np.array(told, dtype=float), np.where(np.isfinite(true), true, np.nan))
    json.dumps(found, allow_nan=False)


def test_json_of_a_single_number_is_a_number() -> None:
    found = estimate_to_json(NUMBER)
    assert (found["mean"], found["report_counts"]) == (5.0, 2)


def test_the_json_file_holds_plan_and_estimate(tmp_path: Path) -> None:
    write_estimate(tmp_path / "e.json", MATRIX, 0.9)
    document = json.loads((tmp_path / "e.json").read_text())
    assert document == {"plan": PLAN, "estimate": estimate_to_json(MATRIX, 0.9)}


def test_csv_and_parquet_have_one_row_per_entry(tmp_path: Path) -> None:
    write_estimate(tmp_path / "e.csv", MATRIX, 0.5)
    write_estimate(tmp_path / "e.parquet", MATRIX, 0.5)
    with (tmp_path / "e.csv").open(newline="") as file:
        from_csv = list(csv.DictReader(file))
    table = arrow_parquet.read_table(tmp_path / "e.parquet")
    assert json.loads(table.schema.metadata[b"plan"]) == PLAN
    assert table.schema.metadata[b"confidence_level"] == b"0.5"
    from_parquet = table.to_pylist()
    assert list(from_csv[0]) == list(from_parquet[0])
    assert len(from_csv) == len(from_parquet) == 6
    lower, upper = MATRIX.confidence_interval(0.5)
    assert from_parquet[4] == {
        "index_0": 1,
        "index_1": 1,
        "name": "1, 1",
        "value": 7.5,
        "std_error": MATRIX.standard_error[1, 1],
        "lower": lower[1, 1],
        "upper": upper[1, 1],
        "users": 30,
        "notes": "",
        "sum": 225.0,
    }
    assert (from_csv[1]["value"], from_parquet[1]["value"]) == ("", None)
    assert from_csv[1]["notes"] == from_parquet[1]["notes"] == "nobody reported it"
    for text, row in zip(from_csv, from_parquet, strict=True):
        for name, cell in text.items():
            assert (cell if name in ("name", "notes") else float(cell) if cell else None) == row[name]


def test_entries_of_a_span_are_written_though_reports_are_of_coefficients(tmp_path: Path) -> None:
    write_estimate(tmp_path / "e.csv", estimated(Span(np.eye(4)[:2].reshape(2, 2, 2)), [[1, 1], [2, 1]]))
    assert len((tmp_path / "e.csv").read_text().splitlines()) == 5


def test_a_single_number_is_one_row_without_index(tmp_path: Path) -> None:
    write_estimate(tmp_path / "e.csv", NUMBER)
    lines = (tmp_path / "e.csv").read_text().splitlines()
    assert lines[0].startswith("name,value")
    assert len(lines) == 2


def test_npz_keeps_the_shape_and_needs_no_pickle(tmp_path: Path) -> None:
    write_estimate(tmp_path / "e.npz", MATRIX, 0.9)
    with np.load(tmp_path / "e.npz", allow_pickle=False) as arrays:
        assert np.array_equal(arrays["mean"], MATRIX.mean, equal_nan=True)
        assert np.array_equal(arrays["confidence_interval"], MATRIX.confidence_interval(0.9), equal_nan=True)
        assert np.array_equal(arrays["report_counts"], MATRIX.report_counts)
        assert (arrays["users"], arrays["confidence_level"], arrays["rejected_reports"]) == (30, 0.9, 2)
        assert json.loads(str(arrays["plan"])) == PLAN


def test_every_format_says_that_the_guarantee_does_not_hold(tmp_path: Path) -> None:
    assert BROKEN.broken is not None
    for suffix in WRITABLE:
        write_estimate(tmp_path / f"broken{suffix}", BROKEN)
        write_estimate(tmp_path / f"whole{suffix}", MATRIX)
    documents = [json.loads((tmp_path / f"{name}.json").read_text())["estimate"] for name in ("broken", "whole")]
    assert [document["guarantee_holds"] for document in documents] == [False, True]
    assert [document.get("why_broken") for document in documents] == [BROKEN.broken, None]
    with np.load(tmp_path / "broken.npz") as broken, np.load(tmp_path / "whole.npz") as whole:
        assert (bool(broken["guarantee_holds"]), bool(whole["guarantee_holds"])) == (False, True)
    tables = [arrow_parquet.read_table(tmp_path / f"{name}.parquet") for name in ("broken", "whole")]
    assert [table.schema.metadata[b"guarantee_holds"] for table in tables] == [b"false", b"true"]
    with (tmp_path / "broken.csv").open(newline="") as file:
        assert all(f"NO GUARANTEE: {BROKEN.broken}" in row["notes"] for row in csv.DictReader(file))
    assert "NO GUARANTEE" not in (tmp_path / "whole.csv").read_text()


def test_writing_to_an_unknown_suffix_or_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with refusal("unknown-file-type", "'.txt'", error=FileError):
        write_estimate(tmp_path / "e.txt", MATRIX)
    for suffix in WRITABLE:
        with refusal("unwritable", error=FileError):
            write_estimate(tmp_path / "none" / f"e{suffix}", MATRIX)


def test_text_that_finds_no_room_is_an_error_that_names_the_final_file(tmp_path: Path) -> None:
    with StagedOutputs() as outputs:
        staged = outputs.stage(tmp_path / "a.json", WRITABLE)
        staged.unlink()
        staged.symlink_to("/dev/full")
        with refusal("unwritable", "a.json", error=FileError):
            outputs.write(staged, "text")
        staged.unlink()
        staged.touch()
    (tmp_path / "a.json").unlink()
    assert list(tmp_path.iterdir()) == []


def test_staged_files_appear_together_when_the_block_ends(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("old")
    with StagedOutputs() as outputs:
        first = outputs.stage(tmp_path / "a.json", WRITABLE)
        second = outputs.stage(tmp_path / "b.csv", WRITABLE)
        assert first.parent == tmp_path
        assert (first.suffix, second.suffix) == (".json", ".csv")
        first.write_text("new a")
        second.write_text("new b")
        assert not (tmp_path / "a.json").exists()
        assert (tmp_path / "b.csv").read_text() == "old"
    assert (tmp_path / "a.json").read_text() == "new a"
    assert (tmp_path / "b.csv").read_text() == "new b"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.csv"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_everything_as_it_was(tmp_path: Path, failure: type[BaseException]) -> None:
    (tmp_path / "b.csv").write_text("old")

    def fail() -> None:
        with StagedOutputs() as outputs:
            outputs.stage(tmp_path / "a.json", WRITABLE).write_text("half")
            outputs.stage(tmp_path / "b.csv", WRITABLE).write_text("half")
            raise failure

    with pytest.raises(failure):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["b.csv"]
    assert (tmp_path / "b.csv").read_text() == "old"


def test_an_interrupt_while_a_file_is_staged_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(descriptor: int) -> None:
        os.closerange(descriptor, descriptor + 1)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", interrupted)
    with pytest.raises(KeyboardInterrupt), StagedOutputs() as outputs:
        outputs.stage(tmp_path / "o.json", WRITABLE)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_move_is_reported_and_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with (
        refusal("unwritable", "a.json", error=FileError),
        StagedOutputs() as outputs,
    ):
        outputs.stage(tmp_path / "a.json", WRITABLE).write_text("whole")
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written_are_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "locked.json").write_text("keep")
    with StagedOutputs() as outputs:
        with refusal("unknown-file-type", "a.txt", "in '.txt'", error=FileError):
            outputs.stage(tmp_path / "a.txt", WRITABLE)
        with refusal("unwritable", error=FileError):
            outputs.stage(tmp_path / "none" / "a.json", WRITABLE)
        with refusal("unwritable", error=FileError):
            outputs.stage(tmp_path / "folder.json", WRITABLE)
        outputs.stage(tmp_path / "a.json", WRITABLE)
        with refusal("conflicting-arguments", error=FileError):
            outputs.stage(tmp_path / "folder.json" / ".." / "a.json", WRITABLE)
        # Patched, because for root every file is writable.
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        with refusal("unwritable", error=FileError):
            outputs.stage(tmp_path / "locked.json", WRITABLE)


def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with (
        StagedOutputs() as outputs,
        refusal("unwritable", "a.json", error=FileError),
    ):
        outputs.stage(tmp_path / "a.json", WRITABLE)


def test_a_link_keeps_pointing_to_the_file_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    with StagedOutputs() as outputs:
        outputs.stage(tmp_path / "link.json", WRITABLE).write_text("new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"


def test_files_get_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with StagedOutputs() as outputs:
        outputs.stage(tmp_path / "a.json", WRITABLE).write_text("{}")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "a.json")]
    assert modes[0] == modes[1]


def test_without_arrow_parquet_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with (
        StagedOutputs() as outputs,
        refusal("missing-extra", "install 'shufflesum[files]'", error=MissingExtraError),
    ):
        outputs.stage(tmp_path / "a.parquet", WRITABLE)
