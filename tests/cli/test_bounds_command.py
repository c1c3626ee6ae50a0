"""`shufflesum bounds`, `run --variance` and `--quantiles`: out of files, for people and programs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.refusals import lacking

import shufflesum as ss
from shufflesum.bounds import SuggestedBounds
from shufflesum.cli.run import _show_bounds
from shufflesum.domains.counts import BinBounds

if TYPE_CHECKING:
    from tests.cli.conftest import Command

PRIVACY = ("--epsilon", "1", "--delta", "1e-6")
SURE = ("--confidence", "0.99999999")  # a bin is then taken for occupied by mistake once in 10^8 runs
USERS = 6000


def refusal_of(command: Command, *arguments: str) -> str:
    done = command(*arguments)
    assert done.code == 2
    assert done.out == ""
    return done.err


@pytest.fixture
def people(folder: Path) -> str:
    """Ages and incomes; the law of neither is read off anything but the file."""
    rng = np.random.default_rng(7)
    rows = np.column_stack([rng.integers(20, 80, USERS), rng.lognormal(10, 0.5, USERS).round(2)])
    np.savetxt(folder / "people.csv", rows, delimiter=",", header="age,income", comments="", fmt="%.10g")
    return "people.csv"


def test_bounds_then_the_main_plan_on_the_same_file(people: str, command: Command) -> None:
    found = command("bounds", people, *PRIVACY, *SURE, "-o", "plan.json")
    assert not lacking(found.out, "age", "income", "users within", "wrote plan.json", "both together have epsilon 1")
    assert not lacking(found.out, "99.999999 % interval", "With 99.999999 % confidence")
    plan = ss.Plan.load("plan.json")
    assert plan.noise_by == "curator"
    assert 0.79 < plan.epsilon < 1
    done = command("run", people, "--plan", "plan.json", "--clip", "--json", "--confidence", "0.99999999")
    lower, upper = done.estimate["confidence_interval"]
    truth = np.loadtxt(people, delimiter=",", skiprows=1)
    clipped = np.clip(truth, plan.domain.numbers.lower, plan.domain.numbers.upper)
    assert np.all((lower <= clipped.mean(axis=0)) & (clipped.mean(axis=0) <= upper))


def test_bounds_for_programs(people: str, command: Command) -> None:
    document = command("bounds", people, *PRIVACY, "--columns", "age", "--share", "1", "--json", *SURE).document
    (column,) = document["columns"]
    assert column["name"] == "age"
    assert (column["lower"], column["upper"]) in {(10, 100), (20, 100), (10, 50)}
    assert document["main"] is None
    assert document["first"]["guarantee"]["epsilon"] == document["epsilon"] == 1


def test_what_is_certain_of_users_within_is_rounded_down(capsys: pytest.CaptureFixture[str]) -> None:
    column = BinBounds(0.0, 10_000.0, within=0.9999, within_lower=0.98961, within_upper=0.99961, level=0.95)
    plan = ss.plan(users=500, domain=ss.Categories(bins=[0, 5, 10]), epsilon=1, delta=1e-5)
    estimate = ss.aggregate(np.full(500, 3.0), plan=plan)
    _show_bounds(SuggestedBounds((column,), estimate, None, 1.0, 1e-5, ()), as_json=False)
    assert not lacking(capsys.readouterr().out, "98.9 % to 100 %", " 10,000 ", "at least 98.9 % of the users")


def test_own_bins_are_the_edges_that_bounds_come_from(people: str, command: Command) -> None:
    arguments = ("--columns", "age", "--bins", "0,16,32,64,128", "--json", *SURE)
    (column,) = command("bounds", people, *PRIVACY, *arguments).document["columns"]
    assert (column["lower"], column["upper"]) == (16, 128)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--share", "2"), "out-of-range"),
        (("--cover", "0"), "out-of-range"),
        (("--confidence", "1"), "out-of-range"),
        (("--share", "1", "-o", "plan.json"), "conflicting-arguments"),
        (("--bins", "a,b"), "wrong-type"),
        (("-o", "plan.csv"), "unknown-file-type"),
    ],
)
def test_bounds_refuses(people: str, command: Command, arguments: tuple[str, ...], problem: str) -> None:
    assert not lacking(refusal_of(command, "bounds", people, *PRIVACY, *arguments), f"[{problem}]")
    assert not Path("plan.json").exists()


def test_quantiles_of_numbers_in_bins(people: str, command: Command) -> None:
    bins = ("--categories", "age", "--bins", "0,30,45,55,70,120", "--quantiles", "0.25,0.5")
    document = command("run", people, *PRIVACY, *bins, "--json", "--confidence", "0.99999999").document
    truth = np.loadtxt(people, delimiter=",", skiprows=1)[:, 0]
    found = document["estimate"]
    assert found["quantiles"] == [0.25, 0.5]
    for q, lower, upper in zip((0.25, 0.5), *found["value_interval"], strict=True):
        assert lower <= np.quantile(truth, q, method="inverted_cdf") <= upper
    assert len(found["counts"]) == 5  # bins that were asked for are there as well
    assert not lacking(command("run", people, *PRIVACY, *bins).out, "quantile", "0.25", "30 to 45", "45 to 55")
    fine = ("--categories", "income", "--bins", "0,1000001.25,9000000", "--quantiles", "0.5")
    assert not lacking(command("run", people, *PRIVACY, *fine).out, "0 to 1,000,001.25")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--columns", "age", "--bounds", "0:120", "--quantiles", "0.5"), "conflicting-arguments"),
        (("--categories", "age", "--bins", "0,50,120", "--other", "--quantiles", "0.5"), "conflicting-arguments"),
        (("--categories", "age", "--bins", "0,50,120", "--quantiles", "50"), "out-of-range"),
        (("--categories", "age", "--bins", "0,50,120", "--quantiles", "median"), "out-of-range"),
    ],
)
def test_quantiles_are_refused(people: str, command: Command, arguments: tuple[str, ...], problem: str) -> None:
    assert not lacking(refusal_of(command, "run", people, *PRIVACY, *arguments), f"[{problem}]")


def test_variances_of_columns(people: str, command: Command) -> None:
    arguments = ("--columns", "age", "--bounds", "0:120", "--confidence", "0.99999999")
    done = command("run", people, "--variance", *PRIVACY, *arguments, "--json")
    document = done.estimate
    truth = np.loadtxt(people, delimiter=",", skiprows=1)[:, 0]
    for name, value in (("mean", truth.mean()), ("variance", truth.var()), ("standard_deviation", truth.std())):
        (lower,), (upper,) = document[f"{name}_interval"]
        assert lower <= value <= upper
    assert json.dumps(done.document["plan"]["domain"]["columns"]) == '["age", "age squared"]'
    text = command("run", people, "--variance", *PRIVACY, *arguments).out
    assert not lacking(text, "age", "variance", "6,000 users")
    (line,) = (line for line in text.splitlines() if line.strip().startswith("variance of age "))
    assert (line.count(" to "), line.count(" ± ")) == (1, 1)
    assert "99.999999 % interval" in text


def test_variances_go_into_files_pages_and_pictures(people: str, command: Command) -> None:
    asked = ("run", people, "--variance", *PRIVACY, "--bounds", "age=0:120", "--bounds", "income=0:500000", "--clip")
    done = command(*asked, "-o", "out.csv", "--report", "out.html", "--plot", "out.svg")
    assert done.code == 0, done.err
    with open("out.csv", newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    figures = ("mean", "variance", "standard deviation")
    assert list(rows) == [f"{figure} of {column}" for figure in figures for column in ("age", "income")]
    for name, row in rows.items():
        assert float(row["lower"]) <= float(row["value"]) <= float(row["upper"])
        assert float(row["std_error"]) > 0
        assert not lacking(Path("out.html").read_text(), name, "Private mean and variance of people.csv", "moved to")
    assert not lacking(Path("out.svg").read_text(), *rows)


def test_variance_refuses_values_out_of_bounds(people: str, command: Command) -> None:
    arguments = ("--columns", "age", "--bounds", "0:30")
    asked = ("run", people, "--variance", *PRIVACY)
    assert not lacking(refusal_of(command, *asked, *arguments), "[out-of-bounds]", "--clip")
    assert not lacking(refusal_of(command, *asked, "--confidence", "0"), "[out-of-range]")
    assert not lacking(refusal_of(command, *asked, "--top", "3"), "[conflicting-arguments]", "--top")
