"""What the tests of `--budget` share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Command

__all__ = ["BUDGET", "PRIVACY", "RANDOMIZE", "USERS", "make_task"]

USERS = 400
PRIVACY = ("--epsilon", "0.8", "--delta", "1e-4")
BUDGET = ("--budget", "budget.db")
RANDOMIZE = ("randomize", "answers.csv", "--categories", "answer", "--plan", "plan.json", *BUDGET)


def make_task(command: Command, *more: str) -> str:
    made = "task create --plan plan.json --shuffler http://127.0.0.1:1 --analyzer-key a.pub --name answers -o task.json"
    return command(*made.split(), *more).err
