"""What a command imports and says before it does anything."""

from __future__ import annotations

import importlib
import os
import pkgutil
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from shufflesum import _compiled, cli
from shufflesum.cli import COMMANDS, SECTIONS

if TYPE_CHECKING:
    from tests.cli.conftest import Command

# A command of one small kernel: those of real commands take seconds to compile.
SMALL_COMMAND = """
import click
from shufflesum._compiled import kernel

@kernel
def twice(value: int) -> int:
    return 2 * value

@click.command("plan")
def plan_command() -> None:
    click.echo(twice(21))
"""


def test_every_command_is_listed_once_by_what_people_want() -> None:
    modules = [importlib.import_module(f"shufflesum.cli.{name}") for _, name, _ in pkgutil.iter_modules(cli.__path__)]
    found = {each.name for module in modules for each in vars(module).values() if isinstance(each, click.Command)}
    assert found - {"shuffler", "analyzer", "create", "show"} == set(COMMANDS)
    assert sum(map(len, SECTIONS.values())) == len(COMMANDS)


def test_help_imports_no_command() -> None:
    program = (
        "import sys\nfrom shufflesum.cli import main\nsys.argv = ['shufflesum', '--help']\n"
        "try: main()\nexcept SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(done.stderr.split())
    assert "shufflesum.cli" in modules
    assert not [name for name in modules if name.startswith("shufflesum.cli.")]
    assert not modules & {"numba", "pyarrow", "altair", "rich", "uvicorn"}
    assert all(f"  {name} " in done.stdout for name in COMMANDS)
    assert all(f"\n{section}:\n" in done.stdout for section in SECTIONS)


def test_an_unknown_command_is_refused_by_name(command: Command) -> None:
    outcome = command("plans")
    assert outcome.code == 2
    assert "No such command 'plans'" in outcome.err


@pytest.fixture
def small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What makes `shufflesum plan` a command of one small kernel, in a process that has not loaded it yet."""
    (folder / "small_command.py").write_text(SMALL_COMMAND)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(_compiled, "_to_tell", [])
    monkeypatch.setattr("numba.core.config.CACHE_DIR", "")  # beside the source, which no process has compiled before

    def start() -> None:
        monkeypatch.delitem(sys.modules, "small_command", raising=False)
        monkeypatch.setitem(sys.modules, "shufflesum.cli.plan", importlib.import_module("small_command"))

    return start


def said_on_terminal(command: Command, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command says where standard error is a terminal."""
    ours, its = pty.openpty()
    with os.fdopen(its, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        assert command("plan").out == "42\n"
        print(end=".", file=terminal, flush=True)  # so that there is something to read
        said = os.read(ours, 10_000).decode()
    os.close(ours)
    return said


def test_compiling_is_announced_on_a_terminal_the_first_time_only(
    small: Callable[[], None], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    small()
    assert said_on_terminal(command, monkeypatch).count("compiling") == 1
    small()
    assert said_on_terminal(command, monkeypatch) == "."


def test_compiling_is_not_announced_in_a_pipe(small: Callable[[], None], command: Command, folder: Path) -> None:
    small()
    outcome = command("plan")
    assert (outcome.out, outcome.err) == ("42\n", "")
    assert list(folder.rglob("*.nbi"))  # it was compiled
