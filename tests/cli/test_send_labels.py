"""`shufflesum send` of labels: which value of a file is a user's, and what is refused before anything is sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.cli.clients import _row, send_command
from shufflesum.domains import Arrays, Domain
from shufflesum.errors import DataError, ParameterError, ShufflesumError
from shufflesum.keys import generate_private_key
from shufflesum.tables.readers import open_table
from shufflesum.tables.sources import ReadOptions
from shufflesum.wire import Task


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    columns = {
        "answer": ["yes", "no", None],
        "code": [2, 0, 1],
        "ticked": [["web"], [], ["mail", "web"]],
        "x": [0.5, 1.0, 0.0],
    }
    parquet.write_table(pa.table(columns), tmp_path / "s.parquet")
    return tmp_path / "s.parquet"


def held(path: Path, domain: Domain, column: str | None, row: int, columns: list[str] | None = None) -> Any:
    table = open_table(path, ReadOptions(column=column, columns=columns).for_domain(domain))
    return _row(table, domain, row)


def test_a_row_is_what_its_user_holds(survey: Path) -> None:
    answers = ss.Categories(["yes", "no"])
    assert [held(survey, answers, "answer", row) for row in range(3)] == ["yes", "no", None]
    assert [held(survey, ss.Categories(3), "code", row) for row in range(3)] == [2, 0, 1]
    assert [held(survey, ss.OpenVocabulary(), "answer", row) for row in range(2)] == ["yes", "no"]
    ticked = ss.MultiChoice(["web", "mail"], max_choices=2)
    assert [held(survey, ticked, "ticked", row) for row in range(3)] == [["web"], [], ["mail", "web"]]
    label, array = held(survey, ss.GroupBy(["yes", "no"], 1), "answer", 1, ["x"])
    assert (label, np.asarray(array).tolist()) == ("no", [1.0])
    assert held(survey, ss.Categories(bins=[0, 0.7, 1]), "x", 0) == 0.5
    assert np.asarray(held(survey, Arrays((1,), (0, 1)), None, 1, ["x"])).tolist() == [1.0]
    with refusal("out-of-range", "--row is 3", error=ParameterError):
        held(survey, answers, "answer", 3)


def test_a_row_beyond_the_first_batch_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shufflesum.tables import sources

    monkeypatch.setattr(sources, "_LABELS_PER_BATCH", 2)
    parquet.write_table(pa.table({"label": list("abcde")}), tmp_path / "x.parquet")
    domain = ss.Categories(list("abcde"))
    assert [held(tmp_path / "x.parquet", domain, None, row) for row in range(5)] == list("abcde")


@pytest.mark.parametrize(
    ("options", "problem", "facts", "error"),
    [
        ("--categories code", "columns-mismatch", ["'answer'"], DataError),
        ("--open-vocabulary answer", "conflicting-arguments", ["--open-vocabulary", "--categories"], ParameterError),
        ("--columns x", "conflicting-arguments", ["--columns"], ParameterError),
    ],
)
def test_other_columns_than_the_plans_are_refused(
    survey: Path, tmp_path: Path, options: str, problem: str, facts: list[str], error: type[ShufflesumError]
) -> None:
    task = Task(
        name="survey",
        plan=ss.plan(users=300, domain=ss.Categories(["yes", "no"], column="answer"), epsilon=2.0, delta=1e-4),
        analyzer_key=generate_private_key().public_key().public_bytes_raw(),
        shuffler="http://127.0.0.1:1",
        expires=datetime.now(UTC).replace(microsecond=0) + timedelta(days=1),
    )
    (tmp_path / "task.json").write_text(task.to_json())
    given = ["--task", str(tmp_path / "task.json"), str(survey), *options.split()]
    outcome = CliRunner().invoke(send_command, given)
    with refusal(problem, *facts, error=error):
        assert outcome.exception is not None
        raise outcome.exception
