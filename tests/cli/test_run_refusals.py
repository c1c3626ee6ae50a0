"""Bad input: exit code 2, one line that names the value and the knob, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyarrow import parquet
from tests.cli.conftest import OUTPUTS, contents
from tests.refusals import lacking

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Refused

PRIVACY = ("--epsilon", "1", "--delta", "1e-6")
QUICK = (*PRIVACY, "--coordinates", "1", "--levels", "3")


def test_the_good_file_of_these_tests_is_taken(command: Command, folder: Path, good: str) -> None:
    (folder / "out").mkdir()
    assert command("run", good, *QUICK, *OUTPUTS).code == 0
    assert len(contents(folder / "out")) == 2


# The data


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.nan, ("[missing-value]", "row 765", "--missing midpoint")),
        (np.inf, ("[out-of-bounds]", "row 765", "infinite", "--clip", "--bounds")),
        (-np.inf, ("[out-of-bounds]", "row 765", "infinite", "--clip", "--bounds")),
        (1.5, ("[out-of-bounds]", "row 765", "[0.0, 1.0]", "--clip", "--bounds", "[0, 1] is the default")),
        (-1e-9, ("[out-of-bounds]", "row 765", "--clip", "--bounds")),
    ],
)
@pytest.mark.parametrize("suffix", ["npy", "npz", "csv", "parquet"])
@pytest.mark.parametrize("coordinates", [1, 3])
def test_a_bad_value_is_named_wherever_it_is(
    refused: Refused, folder: Path, value: float, said: tuple[str, ...], suffix: str, coordinates: int
) -> None:
    values = np.full((1000, 3), 0.25)
    values[765, 2] = value
    path = folder / f"x.{suffix}"
    if suffix == "csv":
        np.savetxt(path, values, delimiter=",")
    elif suffix == "parquet":
        parquet.write_table(pa.table({name: values[:, i] for i, name in enumerate("abc")}), path)
    elif suffix == "npz":
        np.savez(path, values)
    else:
        np.save(path, values)
    answer = refused(path, *PRIVACY, "--coordinates", coordinates, "--levels", 3)
    assert lacking(answer, *said, "column 'c'" if suffix == "parquet" else "coordinate 2") == []
    assert str(value) not in answer.replace("infinite", "")  # logs are kept by others


def test_a_bad_value_in_a_later_batch_is_named_by_its_row_in_the_file(
    refused: Refused, large_zeros: Callable[..., str]
) -> None:
    name = large_zeros(300_000, 100)
    np.load(name, mmap_mode="r+")[299_999, 99] = 7
    assert lacking(refused(name, *QUICK), "[out-of-bounds]", "row 299999", "coordinate 99") == []


def test_a_bad_entry_of_a_matrix_is_named_by_its_indices(refused: Refused, folder: Path) -> None:
    values = np.zeros((10, 2, 3))
    values[4, 1, 2] = np.nan
    np.save(folder / "x.npy", values)
    assert lacking(refused("x.npy", *QUICK), "[missing-value]", "row 4", "entry [1, 2]") == []


def test_infinity_is_not_a_missing_value_and_nan_is_not_clipped(refused: Refused, folder: Path) -> None:
    np.save(folder / "x.npy", np.array([[0.5], [np.inf]]))
    said = refused("x.npy", *QUICK, "--missing", "midpoint")
    assert lacking(said, "[out-of-bounds]", "row 1", "coordinate 0", "infinite") == []
    np.save(folder / "x.npy", np.array([[0.5], [np.nan]]))
    assert (
        lacking(refused("x.npy", *QUICK, "--clip", "--bounds", "0:1"), "[missing-value]", "row 1", "coordinate 0") == []
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ("[no-rows]", "x.csv")),
        ("\n\n", ("[no-rows]", "x.csv")),
        ("a,b\n", ("[no-rows]", "x.csv")),
        ("a,b\n0.1,0.2\n0.3\n", ("[wrong-shape]", "x.csv", "line 3", "1 values", "'b'")),
        ("0.1,0.2\n0.3,0.4,0.5\n", ("[wrong-shape]", "x.csv", "line 2", "3 values")),
        ("a,b\n0.1,0.2\n0.3,tall\n", ("[not-numbers]", "x.csv", "line 3", "column 'b'", "--columns")),
        ("a;b\n0.1;0.2,5;6\n", ("[wrong-shape]", "line 2", "--separator")),
        ("a,b\n0.1,\n", ("[missing-value]", "line 2", "column 'b'", "--missing")),
        (b"a,b\n0.1,\xff\n", ("[not-text]", "line 2", "column 'b'", "--encoding")),
    ],
)
def test_a_csv_that_is_no_table_of_numbers(
    refused: Refused, folder: Path, text: str | bytes, said: tuple[str, ...]
) -> None:
    (folder / "x.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert lacking(refused("x.csv", *QUICK), *said) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.zeros((0, 3)), ("[no-rows]", "(0, 3)")),
        (np.zeros((3, 0)), ("[no-rows]", "(3, 0)")),
        (np.float64(0.5), ("[wrong-shape]",)),
        (np.zeros((3, 2), complex), ("[not-numbers]", "complex128")),
        (np.array([["a"]]), ("[not-numbers]", "<U1")),
    ],
)
def test_an_array_that_is_no_table_of_numbers(
    refused: Refused, folder: Path, values: NDArray[Any], said: tuple[str, ...]
) -> None:
    np.save(folder / "x.npy", values)
    assert lacking(refused("x.npy", *QUICK), *said) == []


@pytest.mark.parametrize("name", ["x.csv", "x.npy", "x.npz", "x.parquet"])
def test_files_that_are_empty_missing_or_damaged(refused: Refused, folder: Path, name: str) -> None:
    assert lacking(refused(name, *QUICK), "[unreadable]", name) == []
    (folder / name).touch()
    assert lacking(refused(name, *QUICK), "[no-rows]", name) == []
    (folder / name).write_bytes(b"\x93PK\xfe\x00" * 50)
    assert lacking(refused(name, *QUICK), "[not-text]" if name == "x.csv" else "[damaged]", name) == []


def test_an_archive_damaged_in_the_middle_writes_nothing(refused: Refused, folder: Path) -> None:
    np.savez_compressed(folder / "x.npz", np.random.default_rng(1).random((20_000, 20)))
    content = bytearray((folder / "x.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "x.npz").write_bytes(content)
    assert lacking(refused("x.npz", *QUICK), "[damaged]", "x.npz") == []


def test_a_file_that_is_no_table(refused: Refused, folder: Path) -> None:
    (folder / "x.txt").write_text("0.1\n")
    assert lacking(refused("x.txt"), "[unknown-file-type]", "x.txt", "'.txt'", ".csv, .tsv, .parquet") == []
    said = refused((folder / "out").rename(folder / "out.csv").name, outputs=())
    assert lacking(said, "[unreadable]", "out.csv") == []


def test_a_first_line_that_may_be_somebodys_row_is_not_taken_for_names(refused: Refused, folder: Path) -> None:
    (folder / "x.csv").write_text("patient0,0.2893,0.1928\n" + "patient1,0.5,0.5\n" * 2000)
    said = refused("x.csv", "--epsilon", "1", "--delta", "1e-6")
    assert lacking(said, "[ambiguous-header]", "--header", "--no-header") == []
    assert "0.2893" not in said


def test_a_column_of_labels_that_the_first_line_does_not_name(refused: Refused, folder: Path) -> None:
    (folder / "x.csv").write_text("answer,age\n" + "yes,30\n" * 2000)
    said = refused("x.csv", "--categories", "anser", "--labels", "yes,no", "--epsilon", "1", "--delta", "1e-6")
    assert lacking(said, "[unknown-column]", "'anser'", "--categories", "--no-header") == []


# The parameters


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--delta 1e-6", ("[missing-argument]", "--epsilon", "--plan")),
        ("--epsilon 1", ("[missing-argument]", "--delta", "--plan")),
        ("--epsilon 0 --delta 1e-6", ("[out-of-range]", "epsilon is 0.0")),
        ("--epsilon -1 --delta 1e-6", ("[out-of-range]", "epsilon is -1.0")),
        ("--epsilon nan --delta 1e-6", ("[out-of-range]", "epsilon is nan")),
        ("--epsilon inf --delta 1e-6", ("[out-of-range]", "epsilon is inf")),
        ("--epsilon 1 --delta 0", ("[out-of-range]", "delta is 0.0", "0 and 1")),
        ("--epsilon 1 --delta 1", ("[out-of-range]", "delta is 1.0", "0 and 1")),
        ("--epsilon 1 --delta nan", ("[out-of-range]", "delta is nan", "0 and 1")),
        ("--epsilon 1 --delta 1e-6 --bounds 1:1", ("[bad-bounds]", "(1.0, 1.0)", "--bounds")),
        ("--epsilon 1 --delta 1e-6 --bounds 2:-1", ("[bad-bounds]", "(2.0, -1.0)", "--bounds")),
        ("--epsilon 1 --delta 1e-6 --bounds 0:inf", ("[bad-bounds]", "(0.0, inf)", "--bounds")),
        ("--epsilon 1 --delta 1e-6 --coordinates 4", ("[out-of-range]", "coordinates is 4", "1 and 3")),
        ("--epsilon 1 --delta 1e-6 --coordinates 0", ("[out-of-range]", "coordinates is 0", "1 and 3")),
        ("--epsilon 1 --delta 1e-6 --max-reports 0", ("[out-of-range]", "--max-reports is 0")),
        ("--epsilon 1 --delta 1e-6 --levels 0", ("[out-of-range]", "levels is 0")),
        ("--epsilon 1 --delta 1e-6 --levels 1000", ("[out-of-range]", "levels is 1000", "1 and 999")),
        (
            "--epsilon 1 --delta .5 --accountant paper --levels 32767",
            ("[out-of-range]", "levels is 32767", "1 and 32766"),
        ),
        ("--epsilon 1 --delta 1e-6 --accountant paper --levels 3", ("[privacy-out-of-reach]", "users")),
        ("--epsilon 1 --delta 1e-6 --honest-fraction 0", ("[impossible-combination]", "--honest-fraction is 0.0")),
        ("--epsilon 1 --delta 1e-6 --rounds 0", ("[out-of-range]", "rounds is 0")),
        ("--epsilon 1 --delta 1e-6 --confidence 1", ("[out-of-range]", "--confidence is 1.0", "0 and 1")),
        ("--epsilon 1 --delta 1e-6 --confidence nan", ("[out-of-range]", "--confidence is nan", "0 and 1")),
        ("--epsilon 1 --delta 1e-6 --columns 0", ("[impossible-combination]", "--columns", "CSV", "Parquet")),
        ("--epsilon 1 --delta 1e-6 --user-column who", ("[impossible-combination]", "--user-column", "CSV", "Parquet")),
        ("--epsilon 1 --delta 1e-6 --array x", ("[impossible-combination]", "--array", ".npz")),
        ("--epsilon 1 --delta 1e-6 --no-header", ("[impossible-combination]", "--header", "CSV")),
    ],
)
def test_a_parameter_out_of_range_is_named(refused: Refused, good: str, arguments: str, said: tuple[str, ...]) -> None:
    assert lacking(refused(good, *arguments.split()), *said) == []


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("", ("[missing-argument]", "--columns")),
        ("a,,b", ("[unknown-column]", "x.csv", "''")),
        ("d", ("[unknown-column]", "x.csv", "'d'", "'a', 'b', 'c'")),
        ("a,a", ("[conflicting-arguments]", "--columns", "'a'")),
        ("0:4", ("[unknown-column]", "--columns 0:4", "3 columns")),
    ],
)
def test_columns_that_are_not_there(refused: Refused, folder: Path, columns: str, said: tuple[str, ...]) -> None:
    (folder / "x.csv").write_text("a,b,c\n" + "0.1,0.2,0.3\n" * 50)
    assert lacking(refused("x.csv", *QUICK, "--columns", columns), *said) == []


@pytest.mark.parametrize(
    ("columns", "arguments", "said"),
    [
        (2**31, "", ("[too-many-cells]", "2147483648", "2147483647")),
        (2**24, "--levels 999", ("[out-of-range]", "levels is 999", "1 and 254")),
        (2**20, "--accountant paper --levels 4095", ("[out-of-range]", "levels is 4095", "1 and 4094")),
    ],
)
def test_a_dimension_too_large_for_the_report_format(
    refused: Refused, large_zeros: Callable[..., str], columns: int, arguments: str, said: tuple[str, ...]
) -> None:
    assert lacking(refused(large_zeros(2, columns, "bool"), *PRIVACY, *arguments.split()), *said) == []


@pytest.mark.parametrize(
    ("arguments", "option"),
    [("--sampling both", "--sampling"), ("--levels 2.5", "--levels"), ("--bounds 0", "--bounds"), ("--no", "--no")],
)
def test_an_option_the_parser_refuses_is_named(
    command: Command, folder: Path, good: str, arguments: str, option: str
) -> None:
    done = command("run", good, *PRIVACY, *arguments.split(), "-o", "o.json")
    assert (done.code, done.out) == (2, "")
    assert option in done.err.splitlines()[-1]
    assert [path.name for path in folder.iterdir()] == [good]
