"""`--bounds` for each column: on the command line, in a file, for runs, plans and groups; and all that cannot be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.refusals import lacking

import shufflesum as ss
from shufflesum.domains import GroupBy

if TYPE_CHECKING:
    from tests.cli.conftest import Command

PRIVACY = ("--epsilon", "1", "--delta", "1e-6")
PEOPLE = "".join(f"{20 + i % 60},{1000 * (i % 90)}\n" for i in range(3000))
AGE, INCOME = "age=0:120", "income=0:500000"


@pytest.fixture
def people(folder: Path) -> str:
    (folder / "people.csv").write_text("age,income\n" + PEOPLE)
    (folder / "bounds.csv").write_text("column,lower,upper\nincome,0,500000\nage,0,120\n")
    return "people.csv"


@pytest.mark.parametrize("bounds", [(AGE, INCOME), (INCOME, AGE), ("bounds.csv",)], ids=str)
def test_each_column_has_bounds_of_its_own(command: Command, people: str, bounds: tuple[str, ...]) -> None:
    """The noise of the age is that of 120 years, not of half a million: six standard errors."""
    options = [word for text in bounds for word in ("--bounds", text)]
    found = command("run", people, *PRIVACY, *options, "--json")
    assert found.estimate["names"] == ["age", "income"]
    assert found.document["plan"]["domain"]["bounds"] == [[0, 0], [120, 500000]]
    ages, incomes = np.loadtxt(people, delimiter=",", skiprows=1).T
    errors = found.estimate["standard_error"]
    assert abs(found.estimate["mean"][0] - ages.mean()) < 6 * errors[0] < 6
    assert abs(found.estimate["mean"][1] - incomes.mean()) < 6 * errors[1]


def test_a_plan_knows_its_columns_by_their_bounds(command: Command, people: str) -> None:
    making = (
        "plan",
        "--users",
        3000,
        *PRIVACY,
        "--bounds",
        AGE,
        "--bounds",
        INCOME,
        "-o",
        "plan.json",
        "--noise-by",
        "curator",
    )
    assert command(*making).code == 0
    box = ss.Plan.load("plan.json").domain.numbers
    assert (box.columns, box.lower.tolist(), box.upper.tolist()) == (("age", "income"), [0, 0], [120, 500000])
    assert command("run", people, "--plan", "plan.json", "--json").estimate["names"] == ["age", "income"]
    assert command(*making[:-4], "--noise-by", "curator", "--columns", "income,age", "-o", "other.json").code == 0
    assert ss.Plan.load("other.json").domain.numbers.upper.tolist() == [500000, 120]


def test_groups_have_bounds_for_each_column(command: Command, folder: Path) -> None:
    lines = (f"{'AB'[i % 2]},{line}" for i, line in enumerate(PEOPLE.splitlines()))
    (folder / "g.csv").write_text("town,age,income\n" + "\n".join(lines))
    options = ("--labels", "A,B", *PRIVACY, "--bounds", AGE, "--bounds", INCOME)
    found = command("run", "g.csv", "--group-by", "town", *options, "--json")
    assert found.estimate["names"] == ["age", "income"]
    assert command("plan", "--users", 3000, *options, "-o", "plan.json").code == 0
    domain = ss.Plan.load("plan.json").domain
    assert isinstance(domain, GroupBy)
    assert domain.values.upper.tolist() == [120, 500000]


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (("0 100", "0 500000"), ("[conflicting-arguments]", "2 times")),
        (("0 100", AGE), ("[conflicting-arguments]", "for all")),
        ((AGE, "bounds.csv"), ("[conflicting-arguments]", "a file")),
        (("bounds.csv", "bounds.csv"), ("[conflicting-arguments]", "a file")),
        ((AGE, AGE, INCOME), ("[conflicting-arguments]", "'age'")),
        ((AGE, INCOME, "height=0:3"), ("[unknown-column]", "'height'", "'income'")),
        ((AGE, "Income=0:1"), ("[unknown-column]", "'Income'")),
        ((AGE,), ("[bad-bounds]", "'income'", "--bounds income=LO:HI", "--columns")),
        (("age=120:0", INCOME), ("[bad-bounds]", "'age'")),
        (("age=5:5", INCOME), ("[bad-bounds]", "'age'")),
        ((AGE, "income=nan:5"), ("[bad-bounds]", "'income'")),
        ((AGE, "income=0:inf"), ("[bad-bounds]", "'income'")),
        ((AGE, "income=0"), ("[bad-bounds]", "'income'", "LO:HI")),
        ((AGE, "income=0:x"), ("[bad-bounds]", "'income'")),
        (("0:x",), ("[bad-bounds]", "LO:HI")),
        (("0",), ("[bad-bounds]", "--bounds 0:120")),
        (("nowhere.csv",), ("[unreadable]", "nowhere.csv")),
        (("people.csv",), ("[malformed]", "column,lower,upper")),
        (("empty.csv",), ("[no-rows]", "empty.csv")),
    ],
    ids=str,
)
@pytest.mark.parametrize("run", [True, False], ids=["run", "plan"])
def test_what_cannot_be_is_refused_by_name(
    command: Command, people: str, folder: Path, bounds: tuple[str, ...], said: tuple[str, ...], run: bool
) -> None:
    (folder / "empty.csv").write_text("column,lower,upper\n")
    options = [word for text in bounds for word in ("--bounds", text)]
    first = ("run", people) if run else ("plan", "--users", 3000, "--columns", "age,income")
    done = command(*first, *PRIVACY, *options)
    assert done.code == 2
    assert lacking(done.err, *said) == []


def test_a_file_without_names_has_no_columns_to_bound(command: Command, folder: Path) -> None:
    np.save("x.npy", np.zeros((3000, 2)))
    assert (
        lacking(command("run", "x.npy", *PRIVACY, "--bounds", AGE, "--bounds", INCOME).err, "[bad-bounds]", "'age'")
        == []
    )


@pytest.mark.parametrize("words", ["--bounds 0 1", "--bounds=0 1", "--bounds -1 1"])
def test_bounds_with_a_space_are_refused_with_the_right_spelling(command: Command, people: str, words: str) -> None:
    done = command("run", people, *PRIVACY, *words.split())
    assert done.code == 2
    assert lacking(done.err, "[bad-bounds]", "with a colon", "--bounds 0:120") == []


@pytest.mark.parametrize("words", ["--bounds -1:1", "--bounds=-1:1"])
def test_a_negative_lower_bound_needs_no_other_spelling(command: Command, words: str) -> None:
    done = command("plan", "--users", 3000, "--dimension", 1, *PRIVACY, *words.split(), "--json")
    assert done.document["domain"]["bounds"] == [-1.0, 1.0]


@pytest.mark.parametrize(
    "line",
    [
        "plan --users 10 --dimension 1 --epsilon 1 --epsilon 2",
        "run people.csv --clip --header --no-header",
        "status --shuffler a --shuffler=b",
        "budget ask b.json --users 1 --users 1",
    ],
)
def test_an_option_given_twice_is_refused_by_name(command: Command, line: str) -> None:
    done = command(*line.split())
    assert done.code == 2
    assert re.search(r"--(epsilon|header|shuffler|users) is given 2 times; give it once", done.err)


def test_an_estimate_at_the_edge_of_wide_bounds_names_bounds_for_each_column(command: Command, folder: Path) -> None:
    rows = "".join(f"{20 + i % 60},{10 * i}\n" for i in range(8000))
    (folder / "wide.csv").write_text("age,income\n" + rows)
    said = command("run", "wide.csv", "--bounds", "0:100000000", "--clip", "--epsilon", "1", "--delta", "1e-6").err
    assert not lacking(said, "either the bounds are far too wide", "--bounds NAME=LO:HI")
