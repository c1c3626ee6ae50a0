"""Labels, groups and words from clients through real servers to estimates that carry their names."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.forked_processes import wait_until
from tests.refusals import refusal
from tests.service.proxy import LossyProxy
from tests.service.servers import Deployment

import shufflesum as ss
from shufflesum.cli.clients import estimate_command
from shufflesum.domains.counts import CountEstimate
from shufflesum.domains.group_by.estimate import GroupEstimate
from shufflesum.domains.open_vocabulary.estimate import VocabularyEstimate
from shufflesum.plans import Plan
from shufflesum.service.client import Client, estimates_in, fetch_estimate

USERS = 240
LEVEL = 1 - 1e-7  # so that an interval misses the truth with probability at most 1e-7


class Collected:
    """A deployment whose users have all sent, and whose analyzer has answered."""

    def __init__(self, folder: Path, plan: Plan, rows: Any, *asked: list[str]) -> None:
        with LossyProxy(lambda: shuffler.port, loss=0, seed=0) as front:
            deployment = Deployment(folder, plan, shuffler_url=front.url)
            with deployment.analyzer("--processes", "1") as analyzer, deployment.shuffler(analyzer.url) as shuffler:
                with Client(deployment.task, contributions=folder / "contributions") as client:
                    client.upload_many(rows, [f"user {i}" for i in range(USERS)])
                wait_until(lambda: shuffler.metric("shufflesum_batches_released_total") == 1)
                document = fetch_estimate(deployment.task, analyzer.url)
                (self.estimate,) = estimates_in(deployment.task, document).values()
                task = ["--task", str(deployment.task_file), analyzer.url]
                self.said = [CliRunner().invoke(estimate_command, [*task, *options]) for options in asked]


def output(said: Result) -> str:
    assert said.exit_code == 0, said.exception
    return said.output


def test_labels_are_counted_under_their_names(tmp_path: Path) -> None:
    plan = ss.plan(users=USERS, domain=ss.Categories(["yes", "no"], other=True), epsilon=3.0, delta=1e-3)
    answers = ["yes"] * 150 + [" no"] * 60 + ["perhaps", None] * 15
    picture = tmp_path / "counts.svg"
    (tmp_path / "words.txt").write_text("yes\n", encoding="utf-8")
    asked = (["--plot", str(picture)], ["--candidates", str(tmp_path / "words.txt")], ["--top", "1"])
    found = Collected(tmp_path, plan, answers, *asked)
    assert isinstance(found.estimate, CountEstimate)
    low, high = found.estimate.count_interval(LEVEL, simultaneous=True)
    assert np.all((low <= [150, 60, 30]) & (high >= [150, 60, 30]))
    shown = output(found.said[0])
    assert all(f"{label} " in shown for label in ("yes", "no", "other"))
    assert all(label in picture.read_text() for label in ("yes", "no", "other"))
    assert "1 of 3 labels" in output(found.said[2])
    with refusal("conflicting-arguments"):
        raise found.said[1].exception or AssertionError


def test_groups_have_sizes_and_means(tmp_path: Path) -> None:
    plan = ss.plan(users=USERS, domain=ss.GroupBy(["at", "de"]), bounds=(0, 10), epsilon=4.0, delta=1e-2)
    groups = np.where(np.arange(USERS) % 3 == 0, "at", "de")
    values = np.where(groups == "at", 2.0, 99.0)  # beyond the bounds
    found = Collected(tmp_path, plan, (groups, values), ["--json"], [])
    assert isinstance(found.estimate, GroupEstimate)
    for (low, high), truth in (
        (found.estimate.count_interval(LEVEL, simultaneous=True), [80, 160]),
        (found.estimate.confidence_interval(LEVEL, simultaneous=True), [2, 10]),
    ):
        assert np.all((low <= truth) & (truth <= high))
    (answer,) = json.loads(output(found.said[0]))["rounds"]
    assert answer["groups"] == ["at", "de"]
    assert answer["counts"] == pytest.approx(found.estimate.counts)
    assert "at " in output(found.said[1])


@pytest.mark.slow
def test_words_are_counted_when_somebody_asks(tmp_path: Path) -> None:
    plan = ss.plan(users=USERS, domain=ss.OpenVocabulary(depth=4), epsilon=3.0, delta=1e-3)
    (tmp_path / "candidates.txt").write_text("apple\n\nbanana\ncherry\n", encoding="utf-8")
    table, answer = tmp_path / "counts.csv", tmp_path / "answer.json"
    asked = ["--candidates", str(tmp_path / "candidates.txt")]
    found = Collected(
        tmp_path,
        plan,
        ["apple"] * 180 + ["banana"] * 60,
        [*asked, "-o", str(table)],
        [*asked, "-o", str(answer)],
        [],
        ["--plot", str(tmp_path / "plot.svg")],
    )
    assert isinstance(found.estimate, VocabularyEstimate)
    low, high = found.estimate.counts_of(["apple", "banana", "cherry"]).count_interval(LEVEL, simultaneous=True)
    assert np.all((low <= [180, 60, 0]) & (high >= [180, 60, 0]))
    assert found.estimate.top(1, among=["cherry", "apple"]).labels == ("apple",)
    assert "apple " in output(found.said[0])
    with table.open(encoding="utf-8", newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["apple", "banana", "cherry"]
    output(found.said[1])
    (written,) = json.loads(answer.read_text())["rounds"]
    assert written["candidates"]["labels"] == ["apple", "banana", "cherry"]
    assert "--candidates" in output(found.said[2])
    with refusal("missing-argument", "--candidates"):
        raise found.said[3].exception or AssertionError
    assert not (tmp_path / "plot.svg").exists()


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "unreadable"), (b"", "no-rows"), (b"  \n\n", "no-rows"), (b"\xff\xfe\x00", "not-text")],
)
def test_candidates_that_are_none_are_refused_before_anybody_is_asked(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    plan = ss.plan(users=USERS, domain=ss.OpenVocabulary(depth=4), epsilon=3.0, delta=1e-3)
    deployment = Deployment(tmp_path, plan)
    words = tmp_path / "words.txt"
    if content is not None:
        words.write_bytes(content)
    arguments = ["--task", str(deployment.task_file), "--candidates", str(words), "http://127.0.0.1:1"]
    said = CliRunner().invoke(estimate_command, arguments)
    with refusal(problem, "words.txt"):
        raise said.exception or AssertionError
