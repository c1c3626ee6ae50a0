"""`--budget`: the file in which a command enters its plan before anything of it is released or accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from shufflesum.plans import Plan
from shufflesum.wire import Task

__all__ = ["begin_in_budget", "beginner", "budget_option", "enter_in_budget"]

budget_option = click.option(
    "--budget",
    "budget_file",
    type=click.Path(path_type=Path),
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
