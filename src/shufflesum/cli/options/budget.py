"""`--budget`: the file in which a command enters its plan before anything of it is released or accepted."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shufflesum._format import upwards
from shufflesum.errors import ParameterError, ShufflesumError
from shufflesum.plans import Plan
from shufflesum.rounds import RoundCounter
from shufflesum.wire import Task

if TYPE_CHECKING:
    from shufflesum.budget import Budget


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
    spent = Spending(None if budget_file is None else _open(budget_file))
    try:
        yield spent
    except ShufflesumError as error:
        raise (error if spent.said is None else error.ending(spent.said)) from error.__cause__


def enter_in_budget(budget_file: Path | None, task: Task) -> None:
    """Enter a task, once, however often it is asked."""
    if budget_file is not None:
        _open(budget_file).enter(task.plan, _collection(task))


def store_beginner(budget_file: Path | None, task: Task) -> Callable[[str], None] | None:
    """What enters a shuffler's store by its name, with all rounds of its task, which it counts itself."""
    if budget_file is None:
        return None
    budget = _open(budget_file)

    def begin(store: str) -> None:
        budget.begin(task.plan, collection=_collection(task), run=store, rounds=task.rounds)

    return begin


def _open(budget_file: Path) -> Budget:
    from shufflesum.budget import Budget  # which brings the planner

    return Budget.open(budget_file)


def _collection(task: Task) -> str:
    return f"task {task.id}"
