from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refusal

from shufflesum.errors import DataError, FileError
from shufflesum.tables import delimited
from shufflesum.tables.delimited import open_csv
from shufflesum.tables.sources import DataSource, ReadOptions


def opened(
    folder: Path,
    content: str | bytes,
    columns: list[str] | None = None,
    header: bool | None = None,
    user_column: str | None = None,
) -> DataSource:
    path = folder / "x.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return open_csv(path, ReadOptions(columns, user_column, header))


def values(table: DataSource) -> np.ndarray:
    batches = list(table.batches())
    assert all(batch.dtype == np.float64 and batch.shape[1:] == table.shape for batch in batches)
    joined = np.concatenate(batches)
    assert len(joined) == table.rows
    return joined


def test_a_header_is_found(tmp_path: Path) -> None:
    table = opened(tmp_path, "a,b\n1,2\n3,4\n")
    assert (table.rows, table.shape, table.names) == (2, (2,), ("a", "b"))
    assert values(table).tolist() == [[1, 2], [3, 4]]
    assert values(table).tolist() == [[1, 2], [3, 4]]


def test_a_first_line_of_numbers_or_nothing_is_data(tmp_path: Path) -> None:
    table = opened(tmp_path, "1,,-2.5e3\n4,5,6\n")
    assert (table.rows, table.names) == (2, None)
    assert np.array_equal(values(table), np.array([[1, np.nan, -2500], [4, 5, 6]]), equal_nan=True)


def test_the_guess_can_be_overridden(tmp_path: Path) -> None:
    assert opened(tmp_path, "2020,2021\n1,2\n", header=True).names == ("2020", "2021")
    with refusal("not-numbers", "line 1", "column 0", "'a'", error=FileError):
        values(opened(tmp_path, "a,b\n1,2\n", header=False))


def test_columns_are_chosen_by_name_or_position(tmp_path: Path) -> None:
    table = opened(tmp_path, "name,a,b\nx,1,2\ny,3,4\n", columns=["b", "a"])
    assert table.names == ("b", "a")
    assert values(table).tolist() == [[2, 1], [4, 3]]
    assert values(opened(tmp_path, "0,1,5\n3,4,5\n", columns=["1:3", "0"])).tolist() == [[1, 5, 0], [4, 5, 3]]


@pytest.mark.parametrize("first", ["0,1,2", "1,2,3"])
def test_a_first_line_that_counts_may_be_names_or_data(tmp_path: Path, first: str) -> None:
    with refusal("ambiguous-header", "header=", "header=False", error=FileError):
        opened(tmp_path, f"{first}\n3,4,5\n")
    assert opened(tmp_path, f"{first}\n3,4,5\n", header=True).rows == 1
    assert opened(tmp_path, f"{first}\n3,4,5\n", header=False).rows == 2


def test_the_user_column_is_checked_and_is_no_data(tmp_path: Path) -> None:
    table = opened(tmp_path, "who,a\nann,1\nbob,2\n", user_column="who")
    assert table.names == ("a",)
    assert values(table).tolist() == [[1], [2]]
    with refusal("repeated-user", "'ann'", "has 2", error=DataError):
        opened(tmp_path, "who,a\nann,1\nbob,2\nann,3\n", user_column="who")
    with refusal("missing-value", "row 1", error=DataError):
        opened(tmp_path, "who,a\nann,1\n,2\n", user_column="who")


def test_a_user_column_by_position_does_not_make_the_first_row_a_header(tmp_path: Path) -> None:
    table = opened(tmp_path, "ann,1,2\nbob,3,4\n", user_column="0")
    assert (table.rows, table.names) == (2, None)
    assert values(table).tolist() == [[1, 2], [3, 4]]


def test_a_quoted_user_may_hold_commas_and_line_breaks(tmp_path: Path) -> None:
    table = opened(tmp_path, 'who,a\n"Doe, Ann\nthe first",1\n"Doe, Bob",2\n', user_column="who")
    assert values(table).tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", np.nan),
        ('""', np.nan),
        ("nan", np.nan),
        ("NaN", np.nan),
        ("inf", np.inf),
        ("-Infinity", -np.inf),
        (" 1.5 ", 1.5),
        ('"2"', 2.0),
        ("+3", 3.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1E-3", 0.001),
    ],
)
def test_each_spelling_of_a_number_is_read(tmp_path: Path, text: str, value: float) -> None:
    assert np.array_equal(values(opened(tmp_path, f"a,b\n{text},0\n")), [[value, 0]], equal_nan=True)
    # The same spelling in the first line must not turn that line into a header.
    assert opened(tmp_path, f"{text},0\n").rows == 1


