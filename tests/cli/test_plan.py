"""`shufflesum plan`, `privacy` and `statement`."""

from __future__ import annotations

import importlib
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pytest
from tests.plan_builders import held, with_guarantee
from tests.refusals import lacking

import shufflesum as ss
from shufflesum._format import upwards
from shufflesum.cli.commands import in_options
from shufflesum.errors import PlanError
from shufflesum.mechanisms import NoisyCounts
from shufflesum.planning import PlanOptions
from shufflesum.statement import statement

if TYPE_CHECKING:
    from tests.cli.conftest import Command

TARGET = ("--users", "5000", "--dimension", "8", "--epsilon", "1", "--delta", "1e-6")


def test_json_is_a_plan_that_loads(command: Command, folder: Path) -> None:
    shown = command("plan", *TARGET, "--json", "-o", "plan.json").document
    assert ss.Plan.load(folder / "plan.json").id == shown["id"]
    assert (shown["guarantee"]["users"], shown["guarantee"]["epsilon"], shown["guarantee"]["delta"]) == (
        5000,
        1.0,
        1e-6,
    )
    assert (shown["mechanism"]["kind"], shown["guarantee"]["accountant"]) == ("noisy-counts", "exact")
    assert shown["local_epsilon"] is None
    digits = shown["mechanism"]["digits"]
    assert (shown["dimension"], shown["cells"]) == (8, 8 * digits)
    assert shown["reports"] == 8 * digits + shown["mechanism"]["cap"]
    assert set(shown["expected_error"]) == {"sampling", "rounding", "noise", "total"}
    parts = shown["expected_error"]
    assert parts["total"] == pytest.approx(parts["sampling"] + parts["rounding"] + parts["noise"])
    assert shown["bytes_per_user"] == {"raw": 4 * shown["reports"], "sealed": 52 * shown["reports"]}
    paper = command("plan", *TARGET, "--mechanism", "randomized-response", "--json").document
    assert paper["local_epsilon"] > paper["guarantee"]["epsilon"]
    assert (paper["reports"], paper["cells"]) == (
        paper["mechanism"]["coordinates"],
        8 * (paper["mechanism"]["levels"] + 1),
    )


def test_columns_in_other_units_are_compared_in_widths_of_their_bounds(command: Command) -> None:
    """Else dollars would stand for all, and the curator would be one who gives the years up."""
    target = ("plan", "--users", "5000", "--epsilon", "1", "--delta", "1e-6", "--details")
    bounds = {"age": (0, 120), "income": (0, 500_000)}
    mixed = " ".join(command(*target, "--bounds", "age=0:120", "--bounds", "income=0:500000").out.split())
    alike = " ".join(command(*target, "--dimension", "2").out.split())
    times = [re.search(r"([\d.]+) times that of a curator", card) for card in (mixed, alike)]
    assert times[0]
    assert times[1]
    assert times[0][1] == times[1][1]
    plan = ss.plan(users=5_000, domain=ss.Arrays(2, bounds, list(bounds)), epsilon=1.0, delta=1e-6)
    assert upwards(plan.times_curator) == times[0][1]
    errors = re.search(r"± ([\d.,]+) in the mean of age ± ([\d.,]+) in the mean of income", mixed)
    assert errors
    years, dollars = (float(error.replace(",", "")) for error in errors.groups())
    assert dollars / years == pytest.approx(500_000 / 120, rel=0.05)


def test_the_card_says_what_matters(command: Command) -> None:
    short = command("plan", *TARGET).out
    labels = [line[2:14].strip() for line in short.splitlines()[1:] if line[2] != " "]
    assert labels == ["error", "users", "guarantee", "each sends"]
    card = command("plan", *TARGET, "--details").out
    assert card.startswith(short)
    for words in (
        "± ",
        "the paper",
        "blank",
        "sealed",
        "curator",
        "1 % of the users (50)",
        "if shuffler and analyzer collude: no protection",
    ):
        assert words in " ".join(card.split())
    paper = " ".join(command("plan", *TARGET, "--mechanism", "randomized-response", "--details").out.split())
    for words in (
        "mechanism noisy-counts.",
        "Take randomized-response where a device may send only few reports",
    ):
        assert words in " ".join(card.split())
    assert "mechanism randomized-response. Take noisy-counts for accuracy close to a trusted curator's." in paper
    assert "blank" not in paper
    assert "curator" in paper
    assert "1 % of the users (50)" in paper
    alone = command("plan", *TARGET, "--noise-by", "curator").out
    assert "each sends   nothing" in alone


