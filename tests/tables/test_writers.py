import csv
import importlib.util
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet as arrow_parquet

from shufflesum.errors import FileError, MissingExtraError
from shufflesum.tables import WRITABLE, StagedOutputs, estimate_to_json, write_estimate

PLAN = {"users": 10, "epsilon": 1.0, "accountant": "exact"}


@dataclass(frozen=True)
class Estimate:
    mean: np.ndarray
    report_counts: np.ndarray
    users: int = 10
    rejected: int = 2

    @property
    def sum(self) -> np.ndarray:
        return self.users * self.mean

    @property
    def standard_error(self) -> np.ndarray:
        return np.asarray(np.abs(self.mean) / 8)

    def confidence_interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        return self.mean - level, self.mean + level


def matrix() -> Estimate:
    return Estimate(np.array([[0.1, np.nan, 2.0], [3.0, 4.0, 5.0]]), np.array([[4, 0, 6], [7, 8, 9]]))


def test_json_keeps_the_shape_and_turns_nan_into_null() -> None:
    found = estimate_to_json(matrix(), 0.5)
    assert found == {
        "mean": [[0.1, None, 2.0], [3.0, 4.0, 5.0]],
        "sum": [[1.0, None, 20.0], [30.0, 40.0, 50.0]],
        "users": 10,
        "standard_error": [[0.0125, None, 0.25], [0.375, 0.5, 0.625]],
        "confidence_interval": [
            [[-0.4, None, 1.5], [2.5, 3.5, 4.5]],
            [[0.6, None, 2.5], [3.5, 4.5, 5.5]],
        ],
        "confidence_level": 0.5,
        "report_counts": [[4, 0, 6], [7, 8, 9]],
        "rejected_reports": 2,
    }
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("mean", [0.5, np.nan])
def test_json_of_a_single_number_is_a_number_or_null(mean: float) -> None:
    found = estimate_to_json(Estimate(np.asarray(mean), np.asarray(3)))
    assert found["mean"] == (None if np.isnan(mean) else mean)
    assert found["report_counts"] == 3


def test_the_json_file_holds_plan_and_estimate(tmp_path: Path) -> None:
    write_estimate(tmp_path / "e.json", matrix(), PLAN, 0.9)
    document = json.loads((tmp_path / "e.json").read_text())
    assert document == {"plan": PLAN, "estimate": estimate_to_json(matrix(), 0.9)}


def test_csv_and_parquet_have_one_row_per_entry(tmp_path: Path) -> None:
    write_estimate(tmp_path / "e.csv", matrix(), PLAN, 0.5)
    write_estimate(tmp_path / "e.parquet", matrix(), PLAN, 0.5)
    with (tmp_path / "e.csv").open(newline="") as file:
        from_csv = list(csv.DictReader(file))
    table = arrow_parquet.read_table(tmp_path / "e.parquet")
    assert json.loads(table.schema.metadata[b"plan"]) == PLAN
    from_parquet = table.to_pylist()
    assert list(from_csv[0]) == list(from_parquet[0])
    assert len(from_csv) == len(from_parquet) == 6
    assert from_parquet[3] == {
        "index_0": 1,
        "index_1": 0,
        "mean": 3.0,
        "sum": 30.0,
        "standard_error": 0.375,
        "lower": 2.5,
        "upper": 3.5,
        "report_count": 7,
    }
    assert (from_csv[1]["mean"], from_parquet[1]["mean"], from_csv[1]["report_count"]) == ("", None, "0")
    for text, row in zip(from_csv, from_parquet, strict=True):
        assert {name: float(cell) if cell else None for name, cell in text.items()} == row


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_counts_that_are_not_per_entry_are_left_empty(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"e{suffix}"
    write_estimate(path, Estimate(np.zeros((2, 2)), np.array([5, 6])), PLAN)
    if suffix == ".csv":
        assert all(line.endswith(",") for line in path.read_text().splitlines()[1:])
    else:
        assert arrow_parquet.read_table(path).column("report_count").to_pylist() == [None] * 4


def test_a_single_number_is_one_row_without_index(tmp_path: Path) -> None:
    write_estimate(tmp_path / "e.csv", Estimate(np.asarray(0.5), np.asarray(3)), PLAN)
    lines = (tmp_path / "e.csv").read_text().splitlines()
    assert lines[0].startswith("mean,sum")
    assert len(lines) == 2


def test_npz_keeps_the_shape_and_needs_no_pickle(tmp_path: Path) -> None:
    write_estimate(tmp_path / "e.npz", matrix(), PLAN, 0.9)
    with np.load(tmp_path / "e.npz", allow_pickle=False) as arrays:
        assert np.array_equal(arrays["mean"], matrix().mean, equal_nan=True)
        assert np.array_equal(arrays["upper"], matrix().mean + 0.9, equal_nan=True)
        assert np.array_equal(arrays["report_counts"], matrix().report_counts)
        assert (arrays["users"], arrays["confidence_level"], arrays["rejected_reports"]) == (10, 0.9, 2)
        assert json.loads(str(arrays["plan"])) == PLAN


def test_writing_to_an_unknown_suffix_or_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"'\.txt'.*\.json, \.csv, \.parquet, \.npz"):
        write_estimate(tmp_path / "e.txt", matrix(), PLAN)
    for suffix in WRITABLE:
        with pytest.raises(FileError, match="cannot be written"):
            write_estimate(tmp_path / "none" / f"e{suffix}", matrix(), PLAN)


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


def test_a_failing_move_is_reported_and_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with (
        pytest.raises(FileError, match=r"a\.json: cannot be written: No space left"),
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
        with pytest.raises(FileError, match=r"a\.txt: files ending in '\.txt'.*allowed are \.json"):
            outputs.stage(tmp_path / "a.txt", WRITABLE)
        with pytest.raises(FileError, match=r"cannot be written: No such file.*folder that exists"):
            outputs.stage(tmp_path / "none" / "a.json", WRITABLE)
        with pytest.raises(FileError, match="not a regular file"):
            outputs.stage(tmp_path / "folder.json", WRITABLE)
        outputs.stage(tmp_path / "a.json", WRITABLE)
        with pytest.raises(FileError, match="two outputs"):
            outputs.stage(tmp_path / "folder.json" / ".." / "a.json", WRITABLE)
        # Patched, because for root every file is writable.
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(FileError, match="write-protected"):
            outputs.stage(tmp_path / "locked.json", WRITABLE)


def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with (
        StagedOutputs() as outputs,
        pytest.raises(FileError, match=r"a\.json: .*Permission denied.*may write"),
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
    monkeypatch.setattr(importlib.util, "find_spec", lambda library: None)
    with (
        StagedOutputs() as outputs,
        pytest.raises(MissingExtraError, match=r"pip install 'shufflesum\[files\]'"),
    ):
        outputs.stage(tmp_path / "a.parquet", WRITABLE)
