"""`--budget`: the file in which a command enters its plan before anything of it is released or accepted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from shufflesum.errors import ParameterError
from shufflesum.plans import Plan
from shufflesum.wire import Task

__all__ = ["begin_in_budget", "beginner", "budget_option", "enter_in_budget"]


class _Once(click.Option):
    """An option that is refused when it is given twice, or as an empty variable.

    Click lets the last one count, and forgets the other; and for it a variable that is empty is none, so that a budget
    would be left out where `$FILE` was not set.
    """

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """What the environment gives, if anything."""
        if isinstance(self.envvar, str) and os.environ.get(self.envvar) == "":
            raise ParameterError(
                "missing-argument",
                f"{self.envvar} is set, but empty, so that nobody knows which budget is meant; give it a file, or "
                "unset it for no budget",
            )
        return super().resolve_envvar_value(ctx)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser keep all that are given."""
        self.multiple = True
        super().add_to_parser(parser, ctx)
        self.multiple = False

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """The one that is given; the environment and configuration files have no more."""
        given = value if isinstance(value, list) else [value]
        if len(given) > 1:
            raise ParameterError(
                "conflicting-arguments",
                f"--budget is given {len(given)} times, and a plan is entered in one budget: that of the population "
                "which these people are of; give it once",
            )
        return super().type_cast_value(ctx, given[0])


budget_option = click.option(
    "--budget",
    "budget_file",
    type=click.Path(path_type=Path),
    cls=_Once,
    envvar="SHUFFLESUM_BUDGET",
    show_envvar=True,
    help="Enter the plan in this budget first, and stop if it does not fit (shufflesum budget create).",
)


def begin_in_budget(budget_file: Path | None, plan: Plan) -> None:
    """Enter one run of a plan; each run costs, but for further rounds of a plan that has some left."""
    if budget_file is not None:
        from shufflesum.budget import Budget

        Budget.open(budget_file).begin(plan)


def enter_in_budget(budget_file: Path | None, task: Task) -> None:
    """Enter a task, once, however often it is asked."""
    if budget_file is not None:
        from shufflesum.budget import Budget

        Budget.open(budget_file).enter(task.plan, _collection(task))


def beginner(
    budget_file: Path | None, plan: Plan, *, task: Task | None = None, rounds: int = 1
) -> Callable[[str], None] | None:
    """What enters a run by its name before it draws anything; the same run is entered once, any other costs again."""
    if budget_file is None:
        return None
    from shufflesum.budget import Budget

    collection = None if task is None else _collection(task)
    budget = Budget.open(budget_file)

    def begin(run: str) -> None:
        budget.begin(plan, collection=collection, run=run, rounds=rounds)

    return begin


def _collection(task: Task) -> str:
    return f"task {task.id}"