def test_fixed_choices_and_caps_are_respected(command: Command) -> None:
    fixed = command("plan", *TARGET, "--levels", "2", "--coordinates", "4", "--json").document["mechanism"]
    assert (fixed["levels"], fixed["coordinates"]) == (2, 4)
    assert command("plan", *TARGET, "--max-reports", "2", "--json").document["reports"] <= 2
    paper = command(
        *("plan", "--users", "50000", "--dimension", "100", "--epsilon", "0.95", "--delta", "0.5"),
        *("--accountant", "paper", "--levels", "3", "--json"),
    ).document["mechanism"]
    assert paper["noise_probability"] == pytest.approx(0.17053, abs=5e-6)


@pytest.mark.parametrize("name", ["plan", "run"])
def test_whatever_the_library_lets_one_choose_is_an_option(name: str) -> None:
    module = importlib.import_module(f"shufflesum.cli.{name}")
    # `run` is one process
    assert {
        parameter.name for parameter in getattr(module, f"{name}_command").params
    } >= PlanOptions.__optional_keys__ - {"noise_by"}


def test_rounds_and_malicious_users_cost_noise(command: Command) -> None:
    def noise(*extra: str) -> float:
        shown = command("plan", *TARGET, "--levels", "2", "--coordinates", "8", *extra, "--json").document
        return float(shown["mechanism"]["noise_probability"])

    assert noise("--rounds", "4") > noise() < noise("--honest-fraction", "0.5")


def test_bounds_scale_the_error(command: Command) -> None:
    unit = command("plan", *TARGET, "--json").document["expected_error"]["total"]
    wide = command("plan", *TARGET, "--bounds", "-1:1", "--json").document["expected_error"]["total"]
    assert wide == pytest.approx(4 * unit)


@pytest.mark.parametrize("left_out", ["--users", "--epsilon"])
def test_a_target_error_finds_the_smallest_of_what_is_left_out(command: Command, left_out: str) -> None:
    pairs = {"--users": "5000", "--epsilon": "1"}
    given = [word for name, value in pairs.items() if name != left_out for word in (name, value)]
    target = 2e-4
    shown = command(
        "plan", *given, "--dimension", "3", "--delta", "1e-6", "--target-error", target, "--levels", "1", "--json"
    ).document
    assert shown["expected_error"]["total"] <= target
    name, found = left_out[2:], shown["guarantee"]
    smaller = {"users": found["users"], "epsilon": found["epsilon"]} | {name: found[name] * 0.99}
    worse = ss.plan(
        users=math.floor(smaller["users"]),
        shape=3,
        epsilon=smaller["epsilon"],
        delta=1e-6,
        mechanism=ss.RandomizedResponse.Options(levels=1),
    ).expected_error.total
    assert worse > target


def test_a_margin_is_given_by_column_or_for_all(command: Command) -> None:
    asked = ("plan", "--users", "3000", "--delta", "1e-6", "--digits", "3", "--json", "--bounds")
    named = command(*asked, "age=0:120", "--margin", "age=2").document
    one = command(*asked, "0:120", "--dimension", "1", "--margin", "2").document
    assert named["guarantee"] == one["guarantee"]
    assert one["expected_error"]["total"] <= 4


