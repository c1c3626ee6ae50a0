"""What users' data holds is shown to whoever sits at a terminal, and is never in a log."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import SCRIPT

if TYPE_CHECKING:
    from tests.cli.conftest import Command

PRIVACY = ("--epsilon", "1", "--delta", "1e-6")
CASES = {
    "a value out of bounds": ("age\n1\n4711\n", (), "[out-of-bounds]", "4711"),
    "a text among numbers": ("age\n1\nforty-two\n", (), "[not-numbers]", "forty-two"),
    "a cell too many": ("age\n1\n2,surplus\n", (), "[wrong-shape]", "surplus"),
    "a label": (
        "answer\nyes\nperhaps\n",
        ("--categories", "answer", "--labels", "yes,no"),
        "[unknown-label]",
        "perhaps",
    ),
    "a user": ("who,age\nann-marie,1\nann-marie,0\n", ("--user-column", "who"), "[repeated-user]", "ann-marie"),
}


def on_a_terminal(*arguments: str) -> str:
    """What the script says to a terminal."""
    ours, theirs = os.openpty()
    with subprocess.Popen([SCRIPT, *arguments], stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                more = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            said += more
        os.close(ours)
    assert process.returncode == 2
    return said.decode()


@pytest.mark.parametrize("case", CASES)
def test_no_value_is_in_a_log(command: Command, folder: Path, case: str) -> None:
    text, options, problem, value = CASES[case]
    (folder / "x.csv").write_text(text)
    said = command("run", "x.csv", *PRIVACY, *options)
    assert said.code == 2
    assert problem in said.err
    assert value not in said.err + said.out


def test_a_terminal_shows_the_value(folder: Path) -> None:
    text, _, problem, value = CASES["a text among numbers"]
    (folder / "x.csv").write_text(text)
    said = on_a_terminal("run", "x.csv", *PRIVACY)
    assert problem in said
    assert "line 3" in said
    assert value in said
