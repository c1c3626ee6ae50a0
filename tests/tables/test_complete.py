"""Rows with a missing value are left out, whatever kind of file they are in, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from tests.refusals import refusal

from shufflesum.domains import Categories, Domain, GroupBy, MultiChoice, OpenVocabulary
from shufflesum.errors import DataError
from shufflesum.tables.readers import complete_table, located, open_table
from shufflesum.tables.sources import ReadOptions

NUMBERS = np.array([[1.0, 2.0], [np.nan, 3.0], [4.0, 5.0], [6.0, np.nan], [7.0, 8.0]])
LABELS = ["a", None, "b", "  ", "a"]


def rows_of(path: Path, domain: Domain | None = None, column: str | None = None) -> list[Any]:
    options = ReadOptions(column=column)
    table = complete_table(path, open_table(path, options if domain is None else options.for_domain(domain)))
    batches = list(table.batches())
    assert table.rows == sum(len(batch[0] if isinstance(batch, tuple) else batch) for batch in batches)
    return batches


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow", "npy", "npz"])
def test_of_numbers_what_is_whole_is_left(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    table = pa.table({"a": pa.array(NUMBERS[:, 0], from_pandas=True), "b": pa.array(NUMBERS[:, 1])})
    match suffix:
        case "csv":
            path.write_text("a,b\n1,2\nNA,3\n4,5\n6,\n7,8\n")
        case "parquet":
            parquet.write_table(table, path, row_group_size=2)
        case "arrow":
            feather.write_feather(table, str(path), compression="uncompressed")
        case "npy":
            np.save(path, NUMBERS)
        case "npz":
            np.savez(path, NUMBERS)
    assert np.concatenate(rows_of(path)).tolist() == [[1, 2], [4, 5], [7, 8]]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npy"])
@pytest.mark.parametrize("domain", [Categories(["a", "b"]), OpenVocabulary()])
def test_of_labels_what_is_there_is_left(tmp_path: Path, suffix: str, domain: Domain) -> None:
    path = tmp_path / f"x.{suffix}"
    match suffix:
        case "csv":
            path.write_text("label,n\n" + "".join(f"{label or ''},1\n" for label in LABELS))
        case "parquet":
            parquet.write_table(pa.table({"label": LABELS}), path)
        case "npy":
            np.save(path, np.array([label or "" for label in LABELS]))
    found = rows_of(path, domain, None if suffix == "npy" else "label")
    assert [str(label) for batch in found for label in batch.tolist()] == ["a", "b", "a"]


def test_of_groups_both_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("group,n\na,1\n,2\nb,\na,4\n")
    ((groups, numbers),) = rows_of(path, GroupBy(["a", "b"], (1,)), "group")
    assert (groups.to_pylist(), numbers.tolist()) == (["a", "a"], [[1], [4]])


def test_of_choices_a_list_of_none_is_there(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"ticked": [["a"], None, [], ["a", "b"]]}), path)
    (lists,) = rows_of(path, MultiChoice(["a", "b"], max_choices=2), "ticked")
    assert lists.to_pylist() == [["a"], [], ["a", "b"]]


def test_where_nobody_is_left_the_file_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((3, 2), np.nan))
    with refusal("no-rows", "missing"):
        rows_of(tmp_path / "x.npy")


def test_a_row_is_named_by_the_line_it_has_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\nNA,3\n4,5\n6,\n7,8\n")
    table = complete_table(path, open_table(path))
    assert [table.line_of(row) for row in range(3)] == [2, 4, 6]
    assert "line 6" in str(located(DataError("out-of-bounds", "row 2: too large", row=2), path, table))
