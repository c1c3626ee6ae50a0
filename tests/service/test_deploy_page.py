"""docs/deploy.md and docs/runbook.md name options and problems that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from shufflesum.cli import config, estimate, keygen, plan, send, serve, status, task, tokens
from shufflesum.service.http.problems import PROBLEMS

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
RUNBOOK = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text()
COMMANDS: dict[str, click.Command] = {
    module.command.name or "": module.command
    for module in (config, estimate, keygen, plan, send, serve, status, task, tokens)
}


def shown_commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE + RUNBOOK, flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    inline = re.findall(r"`(shufflesum [a-z]+ [^`]*--[^`]*)`", PAGE + RUNBOOK)
    return [line.strip(" &") for line in lines if line.startswith("shufflesum ")] + inline


@pytest.mark.parametrize("line", [line for line in shown_commands() if " demo " not in line])
def test_every_shown_command_has_the_options_it_is_given(line: str) -> None:
    words = shlex.split(line)[1:]
    command = COMMANDS[words[0]]
    if isinstance(command, click.Group):
        command = command.commands[words[1]]
    known = {option for parameter in command.params for option in parameter.opts}
    if "serve" in words[1:]:  # the command line that `config check` is asked about
        checked = serve.command.commands[words[words.index("serve") + 1]]
        known |= {option for parameter in checked.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known


def test_there_are_commands_to_check() -> None:
    assert len(shown_commands()) >= 10


def test_every_problem_is_listed_under_its_kind_of_retry() -> None:
    section = PAGE.split("## Problems")[1].split("##")[0]
    rows = [row for row in section.splitlines() if row.startswith("| `")]
    listed = {name: row.split("`")[1] for row in rows for name in re.findall(r"`([a-z-]+)`", row.split("|")[2])}
    assert listed == {problem.name: problem.retry for problem in PROBLEMS.values()}