def test_a_plan_for_matrices_runs_on_a_file_of_matrices(command: Command, folder: Path) -> None:
    np.save(folder / "matrices.npy", np.full((600, 2, 3), 0.5))
    made = command(
        "plan", "--users", 600, "--shape", "2,3", "--epsilon", 1, "--delta", 1e-6, "-o", "plan.json", "--json"
    )
    assert made.document["domain"]["structure"] == {"kind": "dense", "shape": [2, 3]}
    assert np.shape(command("run", "matrices.npy", "--plan", "plan.json", "--json").estimate["mean"]) == (2, 3)


def test_a_delta_that_lays_somebody_open_is_called_so(command: Command) -> None:
    small = command("plan", "--users", "1000", "--dimension", "2", "--epsilon", "1", "--delta", "0.0009")
    large = command("plan", "--users", "1000", "--dimension", "2", "--epsilon", "1", "--delta", "0.001")
    assert "may be revealed" not in small.out
    assert "delta 0.001 is 1/users (0.001) or more, so that somebody's data may be revealed" in " ".join(
        large.out.split()
    )
    plan = ss.plan(users=1000, shape=2, epsilon=1.0, delta=0.001)
    assert "no less than one in 1,000 users" in statement(plan)
    assert "may be revealed" not in statement(ss.plan(users=1000, shape=2, epsilon=1.0, delta=1e-6))


def test_a_statement_of_one_process_names_no_shuffler_that_would_be_trusted() -> None:
    asked: dict[str, Any] = {
        "users": 500,
        "shape": 3,
        "epsilon": 2.0,
        "delta": 1e-6,
        "mechanism": ss.NoisyCounts.Options(digits=2),
    }
    sent, alone = statement(ss.plan(**asked)), statement(ss.plan(**asked, noise_by="curator"))
    for words in ("**The shuffler**", "**The analyzer**", "The shuffler mixes"):
        assert words in sent
        assert words not in alone
    assert "hands on nothing but its results" in alone


def test_the_picture_is_drawn(command: Command, folder: Path) -> None:
    assert command("plan", *TARGET, "--plot", "parts.svg").code == 0
    text = (folder / "parts.svg").read_text()
    assert all(word in text for word in ("sampling", "rounding", "noise", "Reports each user sends"))


def test_a_hopeless_plan_is_called_so(command: Command) -> None:
    done = command("plan", "--users", "2", "--dimension", "5", "--epsilon", "0.1", "--delta", "1e-6")
    assert done.code == 0
    assert "worse than guessing the middle of the bounds" in done.err
    assert "guessing the middle" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--dimension", "3", "--delta", "1e-6"), ("[missing-argument]", "--users", "--epsilon")),
        (("--dimension", "3", "--delta", "1e-6", "--margin", "a"), ("[wrong-type]", "NAME=X")),
        (("--delta", "1e-6", "--margin", "a=1", "--margin", "a=2"), ("[wrong-type]", "NAME=X")),
        (("--delta", "1e-6", "--margin", "a=1", "--margin", "2"), ("[wrong-type]", "NAME=X")),
        ((*TARGET, "--target-error", "0.1"), ("[conflicting-arguments]", "users", "epsilon")),
        (
            ("--users", "10", "--dimension", "3", "--delta", "1e-6", "--target-error", "1e-30"),
            ("[error-out-of-reach]", "1e-30"),
        ),
        (
            ("--users", "10", "--dimension", "3", "--delta", "1e-6", "--target-error", "1", "--accountant", "paper"),
            ("[impossible-combination]", "--accountant paper"),
        ),
        ((*TARGET, "--shape", "2,2"), ("[conflicting-arguments]", "--dimension", "--shape")),
        (("--users", "10", "--epsilon", "1", "--delta", "1e-6"), ("[conflicting-arguments]", "--dimension", "--shape")),
        (
            ("--users", "10", "--shape", "2x2", "--epsilon", "1", "--delta", "1e-6"),
            ("[wrong-type]", "--shape is '2x2'"),
        ),
        ((*TARGET, "--levels", "0"), ("[out-of-range]", "levels is 0")),
        ((*TARGET, "--coordinates", "9"), ("[out-of-range]", "coordinates is 9")),
        (
            (*TARGET, "--coordinates", "3", "--max-reports", "2"),
            ("[conflicting-arguments]", "coordinates is 3", "--max-reports = 2"),
        ),
        ((*TARGET, "--bounds", "1:1"), ("[bad-bounds]", "bounds")),
        ((*TARGET, "--rounds", "0"), ("[out-of-range]", "rounds is 0")),
        ((*TARGET, "--honest-fraction", "2"), ("[out-of-range]", "--honest-fraction is 2")),
        ((*TARGET, "-o", "plan.txt"), ("[unknown-file-type]", "plan.txt", ".json")),
        ((*TARGET, "--accountant", "paper"), ("[privacy-out-of-reach]", "users")),
    ],
)
def test_bad_input_is_refused_by_name(
    command: Command, folder: Path, arguments: tuple[str, ...], said: tuple[str, ...]
) -> None:
    done = command("plan", *arguments)
    assert done.code == 2
    assert lacking(done.err, *said) == []
    assert list(folder.iterdir()) == []


