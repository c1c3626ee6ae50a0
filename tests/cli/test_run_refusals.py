"""Bad input: exit code 2, one line that names the value and the knob, and nothing written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyarrow import parquet
from tests.replaced import replace_of, with_guarantee, with_mechanism

import shufflesum as ss

if TYPE_CHECKING:
    from tests.cli.conftest import Command

Refused = Callable[..., str]
PRIVACY = ("--epsilon", "1", "--delta", "1e-6")
QUICK = (*PRIVACY, "--coordinates", "1", "--levels", "3")
OUTPUTS = ("-o", "out/estimate.json", "--plot", "out/plot.svg")


@pytest.fixture
def refused(command: Command, folder: Path) -> Refused:
    """Runs a command that must be refused, and returns what it says; one output exists before and must not change."""
    (folder / "out").mkdir()
    (folder / "out" / "estimate.json").write_text("from before")

    def call(*arguments: object, outputs: tuple[str, ...] = OUTPUTS) -> str:
        before = contents(folder)
        done = command("run", *arguments, *outputs)
        assert done.code == 2
        assert done.out == ""
        assert re.fullmatch(r"shufflesum: [^\n]+\n", done.err), done.err
        assert contents(folder) == before
        return done.err

    return call


def contents(folder: Path) -> dict[Path, tuple[int, int] | None]:
    """Every file with its size and time of change; of folders only that they are there."""
    return {
        path: (path.stat().st_size, path.stat().st_mtime_ns) if path.is_file() else None for path in folder.rglob("*")
    }


@pytest.fixture
def good(folder: Path) -> str:
    np.save(folder / "good.npy", np.full((1000, 3), 0.25))
    return "good.npy"


def test_the_good_file_of_these_tests_is_taken(command: Command, folder: Path, good: str) -> None:
    (folder / "out").mkdir()
    assert command("run", good, *QUICK, *OUTPUTS).code == 0
    assert len(contents(folder / "out")) == 2


# The data


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.nan, "row 765, coordinate 2: the value is NaN .*--missing midpoint"),
        (np.inf, "row 765, coordinate 2: the value inf is infinite.*--clip.*--bounds"),
        (-np.inf, "row 765, coordinate 2: the value -inf is infinite.*--clip.*--bounds"),
        (1.5, r"row 765, coordinate 2: the value 1\.5 is out of bounds, .*\[0\.0, 1\.0\].*--clip.*--bounds"),
        (-1e-9, "row 765, coordinate 2: the value -1e-09 is out of bounds.*--clip.*--bounds"),
    ],
)
@pytest.mark.parametrize("suffix", ["npy", "npz", "csv", "parquet"])
@pytest.mark.parametrize("coordinates", [1, 3])
def test_a_bad_value_is_named_wherever_it_is(
    refused: Refused, folder: Path, value: float, said: str, suffix: str, coordinates: int
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
    assert re.search(said, refused(path, *PRIVACY, "--coordinates", coordinates, "--levels", 3))


def test_a_bad_value_in_a_later_batch_is_named_by_its_row_in_the_file(
    refused: Refused, large_zeros: Callable[..., str]
) -> None:
    name = large_zeros(300_000, 100)
    np.load(name, mmap_mode="r+")[299_999, 99] = 7
    assert "row 299999, coordinate 99: the value 7.0 is out of bounds" in refused(name, *QUICK)


def test_a_bad_entry_of_a_matrix_is_named_by_its_indices(refused: Refused, folder: Path) -> None:
    values = np.zeros((10, 2, 3))
    values[4, 1, 2] = np.nan
    np.save(folder / "x.npy", values)
    assert re.search(r"row 4, entry \[1, 2\]: the value is NaN", refused("x.npy", *QUICK))


def test_infinity_is_not_a_missing_value_and_nan_is_not_clipped(refused: Refused, folder: Path) -> None:
    np.save(folder / "x.npy", np.array([[0.5], [np.inf]]))
    assert "row 1, coordinate 0: the value inf" in refused("x.npy", *QUICK, "--missing", "midpoint")
    np.save(folder / "x.npy", np.array([[0.5], [np.nan]]))
    assert "row 1, coordinate 0: the value is NaN" in refused("x.npy", *QUICK, "--clip")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "x.csv: is empty"),
        ("\n\n", "x.csv: is empty"),
        ("a,b\n", "x.csv: has a header and no data"),
        ("a,b\n0.1,0.2\n0.3\n", "x.csv, line 3: has 1 values, the first line has 2.*'b' is missing"),
        ("0.1,0.2\n0.3,0.4,0.5\n", r"x.csv, line 2: has 3 values, the first line has 2.*'0\.5'"),
        ("a,b\n0.1,0.2\n0.3,tall\n", "x.csv, line 3, column 'b': 'tall' is not a number.*--columns"),
        ("a;b\n0.1;0.2\n", "'0.1;0.2' is not a number.*separated by commas"),
        ("a,b\n0.1,\n", "row 0, coordinate 1: the value is NaN .*--missing"),
        (b"a,b\n0.1,\xff\n", "not UTF-8 text .*0xff"),
    ],
)
def test_a_csv_that_is_no_table_of_numbers(refused: Refused, folder: Path, text: str | bytes, said: str) -> None:
    (folder / "x.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert re.search(said, refused("x.csv", *QUICK))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.zeros((0, 3)), r"is empty, its shape is \(0, 3\)"),
        (np.zeros((3, 0)), r"is empty, its shape is \(3, 0\)"),
        (np.float64(0.5), "holds a single number"),
        (np.zeros((3, 2), complex), "type complex128"),
        (np.array([["a"]]), "type <U1"),
    ],
)
def test_an_array_that_is_no_table_of_numbers(refused: Refused, folder: Path, values: NDArray[Any], said: str) -> None:
    np.save(folder / "x.npy", values)
    assert re.search(said, refused("x.npy", *QUICK))


@pytest.mark.parametrize("name", ["x.csv", "x.npy", "x.npz", "x.parquet"])
def test_files_that_are_empty_missing_or_damaged(refused: Refused, folder: Path, name: str) -> None:
    assert f"{name}: does not exist" in refused(name, *QUICK)
    (folder / name).touch()
    assert f"{name}: is empty" in refused(name, *QUICK)
    (folder / name).write_bytes(b"\x93PK\xfe\x00" * 50)
    assert name in refused(name, *QUICK)


def test_an_archive_damaged_in_the_middle_writes_nothing(refused: Refused, folder: Path) -> None:
    np.savez_compressed(folder / "x.npz", np.random.default_rng(1).random((20_000, 20)))
    content = bytearray((folder / "x.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "x.npz").write_bytes(content)
    assert "x.npz: cannot be read" in refused("x.npz", *QUICK)


def test_a_file_that_is_no_table(refused: Refused, folder: Path) -> None:
    (folder / "x.txt").write_text("0.1\n")
    assert re.search(r"x.txt: files ending in '.txt' cannot be read; allowed are .csv, .parquet", refused("x.txt"))
    assert "out.csv: is not a regular file" in refused((folder / "out").rename(folder / "out.csv").name, outputs=())


# The parameters


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--delta 1e-6", "--epsilon is missing.*--plan"),
        ("--epsilon 1", "--delta is missing.*--plan"),
        ("--epsilon 0 --delta 1e-6", r"epsilon is 0\.0; it must be positive"),
        ("--epsilon -1 --delta 1e-6", r"epsilon is -1\.0; it must be positive"),
        ("--epsilon nan --delta 1e-6", "epsilon is nan; it must be positive"),
        ("--epsilon inf --delta 1e-6", "epsilon is inf; it must be positive and finite"),
        ("--epsilon 1 --delta 0", r"delta is 0\.0; .*between 0 and 1"),
        ("--epsilon 1 --delta 1", r"delta is 1\.0; .*between 0 and 1"),
        ("--epsilon 1 --delta nan", "delta is nan; .*between 0 and 1"),
        ("--epsilon 1 --delta 1e-6 --bounds 1 1", r"bounds \(1\.0, 1\.0\) .*lower bound must be below.*--bounds"),
        ("--epsilon 1 --delta 1e-6 --bounds 2 -1", r"bounds \(2\.0, -1\.0\) .*lower bound must be below.*--bounds"),
        ("--epsilon 1 --delta 1e-6 --bounds 0 inf", r"bounds \(0\.0, inf\) .*must be finite.*--bounds"),
        ("--epsilon 1 --delta 1e-6 --coordinates 4", "coordinates is 4; it must lie between 1 and 3"),
        ("--epsilon 1 --delta 1e-6 --coordinates 0", "coordinates is 0; it must lie between 1 and 3"),
        ("--epsilon 1 --delta 1e-6 --max-reports 0", "max_reports is 0; it must lie between 1"),
        ("--epsilon 1 --delta 1e-6 --levels 0", "levels is 0; it must lie between 1"),
        ("--epsilon 1 --delta 1e-6 --levels 1000", "levels is 1000; it must lie between 1 and 999"),
        ("--epsilon 1 --delta .5 --accountant paper --levels 32767", "levels is 32767; .*between 1 and 32766"),
        ("--epsilon 1 --delta 1e-6 --accountant paper --levels 3", "published noise probability is .*raise users"),
        ("--epsilon 1 --delta 1e-6 --honest-fraction 0", r"honest_fraction is 0\.0; it must lie in \(0, 1\]"),
        ("--epsilon 1 --delta 1e-6 --rounds 0", "rounds is 0; it must lie between 1"),
        ("--epsilon 1 --delta 1e-6 --confidence 1", r"--confidence is 1\.0; .*between 0 and 1"),
        ("--epsilon 1 --delta 1e-6 --confidence nan", "--confidence is nan; .*between 0 and 1"),
        ("--epsilon 1 --delta 1e-6 --columns 0", "--columns is for CSV and Parquet files"),
        ("--epsilon 1 --delta 1e-6 --user-column who", "--user-column is for CSV and Parquet files"),
        ("--epsilon 1 --delta 1e-6 --array x", "--array is for .npz files"),
        ("--epsilon 1 --delta 1e-6 --no-header", "--header is for CSV files"),
    ],
)
def test_a_parameter_out_of_range_is_named(refused: Refused, good: str, arguments: str, said: str) -> None:
    assert re.search(said, refused(good, *arguments.split()))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("", "--columns is empty"),
        ("a,,b", "no column is named ''"),
        ("d", "no column is named 'd'; --columns may be 'a', 'b', 'c'"),
        ("a,a", "names column 'a' twice"),
        ("0:4", "--columns 0:4 is no range of its 3 columns"),
    ],
)
def test_columns_that_are_not_there(refused: Refused, folder: Path, columns: str, said: str) -> None:
    (folder / "x.csv").write_text("a,b,c\n" + "0.1,0.2,0.3\n" * 50)
    assert said in refused("x.csv", *QUICK, "--columns", columns)


@pytest.mark.parametrize(
    ("columns", "arguments", "said"),
    [
        (2**31, "", "2147483648 coordinates, but reports can number at most 2147483647"),
        (2**24, "--levels 999", "levels is 999; it must lie between 1 and 254"),
        (2**20, "--accountant paper --levels 4095", "levels is 4095; it must lie between 1 and 4094"),
    ],
)
def test_a_dimension_too_large_for_the_report_format(
    refused: Refused, large_zeros: Callable[..., str], columns: int, arguments: str, said: str
) -> None:
    assert re.search(said, refused(large_zeros(2, columns, "bool"), *PRIVACY, *arguments.split()))


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


# The plan


@pytest.fixture
def plan(folder: Path) -> ss.Plan:
    plan = ss.plan(users=1000, shape=3, epsilon=1.0, delta=1e-6, coordinates=1, levels=3)
    (folder / "plan.json").write_text(plan.to_json())
    return plan


@pytest.mark.parametrize(
    "option",
    [
        "--epsilon 1",
        "--delta 1e-6",
        "--bounds 0 1",
        "--coordinates 1",
        "--max-reports 1",
        "--levels 3",
        "--sampling stratified",
        "--accountant exact",
        "--honest-fraction 1",
        "--rounds 1",
    ],
)
def test_a_plan_fixes_its_options_even_at_their_defaults(
    refused: Refused, good: str, plan: ss.Plan, option: str
) -> None:
    name, *values = option.split()
    assert f"{name} cannot be given with --plan" in refused(good, "--plan", "plan.json", name, *values)


def test_too_few_rows_for_the_plan(refused: Refused, folder: Path, plan: ss.Plan) -> None:
    np.save(folder / "x.npy", np.zeros((999, 3)))
    assert re.search(
        "999 rows, but the plan needs at least 1000 users; .*--plan", refused("x.npy", "--plan", "plan.json")
    )


@pytest.mark.parametrize("shape", [(), (2,), (4,), (3, 1), (1, 3)])
def test_a_plan_for_another_shape(refused: Refused, folder: Path, plan: ss.Plan, shape: tuple[int, ...]) -> None:
    np.save(folder / "x.npy", np.zeros((1000, *shape)))
    said = refused("x.npy", "--plan", "plan.json")
    assert f"has shape {shape}, but the plan is for (3,) (3 values); choose --columns, or the right --plan" in said


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mechanism.noise_probability", 0.0),
        ("guarantee.epsilon", 0.1),
        ("guarantee.users", 10),
        ("domain.bounds", [0.0, 0.5]),
    ],
)
def test_a_plan_changed_by_hand(
    refused: Refused, folder: Path, good: str, plan: ss.Plan, field: str, value: Any
) -> None:
    changed = json.loads(plan.to_json())
    part, name = field.split(".")
    changed[part][name] = value
    (folder / "plan.json").write_text(json.dumps(changed))
    assert re.search(f"changed after it was made: it says id {plan.id[:12]}", refused(good, "--plan", "plan.json"))


def test_a_plan_whose_figures_do_not_follow_from_its_parameters(
    refused: Refused, folder: Path, good: str, plan: ss.Plan
) -> None:
    (folder / "plan.json").write_text(json.dumps(json.loads(plan.to_json()) | {"dimension": 2}))
    assert "it says dimension 2, but its parameters give 3" in refused(good, "--plan", "plan.json")


def test_a_first_line_that_may_be_somebodys_row_is_not_taken_for_names(refused: Refused, folder: Path) -> None:
    (folder / "x.csv").write_text("patient0,0.2893,0.1928\n" + "patient1,0.5,0.5\n" * 2000)
    said = refused("x.csv", "--epsilon", "1", "--delta", "1e-6")
    assert "say --header or --no-header" in said
    assert "0.2893" not in said


def test_a_plan_that_claims_more_privacy_than_it_gives(
    refused: Refused, folder: Path, good: str, plan: ss.Plan
) -> None:
    less = math.floor(replace_of(plan).noise_probability * 2.0**52) / 2.0**53
    forged = with_mechanism(plan, noise_probability=less)
    (folder / "plan.json").write_text(forged.to_json())
    assert re.search("claims epsilon = 1.0, .* but there delta is up to", refused(good, "--plan", "plan.json"))
    unproven = with_guarantee(plan, accountant="none")
    (folder / "plan.json").write_text(unproven.to_json())
    assert "this plan has no privacy guarantee" in refused(good, "--plan", "plan.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "\x00", '{"format": "shufflesum-plan-9"}'])
def test_a_file_that_is_no_plan(refused: Refused, folder: Path, good: str, text: str) -> None:
    (folder / "plan.json").write_text(text)
    assert "not a plan" in refused(good, "--plan", "plan.json")


def test_a_plan_file_of_the_format_before_is_refused_by_name(refused: Refused, folder: Path, good: str) -> None:
    old = Path(__file__).parent.parent / "vectors" / "old_plan_1.json"
    (folder / "plan.json").write_text(old.read_text())
    said = refused(good, "--plan", "plan.json")
    assert "plan.json: not a plan: its format is 'shufflesum-plan-1'" in said
    assert "shufflesum plan -o FILE" in said


def test_a_plan_that_cannot_be_read(refused: Refused, good: str) -> None:
    assert "cannot read plan nowhere.json: No such file" in refused(good, "--plan", "nowhere.json")
    assert "cannot read plan out: Is a directory" in refused(good, "--plan", "out")


# The outputs


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ("-o missing/e.json --plot out/p.svg", "missing/e.json: cannot be written: No such file or directory"),
        ("-o out/e.json --plot missing/p.svg", "missing/p.svg: cannot be written: No such file or directory"),
        ("-o good.npy/e.json", "good.npy/e.json: cannot be written: Not a directory"),
        ("-o out/e.txt --plot out/p.svg", "out/e.txt: files ending in '.txt' .*allowed are .json, .csv"),
        ("-o out/e.json --plot out/p.pdf", "out/p.pdf: files ending in '.pdf' .*allowed are .png, .svg, .html"),
        ("-o out", "out: files ending in '' cannot be written"),
        ("-o good.csv", "good.csv: is not a regular file"),
        ("-o plan.json --plot out/p.svg", "plan.json: is an input, and would be replaced"),
    ],
)
def test_an_output_that_cannot_be_written(
    refused: Refused, folder: Path, good: str, plan: ss.Plan, outputs: str, said: str
) -> None:
    (folder / "good.csv").mkdir()
    assert re.search(said, refused(good, "--plan", "plan.json", outputs=tuple(outputs.split())))


def test_the_data_is_never_replaced_by_the_estimate(refused: Refused, folder: Path) -> None:
    (folder / "x.csv").write_text("a\n" + "0.5\n" * 100)
    (folder / "link.csv").symlink_to("x.csv")
    for output in ("x.csv", "out/../x.csv", "link.csv"):
        assert f"{Path(output)}: is an input" in refused("x.csv", *QUICK, outputs=("-o", output))
