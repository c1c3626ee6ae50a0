"""docs/howto/completion.md: shells complete commands and options."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "completion.md"


def printed(commands: str, folder: Path) -> str:
    """What bash prints where our command is in the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("shell", re.findall(r"^_SHUFFLESUM_COMPLETE=(\w+) shufflesum", PAGE.read_text(), flags=re.M))
def test_a_script_is_printed_for_each_shell_that_is_named(shell: str, tmp_path: Path) -> None:
    assert "shufflesum" in printed(f"_SHUFFLESUM_COMPLETE={shell} shufflesum", tmp_path)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        pytest.param("pl", "plan", marks=pytest.mark.slow),
        ("plan --eps", "--epsilon"),
        pytest.param("budget cr", "create", marks=pytest.mark.slow),
        ("serve sh", "shuffler"),
    ],
)
def test_bash_completes_once_the_script_is_loaded(typed: str, completed: str, tmp_path: Path) -> None:
    """As on the page: write the script, load it, and press the tab key, which calls the function that it names."""
    commands = f"""
        _SHUFFLESUM_COMPLETE=bash_source shufflesum > complete.bash
        . ./complete.bash
        COMP_WORDS=(shufflesum {typed}) COMP_CWORD={len(typed.split())}
        $(complete -p shufflesum | sed 's/.* -F \\([^ ]*\\) .*/\\1/') shufflesum
        echo "${{COMPREPLY[@]}}"
    """
    assert printed(commands, tmp_path).strip() == completed
