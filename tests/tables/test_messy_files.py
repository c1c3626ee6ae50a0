"""Files of text as people have them: each is read as it is meant, or refused with its line, its column and the knob."""

from __future__ import annotations

import bz2
import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.refusals import refusal

from shufflesum.domains import Categories
from shufflesum.errors import ParameterError
from shufflesum.tables.readers import open_table
from shufflesum.tables.sources import ReadOptions

NAN = float("nan")


def compressed(data: bytes, codec: str) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, codec) as stream:
        stream.write(data)
    return bytes(out.getvalue().to_pybytes())


@dataclass(frozen=True)
class Case:
    content: str | bytes
    read: list[list[float]] | None = None
    names: tuple[str, ...] | None = ("age", "income")
    refused: tuple[str, ...] = ()
    file: str = "x.csv"
    options: dict[str, Any] = field(default_factory=dict)


ROWS = [[31.0, 2500.5], [44.0, 1800.0]]
FILES = {
    "plain": Case("age,income\n31,2500.5\n44,1800\n", ROWS),
    "byte order mark": Case(b"\xef\xbb\xbfage,income\n31,2500.5\n44,1800\n", ROWS),
    "lines of Windows": Case("age,income\r\n31,2500.5\r\n44,1800\r\n", ROWS),
    "lines of old Macs": Case("age,income\r31,2500.5\r44,1800", ROWS),
    "quotes": Case('"age","income"\n"31","2500.5"\n"44","1800"\n', ROWS),
    "blank lines": Case("\n\nage,income\n\n31,2500.5\n\n44,1800\n\n", ROWS),
    "gzip": Case(gzip.compress(b"age,income\n31,2500.5\n44,1800\n"), ROWS, file="x.csv.gz"),
    "bzip2 of tabs": Case(bz2.compress(b"age\tincome\n31\t2500.5\n44\t1800\n"), ROWS, file="X.TSV.BZ2"),
    "zstd": Case(compressed(b"age,income\n31,2500.5\n44,1800\n", "zstd"), ROWS, file="x.csv.zst"),
    "lz4": Case(compressed(b"age,income\n31,2500.5\n44,1800\n", "lz4"), ROWS, file="x.csv.lz4"),
    "gzip, cut short": Case(
        gzip.compress(b"age,income\n31,2500.5\n44,1800\n")[:-12], refused=("damaged",), file="x.csv.gz"
    ),
    "no gzip at all": Case("age,income\n31,2500.5\n", refused=("damaged",), file="x.csv.gz"),
    "gzip under another name": Case(
        gzip.compress(b"age,income\n31,2500.5\n", mtime=0), refused=("not-text", "compressed", ".csv.gz")
    ),
    "a spreadsheet": Case(b"PK\x03\x04\x14\x00\x06\x00\xff\xfe,\n", refused=("not-text", "spreadsheet", "CSV")),
    "a line for spreadsheets": Case("sep=;\nage;income\n31;2500.5\n", refused=("malformed", "line 1", "separator=")),
    "semicolons": Case("age;income\n31;2500.5\n44;1800\n", ROWS),
    "tabs": Case("age\tincome\n31\t2500.5\n44\t1800\n", ROWS),
    "tabs, commas in names": Case(
        "age, years\tincome\n31\t2500.5\n", [ROWS[0]], ("age, years", "income"), file="x.tsv"
    ),
    "bars": Case("age|income\n31|2500.5\n44|1800\n", ROWS),
    "another separator": Case("age^income\n31^2500.5\n44^1800\n", ROWS, options={"separator": "^"}),
    "separators that disagree": Case(
        "age,income;net\n1,2;x\n3,4;y\n", refused=("ambiguous-separator", "separator='comma'", "separator='semicolon'")
    ),
    "decimal commas": Case("age;income\n31;2500,5\n44;1800\n", ROWS),
    "decimal commas in quotes": Case('age,income\n31,"2500,5"\n44,"1800,0"\n', ROWS),
    "decimal commas without names": Case("31,5;2500,5\n44,0;1800,0\n", [[31.5, 2500.5], [44.0, 1800.0]], None),
    "decimal commas among points": Case(
        "age;income\n31;2500.5\n44;1800,5\n", refused=("not-numbers", "line 2", "column 'income'", "'.'")
    ),
    "decimal commas that come late": Case(
        "age;income\n" + "31;2500\n" * 300 + "44;1800,5\n",
        refused=("not-numbers", "line 302", "column 'income'", "decimal=','"),
    ),
    "decimal commas, said": Case("age;income\n31;2,500\n", [[31.0, 2.5]], options={"decimal": ","}),
    "commas for fractions or thousands": Case(
        "age;income\n31;2,500\n", refused=("ambiguous-decimal", "decimal=','", "pandas.read_csv")
    ),
    "thousands in quotes": Case(
        'age,income\n31,2500.5\n44,"1,800.00"\n',
        refused=("not-numbers", "line 3", "column 'income'", "thousands", "pandas.read_csv"),
    ),
    "thousands by points": Case(
        "age;income\n31;2500,5\n44;1.800,00\n",
        refused=("not-numbers", "line 3", "column 'income'", "thousands", "pandas.read_csv"),
    ),
    "true and false": Case(
        "age,member\n31,True\n44,false\n18,\n19,TRUE\n", [[31, 1], [44, 0], [18, NAN], [19, 1]], ("age", "member")
    ),
    "true among numbers": Case(
        "age,member\n31,1\n44,0.5\n18,True\n", refused=("not-numbers", "line 4", "column 'member'", "1 and 0")
    ),
    "true, then a number": Case(
        "age,member\n31,True\n" + "44,False\n" * 300 + "18,7\n", refused=("not-numbers", "line 303", "column 'member'")
    ),
    "words for what is missing": Case(
        "age,income\nNA,null\nNone,NaN\nN/A,n/a\n#N/A,<NA>\n,1800\n", [[NAN, NAN]] * 4 + [[NAN, 1800.0]]
    ),
    "Latin-1 in a name": Case(
        "âge,income\n31,2500.5\n".encode("latin-1"), refused=("not-text", "line 1", "encoding='latin-1'")
    ),
    "Latin-1, said": Case(
        "âge,income\n31,2500.5\n".encode("latin-1"),
        [ROWS[0]],
        ("âge", "income"),
        options={"encoding": "Latin-1"},
    ),
    "Latin-1 in a user's name": Case(
        "who,age\nAnn,31\nJosé,44\n".encode("latin-1"),
        refused=("not-text", "line 3", "column 'who'", "encoding="),
        options={"user_column": "who"},
    ),
    "Latin-1 in a column that is not read": Case(
        "who,age\nAnn,31\nJosé,44\n".encode("latin-1"), [[31], [44]], ("age",), options={"columns": ["age"]}
    ),
    "UTF-16": Case("age,income\n31,2500.5\n".encode("utf-16"), refused=("not-text", "UTF-16", "encoding='utf-16'")),
    "UTF-16, said": Case("age,income\n31,2500.5\n".encode("utf-16"), [ROWS[0]], options={"encoding": "utf-16"}),
    "a line too short": Case(
        "age,income\n31,2500.5\n44\n", refused=("wrong-shape", "line 3", "column 'income'", "separator=")
    ),
    "a line too long": Case(
        "age;income\n31;2500\n44;1800;9999\n", refused=("wrong-shape", "line 3", "3 values", "';'")
    ),
    "decimal commas in one column": Case("income\n2500,5\n", refused=("wrong-shape", "line 2", "separator=")),
    "a date": Case(
        "born,income\n1990-05-17,2500.5\n", refused=("not-numbers", "line 2", "column 'born'", "date", "columns=")
    ),
    "a unit": Case("age,weight\n31,70 kg\n", refused=("not-numbers", "line 2", "column 'weight'", "unit")),
    "a title above the header": Case(
        "Report\nage;income\n31;2500\n",
        refused=("unknown-column", "header is not the first line"),
        options={"columns": ["age"]},
    ),
    "labels": Case("age,town\n31,Rome\n", refused=("not-numbers", "line 2", "`Categories`", "columns=")),
    "an id": Case(
        "id,income\nA-17,2500.5\n",
        refused=("not-numbers", "line 2", "column 'id'", "user_column=", "columns="),
    ),
    "an id, said": Case("id,income\nA-17,2500.5\n", [[2500.5]], ("income",), options={"user_column": "id"}),
    "an id that is missing": Case(
        "id,income\nA-17,2500.5\n ,1\n", refused=("missing-value", "line 3", "'id'"), options={"user_column": "id"}
    ),
    "an id twice": Case(
        "id,income\nA-17,2500.5\nA-17,1\n", refused=("repeated-user", "2 rows"), options={"user_column": "id"}
    ),
    "row numbers without a name": Case(
        ",age,income\n0,31,2500.5\n", refused=("ambiguous-column", "column 0", "columns=")
    ),
    "row numbers without a name, left out": Case(
        ",age,income\n0,31,2500.5\n1,44,1800\n", ROWS, options={"columns": ["1:3"]}
    ),
    "no header": Case("31,2500.5\n44,1800\n", ROWS, None),
    "no header, true and false": Case("31,True\n44,False\n", [[31, 1], [44, 0]], None),
    "perhaps a header": Case("31,income\n44,1800\n", refused=("ambiguous-header", "header=", "header=False")),
    "names or true and false": Case("True,False\n1,0\n", refused=("ambiguous-header", "header=", "header=False")),
    "years for names": Case("2023,2024\n31,2500.5\n", [ROWS[0]], ("2023", "2024"), options={"header": True}),
    "empty": Case("", refused=("no-rows",)),
    "empty, compressed": Case(gzip.compress(b""), refused=("no-rows",), file="x.csv.gz"),
    "nothing but names": Case("age,income\n", refused=("no-rows",)),
    "nothing but blank lines": Case("\n\r\n\n", refused=("no-rows",)),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_as_it_comes_is_read_or_refused(tmp_path: Path, name: str) -> None:
    case = FILES[name]
    assert (case.read is None) != (not case.refused)
    path = tmp_path / case.file
    path.write_bytes(case.content if isinstance(case.content, bytes) else case.content.encode())
    if case.refused:
        with refusal(*case.refused):
            list(open_table(path, ReadOptions(**case.options)).batches())
        return
    table = open_table(path, ReadOptions(**case.options))
    assert table.names == case.names
    np.testing.assert_array_equal(np.concatenate(list(table.batches())), np.array(case.read))


def test_words_for_what_is_missing_can_be_labels_and_names(tmp_path: Path) -> None:
    """NA is Namibia where a plan lists it, and otherwise missing, as pandas has it; Null is a family name."""
    path = tmp_path / "x.csv"
    path.write_text("who,country\nNull,NA\nNone,\nNA,N/A\n")
    for labels, read in (["NA", "AT"], ["NA", None, None]), (["DE", "AT"], [None, None, None]):
        options = ReadOptions(column="country", user_column="who").for_domain(Categories(labels))
        for keep in (True, False):
            table = open_table(path, options, keep=keep)
            assert [label for batch in table.batches() for label in batch.to_pylist()] == read
            assert [user for batch in table.users() for user in batch.to_pylist()] == ["Null", "None", "NA"]
    by_pandas = pd.read_csv(path)["country"]
    with refusal("missing-value", "row 0"):
        Categories(["DE", "AT"]).block(by_pandas)


@pytest.mark.parametrize("separator", ["", "ab", "1", "a", '"', ".", "-", "\n", "é"])
def test_what_cannot_separate_is_refused(separator: str) -> None:
    with refusal("unknown-choice", "separator=", error=ParameterError):
        ReadOptions(separator=separator)


@pytest.mark.parametrize("dialect", [{"decimal": ";"}, {"encoding": "klingon"}, {"encoding": "base64"}], ids=str)
def test_other_words_that_mean_nothing_are_refused(dialect: dict[str, Any]) -> None:
    with refusal("unknown-choice", *dialect.values(), error=ParameterError):
        ReadOptions(**dialect)


def test_a_dialect_is_for_files_of_text(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    with refusal("impossible-combination", "separator=", error=ParameterError):
        open_table(tmp_path / "x.npy", ReadOptions(separator=";"))


def test_the_line_of_a_row_counts_names_blank_lines_and_breaks_within_quotes(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('who,age\n\n"Ann\nMarie",31\nBob,44\n')
    table: Any = open_table(path, ReadOptions(user_column="who"))
    assert [table.line_of(row) for row in range(2)] == [4, 5]