def test_privacy_bounds_delta_and_epsilon_from_both_sides(command: Command) -> None:
    protocol = ("privacy", "--users", "50000", "--levels", "3", "--noise-probability", "0.004")
    delta = command(*protocol, "--epsilon", "0.95", "--json").document
    assert set(delta) == {"epsilon", "delta_upper", "delta_lower"}
    assert 0 < delta["delta_lower"] <= delta["delta_upper"] < 1e-6
    epsilon = command(*protocol, "--delta", "1e-6", "--json").document
    assert set(epsilon) == {"delta", "epsilon_upper", "epsilon_lower"}
    assert 0 < epsilon["epsilon_lower"] <= epsilon["epsilon_upper"] < 0.95
    shown = command(*protocol, "--delta", "1e-6").out
    figure = re.search(r"at most ([\d.]+)", shown)
    assert figure is not None
    assert float(figure[1]) >= epsilon["epsilon_upper"]


def test_privacy_of_several_coordinates_rounds_and_schemes(command: Command) -> None:
    protocol = (
        "privacy",
        "--users",
        "20000",
        "--levels",
        "1",
        "--noise-probability",
        "0.3",
        "--delta",
        "1e-6",
        "--json",
    )
    one = command(*protocol).document["epsilon_upper"]
    many = command(*protocol, "--coordinates", "4", "--rounds", "2").document["epsilon_upper"]
    known = command(*protocol, "--coordinates", "4", "--rounds", "2", "--dimension", "4").document["epsilon_upper"]
    uniform = command(*protocol, "--coordinates", "2", "--dimension", "4", "--sampling", "uniform").document
    assert one < known < many
    assert uniform["epsilon_upper"] > one
    assert 0 < uniform["epsilon_lower"] < uniform["epsilon_upper"]


def test_privacy_of_a_plan_and_of_noise_as_further_reports(command: Command, folder: Path) -> None:
    plan = ss.plan(users=5000, shape=8, epsilon=1.0, delta=1e-6, mechanism=ss.NoisyCounts.Options(digits=2))
    (folder / "plan.json").write_text(plan.to_json())
    assert isinstance(plan.mechanism, NoisyCounts)
    numbers = {"trials": plan.mechanism.trials, "probabilities": plan.mechanism.probabilities}
    given = [word for name, values in numbers.items() for word in (f"--{name}", ",".join(map(repr, values)))]
    protocol = ("--users", "5000", "--dimension", "8", *given, "--cap", str(plan.mechanism.cap))
    whole = command("privacy", "--plan", "plan.json", "--epsilon", "1", "--json").document
    assert whole == command("privacy", *protocol, "--epsilon", "1", "--json").document
    assert 0 < whole["delta_lower"] < whole["delta_upper"] <= 1e-6
    assert "without the shuffler: none" in command("privacy", "--plan", "plan.json", "--delta", "1e-6").out
    for arguments, problem in (
        (("--plan", "plan.json", "--users", "5"), "[conflicting-arguments]"),
        (("--users", "5", "--trials", "3", "--dimension", "2"), "[missing-argument]"),
        (("--users", "5", "--trials", "x", "--probabilities", "0.1", "--dimension", "2"), "[wrong-type]"),
        (
            (
                "--levels",
                "3",
            ),
            "[missing-argument]",
        ),
    ):
        done = command("privacy", *arguments, "--epsilon", "1")
        assert done.code == 2
        assert problem in done.err


