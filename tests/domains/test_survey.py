"""Surveys: how questions are read, what is refused, which tables are collected, and how many cells one user changes."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.domains import domain_from_json
from shufflesum.encodings import AttributeValues, Marginals
from shufflesum.errors import DataError, FileError, ParameterError, PlanError
from shufflesum.mechanisms.rounding import rounded_values
from shufflesum.randomness import SecureSource

SURVEY = ss.Survey(
    {
        "country": ["DE", "FR", "IT"],
        "age": ss.Question(bins=[0, 18, 65, 120], optional=True),
        "income": ss.Question(bounds=(0, 1000), optional=True),
        "hobbies": ss.Question(["chess", "golf"], multiple=True, optional=True),
        "pro": [True, False],
    }
)
ROWS: list[dict[str, Any]] = [
    {"country": "DE", "age": 20.0, "income": 500.0, "hobbies": ["chess"], "pro": True},
    {"country": "FR", "age": None, "income": None, "hobbies": None, "pro": False},
    {"country": "IT", "age": 120.0, "income": 1000.0, "hobbies": [], "pro": False},
    {"country": "DE", "age": 0.0, "income": 0.0, "hobbies": ["golf", "chess", "golf"], "pro": True},
]
VALUES = [
    # country, age, income (rounded by whoever encodes), chess, golf, no answer, pro
    [0, 1, 0, 1, 0, 0, 0],
    [1, 3, 5, 0, 0, 1, 1],
    [2, 2, 0, 0, 0, 0, 1],
    [0, 0, 0, 1, 1, 0, 0],
]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
TEXT = {**COLUMNS, "hobbies": ["chess", None, "", "golf; chess"]}
TABLES: dict[str, Any] = {
    "dictionaries": ROWS,
    "columns": COLUMNS,
    "pandas": pd.DataFrame(ROWS),
    "pandas with lists as text": pd.DataFrame(TEXT),
    "Polars": pl.DataFrame(ROWS),
    "Polars with lists as text": pl.DataFrame(TEXT),
    "Arrow": pa.table(pa.Table.from_pylist(ROWS)),
    "a batch of Arrow": pa.RecordBatch.from_pylist(ROWS),
    "with a column more": pd.DataFrame(ROWS).assign(further=1),
}


def block_of(survey: ss.Survey, answers: Any, start: int, stop: int, *, clip: bool = False) -> AttributeValues:
    found = survey.prepare(answers, clip=clip).block(start, stop)
    assert isinstance(found, AttributeValues)
    return found


@pytest.mark.parametrize("table", TABLES)
def test_answers_are_read_by_the_names_of_their_columns(table: str) -> None:
    block = block_of(SURVEY, TABLES[table], 0, 4)
    np.testing.assert_array_equal(block.values, VALUES)
    ((attribute, levels, numbers),) = block.numbers
    assert (attribute, levels) == (2, 4)
    assert numbers.values[[0, 2, 3], 0].tolist() == [500.0, 1000.0, 0.0]
    part = block_of(SURVEY, TABLES[table], 2, 4)
    np.testing.assert_array_equal(part.values, VALUES[2:])


def test_numbers_are_rounded_at_random_once_for_all_tables_and_keep_their_mean() -> None:
    survey = ss.Survey({"a": ss.Question(bounds=(0, 4), optional=True), "b": ["x", "y"]}, marginals="one-way")
    block = block_of(survey, {"a": [1.25] * 40_000 + [None], "b": ["x"] * 40_001}, 0, 40_001)
    values = rounded_values(block, SecureSource())
    assert values[-1, 0] == 5  # no answer is none of the points
    assert set(values[:-1, 0].tolist()) == {1, 2}
    # within 6 deviations of a fair share of 40,000 coins: once in 10^9 runs
    assert abs(values[:-1, 0].mean() - 1.25) < 6 * np.sqrt(0.25 * 0.75 / 40_000)
    assert values[:, 1].max() == 0


WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "an unknown label": ({"country": "ES"}, ("unknown-label", "question 'country'", "row 1")),
    "a question that is not answered": ({"country": None}, ("missing-value", "question 'country'", "row 1")),
    "a number out of bounds": ({"income": 1001.0}, ("out-of-bounds", "question 'income'", "row 1")),
    "a number in no bin": ({"age": 121.0}, ("out-of-bounds", "question 'age'", "row 1")),
    "an unknown choice": ({"hobbies": ["tennis"]}, ("unknown-label", "question 'hobbies'", "row 1")),
    "an unknown question": ({"colour": "red"}, ("unknown-column", "colour")),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_answer_is_refused_with_its_question_and_row(case: str) -> None:
    changes, (problem, *facts) = WRONG[case]
    with refusal(problem, *facts, error=DataError):
        block_of(SURVEY, [ROWS[0], {**ROWS[0], **changes}], 0, 2).check()


def test_a_table_without_a_questions_column_is_refused() -> None:
    with refusal("columns-mismatch", "income", error=DataError):
        SURVEY.rows(pd.DataFrame(ROWS).drop(columns="income"))
    with refusal("wrong-type", error=DataError):
        SURVEY.rows(np.zeros((3, 5)))


def test_clipping_moves_numbers_and_dropping_leaves_out_who_did_not_answer() -> None:
    block = block_of(SURVEY, [{**ROWS[0], "income": 2000.0, "age": 500.0}], 0, 1, clip=True)
    assert block.values[0, 1] == 2
    assert block.numbers[0][2].values[0, 0] == 1000.0
    rows = [{**ROWS[0], "country": None}, *(100 * ROWS)]
    estimate = ss.aggregate(rows, domain=SURVEY, epsilon=8, delta=1e-3, missing="drop")
    assert (estimate.users, estimate.left_out) == (400, 1)
    with refusal("impossible-combination"):
        SURVEY.check_options(clip=False, missing="midpoint")


@pytest.mark.parametrize("marginals", ["one-way", "up to two-way", [("country", "pro"), "age", ("income", "hobbies")]])
def test_a_survey_is_the_same_after_it_was_written_down(marginals: Any) -> None:
    survey = ss.Survey(dict(SURVEY.questions), marginals=marginals, title="Ours")
    assert domain_from_json(survey.to_json()) == survey
    planned = ss.plan(users=1000, domain=survey, epsilon=2, delta=1e-6, noise_by="curator")
    assert isinstance(planned.domain, ss.Survey)
    assert planned.domain.tables
    assert ss.Plan.from_json(planned.to_json()) == planned
    damaged = survey.to_json() | {"tables": [[0]]}
    with refusal("malformed", error=PlanError):
        domain_from_json(damaged)


MISTAKES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "labels and bins": (lambda: ss.Question(["a", "b"], bins=[0, 1]), ("conflicting-arguments",)),
    "nothing": (ss.Question, ("missing-argument",)),
    "one label": (lambda: ss.Question(["a"]), ("out-of-range",)),
    "no answer twice": (lambda: ss.Question(["a", "no answer"], optional=True), ("conflicting-arguments",)),
    "several numbers": (lambda: ss.Question(bounds=(0, 1), multiple=True), ("conflicting-arguments", "multiple")),
    "levels of labels": (lambda: ss.Question(["a", "b"], levels=3), ("conflicting-arguments", "levels")),
    "no questions": (lambda: ss.Survey({}), ("wrong-type",)),
    "text for labels": (lambda: ss.Survey({"a": "yes"}), ("wrong-type", "'a'")),
    "a workload of no such name": (lambda: ss.Survey({"a": ["x", "y"]}, marginals="three-way"), ("unknown-choice",)),
    "a question left out": (
        lambda: ss.Survey({"a": ["x", "y"], "b": ["x", "y"]}, marginals=["a"]),
        ("missing-argument", "'b'"),
    ),
    "an unknown question": (lambda: ss.Survey({"a": ["x", "y"]}, marginals=[("a", "c")]), ("unknown-choice", "c")),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_in_a_survey_are_refused(case: str) -> None:
    mistake, refused = MISTAKES[case]
    with refusal(*refused, error=ParameterError):
        mistake()


TOML = """
title = "About you"
marginals = [["country", "pro"], ["age"], ["income", "hobbies"]]

