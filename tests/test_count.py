"""`make count` counts what it says, on a small tree and on this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools.count import DOMAINS, LARGE, SMALL, count_folder, count_module, domain_questions, report

from shufflesum import domains

ROOT = Path(__file__).parents[1]

# ceilings of src/, to be lowered whenever there is room
MOST_CODE_LINES, MOST_MODULES, MOST_IMPORTS, MOST_QUESTIONS = 37_000, 200, 0.09, 10

MODULE = '''"""A docstring
over two lines."""

from __future__ import annotations

import math  # counts: there is code before the comment
from pathlib import (
    Path,
)

__all__ = ["area"]


# a comment, and a blank line above it
def area(radius: float) -> float:
    """Of a circle."""
    text = """a string that is
    no docstring"""
    import os

    return math.pi * radius**2
'''

QUESTIONS = """
from shufflesum import domain
from shufflesum.domains import L2Ball, Arrays, GroupBy

_LISTED = Arrays | L2Ball
_NAMES = {GroupBy: "groups"}  # a question


def asks(given: Arrays | L2Ball) -> Arrays:
    if isinstance(given, domain.Arrays) or isinstance(given, (int, L2Ball)):  # two questions
        return Arrays(1)
    if isinstance(given, _LISTED) and type(given) is not GroupBy:  # two questions
        pass
    match given:  # one question
        case Arrays() | L2Ball():
            pass
        case GroupBy():
            pass
    match given.shape:
        case tuple():
            pass
    return isinstance(given, str)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of five modules: two ask for domains, one is too long."""
    for name, text in {
        "src/shufflesum/__init__.py": "",
        "src/shufflesum/cli/area.py": MODULE,
        "src/shufflesum/cli/asks.py": QUESTIONS,
        "src/shufflesum/domains/asks.py": QUESTIONS,
        "tests/test_long.py": "x = 1\n" * 801,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_code_lines_are_those_with_code_that_is_no_docstring(tree: Path) -> None:
    module = count_module(tree / "src/shufflesum/cli/area.py")
    assert (module.lines, module.code, module.imports) == (21, 11, 6)


def test_a_package_root_is_never_too_small(tree: Path) -> None:
    assert [module.path.name for module in count_folder(tree / "src") if not module.small] == ["__init__.py"]


def test_questions_for_a_domain_are_found_outside_the_folder_of_the_domains(tree: Path) -> None:
    found = domain_questions(tree / "src/shufflesum")
    assert {path.parent.name for path, _ in found} == {"cli"}
    assert sorted(line for _, line in found) == [6, 10, 10, 12, 12, 14]


def test_the_report_of_a_small_tree(tree: Path) -> None:
    head, *lines = report(tree)
    assert head.split() == ["modules", "code", "lines", "mean", "lines", "below", str(SMALL), "imports,", "__all__"]
    assert [line.split() for line in lines] == [
        ["src/", "4", "47", "16", "3", "21.3%"],
        ["experiments/", "0", "0", "0", "0", "0.0%"],
        ["tests/", "1", "801", "801", "0", "0.0%"],
        ["above", "800", "lines:", "tests/test_long.py", "(801)"],
        ["code", "lines", "of", "src/shufflesum/", "by", "folder:"],
        ["29", "cli"],
        ["18", "domains"],
        ["0", "(modules)"],
        ["questions", "for", "a", "concrete", "domain:", "6", "in", "1", "files"],
    ]


@pytest.mark.processes
def test_the_command_prints_the_report(tree: Path) -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/count.py", tree], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(report(tree))


def test_the_domains_that_are_asked_for_are_all_there_are() -> None:
    assert {domain.__name__ for domain in domains.DOMAINS.values()} == DOMAINS


def test_hardly_anything_outside_the_domains_asks_for_a_concrete_one() -> None:
    assert len(domain_questions(ROOT / "src/shufflesum")) <= MOST_QUESTIONS


def test_the_package_stays_within_its_limits() -> None:
    modules = count_folder(ROOT / "src")
    code = sum(module.code for module in modules)
    assert code <= MOST_CODE_LINES
    assert len(modules) <= MOST_MODULES
    assert sum(module.imports for module in modules) <= MOST_IMPORTS * code
    assert max(module.lines for module in modules) <= LARGE
