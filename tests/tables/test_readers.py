import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as arrow_parquet
from tests.refusals import refusal

from shufflesum.errors import FileError, MissingExtraError, ParameterError
from shufflesum.tables.readers import open_table
from shufflesum.tables.sources import ReadOptions

VALUES = np.array([[0.5, 1.0, -2.0], [0.25, 3.0, 4.0]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", VALUES)
    np.savez(tmp_path / "x.npz", VALUES)
    np.savetxt(tmp_path / "x.csv", VALUES, delimiter=",")
    (tmp_path / "X.CSV").write_text((tmp_path / "x.csv").read_text())
    arrow_parquet.write_table(pa.table(dict(zip("abc", VALUES.T, strict=True))), tmp_path / "x.parquet")
    return tmp_path


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.csv", "X.CSV", "x.parquet"])
def test_every_format_gives_the_same_rows(folder: Path, name: str) -> None:
    table = open_table(str(folder / name))
    assert (table.rows, table.shape) == (2, (3,))
    assert np.array_equal(np.concatenate(list(table.batches())), VALUES)


@pytest.mark.parametrize(
    ("name", "option", "refused"),
    [
        ("x.npy", {"columns": ["0"]}, ("impossible-combination", "columns=", "CSV", "Parquet")),
        ("x.npz", {"user_column": "a"}, ("impossible-combination", "user_column=", "CSV", "Parquet")),
        ("x.parquet", {"header": False}, ("impossible-combination", "header=", "CSV")),
        ("x.csv", {"array": "a"}, ("impossible-combination", "array=", ".npz")),
        ("x.npy", {"array": "a"}, ("impossible-combination", "array=", ".npz")),
    ],
)
def test_an_option_the_format_cannot_use_is_refused(
    folder: Path, name: str, option: dict[str, Any], refused: tuple[str, ...]
) -> None:
    with refusal(*refused, error=ParameterError):
        open_table(folder / name, ReadOptions(**option))


@pytest.mark.parametrize("name", ["x.txt", "x", "x.parquet.gz", "x.gz"])
def test_an_unknown_suffix_lists_the_known_ones(folder: Path, name: str) -> None:
    with refusal("unknown-file-type", error=FileError):
        open_table(folder / name)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy", ".npz"])
def test_a_missing_empty_or_irregular_file_is_refused(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"folder{suffix}").mkdir()
    (tmp_path / f"empty{suffix}").touch()
    for name, problem in (("none", "unreadable"), ("folder", "unreadable"), ("empty", "no-rows")):
        with refusal(problem, f"{name}{suffix}", error=FileError):
            open_table(tmp_path / f"{name}{suffix}")


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_without_arrow_the_extra_is_named(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with refusal("missing-extra", "install 'shufflesum[files]'", error=MissingExtraError):
        open_table(folder / name)
    assert open_table(folder / "x.npy").rows == 2