[questions.country]
text = "Where do you live?"
labels = ["DE", "FR", "IT"]

[questions.age]
bins = [0, 18, 65, 120]
optional = true

[questions.income]
bounds = [0, 1000]
levels = 6

[questions.hobbies]
labels = ["chess", "golf"]
multiple = true

[questions.pro]
labels = [true, false]
"""


def test_a_file_says_what_python_says(tmp_path: Path) -> None:
    file = tmp_path / "survey.toml"
    file.write_text(TOML)
    survey = ss.Survey.from_file(file)
    assert survey.names == ("country", "age", "income", "hobbies", "pro")
    assert survey.title == "About you"
    assert survey.question("country").text == "Where do you live?"
    assert survey.question("age") == ss.Question(bins=[0, 18, 65, 120], optional=True)
    assert survey.question("income") == ss.Question(bounds=(0, 1000), levels=6)
    assert survey.wanted == (("country", "pro"), ("age",), ("income", "hobbies"))
    for wrong, problem in (
        (TOML.replace("bins =", "edges ="), "malformed"),
        (TOML.replace("[0, 1000]", "[0]"), "bad-bounds"),
        (TOML.replace("[questions.", "[question."), "malformed"),
        (TOML.replace('title = "', "title = "), "malformed"),
        (TOML.replace('["age"]', '["aeg"]'), "unknown-choice"),
    ):
        file.write_text(wrong)
        with refusal(problem, str(file), error=(FileError, ParameterError)):
            ss.Survey.from_file(file)
    with refusal("unreadable", error=FileError):
        ss.Survey.from_file(tmp_path / "none.toml")


# ---- which tables are collected


def variance_of(questions: int, labels: int, marginals: str, tables: str) -> float:
    survey = ss.Survey({f"q{i}": [f"a{j}" for j in range(labels)] for i in range(questions)}, marginals=marginals)
    (encoding,) = survey.encodings()
    assert isinstance(encoding, Marginals)
    both, *others = encoding.choices()
    layout = both if tables == "both" else others[0]
    noise = ss.privacy.least_noise(1.0, 1e-6, changed_cells=layout.changed)
    return noise.variance


@pytest.mark.parametrize(
    ("questions", "marginals", "tables", "variance"),
    [
        (5, "one-way", "both", 159),
        (5, "up to two-way", "both", 527),
        (10, "one-way", "both", 346),
        (10, "up to two-way", "both", 1961),
        (20, "one-way", "both", 708),
        (20, "up to two-way", "both", 7498),
        (10, "up to two-way", "two-way alone", 45 * 35.71),
    ],
)
def test_the_noise_of_a_cell_is_what_the_number_of_tables_asks_for(
    questions: int, marginals: str, tables: str, variance: float
) -> None:
    assert variance_of(questions, 5, marginals, tables) == pytest.approx(variance, rel=0.01)


def test_binary_questions_alone_change_one_cell_each() -> None:
    survey = ss.Survey({f"q{i}": [True, False] for i in range(8)}, marginals="one-way")
    planned = ss.plan(users=100, domain=survey, epsilon=1, delta=1e-6, noise_by="servers")
    assert planned.positions is not None
    assert planned.positions.changed == (8,)
    assert planned.positions.blank.all()
    assert planned.cells == planned.reports == 8
    other = ss.Survey({f"q{i}": ["a", "b", "c"] for i in range(8)}, marginals="one-way")
    assert ss.plan(users=100, domain=other, epsilon=1, delta=1e-6, noise_by="servers").positions.changed == (16,)  # type: ignore[union-attr]


def test_the_planner_takes_the_tables_with_the_least_error() -> None:
    def tables(questions: int, labels: int) -> int:
        survey = ss.Survey({f"q{i}": [f"a{j}" for j in range(labels)] for i in range(questions)})
        planned = ss.plan(users=1000, domain=survey, epsilon=1, delta=1e-6, noise_by="curator")
        offered = list(planned.encoding.choices())
        assert offered == [planned.encoding]
        (open_encoding,) = survey.encodings()
        assert isinstance(open_encoding, Marginals)
        errors = [
            ss.privacy.least_noise(1.0, 1e-6, changed_cells=layout.changed).variance * layout.error_per_variance
            for layout in open_encoding.choices()
        ]
        assert planned.expected_error.total * 1000**2 <= 1.05 * min(errors)
        assert isinstance(planned.domain, ss.Survey)
        return len(planned.domain.tables or ())

    assert tables(5, 2) == 1  # the full table
    assert tables(6, 4) == len(list(combinations(range(6), 2)))  # pairs alone
    assert tables(2, 3) == 1


def test_fewer_reports_are_fewer_tables_or_refused() -> None:
    survey = ss.Survey({f"q{i}": ["a", "b", "c"] for i in range(5)})
    asked: dict[str, Any] = {"users": 1000, "domain": survey, "epsilon": 1, "delta": 1e-6, "noise_by": "servers"}
    assert ss.plan(**asked).reports == 10
    assert ss.plan(**asked, max_reports=9).reports == 1  # all questions together
    large = ss.Survey({f"q{i}": [f"a{j}" for j in range(20)] for i in range(5)})
    with refusal("privacy-out-of-reach", "10 reports", error=ss.ShufflesumError):
        ss.plan(**asked | {"domain": large}, max_reports=9)


# ---- one user


def changed_cells(encoding: Marginals, one: np.ndarray, other: np.ndarray) -> int:
    tables = [np.zeros(encoding.size, np.int64) for _ in range(2)]
    for table, values in zip(tables, (one, other), strict=True):
        for cell in encoding.cells_of(np.array([values], np.uint32)).reshape(-1):
            if cell < encoding.size:
                table[cell] += 1
    difference = np.abs(tables[0] - tables[1])
    assert difference.max(initial=0) <= 1
    return int(difference.sum())


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 4), min_size=2, max_size=5),
    chosen=st.sets(st.integers(0, 30), min_size=1, max_size=8),
    seed=st.integers(0, 1000),
)
def test_replacing_a_user_changes_as_many_cells_as_is_accounted_and_some_user_as_many(
    sizes: list[int], chosen: set[int], seed: int
) -> None:
    attributes = range(len(sizes))
    subsets = [part for size in (1, 2, 3) for part in combinations(attributes, size)]
    tables = tuple(sorted({subsets[number % len(subsets)] for number in chosen}))
    encoding = Marginals(tuple(sizes), tuple((table, 1) for table in tables), tables)
    random = np.random.default_rng(seed)
    for _ in range(5):
        one, other = (np.array([random.integers(0, size) for size in sizes]) for _ in range(2))
        assert changed_cells(encoding, one, other) <= encoding.changed
    most = changed_cells(encoding, np.zeros(len(sizes), np.int64), np.array(sizes) - 1)
    assert most == encoding.changed  # a bound that is one smaller would be wrong
    assert encoding.positions().changed == (encoding.changed,)
    assert encoding.positions().each == len(tables)


def test_every_report_lies_in_the_cells_of_its_table() -> None:
    survey = ss.plan(users=100, domain=SURVEY, epsilon=1, delta=1e-6, noise_by="servers").domain
    (encoding,) = survey.encodings()
    assert isinstance(encoding, Marginals)
    block = block_of(SURVEY, SURVEY.sampler("uniform", np.random.default_rng(1))(500), 0, 500)
    cells = encoding.cells_of(rounded_values(block, SecureSource()))
    firsts = encoding.firsts
    blank = encoding.positions().blank
    inside = (cells >= firsts[:-1]) & (cells < firsts[1:])
    assert (inside | (blank & (cells == np.uint32(0xFFFFFFFF)))).all()


def test_answers_of_one_user_are_read_and_written_back() -> None:
    rows = SURVEY.rows(pd.DataFrame(TEXT))
    assert SURVEY.value_at(rows, 3) == {
        "country": "DE",
        "age": 0.0,
        "income": 0.0,
        "hobbies": ["golf", "chess"],
        "pro": True,
    }
    assert SURVEY.value_at(rows, 1)["hobbies"] is None
    for values in VALUES[1], [2, 0, 3, 1, 0, 0, 1]:
        answers = SURVEY.example(cells=values)
        block = block_of(SURVEY, [answers], 0, 1)
        assert rounded_values(block, SecureSource())[0].tolist() == values
    coercion = SURVEY.coercion()
    held = coercion.wrap_one({**ROWS[0], "income": 5000.0})
    coercion.validate(SURVEY.rows(held))
    with refusal("wrong-type", error=DataError):
        coercion.wrap_one(["DE"])
