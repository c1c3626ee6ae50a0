"""A survey from files: planned, run, kept, and asked afterwards; and words of which counts are asked again."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from tests.refusals import lacking

import shufflesum as ss

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Refused

PRIVACY = ("--epsilon", "1", "--delta", "1e-6")
USERS = 3000
SURVEY = """
marginals = "up to two-way"

[questions.country]
labels = ["DE", "FR", "IT, or none"]

[questions.age]
bins = [0, 18, 65, 120]
optional = true

[questions.income]
bounds = [0, 1000]

[questions.hobbies]
labels = ["chess", "golf"]
multiple = true
"""


@pytest.fixture
def people(folder: Path) -> dict[str, Any]:
    random = np.random.default_rng(5)
    chess, golf = random.random(USERS) < 0.5, random.random(USERS) < 0.2
    found: dict[str, Any] = {
        "who": np.arange(USERS),
        "hobbies": [";".join(n for n, h in (("chess", a), ("golf", b)) if h) for a, b in zip(chess, golf, strict=True)],
        "country": random.choice(["DE", "FR", "IT, or none"], USERS, p=[0.5, 0.3, 0.2]),
        "age": np.where(random.random(USERS) < 0.2, np.nan, random.integers(0, 100, USERS)),
        "income": random.uniform(0, 900, USERS).round(2),
    }
    pd.DataFrame(found).to_csv(folder / "answers.csv", index=False)
    pd.DataFrame(found).to_parquet(folder / "answers.parquet")
    (folder / "survey.toml").write_text(SURVEY)
    return found | {"chess": chess}


@pytest.mark.parametrize("file", ["answers.csv", "answers.parquet"])
def test_a_survey_is_run_kept_and_asked(command: Command, people: dict[str, Any], folder: Path, file: str) -> None:
    run = ("run", file, "--survey", "survey.toml", *PRIVACY)
    said = command(*run, "--keep", "estimate.json", "--json").document
    assert said["plan"]["domain"]["kind"] == "survey"
    kept: Any = ss.BaseEstimate.load(folder / "estimate.json")
    true = int((people["chess"] & (people["country"] == "DE")).sum())
    count = kept.count(country="DE", hobbies="chess")
    assert abs(count.value - true) < 8 * count.standard_error < 400
    crossed = command("ask", "estimate.json", "--rows", "age", "--columns", "country", "-o", "t.csv", "--plot", "t.svg")
    assert not lacking(crossed.out, "no answer", "0 to 18", "DE", "IT, or none", "±", "wrote t.csv")
    with (folder / "t.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 12
    assert {row["country"] for row in rows} == {"DE", "FR", "IT, or none"}
    found = float(next(row["value"] for row in rows if (row["age"], row["country"]) == ("0 to 18", "FR")))
    assert found == pytest.approx(kept["age", "country"].at("0 to 18", "FR").value)
    assert "<svg" in (folder / "t.svg").read_text()
    one = command("ask", "estimate.json", "--rows", "age", "--where", "country=IT, or none", "--json").estimate
    assert one["value"] == pytest.approx(kept.where(country="IT, or none")["age"].counts.tolist())
    several = command("ask", "estimate.json", "--rows", "age", "--where", "country=DE,FR", "--json").estimate
    assert several["value"] == pytest.approx(kept.where(country=["DE", "FR"])["age"].counts.tolist())
    means = command("ask", "estimate.json", "--rows", "country", "--mean", "income")
    assert not lacking(means.out, "mean", "DE", "Mean of income by country")
    shares = command("ask", "estimate.json", "--rows", "country", "--columns", "age", "--shares", "--json").estimate
    assert sum(shares["value"]) == pytest.approx(3)


def test_incomplete_rows_are_left_out_and_a_plan_for_servers_is_made(command: Command, people: object) -> None:
    table = pd.read_csv("answers.csv")
    table.loc[:9, "country"] = ""
    table.to_csv("gaps.csv", index=False)
    run = ("run", "gaps.csv", "--survey", "survey.toml", *PRIVACY)
    assert f"{USERS - 10:,} users" in command(*run, "--missing", "drop").out
    plan = ("plan", "--users", "5000", "--survey", "survey.toml", *PRIVACY, "--noise-by", "servers", "--details")
    said = command(*plan).out
    assert not lacking(said, "each pair of answers", "mean of income", "one report of each user in", "country")


REFUSED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "columns alone": (("ask", "e.json", "--columns", "age"), ("missing-argument", "--rows")),
    "no such question": (("ask", "e.json", "--rows", "colour"), ("unknown-choice", "colour")),
    "no such answer": (("ask", "e.json", "--rows", "age", "--where", "country=ES"), ("unknown-choice", "ES")),
    "half a condition": (("ask", "e.json", "--rows", "age", "--where", "country"), ("wrong-type", "--where")),
    "a mean in columns": (
        ("ask", "e.json", "--rows", "age", "--columns", "country", "--mean", "income"),
        ("conflicting-arguments", "--mean"),
    ),
    "shares of one question": (("ask", "e.json", "--rows", "age", "--shares"), ("conflicting-arguments", "--shares")),
    "words": (("ask", "e.json", "--candidates", "words.txt"), ("conflicting-arguments", "--candidates")),
    "the kept file replaced": (("ask", "e.json", "-o", "e.json"), ("conflicting-arguments", "e.json")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_asked_is_refused(command: Command, folder: Path, case: str) -> None:
    arguments, facts = REFUSED[case]
    survey = ss.Survey(
        {"country": ["DE", "FR"], "age": ["young", "old"], "income": ss.Question(bounds=(0, 1))}, marginals="one-way"
    )
    rows = {"country": ["DE"] * 500, "age": ["old"] * 500, "income": [0.5] * 500}
    ss.aggregate(rows, domain=survey, epsilon=4, delta=1e-6).save(folder / "e.json")
    (folder / "words.txt").write_text("yes\n")
    done = command(*arguments)
    assert (done.code, done.out) == (2, "")
    assert not lacking(done.err, *facts)


def test_a_file_without_a_questions_column_is_refused(refused: Refused, people: object) -> None:
    table = pd.read_csv("answers.csv").drop(columns="age")
    table.to_csv("less.csv", index=False)
    table.to_parquet("less.parquet")
    for file in ("less.csv", "less.parquet"):
        assert not lacking(refused(file, "--survey", "survey.toml", *PRIVACY), "unknown-column", "'age'")


def test_counts_of_other_words_are_asked_of_a_kept_estimate(command: Command, folder: Path) -> None:
    words = ["red"] * 600 + ["blue"] * 300 + ["green"] * 100
    found: Any = ss.aggregate(words, domain=ss.OpenVocabulary(200, 3), epsilon=4, delta=1e-6)
    found.counts_of(["red"]).save(folder / "words.json")
    (folder / "words.txt").write_text("blue\ngreen\nred\n")
    asked = command("ask", "words.json", "--candidates", "words.txt", "--top", "2", "--json").document
    assert [row["label"] for row in asked["top"]] == ["red", "blue"]
    assert "red" in command("ask", "words.json").out
    assert "is for surveys" in command("ask", "words.json", "--rows", "age").err
