from __future__ import annotations

import base64
import html
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.pages.elements import Elements

import shufflesum as ss
from shufflesum.estimate import BaseEstimate
from shufflesum.keys import generate_private_key
from shufflesum.service import client
from shufflesum.service.http.messages import round_to_json
from shufflesum.wire import Task

if TYPE_CHECKING:
    from tests.cli.conftest import Command

PRIVACY = ("--epsilon", "1", "--delta", "1e-6")
SECRET_VALUE = "0.8123456789"  # somebody's row


def pictures_of(page: str) -> list[str]:
    return [base64.b64decode(found).decode() for found in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page)]


@pytest.fixture
def people(folder: Path) -> str:
    rows = [f"{i % 7 / 7},{SECRET_VALUE}" for i in range(1000)]
    (folder / "people.csv").write_text("\n".join(["age,<i>height</i>", *rows]))
    return "people.csv"


def test_values_that_were_moved_or_filled_in_are_spoken_of_wherever_intervals_are_shown(
    command: Command, folder: Path, people: str
) -> None:
    run = ("run", people, *PRIVACY, "--bounds", "0:1", "--report", "run.html")
    done = command(*run)
    assert "bias" not in done.out
    assert "as they were counted" not in (folder / "run.html").read_text(encoding="utf-8")
    done = command(*run, "--clip", "--missing", "midpoint")
    page = Elements((folder / "run.html").read_text(encoding="utf-8")).text
    said = command(*run[:-2], "--clip", "--missing", "midpoint", "--json").estimate["adjustment"]
    assert said in done.out
    assert said in page
    assert "as they were counted" in page
    varied = ("run", people, "--variance", *PRIVACY, "--bounds", "0:1", "--clip", "--missing", "midpoint")
    assert said in command(*varied).out
    assert command(*varied, "--json").estimate["adjustment"] == said


def test_a_page_of_a_run_holds_all_of_it_and_no_value_of_a_user(command: Command, folder: Path, people: str) -> None:
    done = command("run", people, *PRIVACY, "--bounds", "0:1", "--report", "run.html", "--confidence", "0.9")
    assert done.code == 0, done.err
    assert "wrote run.html" in done.out
    page = (folder / "run.html").read_text(encoding="utf-8")
    found = Elements(page)
    for words in (
        "Private mean of people.csv",
        "The mean and sum of",
        "one user, that is one row of data",
        "90 % interval",
        "chosen without looking at the data",
        "One process holds the data of all users",
        "shufflesum run people.csv --epsilon 1 --delta 1e-6 --bounds 0:1 --report run.html --confidence 0.9",
        "The command held the data of all users",
        "<i>height</i>",
    ):
        assert words in found.text
    assert found.addresses[0].startswith("data:image/svg+xml;base64,")
    assert len(found.addresses) == 1
    assert not found.tags & {"script", "link", "iframe", "i", "object"}
    assert SECRET_VALUE not in page
    (picture,) = pictures_of(page)
    assert "age" in picture
    assert not re.search(r"""(href|src)=|url\((?!['"]?#)|<script|<image""", picture)


def test_a_report_must_be_a_page_and_no_input(command: Command, folder: Path, people: str) -> None:
    assert "[unknown-file-type]" in command("run", people, *PRIVACY, "--report", "run.pdf").err
    (folder / "people.html").write_text("a,b\n")
    assert "[conflicting-arguments]" in command("run", "people.html", *PRIVACY, "--report", "people.html").err


def test_a_page_of_reports_says_that_repeating_it_costs_nothing(command: Command, folder: Path) -> None:
    np.save(folder / "users.npy", np.full((400, 2), 0.5))
    plan = ("--users", "400", "--dimension", "2", "--epsilon", "4", "--delta", "1e-3", "--digits", "2")
    assert command("plan", *plan, "-o", "plan.json").code == 0
    assert command("randomize", "users.npy", "--plan", "plan.json", "-o", "reports").code == 0
    assert command("shuffle", "reports", "-o", "mixed").code == 0
    done = command("analyze", "mixed", "--plan", "plan.json", "--report", "mixed.html")
    assert done.code == 0, done.err
    text = Elements((folder / "mixed.html").read_text()).text
    assert "shufflesum analyze mixed --plan plan.json --report mixed.html" in text
    assert "repeating it costs no privacy" in text
    assert "played all three roles" not in text


@pytest.fixture
def rounds() -> list[BaseEstimate]:
    plan = ss.plan(
        users=300,
        shape=2,
        epsilon=4.0,
        delta=1e-3,
        mechanism=ss.NoisyCounts.Options(digits=2),
        rounds=3,
        columns=["<b>age</b>", "height"],
        bounds=(0, 1),
    )
    rows = np.random.default_rng(1).random((300, 2))
    randomizer = ss.Randomizer(plan)
    return [
        replace(ss.Analyzer(plan).analyze(randomizer.randomize(rows)), round_number=number) for number in range(1, 4)
    ]


def answered(task: Task, rounds: list[BaseEstimate]) -> dict[str, Any]:
    listed = [
        round_to_json(each, 0.95) | {"round": each.round_number, "guarantee": {"holds": each.guarantee_holds}}
        for each in rounds
    ]
    document: dict[str, Any] = json.loads(json.dumps({"task": task.id, "rounds": listed}))
    return document


@pytest.fixture
def task(folder: Path, rounds: list[BaseEstimate], monkeypatch: pytest.MonkeyPatch) -> Task:
    """Of which an analyzer knows these rounds."""
    task = Task(
        name="ages & heights",
        plan=rounds[0].plan,
        analyzer_key=generate_private_key().public_key().public_bytes_raw(),
        shuffler="https://shuffler.example.org",
        expires=datetime.now(UTC).replace(microsecond=0) + timedelta(days=1),
    )
    (folder / "task.json").write_text(task.to_json())
    monkeypatch.setenv("SHUFFLESUM_TASK", "task.json")
    monkeypatch.setattr(client, "fetch_estimate", lambda *_, **__: answered(task, rounds))
    return task


@pytest.mark.parametrize("why", ["12 users left out a block", None])
def test_why_a_guarantee_does_not_hold_is_said(
    command: Command, task: Task, rounds: list[BaseEstimate], monkeypatch: pytest.MonkeyPatch, why: str | None
) -> None:
    broken = answered(task, [replace(rounds[0], broken=why)])
    broken["rounds"][0]["guarantee"]["holds"] = False
    monkeypatch.setattr(client, "fetch_estimate", lambda *_, **__: broken)
    printed = " ".join(command("estimate", "https://analyzer.example.org").out.split())
    assert f"THE GUARANTEE NO LONGER HOLDS: {why or 'another round of the task broke it'};" in printed


@pytest.mark.usefixtures("task")
def test_several_rounds_of_a_task_are_drawn_over_time(command: Command, folder: Path) -> None:
    address = "https://me:hidden-word@analyzer.example.org/x"
    done = command("estimate", address, "--plot", "time.svg", "--report", "time.html")
    assert done.code == 0, done.err
    drawn = html.unescape((folder / "time.svg").read_text())
    for words in ("ages & heights by round", "<b>age</b>", "height", "Round", "scale of its own"):
        assert words in drawn
    page = (folder / "time.html").read_text()
    text = Elements(page).text
    assert text.index("Round 3, 300 users") < text.index("Round 1, 300 users")
    assert (
        "shufflesum estimate https://analyzer.example.org/x --plot time.svg --report time.html --task task.json" in text
    )
    assert "hidden-word" not in page
    assert len(pictures_of(page)) == 2