@pytest.mark.parametrize("extra", [(), ("--epsilon", "1", "--delta", "1e-6")])
def test_privacy_asks_for_exactly_one(command: Command, extra: tuple[str, ...]) -> None:
    done = command("privacy", "--users", "100", "--levels", "1", "--noise-probability", "0.5", *extra)
    assert done.code == 2
    assert lacking(done.err, "[conflicting-arguments]", "--epsilon", "--delta") == []


def test_the_statement_is_one_page_without_rounding_in_our_favour(command: Command, folder: Path) -> None:
    plan = ss.plan(
        users=5000,
        shape=8,
        epsilon=0.777777,
        delta=1.23456e-7,
        rounds=3,
        honest_fraction=0.9,
        mechanism=ss.RandomizedResponse.Options(levels=2),
    )
    (folder / "plan.json").write_text(plan.to_json())
    page = command("statement", "plan.json").out
    assert "**0.778**, **1.24e-7**" in page
    for words in ("Who sees what", "one user, that is one row", "up to 3 rounds", "4,500 users", "collude"):
        assert words in page
    assert plan.local_epsilon is not None
    assert upwards(plan.local_epsilon) in page
    assert f"moves a mean by {upwards(plan.max_shift(1))}" in page
    assert len(page.splitlines()) < 60
    assert command("statement", "plan.json", "-o", "page.md").code == 0
    assert (folder / "page.md").read_text().strip() == page.strip()


def test_a_plan_made_by_hand_gets_no_statement_it_does_not_keep() -> None:
    plan = ss.plan(users=5000, shape=8, epsilon=1.0, delta=1e-6)
    with pytest.raises(PlanError):
        statement(with_guarantee(plan, users=50, rounds=100))


def test_a_large_epsilon_is_stated_as_it_is() -> None:
    plan = with_guarantee(ss.plan(users=50, shape=2, epsilon=10.0, delta=1e-6), epsilon=800.0)
    assert "more than a factor of\ne^800, plus" in statement(plan)


def test_files_may_have_any_name(command: Command, folder: Path) -> None:
    (folder / "a[").mkdir()
    done = command("plan", "--users", 500, "--dimension", 2, "--epsilon", 1, "--delta", 1e-6, "-o", "a[/b].json")
    assert (done.code, done.out.splitlines()[-1]) == (0, "wrote a[/b].json")
    assert (folder / "a[" / "b].json").exists()


def test_a_false_claim_gets_no_statement(command: Command, folder: Path) -> None:
    document = json.loads(ss.plan(users=5000, shape=8, epsilon=1.0, delta=1e-6).to_json())
    document["guarantee"]["delta"] = 1e-9
    (folder / "plan.json").write_text(json.dumps(document))
    done = command("statement", "plan.json")
    assert done.code == 2
    assert lacking(done.err, "[changed-afterwards]", "plan.json") == []


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        (["--trials", "2.7", "--probabilities", "0.1"], "wrong-type"),
        (["--trials", "nan", "--probabilities", "0.1"], "wrong-type"),
        (["--trials", "2", "--probabilities", "inf"], "wrong-type"),
        (["--trials", "2", "--probabilities", "few"], "wrong-type"),
        (["--trials", "2,1", "--probabilities", "0.1"], "conflicting-arguments"),
        (["--trials", "2", "--probabilities", "0.1", "--levels", "3"], "conflicting-arguments"),
        (["--trials", "2", "--probabilities", "1"], "out-of-range"),
        (["--trials", "2"], "missing-argument"),
    ],
)
def test_privacy_refuses_what_is_no_noise_by_name(command: Command, numbers: list[str], problem: str) -> None:
    given = ["privacy", "--users", "500", "--dimension", "2", "--delta", "1e-6"]
    assert "without the shuffler: none" in command(*given, "--trials", "8", "--probabilities", "0.1").out
    refused = command(*given, *numbers)
    assert refused.code != 0
    assert f"[{problem}]" in refused.err


