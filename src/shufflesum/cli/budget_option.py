"""`--budget`: the file in which a command enters its plan before anything of it is released or accepted."""

from __future__ import annotations

from pathlib import Path

import click

from shufflesum.plans import Plan
from shufflesum.wire import Task

__all__ = ["begin_in_budget", "budget_option", "enter_in_budget"]

budget_option = click.option(
    "--budget",
    "budget_file",
    type=click.Path(path_type=Path),
    envvar="SHUFFLESUM_BUDGET",
    show_envvar=True,
    help="Enter the plan in this budget first, and stop if it does not fit (shufflesum budget create).",
)


def begin_in_budget(budget_file: Path | None, plan: Plan, *, resumed: bool = False) -> None:
    """Enter one run of a plan; each run costs, but for further rounds of a plan that has some left."""
    if budget_file is not None:
        from shufflesum.budget import Budget

        Budget.open(budget_file).begin(plan, resumed=resumed)


def enter_in_budget(budget_file: Path | None, task: Task) -> None:
    """Enter a task: once, however many servers, files and rounds it has."""
    if budget_file is not None:
        from shufflesum.budget import Budget

        Budget.open(budget_file).enter(task.plan, f"task {task.id}")
