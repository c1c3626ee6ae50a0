"""Every block of code in README and documentation is run, by a test or in the build of the site, or says why it is not.

A comment above a block, or one for a language under the title of a page, says which test runs it or why none does:
`<!-- run by: tests/... -->`, `<!-- not run: ... -->`, `<!-- sh not run: ... -->`. Python without one is run here, and
commands by the slow test; cells of tutorials are executed when the site is built.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from shufflesum.cli import _group

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)]
FENCE = re.compile(
    r"(?:^ *<!-- (?P<said>(?:not run|run by): [^>]+?) -->\n)?^ *```(?P<language>\S.*)\n(?P<code>(?:.*\n)*?) *```$", re.M
)
NO_CODE = {"text", "json", "{eval-rst}", "{toctree}", "{include} ../../clients/browser/README.md"}
CELL = "{code-cell} python"
COMMANDS = {"sh", "console"}


@dataclass(frozen=True)
class Block:
    page: Path
    language: str
    code: str
    said: str | None


def blocks(page: Path, text: str) -> list[Block]:
    whole_page = dict(re.findall(r"^<!-- (\w+) ((?:not run|run by): [^>]+?) -->$", text, flags=re.MULTILINE))
    return [
        Block(page, found["language"], found["code"], found["said"] or whole_page.get(found["language"]))
        for found in FENCE.finditer(text)
        if found["language"] not in NO_CODE
    ]


ALL = [block for page in PAGES for block in blocks(page, page.read_text())]


def unexplained(found: list[Block]) -> list[str]:
    """Blocks that nothing runs and that do not say why."""
    return [
        f"{block.page.name}: {block.language}: {block.code[:60]!r}"
        for block in found
        if block.said is None and block.language not in {"python", CELL, *COMMANDS}
    ]


def test_every_block_is_run_or_says_why_not() -> None:
    assert len(ALL) > 60
    assert unexplained(ALL) == []
    for block in ALL:
        said = block.said or ""
        if said.startswith("run by: "):
            assert (ROOT / said.removeprefix("run by: ").split("::")[0]).exists(), f"{block.page.name}: {said}"
        elif said:
            assert len(said.removeprefix("not run: ")) > 15, f"{block.page.name}: {said}: why?"


def test_a_block_that_nothing_runs_is_found() -> None:
    page = ROOT / "README.md"
    assert unexplained(blocks(page, "```js\nf()\n```\n"))
    assert not unexplained(blocks(page, "<!-- not run: it needs a browser -->\n```js\nf()\n```\n"))
    assert not unexplained(blocks(page, "<!-- js not run: it needs a browser -->\n\n```js\nf()\n```\n"))


def pages_with(languages: set[str]) -> list[str]:
    return sorted(
        {str(block.page.relative_to(ROOT)) for block in ALL if block.language in languages and not block.said}
    )


@pytest.mark.parametrize(
    "page", [page for page in pages_with({"python"}) if page != "README.md"]
)  # tests/test_readme.py
def test_python_runs_as_it_stands(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__"}
    for block in ALL:
        if (block.page, block.language, block.said) == (ROOT / page, "python", None):
            exec(block.code, scope)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with(COMMANDS))
def test_commands_run_as_they_stand(page: str, tmp_path: Path) -> None:
    """Block after block in one shell, with what Python blocks of the page have made."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for block in ALL:
        if block.page != ROOT / page or block.said:
            continue
        command = ["bash", "-e", "-c", block.code] if block.language in COMMANDS else [sys.executable, "-c", block.code]
        code = [*command[:-1], re.sub(r"^\$ ", "", command[-1], flags=re.MULTILINE)]
        done = subprocess.run(
            code, cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block.code}\n{done.stdout}{done.stderr}"


def shown_commands() -> list[tuple[str, str]]:
    lines = [(block.page.name, line) for block in ALL for line in block.code.replace("\\\n", " ").splitlines()]
    return [
        (page, line.removeprefix("$ ").strip(" &")) for page, line in lines if re.match(r"(\$ )?shufflesum [a-z]", line)
    ]


def known_options(words: list[str]) -> set[str]:
    """The options of the command that these words call, and of one that it is asked about."""
    command: click.Command = _group
    known = {"--help"}
    context = click.Context(command)
    for word in words:
        if isinstance(command, click.Group):
            found = command.get_command(context, word)
            assert found is not None, f"there is no command {word}"
            command = found
            known |= {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    if "serve" in words[1:]:
        known |= known_options(words[words.index("serve") :])
    return known


@pytest.mark.parametrize(("page", "line"), shown_commands())
def test_every_shown_command_has_the_options_it_is_given(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    pipe = next((place for place, word in enumerate(words) if word in {"|", ">", "&&", ";"}), len(words))
    options = {word.split("=")[0] for word in words[:pipe] if re.match(r"--?[a-z]", word)}
    assert options - known_options(words[:pipe]) == set()


def test_an_option_that_is_not_there_is_noticed() -> None:
    assert "--epsilon" in known_options(["plan"])
    assert "--epsilom" not in known_options(["plan"])
