"""`shufflesum budget` and `--budget`: everything that is run is entered first, and what does not fit is not run."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import pytest
from tests.cli.budgets import BUDGET, PRIVACY, RANDOMIZE, USERS, make_task
from tests.refusals import lacking

import shufflesum as ss
from shufflesum.cli import COMMANDS, _group
from shufflesum.errors import FileError
from shufflesum.wire import Task

if TYPE_CHECKING:
    from tests.cli.conftest import Command

RUN = ("run", "answers.csv", "--categories", "answer", "--labels", "3", *PRIVACY, *BUDGET)


def test_a_run_is_entered_and_the_one_that_does_not_fit_is_refused(command: Command, budget: ss.Budget) -> None:
    assert command(*RUN).code == 0
    (entry,) = budget.entries
    assert (entry.epsilon, entry.users, entry.begun) == (0.8, USERS, 1)
    refused = command(*RUN, "-o", "counts.csv")
    assert refused.code == 2
    assert refused.out == ""
    assert not lacking(refused.err, "[budget-spent]", "budget.db", "epsilon 0.8")
    assert not Path("counts.csv").exists()
    assert len(budget.entries) == 1


@pytest.mark.parametrize("arguments", [("bounds", "--share", "0.9"), ("run", "--variance", "--bounds", "0:2")])
def test_bounds_and_variances_are_entered_too(command: Command, budget: ss.Budget, arguments: tuple[str, ...]) -> None:
    done = command(arguments[0], "answers.csv", *arguments[1:], *PRIVACY, *BUDGET)
    assert done.code == 0
    assert len(budget.entries) == 1


@pytest.mark.parametrize(("more", "rounds"), [((), ()), (("--rounds", "2"), ("--rounds-file", "main.rounds.db"))])
def test_the_command_that_bounds_print_for_the_main_plan_is_entered_too(
    command: Command, budget: ss.Budget, more: tuple[str, ...], rounds: tuple[str, ...]
) -> None:
    privacy = ("--epsilon", "0.8", "--delta", "1e-4", "--share", "0.7")
    done = command("bounds", "answers.csv", *privacy, *BUDGET, "-o", "main.json", *more)
    (line,) = (line for line in done.out.splitlines() if line.startswith("wrote main.json"))
    again = shlex.split(line.partition("run it with ")[2])
    assert again == ["shufflesum", "run", "answers.csv", "--plan", "main.json", "--clip", *rounds, *BUDGET]
    assert command(*again[1:]).code == 0
    assert budget.entries[-1].plan == ss.Plan.load("main.json").id
    without = command("bounds", "answers.csv", *privacy, "-o", "other.json").out
    assert "--budget" not in without


def test_a_run_that_finds_nothing_to_run_spends_nothing(command: Command, budget: ss.Budget) -> None:
    assert command("run", "nowhere.csv", *RUN[2:]).code == 2
    assert command("run", "answers.csv", "--user-column", "other", *RUN[2:]).code == 2
    assert budget.entries == ()


WEEKLY = ("run", "answers.csv", "--plan", "weekly.json", "--categories", "answer")
COUNTED = ("--rounds-file", "rounds.db")
WEEKLY_RANDOMIZED = ("randomize", *WEEKLY[1:], *BUDGET)


@pytest.fixture
def weekly(budget: ss.Budget) -> ss.Plan:
    """A plan of two rounds, of which the budget holds two; and a file that is not for it, in its last line."""
    made = ss.plan(users=USERS, domain=ss.Categories(3), epsilon=0.3, delta=1e-5, rounds=2)
    Path("weekly.json").write_text(made.to_json())
    np.savetxt("unfit.csv", [*(np.arange(USERS) % 3), 3], fmt="%d", header="answer", comments="")
    return made


def test_a_round_that_no_file_has_left_costs_nothing(command: Command, budget: ss.Budget, weekly: ss.Plan) -> None:
    for number in (1, 2):
        assert f"round {number} of 2" in command(*WEEKLY, *COUNTED, *BUDGET).out
    before = Path("budget.db").read_bytes()
    assert not lacking(command(*WEEKLY, *COUNTED, *BUDGET).err, "[rounds-spent]")
    assert Path("budget.db").read_bytes() == before


def test_a_budget_that_is_spent_uses_up_no_round_of_a_file(command: Command, weekly: ss.Plan) -> None:
    command("budget", "create", "little.json", "--epsilon", "0.1", "--delta", "4e-4")
    assert not lacking(command(*WEEKLY, *COUNTED, "--budget", "little.json").err, "[budget-spent]")
    assert ss.RoundCounter("rounds.db", weekly).used == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("run", "unfit.csv", *WEEKLY[2:], *COUNTED), "unknown-label"),
        ((*WEEKLY, "--clip", *COUNTED), "impossible-combination"),
        ((*WEEKLY, "--missing", "midpoint"), "impossible-combination"),
        ((*WEEKLY, "--rounds-file", "plan.json"), "damaged"),
        ((*WEEKLY, "-o", "nowhere/counts.csv"), "unwritable"),
        ((*WEEKLY, "--quantiles", "0.5"), "conflicting-arguments"),
        ((*WEEKLY[:2], *PRIVACY, "--labels", "3", *COUNTED), "missing-argument"),
        (("run", "unfit.csv", "--variance", "--bounds", "0:2", *PRIVACY), "out-of-bounds"),
        (("bounds", "unfit.csv", "--bins", "0,1,2", "--share", "1", *PRIVACY), "out-of-bounds"),
        (("randomize", "unfit.csv", *WEEKLY[2:], "-o", "reports"), "unknown-label"),
        (("randomize", *WEEKLY[1:], "-o", "reports", "--round", "3"), "out-of-range"),
        (("randomize", *WEEKLY[1:], "-o", "budget.db"), "exists"),
    ],
)
@pytest.mark.usefixtures("weekly", "plan")
def test_what_is_refused_costs_neither_budget_nor_round(
    command: Command, budget: ss.Budget, arguments: tuple[str, ...], problem: str
) -> None:
    assert not lacking(command(*arguments, *BUDGET).err, f"[{problem}]")
    assert budget.entries == ()
    assert not Path("rounds.db").exists()


def test_what_fails_after_it_was_entered_says_what_is_spent(
    command: Command, budget: ss.Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise FileError("unwritable", "counts.csv: cannot be written")

    monkeypatch.setattr("shufflesum.cli.output.write_estimate", fail)
    failed = command(*RUN, "-o", "counts.csv")
    (entry,) = budget.entries
    assert not lacking(failed.err, "[unwritable]", entry.plan[:12], "budget.db", f"{budget.price(entry)} %")


def test_rounds_are_counted_by_the_budget_and_one_more_costs_the_plan_again_and_says_so(
    command: Command, budget: ss.Budget, weekly: ss.Plan
) -> None:
    for number in (1, 2):
        done = command(*WEEKLY, *BUDGET)
        assert not lacking(done.out, f"round {number} of 2")
        assert done.err == ""
    (entry,) = budget.entries
    done = command(*WEEKLY, *BUDGET)
    assert not lacking(done.out, "round 1 of 2")
    assert not lacking(done.err, "note", weekly.id[:12], f"{budget.price(entry)} %")
    assert len(budget.entries) == 2


@pytest.mark.usefixtures("weekly")
def test_rounds_that_nothing_counts_are_spoken_of(command: Command) -> None:
    assert not lacking(command(*WEEKLY).err, "note", "2 rounds", "--rounds-file", "--budget")
    varied = ("run", "answers.csv", "--variance", "--bounds", "0:2", *PRIVACY, "--rounds", "2")
    assert not lacking(command(*varied).err, "note", "2 rounds", "--budget")
    assert command(*WEEKLY, *COUNTED).err == ""


@pytest.mark.usefixtures("plan")
def test_the_same_users_are_not_randomized_again_for_nothing(command: Command, budget: ss.Budget) -> None:
    assert command("randomize", "nowhere.csv", *RANDOMIZE[2:], "-o", "reports").code == 2
    assert not budget.entries
    for _ in range(2):  # the second finds it finished, and draws nothing
        assert command(*RANDOMIZE, "-o", "reports").code == 0
        assert [(entry.collection, entry.begun) for entry in budget.entries] == [(None, 1)]
    refused = command(*RANDOMIZE, "-o", "others")
    assert not lacking(refused.err, "[budget-spent]")
    assert not Path("others").exists()
    refused = command("run", "answers.csv", "--categories", "answer", "--plan", "plan.json", *BUDGET)
    assert not lacking(refused.err, "[budget-spent]")


@pytest.mark.usefixtures("plan")
def test_what_was_begun_without_the_budget_is_entered_when_it_is_taken_up(command: Command, budget: ss.Budget) -> None:
    assert command(*RANDOMIZE[:-2], "-o", "reports").code == 0
    assert not budget.entries
    assert command(*RANDOMIZE, "-o", "reports").code == 0
    assert len(budget.entries) == 1


@pytest.mark.usefixtures("plan")
def test_a_task_is_entered_before_it_is_written(command: Command, budget: ss.Budget) -> None:
    command("keygen", "-o", "a")
    assert make_task(command, *BUDGET) == ""
    (entry,) = budget.entries
    assert entry.collection == f"task {Task.load('task.json').id}"
    Path("task.json").rename("first.json")
    assert not lacking(make_task(command, *BUDGET, "--expires", "2098-01-01T00:00:00Z"), "[budget-spent]")
    assert not Path("task.json").exists()


@pytest.mark.usefixtures("plan")
def test_randomizing_for_a_task_again_costs_again(command: Command, budget: ss.Budget) -> None:
    command("keygen", "-o", "a")
    make_task(command, *BUDGET)
    sealed = (*RANDOMIZE[:4], "--task", "task.json", *BUDGET)
    for _ in range(2):  # what the task was entered for, and the same again, found finished
        assert command(*sealed, "-o", "reports").code == 0
        (entry,) = budget.entries
        assert (entry.begun, len(entry.runs)) == (1, 1)
    assert not lacking(command(*sealed, "-o", "others").err, "[budget-spent]")
    assert not Path("others").exists()
    assert not Path(".others.partial").exists()


def interrupted(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...] = RANDOMIZE,
    by: BaseException | None = None,
) -> str:
    """A run whose work is left in .reports.partial, and what it said at its end."""

    def interrupt(*_: object) -> None:
        raise by or KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("shufflesum.batch.files.write_part", interrupt)
        done = command(*arguments, "-o", "reports")
    assert done.code != 0
    return done.err


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize("restart", [False, True])
def test_a_run_that_is_taken_up_costs_nothing_and_one_that_starts_over_costs_again(
    command: Command, budget: ss.Budget, monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    interrupted(command, monkeypatch)
    assert Path(".reports.partial").exists()
    assert len(budget.entries) == 1
    if restart:
        assert not lacking(command(*RANDOMIZE, "-o", "reports", "--restart").err, "[budget-spent]")
        assert not Path("reports").exists()
    assert command(*RANDOMIZE, "-o", "reports").code == 0  # what was to be thrown away is still there
    assert len(budget.entries) == 1


@pytest.mark.usefixtures("plan", "weekly")
def test_a_run_that_would_start_over_with_what_is_refused_costs_nothing_and_throws_nothing_away(
    command: Command, budget: ss.Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(command, monkeypatch, WEEKLY_RANDOMIZED)
    before = Path("budget.db").read_bytes()
    unfit = ("randomize", "unfit.csv", *WEEKLY_RANDOMIZED[2:], "-o", "reports", "--restart")
    assert not lacking(command(*unfit).err, "[unknown-label]")
    assert Path("budget.db").read_bytes() == before
    assert Path(".reports.partial").exists()


@pytest.mark.usefixtures("weekly")
def test_a_run_that_is_taken_up_does_not_say_that_it_began_the_round_of_another(
    command: Command, budget: ss.Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(command, monkeypatch, WEEKLY_RANDOMIZED)
    assert command(*WEEKLY, *BUDGET).code == 0  # the second of two rounds
    said = interrupted(command, monkeypatch, WEEKLY_RANDOMIZED, FileError("unwritable", "the disk is full"))
    (entry,) = budget.entries
    assert not lacking(said, "[unwritable]", entry.plan[:12], f"{budget.price(entry)} %")
    assert "2 of 2" not in said


@pytest.mark.usefixtures("plan")
def test_a_copy_of_an_interrupted_run_cannot_draw_the_rest_once_more(
    command: Command, budget: ss.Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(command, monkeypatch)
    shutil.copytree(".reports.partial", ".copy.partial")
    assert command(*RANDOMIZE, "-o", "reports").code == 0
    for arguments, problem in (((), "resume-mismatch"), (("--restart",), "budget-spent")):
        assert not lacking(command(*RANDOMIZE, "-o", "copy", *arguments).err, f"[{problem}]")
        assert not Path("copy").exists()
    assert len(budget.entries) == 1


def test_one_budget_is_entered_and_a_second_one_is_not_forgotten(
    command: Command, budget: ss.Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("budget", "create", "other.json", "--epsilon", "1", "--delta", "4e-4")
    assert not lacking(command(*RUN, "--budget", "other.json").err, "[conflicting-arguments]", "--budget")
    monkeypatch.setenv("SHUFFLESUM_BUDGET", "budget.db:other.json")
    assert not lacking(command(*RUN[:-2]).err, "[unreadable]", "budget.db:other.json")
    assert budget.entries == ss.Budget.open("other.json").entries == ()
    monkeypatch.setenv("SHUFFLESUM_BUDGET", "other.json")
    assert command(*RUN[:-2]).code == 0
    assert len(ss.Budget.open("other.json").entries) == 1


def test_a_variable_that_is_empty_is_no_way_to_run_without_a_budget(
    command: Command, budget: ss.Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHUFFLESUM_BUDGET", "")
    refused = command(*RUN[:-2])
    assert (refused.code, refused.out) == (2, "")
    assert not lacking(refused.err, "[missing-argument]", "SHUFFLESUM_BUDGET")
    assert not lacking(command(*RUN[:-2], "--budget", "").err, "[unreadable]")
    assert command(*RUN).code == 0  # what is typed counts before the environment
    assert len(budget.entries) == 1


def test_what_is_spent_and_left_is_shown(command: Command, budget: ss.Budget) -> None:
    assert not lacking(command("budget", "show", "budget.db").out, "epsilon 1.0", "0 % spent", "budget ask budget.db")
    command(*RUN)
    done = command("budget", "show", "budget.db", "--plot", "budget.svg")
    assert not lacking(done.out, "epsilon 1.0", budget.entries[0].plan[:8], "1 of 1", "wrote budget.svg")
    assert not lacking(Path("budget.svg").read_text(), "% left", "privacy loss", "1 plan was entered")
    document = command("budget", "show", "budget.db", "--json").document
    assert document["spent"] == budget.spent
    assert document["entries"][0]["plan"] == budget.entries[0].plan


def test_what_could_still_be_asked_is_a_plan_that_fits(command: Command, budget: ss.Budget) -> None:
    done = command("budget", "ask", "budget.db", "--users", str(USERS), "--labels", "3", "-o", "asked.json")
    assert not lacking(done.out, "Plan", "error", "wrote asked.json")
    assert budget.entries == ()
    assert budget.fits(ss.Plan.load("asked.json"))
    for arguments, problem in (
        (("--labels", "3"), "missing-argument"),
        (("--users", "9", "--labels", "3", "--epsilon", "1"), "conflicting-arguments"),
    ):
        assert not lacking(command("budget", "ask", "budget.db", *arguments).err, f"[{problem}]")


def test_plans_fixed_in_advance_close_a_budget(command: Command, plan: ss.Plan) -> None:
    fixed = ("--epsilon", "0.81", "--delta", "1.1e-4", "--plan", "plan.json")
    assert command("budget", "create", "closed.json", *fixed).code == 0
    assert ss.Budget.open("closed.json").closed
    shown = command("budget", "show", "closed.json", "--plot", "closed.svg").out
    assert not lacking(shown, "closed: 0 of 1 rounds begun", plan.id[:8])
    assert not lacking(Path("closed.svg").read_text(), "100 % not begun", "Part of all rounds")
    for text in (shown, Path("closed.svg").read_text()):
        assert not any(word in text for word in ("left", "privacy loss", "spent"))
    run = ("run", "answers.csv", "--categories", "answer", "--plan", "plan.json", "--budget", "closed.json")
    np.savetxt("answers.csv", np.arange(USERS) % 3, fmt="%d", header="answer", comments="")
    assert command(*run).code == 0
    shown = command("budget", "show", "closed.json", "--plot", "closed.svg").out
    assert not lacking(shown, "closed: 1 of 1 rounds begun")
    assert "not begun" not in Path("closed.svg").read_text()
    twice = command("budget", "create", "two.json", *fixed, "--plan", "plan.json")
    assert not lacking(twice.err, "[budget-spent]", "2 plans")


def test_a_budget_that_is_missing_or_damaged_stops_everything(command: Command, budget: ss.Budget) -> None:
    assert not lacking(command("budget", "create", "budget.db", *PRIVACY).err, "[exists]")
    assert not lacking(command(*RUN[:-1], "nowhere.json").err, "[unreadable]")
    path = Path("budget.db")
    path.write_bytes(path.read_bytes().replace(b"1.0", b"9.0"))
    for arguments in (
        RUN,
        ("budget", "show", "budget.db"),
        ("budget", "ask", "budget.db", "--users", "9", "--labels", "3"),
    ):
        assert not lacking(command(*arguments).err, "[damaged]")


def test_the_guide_names_the_commands_that_take_a_budget() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()
    (named,) = re.findall(r"^`--budget FILE`.* is taken by (.*?) and both servers", guide, re.MULTILINE)
    context = click.Context(_group)
    for name in re.findall(r"`([^`]+)`", named):
        assert name.split()[0] in COMMANDS
        command = _group.get_command(context, name.split()[0])
        for part in name.split()[1:]:
            assert isinstance(command, click.Group)
            command = command.commands[part]
        assert command is not None
        assert "--budget" in [option for each in command.params for option in each.opts]
