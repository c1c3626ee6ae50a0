"""`shufflesum run FILE --discover COLUMN`: labels that nobody listed, out of a file, for people and programs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.refusals import lacking

import shufflesum as ss

if TYPE_CHECKING:
    from tests.cli.conftest import Command

PRIVACY = ("--epsilon", "1", "--delta", "1e-6")


def refusal_of(command: Command, *arguments: str) -> str:
    done = command(*arguments)
    assert done.code == 2
    assert done.out == ""
    return done.err


@pytest.fixture
def visits(folder: Path) -> str:
    """A page each, in two spellings, and lists of topics."""
    rows = [("/Home", "news;sport"), ("/home", "news"), (" /home", ""), ("/help", "own topic")] * 150
    rows += [(f"/own/{i}", f"{i};{i};news") for i in range(100)]
    with (folder / "visits.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("page", "topics"), *rows])
    return "visits.csv"


def test_labels_are_found_and_shown_with_the_rest(visits: str, command: Command) -> None:
    done = command("run", visits, "--discover", "page", *PRIVACY)
    assert done.code == 0
    assert not lacking(done.out, "700 users", "epsilon 1.0, delta 1e-6", "/home", "/Home", "/help", "not listed")
    assert not lacking(done.out, "A label is listed where its count with noise is at least 30")
    assert "/own/" not in done.out
    assert "second release" in done.err


def test_capitals_and_forms_are_options(visits: str, command: Command) -> None:
    done = command("run", visits, "--discover", "page", "--ignore-case", "--normalization", "NFKC", *PRIVACY, "--json")
    found = json.loads(done.out)
    assert found["plan"]["domain"] == {
        "kind": "discover",
        "max_items": None,
        "ignore_case": True,
        "normalization": "NFKC",
        "column": "page",
    }
    assert found["estimate"]["labels"] == ["/home", "/help"]
    assert found["estimate"]["threshold"] == 30


def test_lists_of_labels_are_cut_to_those_that_count(visits: str, command: Command) -> None:
    done = command("run", visits, "--discover", "topics", "--max-items", "2", *PRIVACY, "--json", "--top", "1")
    found = json.loads(done.out)
    assert set(found["estimate"]["labels"]) == {"news", "sport", "own topic"}
    assert [row["label"] for row in found["top"]] == ["news"]
    assert found["estimate"]["max_items"] == 2
    assert "at most 2 labels count" in command("run", visits, "--discover", "topics", "--max-items", "2", *PRIVACY).out


@pytest.mark.parametrize("output", ["out.json", "out.csv", "out.parquet", "out.npz"])
def test_every_kind_of_file_is_written(visits: str, command: Command, output: str) -> None:
    done = command("run", visits, "--discover", "page", *PRIVACY, "-o", output)
    assert f"wrote {output}" in done.out
    assert Path(output).stat().st_size > 100


def test_files_where_nothing_is_found_are_written_as_well(folder: Path, command: Command) -> None:
    (folder / "few.csv").write_text("page\na\nb\nc\n", encoding="utf-8")
    done = command(
        "run", "few.csv", "--discover", "page", *PRIVACY, "--plot", "a.svg", "--report", "a.html", "--top", "3"
    )
    assert done.code == 0
    assert "No label is listed" in done.out
    assert "nothing is listed" in Path("a.svg").read_text(encoding="utf-8")
    assert "Private label counts" in Path("a.html").read_text(encoding="utf-8")


def test_a_report_shows_found_labels_as_text(folder: Path, command: Command) -> None:
    (folder / "odd.csv").write_text("page\n" + "<script>alert(1)</script>\n" * 200, encoding="utf-8")
    command("run", "odd.csv", "--discover", "page", *PRIVACY, "--report", "odd.html")
    text = Path("odd.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)" in text
    assert "<script" not in text


def test_a_plan_made_before_is_followed_and_counted(visits: str, command: Command) -> None:
    made = command(
        "plan", "--discover", "--users", "700", *PRIVACY, "--noise-by", "curator", "--rounds", "2", "-o", "p.json"
    )
    assert not lacking(made.out, "not listed", "with probability 90 %" if "--verbose" in made.out else "count of each")
    assert isinstance(ss.Plan.load("p.json").domain, ss.UnlistedLabels)
    run = ("run", visits, "--discover", "page", "--plan", "p.json", "--rounds-file", "rounds.db", "--json")
    rounds = [json.loads(command(*run).out)["estimate"]["round"] for _ in range(2)]
    assert rounds == [1, 2]
    assert "[rounds-spent]" in refusal_of(command, *run)
    other = ("run", visits, "--discover", "page", "--plan", "p.json", "--ignore-case")
    assert "[conflicting-arguments]" in refusal_of(command, *other)


def test_the_budget_is_charged_once_it_is_clear_that_the_file_can_be_read(visits: str, command: Command) -> None:
    command("budget", "create", "spent.db", "--epsilon", "5", "--delta", "1e-4")
    Path("bad.csv").write_text("page,n\na,1\n,2\n", encoding="utf-8")
    said = refusal_of(command, "run", "bad.csv", "--discover", "page", *PRIVACY, "--budget", "spent.db")
    assert not lacking(said, "[missing-value]", "line 3")
    assert "0 % spent" in command("budget", "show", "spent.db").out
    assert command("run", visits, "--discover", "page", *PRIVACY, "--budget", "spent.db").code == 0
    assert "0 % spent" not in command("budget", "show", "spent.db").out
    done = command("run", "bad.csv", "--discover", "page", *PRIVACY, "--missing", "drop")
    assert "1 of 2 rows were left out" in done.out


def test_options_that_do_not_go_together_are_refused(visits: str, command: Command) -> None:
    for arguments, problem in {
        ("--discover", "page", "--categories", "page"): "conflicting-arguments",
        ("--discover", "page", "--labels", "a,b"): "conflicting-arguments",
        ("--discover", "page", "--variance"): "conflicting-arguments",
        ("--discover", "page", "--quantiles", "0.5"): "conflicting-arguments",
        ("--discover", "page", "--max-items", "0"): "out-of-range",
        ("--discover", "page", "--normalization", "NFD"): "unknown-choice",
        ("--discover", "page", "--mechanism", "noisy-counts"): "impossible-combination",
        ("--discover", "page", "--bounds", "0:1"): "conflicting-arguments",
        ("--discover", "page", "--clip"): "impossible-combination",
        ("--discover", "page", "--missing", "midpoint"): "impossible-combination",
        ("--discover", "nowhere"): "unknown-column",
    }.items():
        assert f"[{problem}]" in refusal_of(command, "run", visits, *arguments, *PRIVACY), arguments
    said = refusal_of(command, "plan", "--discover", "--users", "700", *PRIVACY)
    assert not lacking(said, "[impossible-combination]", "--noise-by", "curator")
