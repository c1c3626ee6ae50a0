"""A plan made for columns refuses others, and another order, wherever rows come in, also where values are clipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.aggregation import aggregate_batches
from shufflesum.batch.local import open_users
from shufflesum.errors import DataError, ParameterError
from shufflesum.tables.readers import open_table, rows_of
from shufflesum.tables.sources import ReadOptions

BOUNDS = {"age": (0, 120), "income": (0, 500_000)}
PLAN = ss.plan(
    users=500, shape=2, columns=list(BOUNDS), bounds=BOUNDS, epsilon=1, delta=1e-5, mechanism="randomized-response"
)
GROUPS = ss.GroupBy(["a", "b"], ss.Arrays(2, BOUNDS, list(BOUNDS)))
FRAME = pd.DataFrame({"age": [30.0] * 500, "income": [1000.0] * 500})
OTHERS = {
    "another order": FRAME[["income", "age"]],
    "another name": FRAME.rename(columns={"age": "height"}),
    "one less": FRAME[["age"]],
}


def randomized(rows: Any) -> None:
    ss.Randomizer(PLAN, clip=True).randomize(rows)


WAYS: dict[str, Callable[[pd.DataFrame], object]] = {
    "randomizer, pandas": randomized,
    "randomizer, polars": lambda frame: randomized(pl.from_pandas(frame)),
    "randomizer, arrow": lambda frame: randomized(pa.Table.from_pandas(frame)),
    "randomizer, rows of pandas": lambda frame: randomized([frame.iloc[i] for i in range(3)]),
    "randomizer, named tuples": lambda frame: randomized(list(frame.head(3).itertuples(index=False))),
    "batches": lambda frame: aggregate_batches([frame], PLAN, clip=True),
    "client": lambda frame: PLAN.domain.coercion().wrap_one(frame.iloc[0]),
    "client, groups": lambda frame: GROUPS.coercion().wrap_one(("a", frame.iloc[0])),
    "groups": lambda frame: GROUPS.rows((["a"] * len(frame), frame)),
}


@pytest.mark.parametrize("way", WAYS)
def test_just_the_columns_of_the_plan_pass(way: str) -> None:
    WAYS[way](FRAME)
    for other in OTHERS.values():
        with refusal("columns-mismatch", "'age'", "'income'", error=DataError):
            WAYS[way](other)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_are_read_by_the_names_of_the_plan(tmp_path: Path, kind: str) -> None:
    """Whatever the order in the file; asked for in another order, or without one of them, they are refused."""
    for name, frame in {**OTHERS, "more": FRAME.assign(size=1.0)}.items():
        path = tmp_path / f"{name}.{kind}"
        frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    for name in ("another order", "more"):
        table = open_table(tmp_path / f"{name}.{kind}", ReadOptions().for_domain(PLAN.domain))
        assert table.names == ("age", "income")
        rows: Any = next(rows_of(table, PLAN.domain))
        assert rows[0:1].tolist() == [[30.0, 1000.0]]
    for name in ("another name", "one less"):
        with refusal("columns-mismatch", "'age'" if name == "another name" else "'income'", error=DataError):
            open_users(tmp_path / f"{name}.{kind}", ReadOptions().for_domain(PLAN.domain))
    with refusal("columns-mismatch", "'age', 'income'", error=DataError):
        open_table(tmp_path / f"more.{kind}", ReadOptions(["income", "age"]).for_domain(PLAN.domain))


def test_bounds_by_name_are_in_the_columns_order() -> None:
    box = ss.plan(users=500, shape=2, columns=["income", "age"], bounds=BOUNDS, epsilon=1, delta=1e-5).domain.numbers
    assert box.bounds.upper == (500_000, 120)
    estimate = ss.aggregate(FRAME, bounds=BOUNDS, epsilon=1, delta=1e-5)
    assert estimate.columns == ("age", "income")
    assert estimate.standard_error[0] < 10


@pytest.mark.parametrize(
    ("bounds", "columns", "problem", "named"),
    [
        ({"age": (0, 1)}, ["age", "income"], "bad-bounds", "'income'"),
        ({"age": (0, 1), "size": (0, 1)}, ["age", "income"], "unknown-column", "'size'"),
        ({"age": (1, 0), "income": (0, 1)}, ["age", "income"], "bad-bounds", "'age'"),
        ({"age": (0, float("nan")), "income": (0, 1)}, ["age", "income"], "bad-bounds", "'age'"),
        ({"age": ([0, 1], [2, 3]), "income": (0, 1)}, ["age", "income"], "bad-bounds", "'age'"),
        ({"age": 5, "income": (0, 1)}, ["age", "income"], "bad-bounds", "'age'"),
        ({"age": (0, 1), "income": (0, 1)}, None, "bad-bounds", "'age'"),
        ({}, ["age", "income"], "bad-bounds", "'age'"),
    ],
    ids=str,
)
def test_bounds_that_do_not_fit_the_columns_are_refused(bounds: Any, columns: Any, problem: str, named: str) -> None:
    with refusal(problem, named, error=ParameterError):
        ss.plan(users=500, shape=2, columns=columns, bounds=bounds, epsilon=1, delta=1e-5)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.coo_matrix])
def test_sparse_matrices_of_scipy_are_refused_by_name(kind: Any) -> None:
    with refusal("not-numbers", "SciPy", kind.__name__, "toarray()", error=DataError):
        ss.aggregate(kind(np.eye(500)), epsilon=1, delta=1e-5)
