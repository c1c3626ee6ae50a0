"""Labels in files: one in a cell, several in a cell, and beside numbers; streamed as Arrow and NumPy hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.refusals import refusal

from shufflesum.domains import Arrays, Categories, Domain, GroupBy, MultiChoice, OpenVocabulary
from shufflesum.errors import DataError, FileError, ParameterError
from shufflesum.tables import delimited
from shufflesum.tables.readers import check_shape, open_table, rows_of
from shufflesum.tables.sources import DataSource, ReadOptions

ANSWERS = Categories(["yes", "no"])
TICKED = MultiChoice(["a", "b", "c"], max_choices=3)
BLANK = 4294967295


def opened(path: Path, domain: Domain, column: str | None = None, **options: Any) -> DataSource:
    columns = options.pop("columns", None)
    return open_table(path, ReadOptions(column=column, columns=columns, **options).for_domain(domain))


def written(folder: Path, text: str) -> Path:
    (folder / "x.csv").write_text(text)
    return folder / "x.csv"


def stored(folder: Path, **columns: Any) -> Path:
    parquet.write_table(pa.table(columns), folder / "x.parquet")
    return folder / "x.parquet"


def prepared(table: DataSource, domain: Domain) -> Any:
    """What a mechanism would encode, of all rows; batches have the lengths they should."""
    found, row = [], 0
    for rows in rows_of(table, domain):
        found.append(domain.block(rows, row))
        row += len(rows)
    assert row == table.rows
    return found


def codes(table: DataSource, domain: Domain) -> list[Any]:
    return [code for part in prepared(table, domain) for code in part.cells.tolist()]


# One label in a cell


@pytest.mark.parametrize(
    "text", ["answer\nyes\nno\nyes\n", "id,answer\n1,yes\n2, no\n3,yes \n", "answer,x\nyes,\nno,7\nyes,a"]
)
def test_a_column_of_a_csv_file_is_found_by_name(tmp_path: Path, text: str) -> None:
    table = opened(written(tmp_path, text), ANSWERS, "answer")
    assert (table.rows, table.shape, table.column_names) == (3, (), ("answer",))
    assert codes(table, ANSWERS) == codes(table, ANSWERS) == [0, 1, 0]


def test_the_plans_name_and_the_only_column_will_do(tmp_path: Path) -> None:
    named = Categories(["yes", "no"], column="answer")
    path = written(tmp_path, "x,answer\n1,yes\n2,no\n")
    assert codes(opened(path, named), named) == [0, 1]
    alone = written(tmp_path, "reply\nyes\nno\n")
    assert codes(opened(alone, ANSWERS, header=True), ANSWERS) == [0, 1]
    nameless = written(tmp_path, "yes\nno\n")
    assert codes(opened(nameless, named, header=False), named) == [0, 1]


@pytest.mark.parametrize(
    ("given", "problem"),
    [({}, "columns-mismatch"), ({"column": "reply"}, "columns-mismatch"), ({"column": "x"}, "columns-mismatch")],
)
def test_a_plan_for_one_column_refuses_others(tmp_path: Path, given: dict[str, str], problem: str) -> None:
    named = Categories(["yes", "no"], column="answer")
    path = written(tmp_path, "reply,x\nyes,1\nno,2\n")
    with refusal(problem, "answer", "reply" if given.get("column") != "x" else "x", error=DataError):
        opened(path, named, header=True, **given)


def test_text_in_the_first_line_may_be_somebodys_label(tmp_path: Path) -> None:
    path = written(tmp_path, "yes\nno\n")
    with refusal("ambiguous-header", "header=", "column=", error=FileError) as refused:
        opened(path, ANSWERS)
    assert "yes" not in str(refused.value).replace(str(path), "")
    assert codes(opened(path, ANSWERS, header=False), ANSWERS) == [0, 1]
    numbers = written(tmp_path, "3\n1\n")
    assert codes(opened(numbers, Categories(4)), Categories(4)) == [3, 1]


def test_one_of_several_columns_must_be_named(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\nyes,no\n")
    with refusal("missing-argument", "'a', 'b'", "column=", error=ParameterError):
        opened(path, ANSWERS, header=True)
    with refusal("unknown-column", "'c'", "column=", error=FileError):
        opened(path, ANSWERS, "c", header=True)
    with refusal("conflicting-arguments", "columns=", error=ParameterError):
        opened(path, ANSWERS, "a", columns=["b"])
    with refusal("conflicting-arguments", "column=", error=ParameterError):
        opened(path, ANSWERS, "a", user_column="a")


@pytest.mark.parametrize("block", [delimited._BLOCK_BYTES, 64])
def test_a_refused_label_is_named_with_its_row_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", block)
    path = written(tmp_path, "answer\n" + "yes\n" * 30 + "perhaps\n" + "no\n" * 5)
    with refusal("unknown-label", "row 30", "'perhaps'", error=DataError):
        codes(opened(path, ANSWERS, "answer"), ANSWERS)
    other = Categories(["yes", "no"], other=True)
    assert codes(opened(path, other, "answer"), other) == [0] * 30 + [2] + [1] * 5
    empty = written(tmp_path, 'answer,x\nyes,1\n,1\n"  ",1\n')
    with refusal("missing-value", "row 1", error=DataError):
        codes(opened(empty, ANSWERS, "answer"), ANSWERS)
    assert codes(opened(empty, other, "answer"), other) == [0, 2, 2]


def test_text_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"answer\nyes\n\xff\xfe\n")
    with refusal(("not-text", "malformed"), "x.csv", error=FileError):
        codes(opened(tmp_path / "x.csv", ANSWERS, "answer"), ANSWERS)


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (pa.array(["yes", "no", "yes"]), ["yes", "no"]),
        (pa.array(["yes", "no", "yes"], pa.large_string()), ["yes", "no"]),
        (pa.array(["yes", "no", "yes"]).dictionary_encode(), ["yes", "no"]),
        (pa.array([7, 9, 7], pa.int16()), [7, 9]),
        (pa.array([True, False, True]), [True, False]),
        (pa.array([0, 1, 0], pa.uint64()), 2),
        (pa.array([7.0, 9.0, 7.0]), [7, 9]),
    ],
    ids=str,
)
def test_parquet_columns_of_every_type(tmp_path: Path, column: Any, labels: Any) -> None:
    domain = Categories(labels)
    table = opened(stored(tmp_path, label=column, x=[1, 2, 3]), domain, "label")
    assert (table.rows, table.label_name, table.names) == (3, "label", ())
    assert codes(table, domain) == [0, 1, 0]


def test_text_in_parquet_is_never_turned_into_one_object_a_row(tmp_path: Path) -> None:
    table = opened(stored(tmp_path, label=["a", "b"] * 5000), Categories(["a", "b"]), "label")
    (batch,) = table.batches()
    assert pa.types.is_dictionary(batch.type)
    assert len(batch.dictionary) == 2


@pytest.mark.parametrize("column", [[b"\x00"], [[1]], [{"a": 1}]], ids=["bytes", "list", "struct"])
def test_types_that_hold_no_labels_are_refused_before_any_row_is_read(tmp_path: Path, column: Any) -> None:
    with refusal("wrong-type", "'label'", error=FileError):
        opened(stored(tmp_path, label=column), ANSWERS, "label")


def test_a_user_column_beside_labels(tmp_path: Path) -> None:
    path = stored(tmp_path, who=["u", "v", "u"], answer=["yes", "no", "no"])
    with refusal("repeated-user", "'u'", error=DataError):
        opened(path, ANSWERS, "answer", user_column="who")
    assert codes(opened(path, ANSWERS, "answer"), ANSWERS) == [0, 1, 1]
    path = written(tmp_path, "who,answer\nu,yes\nv,no\n")
    table = opened(path, ANSWERS, user_column="who", header=True)
    assert codes(table, ANSWERS) == [0, 1]
    assert [user for part in table.users() for user in part.to_pylist()] == ["u", "v"]


# NumPy


@pytest.mark.parametrize("kind", ["<i8", ">i4", "u1", "?"])
def test_integers_in_npy_files_are_labels(tmp_path: Path, kind: str) -> None:
    values = np.array([1, 0, 1]).astype(kind)
    domain = Categories([False, True]) if kind == "?" else Categories(2)
    np.save(tmp_path / "x.npy", values)
    np.savez(tmp_path / "x.npz", values)
    for name in ("x.npy", "x.npz"):
        assert codes(opened(tmp_path / name, domain), domain) == [1, 0, 1]


def test_text_and_ticks_in_npy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array(["yes", "no"]))
    assert codes(opened(tmp_path / "x.npy", ANSWERS), ANSWERS) == [0, 1]
    np.save(tmp_path / "x.npy", np.array([[True, False, True], [False, False, False]]))
    assert codes(opened(tmp_path / "x.npy", TICKED), TICKED) == [[0, 2, BLANK], [BLANK] * 3]


def test_what_npy_files_cannot_hold(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([1, 0], "complex"))
    with refusal("wrong-type", "complex", error=FileError):
        opened(tmp_path / "x.npy", Categories(2))
    np.save(tmp_path / "x.npy", np.zeros((2, 2), int))
    with refusal("wrong-shape", "(2, 2)", error=DataError):
        codes(opened(tmp_path / "x.npy", Categories(2)), Categories(2))
    with refusal("impossible-combination", "need columns", error=ParameterError):
        opened(tmp_path / "x.npy", GroupBy(2, 2))
    with refusal("impossible-combination", "CSV", error=ParameterError):
        opened(tmp_path / "x.npy", Categories(2), "label")


# Several labels in a cell


def test_cells_of_text_hold_labels_between_semicolons(tmp_path: Path) -> None:
    path = written(tmp_path, 'id,ticked\n1,a;c\n2,\n3, b ; ;a; \n4,;;\n5,"c"\n')
    assert codes(opened(path, TICKED, "ticked"), TICKED) == [
        [0, 2, BLANK],
        [BLANK] * 3,
        [0, 1, BLANK],
        [BLANK] * 3,
        [2, BLANK, BLANK],
    ]


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.string()), pa.list_(pa.string(), 2)])
def test_parquet_columns_of_lists(tmp_path: Path, kind: Any) -> None:
    table = opened(stored(tmp_path, ticked=pa.array([["a", "c"], ["b", "a"]], kind)), TICKED)
    assert codes(table, TICKED) == [[0, 2, BLANK], [0, 1, BLANK]]


@pytest.mark.parametrize("coded", [False, True])
def test_parquet_columns_of_text_hold_lists_too(tmp_path: Path, coded: bool) -> None:
    column = pa.array(["a;c", None, ""])
    path = stored(tmp_path, ticked=column.dictionary_encode() if coded else column)
    assert codes(opened(path, TICKED), TICKED) == [[0, 2, BLANK], [BLANK] * 3, [BLANK] * 3]


def test_lists_that_cannot_be(tmp_path: Path) -> None:
    path = written(tmp_path, "ticked\na\nb;c;x\n")
    with refusal("unknown-label", "row 1", "'x'", error=DataError):
        codes(opened(path, TICKED, "ticked"), TICKED)
    few = MultiChoice(["a", "b", "c"], max_choices=1)
    path = written(tmp_path, "ticked\na\nb;c\n")
    with refusal("too-many-labels", "row 1", error=DataError):
        codes(opened(path, few, "ticked"), few)
    with refusal("wrong-type", "'ticked'", error=FileError):
        opened(stored(tmp_path, ticked=[1, 2]), TICKED)
    with refusal("missing-value", "row 1", error=DataError):
        codes(opened(stored(tmp_path, ticked=[["a"], None]), TICKED), TICKED)


# Labels beside numbers


def visits(columns: list[str] | None = None, column: str | None = None) -> GroupBy:
    return GroupBy(["DE", "FR"], Arrays((2,), (0, 10), columns), column=column)


@pytest.mark.parametrize("kind", ["csv", "parquet", "lists"])
def test_groups_and_numbers_of_the_same_rows(tmp_path: Path, kind: str) -> None:
    domain, columns = visits(), None
    if kind == "csv":
        path = written(tmp_path, "x,country,y\n1,DE,2\n3,FR,\n")
    elif kind == "parquet":
        path = stored(tmp_path, x=[1, 3], country=["DE", "FR"], y=[2.0, None])
    else:
        path, columns = stored(tmp_path, v=[[1.0, 2.0], [3.0, None]], country=["DE", "FR"], id=[1, 2]), ["v"]
    table = opened(path, domain, "country", columns=columns)
    assert (table.rows, table.shape, table.label_name) == (2, (2,), "country")
    (block,) = prepared(table, domain)
    assert block.groups.tolist() == [0, 1]
    np.testing.assert_array_equal(block.numbers.values, [[1, 2], [3, np.nan]])
    if kind != "lists":
        assert table.column_names == ("country", "x", "y")


def test_rows_of_groups_take_the_plans_columns_in_its_order(tmp_path: Path) -> None:
    path = written(tmp_path, "id,y,country,x\n9,2,DE,1\n")
    domain = visits(columns=["x", "y"], column="country")
    (block,) = prepared(opened(path, domain), domain)
    assert (block.groups.tolist(), block.numbers.values.tolist()) == ([0], [[1, 2]])
    with refusal("columns-mismatch", "'x', 'y'", error=DataError):
        opened(path, domain, columns=["y", "x"])
    with refusal("columns-mismatch", "'z'", error=DataError):
        opened(path, visits(columns=["x", "z"], column="country"))


def test_the_column_of_groups_holds_no_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, "country,x,y\nDE,1,2\n")
    with refusal("conflicting-arguments", "'country'", error=ParameterError):
        opened(path, visits(), "country", columns=["country", "x"])
    with refusal("missing-argument", "column=", error=ParameterError):
        opened(path, visits(), header=True)
    with refusal("no-columns", "'country'", error=FileError):
        opened(written(tmp_path, "country\nDE\n"), visits(), "country")
    with refusal("not-numbers", "line 2", "'1x'", error=FileError):
        prepared(opened(written(tmp_path, "country,x,y\nDE,1x,2\n"), visits(), "country"), visits())


# Shapes


def test_numbers_in_bins_are_one_column(tmp_path: Path) -> None:
    domain = Categories(bins=[0, 18, 65])
    path = written(tmp_path, "age,x\n17.5,1\n18,2\n65,3\n")
    assert codes(opened(path, domain, "age"), domain) == [0, 1, 1]
    check_shape(path, opened(path, domain, "age").shape, domain)
    with refusal("wrong-shape", "column=", error=DataError):
        check_shape(path, opened(path, domain).shape, domain)
    with refusal("columns-mismatch", "'years'", error=DataError):
        opened(path, Categories(bins=[0, 1, 2], column="years"))


def test_numbers_are_read_as_before_and_know_their_plan(tmp_path: Path) -> None:
    path = written(tmp_path, "b,a\n1,0\n")
    box = Arrays((2,), (0, 1), ["a", "b"])
    (rows,) = rows_of(opened(path, box), box)
    assert np.asarray(rows).tolist() == [[0, 1]]
    with refusal("conflicting-arguments", "'b'", error=ParameterError):
        opened(path, box, "b")
    with refusal("wrong-shape", "(3,)", error=DataError):
        check_shape(path, (2,), Arrays((3,), (0, 1)))
    check_shape(path, (4,), Arrays((2, 2), (0, 1)))
    check_shape(path, (), OpenVocabulary(4, 1, bytes(16)))
