"""Damaged files of tasks and plans: refused by every program that reads them, or nothing that matters was damaged."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz import damaged_bytes
from tests.refusals import refusal
from tests.service.processes import Program
from tests.slow_params import few_or_many

from shufflesum import Plan
from shufflesum.errors import PlanError
from shufflesum.wire import Task, TaskError

GOLDEN = (Path(__file__).parent.parent / "vectors" / "golden_task.json").read_text()

WRONG: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        2**31,
        2**53 + 1,
        2**63,
        2**64,
        -(2**63) - 1,
        10**19,
        10**400,
        1e-320,
        1e308,
        -0.5,
    ),
    *("", "x", "0", "\0", "\ud800", "9" * 400, "é" * 300, [], {}, [[]], [{}], {"": 0}, [0] * 1000, ["a", 1, None]),
]


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every value in a document but the whole."""
    children: Any = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in children:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def inside(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def damaged_structure(source: random.Random, text: str) -> bytes:
    """JSON all right, but with a value changed, removed, replaced, moved or added."""
    document = json.loads(text)
    for _ in range(source.choice([1, 1, 1, 2])):
        *above, last = source.choice(list(places(document)))
        home = inside(document, tuple(above))
        kind = source.randrange(6)
        if kind == 0:
            del home[last]
        elif kind == 1 and isinstance(home[last], int | float):
            home[last] = source.choice([home[last] * 2, home[last] + 1, -home[last], home[last] * 10**30])
        elif kind == 2 and isinstance(home, dict):
            home[source.choice(["x", "", last.upper(), "__class__", "guarantee"])] = home.pop(last)
        elif kind == 3 and isinstance(home[last], str) and home[last]:
            at = source.randrange(len(home[last]))
            home[last] = home[last][:at] + source.choice("0aZ \0é/") + home[last][at + source.randrange(2) :]
        elif kind == 4:
            home[last] = inside(json.loads(text), source.choice(list(places(json.loads(text)))))
        else:
            home[last] = copy.deepcopy(source.choice(WRONG))  # what changes next may lie inside it
    return json.dumps(document).encode()


def damaged_file(source: random.Random, text: str) -> bytes:
    data = text.encode()
    kind = source.randrange(8)
    if kind < 4:
        return damaged_structure(source, text)
    if kind < 6:
        return damaged_bytes(source, data)
    start = source.randrange(len(data))
    if kind == 6:  # a piece twice, or gone
        end = start + 1 + source.randrange(60)
        return data[:end] + data[start:] if source.random() < 0.5 else data[:start] + data[end:]
    deep = source.choice([50, 500, 3000, 100_000])
    opening = source.choice([b"[", b'{"a":'])
    closing = {b"[": b"]"}.get(opening, b"}")
    at = data.index(b":", source.randrange(len(data) // 2)) + 1
    return data[:at] + opening * deep + b"0" + closing * deep * source.randrange(2) + b"," + data[at:]


def files(cases: int, text: str) -> Iterator[bytes]:
    source = random.Random(cases)
    for _ in range(cases):
        yield damaged_file(source, text)


def must_differ(read: Callable[[bytes], Any], refusal: type[Exception], data: bytes, original: Any) -> bool:
    """Whether a damaged file is refused; where it is not, the damage must have been to nothing that means anything."""
    try:
        found = read(data)
    except refusal:
        return True
    assert found == original, data
    assert found.id == original.id
    return False


@few_or_many(600, 20_000)
def test_damaged_task_files(cases: int) -> None:
    task = Task.from_json(GOLDEN)
    refused = sum(must_differ(Task.from_json, TaskError, data, task) for data in files(cases, GOLDEN))
    assert refused > 0.9 * cases


@few_or_many(300, 10_000)
def test_damaged_plan_files(cases: int) -> None:
    plan = Task.from_json(GOLDEN).plan
    refused = sum(must_differ(Plan.from_json, PlanError, data, plan) for data in files(cases, plan.to_json()))
    assert refused > 0.9 * cases


def key_places(text: str) -> list[tuple[int, str]]:
    """Where each key of a document with one pair a line stands, and its line without the comma."""
    found, at = [], 0
    for line in text.splitlines(keepends=True):
        pair = line.strip().rstrip(",")
        if pair.startswith('"') and '": ' in pair and pair[-1] not in "[{":
            found.append((at, pair))
        at += len(line)
    return found


def twice(text: str, at: int) -> str:
    """The document with one of its pairs there twice."""
    place, pair = key_places(text)[at]
    return f"{text[:place]}{pair},\n{text[place:]}"


def test_a_key_that_is_there_twice_is_refused_in_a_task() -> None:
    """Of two values one reader takes the first and another the last: they would agree on the id, not on the task."""
    other = GOLDEN.replace('"smallest_batch": 1000', '"smallest_batch": 1, "smallest_batch": 1000')
    for text in (other, *(twice(GOLDEN, at) for at in range(len(key_places(GOLDEN))))):
        assert json.loads(text) == json.loads(GOLDEN)
        with refusal("malformed", error=TaskError):
            Task.from_json(text)


def test_a_key_that_is_there_twice_is_refused_in_a_plan() -> None:
    plan = Task.from_json(GOLDEN).plan.to_json()
    for at in range(len(key_places(plan))):
        with refusal("malformed", error=PlanError):
            Plan.from_json(twice(plan, at))


@pytest.mark.parametrize("role", ["send", "shuffler", "analyzer"])
def test_no_program_starts_with_a_damaged_task(tmp_path: Path, role: str) -> None:
    """It ends with one message, and leaves nothing behind."""
    (tmp_path / "task.json").write_text(GOLDEN.replace('"rounds": 2', '"rounds": 3'))
    (tmp_path / "rows.csv").write_text("0.5,0.5\n")
    (tmp_path / "secret").write_text("s" * 32)
    (tmp_path / "secret").chmod(0o600)
    server = ["--secret-file", f"{tmp_path}/secret", "--store", f"sqlite:{tmp_path}/store"]
    arguments = {
        "send": ["send", f"{tmp_path}/rows.csv", "--contributions", f"{tmp_path}/contributions"],
        "shuffler": ["serve", "shuffler", *server, "--analyzer", "http://127.0.0.1:1"],
        "analyzer": ["serve", "analyzer", *server, "--key", f"{tmp_path}/key"],
    }[role]
    program = Program(tmp_path / "log", [*arguments, "--task", f"{tmp_path}/task.json"])
    assert program.wait(60) == 2
    said = (tmp_path / "log").read_text()
    if role == "send":
        assert said.startswith(f"shufflesum: {tmp_path}/task.json: ")
        assert said.count("\n") == 1
    else:  # a server says nothing but lines of its log
        *_, last = map(json.loads, said.splitlines())
        assert last["problem"] == "changed-afterwards"
        assert last["error"].startswith(f"{tmp_path}/task.json: ")
    assert {path.name for path in tmp_path.iterdir()} == {"task.json", "rows.csv", "secret", "log"}