@pytest.mark.parametrize("text", ["abc", "NA ", "1_000", "0x10", "1 2", "1,5".replace(",", ";"), "--1", "٣", " "])
def test_what_is_no_number_is_refused_with_line_column_and_text(tmp_path: Path, text: str) -> None:
    with refusal("not-numbers", "line 4", "column 'b'", str(text), "columns=", error=FileError):
        opened(tmp_path, f"a,b\n1,2\n\n3,{text}\n5,6\n")


def test_a_bad_cell_late_in_the_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 64)
    text = "a,b\n" + "1,2\n" * 5000 + "1,fifth\n" + "1,2\n" * 50
    with refusal("not-numbers", "line 5002", "column 'b'", "'fifth'", error=FileError):
        opened(tmp_path, text)
    monkeypatch.setattr(delimited, "KEPT_BYTES", 0)
    table = opened(tmp_path, text)
    batches = table.batches()
    next(batches)
    with refusal("not-numbers", "line 5002", "column 'b'", "'fifth'", error=FileError):
        list(batches)


def test_a_bad_cell_in_a_column_not_chosen_does_not_matter(tmp_path: Path) -> None:
    assert values(opened(tmp_path, "a,b\n1,x\n2,y\n", columns=["a"])).tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        ("a,b\n1,2\n3\n", ("wrong-shape", "line 3", "1 values", "column 'b'")),
        ("a,b\n1,2\n3,4,5\n", ("wrong-shape", "line 3", "3 values", "'5'")),
        ("1,2\n\n3,4\n5\n", ("wrong-shape", "line 4", "1 values", "column 1")),
        ("Survey\n\na,b\n1,2\n", ("wrong-shape", "If line 3 is the header, remove the lines above it")),
        ("Survey,\na,b\n1,2\n", ("ambiguous-column", "remove lines above the header")),
        ("Survey, 2024\na,b,c\n1,2,3\n", ("ambiguous-header", "remove lines above the header")),
        ("Survey\na;b\n1;2\n", ("wrong-shape", "line 2", "remove the lines above the header", "separator=")),
        ("", ("no-rows",)),
        ("\n\n", ("no-rows",)),
        ("a,b\n", ("no-rows",)),
        (",a,b\n0,1,2\n", ("ambiguous-column", "column 0", "columns=")),
        (b"a,b\n1,\xe9\n", ("not-text", "0xe9")),
        ("a,b\n1,2\n".encode("utf-16"), ("not-text", "encoding=")),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: str | bytes, refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=FileError):
        list(opened(tmp_path, content).batches())


def test_bad_bytes_in_the_user_column_are_refused(tmp_path: Path) -> None:
    with refusal("not-text", "UTF-8", error=FileError):
        opened(tmp_path, b"who,a\nann,1\n\xff\xfe,2\n", user_column="who")


@pytest.mark.parametrize(
    "content", ["\ufeffa,b\n1,2\n", "a,b\r\n1,2\r\n", "a,b\r1,2", "\n\na,b\n\n1,2", '"a","b"\n1,2\n']
)
def test_byte_order_marks_line_ends_blank_lines_and_quotes_do_not_matter(tmp_path: Path, content: str) -> None:
    table = opened(tmp_path, content)
    assert table.names == ("a", "b")
    assert values(table).tolist() == [[1, 2]]


def test_a_line_longer_than_a_block_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 64)
    row = ",".join(["0.123456789012345678"] * 300)
    header = ",".join(f"c{index}" for index in range(300))
    assert values(opened(tmp_path, f"{header}\n{row}\n{row}\n")).shape == (2, 300)


def test_a_small_file_is_read_once(tmp_path: Path) -> None:
    table = opened(tmp_path, "who,a\nann,1\nbob,2\n", user_column="who")
    (tmp_path / "x.csv").unlink()
    assert values(table).tolist() == values(table).tolist() == [[1], [2]]


def test_a_large_file_that_changes_between_opening_and_reading_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "KEPT_BYTES", 0)
    table = opened(tmp_path, "a\n1\n2\n")
    (tmp_path / "x.csv").write_text("a\n1\n2\n3\n")
    with refusal("changed-meanwhile", "had 2", "has 3", error=FileError):
        list(table.batches())
    (tmp_path / "x.csv").unlink()
    with refusal("damaged", error=FileError):
        list(table.batches())


@settings(deadline=None)  # files are slow on a busy machine
@given(
    rows=st.lists(st.lists(st.floats(width=64), min_size=3, max_size=3), min_size=1, max_size=30),
    block_bytes=st.integers(64, 400),
)
def test_written_floats_are_read_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[float]], block_bytes: int
) -> None:
    text = "\n".join(",".join(repr(value) for value in row) for row in rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "_BLOCK_BYTES", block_bytes)
        table = opened(tmp_path_factory.mktemp("csv"), text)
        assert table.names is None
        assert np.array_equal(values(table), rows, equal_nan=True)
