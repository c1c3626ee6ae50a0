from __future__ import annotations

import ast
import pickle
import traceback
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import shufflesum
from shufflesum import errors
from shufflesum.errors import Problem, ShufflesumError
from shufflesum.service.http.messages import PROBLEMS

CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]


def test_every_error_is_caught_by_the_root() -> None:
    assert len(CLASSES) > 5
    assert all(issubclass(child, shufflesum.ShufflesumError) for child in CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: str(kind.__name__))
def test_an_error_says_its_message_and_keeps_its_problem_between_processes(kind: type[ShufflesumError]) -> None:
    for error in (
        kind("too-few-users", "ten are needed"),
        pickle.loads(pickle.dumps(kind("too-few-users", "ten are needed"))),
    ):
        assert type(error) is kind
        assert (error.problem, str(error)) == ("too-few-users", "ten are needed")
        assert (error.value, error.row) == (None, None)
    known = pickle.loads(pickle.dumps(kind("out-of-bounds", "too large", value="17", row=3).at("x.csv")))
    assert (str(known), known.value, known.row) == ("x.csv: too large", "17", 3)
    assert "17" not in "".join(traceback.format_exception(known))


def paths() -> list[Path]:
    folders = Path(shufflesum.__file__).parent, Path(__file__).parents[1] / "experiments"
    return [path for folder in folders for path in folder.rglob("*.py") if path.name != "errors.py"]


@cache
def trees() -> list[tuple[str, ast.Module]]:
    return [(path.name, ast.parse(path.read_text())) for path in paths()]


def name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def names_of_classes() -> set[str]:
    """The errors of `errors.py`, and those that other modules derive from them."""
    names = {kind.__name__ for kind in CLASSES}
    derived = [node for _, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while more := {node.name for node in derived if names & set(map(name_of, node.bases))} - names:
        names |= more
    return names


@cache
def made_in_the_code() -> list[tuple[str, ast.Call]]:
    """Every call in the package and its experiments that makes an error of ours, and the file it stands in."""
    names = names_of_classes()
    return [
        (f"{place}:{node.lineno}", node)
        for place, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name_of(node.func) in names
    ]


@pytest.mark.long
def test_every_error_is_made_with_a_problem_and_a_message() -> None:
    made = made_in_the_code()
    assert len(made) > 100
    assert [place for place, call in made if len(call.args) + len(call.keywords) < 2] == []


@pytest.mark.long
def test_every_problem_in_the_code_is_one_of_the_list_or_of_those_a_server_answers_with() -> None:
    listed = {*get_args(Problem), *PROBLEMS}
    made = {place: call.args[0].value for place, call in made_in_the_code() if isinstance(call.args[0], ast.Constant)}
    assert {place: problem for place, problem in made.items() if problem not in listed} == {}


def test_every_problem_of_the_list_is_in_the_code() -> None:
    """As a whole text: some are chosen before the error is made."""
    texts = "".join(path.read_text() for path in paths())
    assert [problem for problem in get_args(Problem) if f'"{problem}"' not in texts] == []
