"""`shufflesum randomize`, `shuffle` and `analyze` on labels, plain and sealed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.refusals import lacking

import shufflesum as ss
from shufflesum.keys import generate_private_key, write_key_pair
from shufflesum.wire import Task

if TYPE_CHECKING:
    from tests.cli.conftest import Command

USERS = 1000
SURE = ("--confidence", "0.99999999")  # so that an interval fails with probability at most 1e-8
PLANS: dict[str, tuple[Any, str, list[float]]] = {
    "categories": (ss.Categories(["yes", "no", "unsure"], column="answer"), "", [600, 300, 100]),
    "choices": (ss.MultiChoice(["web", "mail"], max_choices=2), "--multi-choice ticked", [1000, 500]),
    "groups": (ss.GroupBy(["DE", "FR"], ss.Arrays((1,), (0, 9), ["visits"]), column="country"), "", [700, 300]),
    "words": (ss.OpenVocabulary(), "--open-vocabulary answer", [600, 300, 100]),
}


@pytest.fixture
def survey(folder: Path) -> str:
    random = np.random.default_rng(3)
    country = random.permutation(np.repeat(["DE", "FR"], (700, 300)))
    columns = {
        "answer": random.permutation(np.repeat(["yes", "no", "unsure"], (600, 300, 100))),
        "ticked": pa.array([["web", "mail"][: 1 + i % 2] for i in range(USERS)]),
        "country": country,
        "visits": np.where(country == "DE", 8.0, 1.0),
        "id": np.arange(USERS),
    }
    parquet.write_table(pa.table(columns), folder / "survey.parquet")
    (folder / "words.txt").write_text("yes\nno\nunsure\n")
    return "survey.parquet"


def planned(folder: Path, kind: str) -> ss.Plan:
    plan = ss.plan(users=USERS, domain=PLANS[kind][0], epsilon=1.0, delta=1e-5)
    (folder / "plan.json").write_text(plan.to_json())
    return plan


def holds(estimate: dict[str, Any], truth: list[float]) -> bool:
    lower, upper = (np.array(end, dtype=float) for end in estimate["count_interval"])
    return bool(np.all((lower <= truth) & (truth <= upper)))


@pytest.mark.parametrize("kind", PLANS)
def test_from_a_file_of_labels_to_their_counts(command: Command, folder: Path, survey: str, kind: str) -> None:
    planned(folder, kind)
    _, options, truth = PLANS[kind]
    candidates = ("--candidates", "words.txt") if kind == "words" else ()
    assert command("randomize", survey, "--plan", "plan.json", *options.split(), "-o", "reports").code == 0
    assert command("shuffle", "reports", "-o", "shuffled").code == 0
    asked = ("analyze", "shuffled", "--plan", "plan.json", *candidates)
    done = command(*asked, *SURE, "--json", "-o", "out.json", "--plot", "out.svg")
    assert holds(done.estimate, truth)
    assert not holds(done.estimate, truth[::-1])
    assert json.loads((folder / "out.json").read_text())["estimate"] == done.estimate
    assert (folder / "out.svg").stat().st_size > 1000
    if kind == "group-by":
        low, high = np.array(done.estimate["confidence_interval"])[..., 0]
        assert low[0] <= 8 <= high[0]
        assert low[1] <= 1 <= high[1]
        assert "visits" in json.dumps(done.estimate)
    assert "1,000 users" in command(*asked).out


def test_sealed_labels_are_counted_by_the_analyzer_alone(command: Command, folder: Path, survey: str) -> None:
    plan = planned(folder, "categories")
    key = generate_private_key()
    write_key_pair(folder / "analyzer", key)
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    task = Task("survey", plan, key.public_key().public_bytes_raw(), "https://shuffler.example.org", expires)
    (folder / "task.json").write_text(task.to_json())
    assert command("randomize", survey, "--task", "task.json", "-o", "reports").code == 0
    assert command("shuffle", "reports", "-o", "shuffled").code == 0
    asked = ("analyze", "shuffled", "--task", "task.json", "--key", "analyzer.key", *SURE, "--json")
    assert holds(command(*asked).estimate, [600, 300, 100])


def test_words_are_asked_for_as_often_as_one_likes(command: Command, folder: Path, survey: str) -> None:
    planned(folder, "words")
    assert command("randomize", survey, "--plan", "plan.json", "--open-vocabulary", "answer", "-o", "reports").code == 0
    assert command("shuffle", "reports", "-o", "shuffled").code == 0
    first = command("analyze", "shuffled", "--plan", "plan.json", "--state", "state.json")
    assert (first.code, lacking(first.out, "1,000 users", "--candidates")) == (0, [])
    (folder / "more.txt").write_text("unsure\nmaybe\n")
    again = ("analyze", "--plan", "plan.json", "--state", "state.json", *SURE, "--json", "--candidates")
    assert holds(command(*again, "words.txt").estimate, [600, 300, 100])
    assert command(*again, "words.txt").estimate == command(*again, "words.txt").estimate
    assert holds(command(*again, "more.txt").estimate, [100, 0])


@pytest.mark.parametrize(
    ("kind", "arguments", "facts"),
    [
        (
            "categories",
            "randomize survey.parquet --plan plan.json --categories country -o r",
            "[columns-mismatch] 'answer'",
        ),
        (
            "categories",
            "randomize survey.parquet --plan plan.json --open-vocabulary answer -o r",
            "[conflicting-arguments] --open-vocabulary",
        ),
        ("choices", "randomize survey.parquet --plan plan.json -o r", "[missing-argument] --multi-choice"),
        ("choices", "randomize survey.parquet --plan plan.json --multi-choice answer -o r", "[unknown-label]"),
        ("groups", "randomize survey.parquet --plan plan.json --columns id -o r", "[columns-mismatch] 'visits'"),
        (
            "words",
            "randomize survey.parquet --plan plan.json --open-vocabulary answer --clip -o r",
            "[impossible-combination] clip",
        ),
    ],
)
def test_other_data_are_refused_and_leave_nothing(
    refused: Callable[..., str], folder: Path, survey: str, kind: str, arguments: str, facts: str
) -> None:
    planned(folder, kind)
    assert lacking(refused(*arguments.split()), *facts.split()) == []


def test_candidates_and_pictures_need_words(refused: Callable[..., str], folder: Path, survey: str) -> None:
    planned(folder, "categories")
    said = refused("analyze", "nowhere", "--plan", "plan.json", "--candidates", "words.txt")
    assert lacking(said, "[conflicting-arguments]", "--candidates") == []
    planned(folder, "words")
    said = refused("analyze", "nowhere", "--plan", "plan.json", "--plot", "p.svg")
    assert lacking(said, "[missing-argument]", "--candidates") == []
