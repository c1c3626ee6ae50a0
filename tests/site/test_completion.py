"""docs/howto/completion.md: shells complete commands and options."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "completion.md"
SCRIPT = Path(sys.executable).parent / "shufflesum"


def completed(**variables: str) -> str:
    return subprocess.run(
        [SCRIPT],
        env=os.environ | {"_SHUFFLESUM_COMPLETE": "bash_complete"} | variables,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize(
    "line", re.findall(r"^_SHUFFLESUM_COMPLETE=(\w+) shufflesum", PAGE.read_text(), flags=re.MULTILINE)
)
def test_a_script_is_printed_for_each_shell_that_is_named(line: str) -> None:
    assert "shufflesum" in completed(_SHUFFLESUM_COMPLETE=line)


def test_commands_and_options_are_completed() -> None:
    assert completed(COMP_WORDS="shufflesum pl", COMP_CWORD="1").split() == ["plain,plan"]
    assert completed(COMP_WORDS="shufflesum plan --eps", COMP_CWORD="2").split() == ["plain,--epsilon"]
