"""`shufflesum budget`, and `--budget`: the file in which a command enters its plan before anything is released."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from shufflesum._format import upwards
from shufflesum.budget import Budget, BudgetFile
from shufflesum.cli.commands import Group, conflict
from shufflesum.cli.options import PATH, plan_arguments, wanted_options
from shufflesum.cli.output import Outputs, console, print_card, print_json, warnings_as_notes
from shufflesum.errors import ParameterError, ShufflesumError
from shufflesum.plans import Plan
from shufflesum.plots import DRAWABLE, budget_chart, save_chart
from shufflesum.rounds import RoundCounter
from shufflesum.wire import Task


@click.group("budget", cls=Group)
def budget_command() -> None:
    """What may be asked of one population in all: a plan is entered before it is run, and refused if it is too much.

    Give the file to run, bounds, randomize, task create and both servers with --budget FILE.
    """


@budget_command.command("create", short_help="Make the file of a budget.")
@click.argument("file", type=PATH)
@click.option("--epsilon", type=float, required=True, help="Of everything that will ever be asked.")
@click.option("--delta", type=float, required=True, help="Of everything.")
@click.option(
    "--plan",
    "plan_files",
    type=PATH,
    multiple=True,
    help="A plan that is fixed now, once for each: they are composed exactly, and no other can be entered.",
)
def create(file: Path, epsilon: float, delta: float, plan_files: tuple[Path, ...]) -> None:
    """Make FILE. It must not be deleted, nor an older copy put in its place, as long as anything is asked.

    \b
    Example: shufflesum budget create budget.db --epsilon 3 --delta 1e-5
             shufflesum run people.csv --bounds 0:120 --epsilon 0.5 --delta 1e-6 --budget budget.db
    """
    Budget.create(file, epsilon, delta, plans=[Plan.load(path) for path in plan_files])
    console.print(f"wrote {file}: epsilon {upwards(epsilon)}, delta {upwards(delta)} in all", markup=False)


@budget_command.command("show", short_help="What is spent, and what is left.")
@click.argument("file", type=PATH)
@click.option("--plot", type=PATH, help=f"Draw what is spent and left: {', '.join(DRAWABLE)}.")
@click.option("--json", "as_json", is_flag=True, help="Print it as one JSON object.")
def show(file: Path, plot: Path | None, as_json: bool) -> None:
    """List all plans that were entered in FILE, what each cost, and what is left."""
    budget = BudgetFile(file).read()  # once: others may enter plans meanwhile
    entries, parts = budget.entries, budget.parts
    with (outputs := Outputs()):
        if staged := outputs.chart(plot):
            title = f"Budget: epsilon {upwards(budget.epsilon)}, delta {upwards(budget.delta)} for everything"
            subtitle = f"{len(entries)} plan{'s were' if len(entries) != 1 else ' was'} entered; {budget.state}"
            if budget.closed:
                together = sum(entry.rounds for entry in entries)
                shares = {"rounds begun": [entry.begun / together for entry in entries]}
                words = {"whole": "all rounds of the plans", "rest": "not begun"}
            else:
                shares, words = {"privacy loss": [one for one, _ in parts], "delta": [other for _, other in parts]}, {}
            save_chart(budget_chart(shares, title=title, subtitle=subtitle, **words), staged)
    if as_json:
        document: dict[str, Any] = {"epsilon": budget.epsilon, "delta": budget.delta, "closed": budget.closed}
        document |= {"spent": budget.spent, "entries": msgspec.to_builtins(entries)}
        print_json(document)
        return
    console.print(str(budget), markup=False)
    if not budget.closed:
        if entries:
            console.print("epsilons do not simply add up: spent is the larger sum, of privacy loss or of delta")
        console.print(f"what still fits: shufflesum budget ask {file} --users N --dimension D", markup=False)
    outputs.say_written()


@budget_command.command("ask", short_help="What could still be asked, and at which error.")
@click.argument("file", type=PATH)
@wanted_options
@click.option("-o", "--output", type=PATH, help="Write the plan file (.json).")
def ask(
    file: Path, users: int | None, epsilon: float | None, delta: float | None, output: Path | None, **arguments: Any
) -> None:
    """The plan with the largest epsilon that still fits into FILE, for what the other options ask; nothing is spent.

    Its delta is a tenth of the budget's unless --delta says otherwise. Its epsilon can be larger than the budget's: at
    the larger delta of that, it guarantees more.

    \b
    Example: shufflesum budget ask budget.db --users 50000 --dimension 10
             shufflesum budget ask budget.db --users 50000 --labels yes,no,unsure -o plan.json
    """
    with (outputs := Outputs()), warnings_as_notes():
        staged = outputs.file(output, ".json")
        if users is None:
            raise ParameterError("missing-argument", "--users is missing: how many there are at least")
        if epsilon is not None:
            raise conflict("--epsilon is what is asked for; leave it out")
        plan = Budget.open(file).ask(users=users, delta=delta, **plan_arguments(**arguments))
        if staged:
            outputs.write(staged, plan.to_json())
    print_card(plan, arguments.get("assumed_std"))
    outputs.say_written()


# ---- `--budget`: the file in which a command enters its plan before anything of it is released or accepted.


class _BudgetOption(click.Option):
    """An option that is refused as an empty variable: for click that is none, and `$FILE` may just not be set."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """What the environment gives, if anything."""
        if isinstance(self.envvar, str) and os.environ.get(self.envvar) == "":
            raise ParameterError(
                "missing-argument",
                f"{self.envvar} is set, but empty, so that nobody knows which budget is meant; give it a file, or "
                "unset it for no budget",
            )
        return super().resolve_envvar_value(ctx)


budget_option = click.option(
    "--budget",
    "budget_file",
    type=click.Path(path_type=Path),
    cls=_BudgetOption,
    envvar="SHUFFLESUM_BUDGET",
    show_envvar=True,
    help="Enter the plan in this budget first, and stop if it does not fit (shufflesum budget create).",
)


class Spending:
    """The budget that a command enters its plan in before it draws anything, if it was given one."""

    def __init__(self, budget: Budget | None) -> None:
        self._budget = budget
        self.said: str | None = None
        """What is spent, once something is."""

    def begin(self, plan: Plan, *, collection: str | None = None, run: str | None = None) -> int:
        """Begin a round of a plan, as `Budget.begin` does; how many of its entry's are begun then."""
        assert self._budget is not None
        entry = self._budget.begin(plan, collection=collection, run=run)
        # which one a run has begun that is found again, nobody knows
        what = f"round {entry.begun} of {entry.rounds}" if run is None else "a round"
        price = "" if self._budget.closed else f" ({self._budget.price(entry)} % of the budget, for all its rounds)"
        self.said = f"{what} of plan {entry.plan[:12]} was begun in {self._budget.path} before, and stays spent{price}"
        return entry.begun

    def round_of(
        self, plan: Plan, rounds: RoundCounter | None = None, counters: str = "--budget FILE"
    ) -> Callable[[], int] | None:
        """What begins the plan's next round wherever rounds are counted, and says which it is; None for nowhere.

        A file of `rounds` goes before the budget: where it has none left, nothing is entered.
        """
        if rounds is not None:
            return lambda: rounds.begin((lambda: self.begin(plan)) if self._budget else None)
        if self._budget is not None:
            return lambda: self.begin(plan)
        if plan.rounds > 1:
            warnings.warn(
                f"the plan covers {plan.rounds} rounds, and nothing counts them: every run says it is the first, and "
                f"the guarantee ends after {plan.rounds}; count them with {counters}",
                stacklevel=1,
            )
        return None

    def note_second_release(self, plan: Plan) -> None:
        """Say what the same command would cost again, where no budget would stop it."""
        if self._budget is None:
            click.echo(
                "note: running this again is a second release: both together cost more than epsilon "
                f"{upwards(plan.epsilon)}; keep the result, or let --budget FILE count (shufflesum budget create)",
                err=True,
            )

    def runs_of(self, plan: Plan, *, task: Task | None = None) -> Callable[[str], None] | None:
        """What enters a run by its name before it draws; the same run is entered once, any other costs again."""
        if self._budget is None:
            return None
        collection = None if task is None else _collection(task)

        def begin(run: str) -> None:
            self.begin(plan, collection=collection, run=run)

        return begin


@contextmanager
def spending(budget_file: Path | None) -> Iterator[Spending]:
    """What a command may spend; where it fails afterwards, the message ends with what is spent."""
    spent = Spending(None if budget_file is None else Budget.open(budget_file))
    try:
        yield spent
    except ShufflesumError as error:
        raise (error if spent.said is None else error.ending(spent.said)) from error.__cause__


def enter_in_budget(budget_file: Path | None, task: Task) -> None:
    """Enter a task, once, however often it is asked."""
    if budget_file is not None:
        Budget.open(budget_file).enter(task.plan, _collection(task))


def store_beginner(budget_file: Path | None, task: Task) -> Callable[[str], None] | None:
    """What enters a shuffler's store by its name, with all rounds of its task, which it counts itself."""
    if budget_file is None:
        return None
    budget = Budget.open(budget_file)

    def begin(store: str) -> None:
        budget.begin(task.plan, collection=_collection(task), run=store, rounds=task.rounds)

    return begin


def _collection(task: Task) -> str:
    return f"task {task.id}"
