from __future__ import annotations

import ast
import pickle
from pathlib import Path
from typing import get_args

import pytest

import shufflesum
from shufflesum import errors
from shufflesum.errors import Problem, ShufflesumError

CLASSES = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]


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


def named_in_the_code() -> dict[str, str]:
    """The problem of every error of this package that is made with one, and the file that makes it."""
    names = {kind.__name__ for kind in CLASSES}
    found = {}
    for path in Path(shufflesum.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(problem)), _]) if name in names:
                    found[problem] = path.name
    return found


def test_every_problem_in_the_code_is_one_of_the_list() -> None:
    made = named_in_the_code()
    assert len(made) > 30
    assert {problem: place for problem, place in made.items() if problem not in get_args(Problem)} == {}