def test_the_statement_names_bounds_and_columns_and_says_what_it_leaves_out() -> None:
    def said(shape: Any, **choices: Any) -> str:
        return " ".join(statement(ss.plan(users=2000, **held(shape), epsilon=1.0, delta=1e-6, **choices)).split())

    assert "Every number lies between -1.25 and 1e+17." in said(
        3, bounds=(-1.25, 1e17), mechanism=ss.NoisyCounts.Options(digits=4)
    )
    named = said(2, bounds=([0, 0], [120, 500_000.1]), columns=["age", "income"])
    assert "Bounds of each number: age: 0 to 120; income: 0 to 500,000.1." in named
    assert "Every number lies between 0 and 1, in 2 columns (age, income)." in said(2, columns=["age", "income"])
    many = said(30, bounds=(np.zeros(30), np.arange(1, 31)))
    assert "coordinate 0: 0 to 1; coordinate 1: 0 to 2;" in many
    assert "coordinate 19: 0 to 20 and 10 more." in many
    assert "coordinate 20" not in many
    long = said(2, columns=["a" * 100, "b"])
    assert f"({'a' * 60}... (100 characters), b)" in long
    assert "Every coefficient of the span lies between 0 and 1." in said(ss.Span(np.eye(3)))
    groups = said(ss.GroupBy(["x", "y"], 1), bounds=(0, 9))
    assert "2 groups (x, y)" in groups
    assert "Every number lies between 0 and 9." in groups
    assert "and 5 more)" in said(ss.Categories(25))


def test_the_card_compares_no_guarantee_of_several_rounds_with_one_of_one(command: Command) -> None:
    one, more = (" ".join(command("plan", *TARGET, "--rounds", rounds, "--details").out.split()) for rounds in (1, 2))
    assert "times our squared error" in one
    assert "times our squared error" not in more
    assert "the paper its formulas are for one round" in more
    assert "times that of a curator whom everybody trusts" in more  # whose noise covers all rounds as well


def test_a_margin_is_plus_or_minus_at_95_percent_and_alone_gives_epsilon_by_users(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shufflesum.cli.plan._USERS", (10, 100, 1_000, 3_000, 10_000))  # a million take much longer
    asked = ("plan", "--labels", "yes,no", "--delta", "1e-6", "--margin", "0.02")
    one = command(*asked, "--users", "10000", "--json").document
    assert 1.96 * (one["expected_error"]["total"] / 2) ** 0.5 == pytest.approx(0.02, rel=0.01)
    shown = command(*asked)
    assert shown.code == 0, shown.err
    rows = dict(re.findall(r"^ *([\d,]+) +([\d.]+|out of reach) ", shown.out, flags=re.MULTILINE))
    assert float(rows["10,000"]) == pytest.approx(one["guarantee"]["epsilon"], rel=0.01)
    epsilons = [float(epsilon) for epsilon in rows.values() if epsilon != "out of reach"]
    assert len(epsilons) >= 4
    assert epsilons == sorted(epsilons, reverse=True)
    assert "[missing-argument]" in command(*asked, "-o", "plan.json").err


def test_messages_of_the_library_name_options() -> None:
    context = click.Context(importlib.import_module("shufflesum.cli.run").run_command)
    said = "use missing='drop' or clip=True (bounds=), raise max_reports; Categories(bins=[1]), noise_by='users', users"
    with context:
        shown = "use --missing drop or --clip (--bounds), raise --max-reports; "
        assert in_options(said) == shown + "Categories(bins=[1]), noise_by='users', users"
    assert in_options(said) == said
