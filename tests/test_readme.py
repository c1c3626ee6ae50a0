"""The README's Python runs as it stands, block after block."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.long
def test_every_python_block_runs_and_the_first_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = README.read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 2
    scope: dict[str, object] = {}
    exec(blocks[0], scope)
    printed = capsys.readouterr().out.splitlines()
    shown = re.search(r"```text\n(.*?)```", text, flags=re.DOTALL)
    assert shown is not None
    # Secure randomness: figures differ in each run, the words and the plan do not.
    assert printed[0] == shown[1].splitlines()[0]
    assert [re.sub(r"[\d.e+-]+", "#", line) for line in printed] == [
        re.sub(r"[\d.e+-]+", "#", line) for line in shown[1].splitlines()
    ]
    for block in blocks[1:]:
        exec(block, scope)


def test_every_link_and_picture_exists() -> None:
    for page in [README, *(README.parent / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
