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
from markdown_it import MarkdownIt

from shufflesum.cli import _group
from shufflesum.service.http.messages import PROBLEMS

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *(ROOT / folder / "README.md" for folder in ("examples", "clients/browser")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
]
SAYS = re.compile(r"<!-- (?:(?P<language>\w+) )?(?P<said>(?:not run|run by): [^>]+?) -->")
FORMULAS = {
    "accuracy.md",
    "privacy.md",
    "privacy-ball.md",
    "privacy-discovery.md",
    "privacy-noise.md",
    "privacy-sums.md",
}  # indented, for people only
NO_CODE = {"text", "json", "{eval-rst}", "{toctree}", "{include} ../../clients/browser/README.md"}
CELL = "{code-cell} python"
COMMANDS = {"sh"}  # `console` is a conversation, with what is printed
MOST_LETTERS = 88  # of a line of code: so many stand beside each other on a page of the site that is 1280 pixels wide


@dataclass(frozen=True)
class Block:
    page: Path
    language: str
    code: str
    said: str | None


def blocks(page: Path, text: str) -> list[Block]:
    """What Markdown shows as code, fenced in whatever way or indented, with what is said of it."""
    found: list[Block] = []
    whole_page: dict[str, str] = {}
    above: str | None = None
    for token in MarkdownIt().parse(text):
        if token.type == "code_block" and page.name in FORMULAS:
            continue
        if token.type == "html_block" and (says := SAYS.match(token.content.strip())):
            if says["language"]:
                whole_page[says["language"]] = says["said"]
            else:
                above = says["said"]
            continue
        if token.type in {"fence", "code_block"} and (language := token.info.strip()) not in NO_CODE:
            found.append(Block(page, language, token.content, above or whole_page.get(language)))
        above = None
    return found


ALL = [block for page in PAGES for block in blocks(page, page.read_text())]


def unexplained(found: list[Block]) -> list[str]:
    """Blocks that nothing runs and that do not say why."""
    return [
        f"{block.page.name}: {block.language}: {block.code[:60]!r}"
        for block in found
        if block.said is None and block.language not in {"python", CELL, *COMMANDS}
    ]


def test_every_block_is_run_or_says_why_not() -> None:
    assert len(ALL) > 100
    assert {page for page in PAGES if "```" in page.read_text()} >= {block.page for block in ALL}
    assert unexplained(ALL) == []
    for block in ALL:
        said = block.said or ""
        if said.startswith("run by: "):
            assert (ROOT / said.removeprefix("run by: ").split("::")[0]).exists(), f"{block.page.name}: {said}"
        elif said:
            assert len(said.removeprefix("not run: ")) > 15, f"{block.page.name}: {said}: why?"


@pytest.mark.parametrize(
    "block", ["```js\nf()\n```", "```\nf()\n```", "~~~js\nf()\n~~~", "- a\n\n  ```js\n  f()\n  ```", "    f()"]
)
def test_a_block_that_nothing_runs_is_found(block: str) -> None:
    page = ROOT / "README.md"
    assert unexplained(blocks(page, f"Text.\n\n{block}\n"))
    assert unexplained(blocks(page, f"<!-- not run: it needs a browser -->\n\nText.\n\n{block}\n"))
    assert not unexplained(blocks(page, f"<!-- not run: it needs a browser -->\n\n{block}\n".replace("- a\n\n", "")))


def test_a_reason_for_a_language_holds_for_the_page() -> None:
    page = ROOT / "README.md"
    assert not unexplained(blocks(page, "<!-- js not run: it needs a browser -->\n\n```js\nf()\n```\n"))


def too_long(found: list[Block]) -> list[str]:
    """Lines that a reader of the site would have to move sideways for."""
    return [
        f"{block.page.name}: {line}"
        for block in found
        if not re.search(r"^:tags: .*remove-(?:cell|input)", block.code, flags=re.MULTILINE)
        for line in block.code.splitlines()
        if len(line) > MOST_LETTERS
    ]


def test_no_line_of_code_on_the_site_is_cut_off() -> None:
    site = [block for block in ALL if (ROOT / "docs") in block.page.parents or block.page.parent.name == "browser"]
    assert too_long(site) == []
    (block,) = blocks(ROOT / "README.md", f"```sh\nls {86 * 'a'}\n```\n")
    assert too_long([block])


def test_cells_stand_on_pages_that_the_build_executes_and_none_is_left_out() -> None:
    for page in {block.page for block in ALL if block.language == CELL}:
        assert page.read_text().startswith("---\nfile_format: mystnb\n"), page
    assert [block for block in ALL if block.language == CELL and "skip-execution" in block.code] == []


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
        shell = ["bash", "-e", "-c"] if block.language in COMMANDS else [sys.executable, "-c"]
        done = subprocess.run(
            [*shell, block.code],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block.code}\n{done.stdout}{done.stderr}"


def shown_commands() -> list[tuple[str, str]]:
    """Those in blocks, and those within sentences that have an option; none that is not yet typed to its end."""
    lines = [(block.page.name, line) for block in ALL for line in block.code.replace("\\\n", " ").splitlines()]
    for page in dict.fromkeys(block.page for block in ALL):
        lines += [
            (page.name, line) for line in re.findall(r"`(shufflesum [a-z]+ [^`\n<]*--[^`\n<]*)`", page.read_text())
        ]
    return [
        (page, line.removeprefix("$ ").strip(" &"))
        for page, line in lines
        if re.match(r"(\$ )?shufflesum (--config \S+ )?[a-z]", line)
    ]


def known_options(words: list[str]) -> set[str]:
    """The options of the command that these words call."""
    command: click.Command = _group
    known = {"--help"}
    context = click.Context(command)
    for word in words:
        if isinstance(command, click.Group):
            found = command.get_command(context, word)
            assert found is not None, f"there is no command {word}"
            command = found
            known |= {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return known


@pytest.mark.parametrize(("page", "line"), shown_commands())
def test_every_shown_command_has_the_options_it_is_given(page: str, line: str) -> None:
    words = shlex.split(line.replace("--config shufflesum.toml ", ""), comments=True)[1:]
    pipe = next((place for place, word in enumerate(words) if word in {"|", ">", "&&", ";"}), len(words))
    options = {word.split("=")[0] for word in words[:pipe] if re.match(r"--?[a-z]", word)}
    assert options - known_options(words[:pipe]) == set()


def test_an_option_that_is_not_there_is_noticed() -> None:
    assert "--epsilon" in known_options(["plan"])
    assert "--epsilom" not in known_options(["plan"])


# docs/deploy.md names the problems that exist; its commands are looked at with those of all pages


DEPLOY_PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()


def test_every_problem_is_listed_under_its_kind_of_retry() -> None:
    section = DEPLOY_PAGE.split("## Problems")[1].split("##")[0]
    rows = [row for row in section.splitlines() if row.startswith("| `")]
    listed = {name: row.split("`")[1] for row in rows for name in re.findall(r"`([a-z-]+)`", row.split("|")[2])}
    assert listed == {problem.name: problem.retry for problem in PROBLEMS.values()}
