"""`shufflesum plan`, `statement`, `audit` and `privacy` for labels, choices, groups and words."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.refusals import lacking

import shufflesum as ss
from shufflesum.statement import statement

if TYPE_CHECKING:
    from tests.cli.conftest import Command

TARGET = ("plan", "--users", "3000", "--epsilon", "1", "--delta", "1e-6")
SHAPES: dict[str, Any] = {
    "--labels yes,no,unsure --column answer": ss.Categories(["yes", "no", "unsure"], column="answer"),
    "--labels 7 --other": ss.Categories(7, other=True),
    "--bins 0,18,65": ss.Categories(bins=[0, 18, 65]),
    "--labels a,b,c --max-choices 2": ss.MultiChoice(["a", "b", "c"], max_choices=2),
    "--labels a,b --dimension 3": ss.GroupBy(["a", "b"], 3),
    "--labels a,b --shape 2,2 --column g": ss.GroupBy(["a", "b"], (2, 2), column="g"),
    "--labels a,b --columns x,y --column g": ss.GroupBy(["a", "b"], ss.Arrays(2, columns=["x", "y"]), column="g"),
}


@pytest.mark.parametrize("options", SHAPES)
def test_options_say_what_users_hold(command: Command, folder: Path, options: str) -> None:
    shown = command(*TARGET, *options.split(), "--json", "-o", "plan.json").document
    plan = ss.Plan.load(folder / "plan.json")
    assert plan.domain == SHAPES[options]
    assert shown["id"] == plan.id


def test_columns_are_names_of_numbers(command: Command) -> None:
    domain = command(*TARGET, "--columns", "x,y,z", "--json").document["domain"]
    assert (domain["kind"], domain["columns"]) == ("arrays", ["x", "y", "z"])


def test_words_leave_everything_to_the_planner_but_what_is_fixed(command: Command) -> None:
    free = command(*TARGET, "--open-vocabulary", "--json").document["domain"]
    fixed = command(*TARGET, "--open-vocabulary", "--width", 40, "--depth", 6, "--column", "w", "--json").document[
        "domain"
    ]
    assert free["width"] > 1
    assert (fixed["width"], fixed["depth"], fixed["column"]) == (40, 6, "w")
    assert free["key"] != fixed["key"]


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (
            "--labels yes,no,unsure",
            ["(yes, no, unsure)", "the label", "users in the count of each label", "dummy", "collusion"],
        ),
        (
            "--labels 100 --max-choices 3",
            ["up to 3 each", "and 80 more", "users in the count of each label"],
        ),
        (
            "--labels a,b --dimension 3",
            ["2 groups (a, b)", "in a group's mean of each number", "users in the size of each group"],
        ),
        (
            "--open-vocabulary",
            ["any word", "hash functions", "if the i-th most frequent", "users in the count of each word"],
        ),
    ],
)
def test_the_card_says_it_in_the_words_of_what_is_counted(command: Command, options: str, facts: list[str]) -> None:
    done = command(*TARGET, *options.split(), "--details")
    text = " ".join(done.out.split())
    assert lacking(text, *facts, "times that of a curator", "malicious") == []
    assert "the paper" not in text


def test_the_card_of_one_process_speaks_of_no_devices(command: Command) -> None:
    done = command(*TARGET, "--labels", "a,b", "--dimension", 3, "--noise-by", "curator", "--details")
    text = " ".join(done.out.split())
    assert "each sends nothing: one process holds all data and draws the noise" in text
    for word in ("shuffler", "collu", "sealed", "bytes", "sends what they like", "device"):
        assert word not in text


def test_the_errors_of_counts_are_those_of_the_plan(command: Command) -> None:
    plan = ss.plan(users=3000, domain=ss.Categories(3), epsilon=1.0, delta=1e-6)
    each = 3000 * (plan.expected_error.total / 3) ** 0.5
    assert f"± {math.ceil(1.96 * each)} users in the count" in command(*TARGET, "--labels", 3).out


@pytest.mark.parametrize(
    "options",
    ["--labels 5", "--labels 5 --max-choices 2", pytest.param("--labels 3 --dimension 2", marks=pytest.mark.slow)],
)
def test_a_target_error_finds_the_users_it_needs(command: Command, options: str) -> None:
    asked = ("plan", "--delta", "1e-6", "--epsilon", "1", *options.split(), "--json")
    found = command(*asked, "--target-error", "1e-4").document
    fewer = int(0.98 * found["guarantee"]["users"])
    assert found["expected_error"]["total"] <= 1e-4
    assert command(*asked, "--users", fewer).document["expected_error"]["total"] > 1e-4


def test_the_picture_counts_labels(command: Command, folder: Path) -> None:
    assert command(*TARGET, "--labels", "4", "--plot", "parts.svg").code == 0
    assert "4 labels" in (folder / "parts.svg").read_text()


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ("--labels a,b --open-vocabulary", "[conflicting-arguments] --labels"),
        ("--open-vocabulary --dimension 3", "[conflicting-arguments] --dimension"),
        ("--labels a,b --max-choices 1 --dimension 3", "[conflicting-arguments] --dimension"),
        ("--bins 0,1,2 --dimension 3", "[conflicting-arguments] --dimension"),
        ("--dimension 3 --column a", "[conflicting-arguments] --column"),
        ("--max-choices 2", "[missing-argument] --labels never"),
        ("--labels a,b --bounds 0:1", "[conflicting-arguments] bounds"),
        ("--labels a,b --levels 3", "[impossible-combination] levels"),
        ("--labels a,b --max-choices 3", "[out-of-range] --max-choices"),
        ("--labels a,b --mechanism randomized-response --max-choices 1", "[impossible-combination] MultiChoice"),
    ],
)
def test_what_cannot_be_planned_is_refused(command: Command, folder: Path, options: str, facts: str) -> None:
    done = command(*TARGET, *options.split(), "-o", "plan.json")
    assert (done.code, done.out) == (2, "")
    assert lacking(done.err, *facts.split()) == []
    assert list(folder.iterdir()) == []


# Statements


def test_statements_name_what_is_counted_and_its_labels() -> None:
    assert "3 labels (yes, no, unsure)" in ss.Categories(["yes", "no", "unsure"]).wording.collected()
    assert "from column 'answer'" in ss.Categories(3, column="answer").wording.collected()
    assert "bins (0 to 18, 18 to 65)" in ss.Categories(bins=[0, 18, 65]).wording.collected()
    assert "up to 2 each" in ss.MultiChoice(5, max_choices=2).wording.collected()
    many = ss.Categories(1000).wording.collected()
    assert "1,000 labels" in many
    assert "and 980 more" in many
    assert "999" not in many
    assert "arrays of 2 by 2 (4 numbers per user)" in ss.GroupBy(3, (2, 2)).wording.collected()


@pytest.mark.parametrize(
    ("domain", "facts"),
    [
        (
            ss.Categories(["yes", "no"]),
            ["hold each of 2 labels (yes, no)", "count of a label by 2 users", "Labels and plan"],
        ),
        (ss.MultiChoice(3, max_choices=2), ["up to 2 each", "count of a label by"]),
        (ss.GroupBy(["a", "b"], 2), ["in each of 2 groups (a, b)", "the mean of a group", "Groups, bounds and plan"]),
        (ss.OpenVocabulary(30, 4), ["any word", "4 hash functions with 30 buckets", "Hash functions and plan"]),
    ],
    ids=["categories", "choices", "groups", "words"],
)
def test_statements_fit_what_is_collected(domain: Any, facts: list[str]) -> None:
    plan = ss.plan(users=1000, domain=domain, epsilon=1.0, delta=1e-6)
    text = " ".join(statement(plan).split())
    assert lacking(text, *facts, "one user, that is one row of data", "No protection is left") == []
    assert "2 numbers per user" in text or not isinstance(domain, ss.GroupBy)


# Audit and privacy of a plan


@pytest.mark.parametrize(
    "domain",
    [
        pytest.param(ss.Categories(3), marks=pytest.mark.slow),
        ss.MultiChoice(3, max_choices=2),
        pytest.param(ss.GroupBy(2, 2), marks=pytest.mark.slow),
        pytest.param(ss.OpenVocabulary(20, 3), marks=pytest.mark.slow),
    ],
    ids=["categories", "choices", "groups", "words"],
)
def test_every_plan_can_be_audited_and_accounted(command: Command, folder: Path, domain: Any) -> None:
    plan = ss.plan(users=500, domain=domain, epsilon=1.0, delta=1e-4)
    (folder / "plan.json").write_text(plan.to_json())
    found = command(
        "audit", "--plan", "plan.json", "--seconds", 2, "--trials", 20, "--samples", 20000, "--json"
    ).document
    assert found["passed"] is True
    assert 0 < found["epsilon_lower"] <= found["epsilon_upper"] <= 1.0
    answer = command("privacy", "--plan", "plan.json", "--epsilon", 1, "--json").document
    assert 0 < answer["delta_lower"] <= answer["delta_upper"] <= 1e-4
