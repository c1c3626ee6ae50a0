"""Tables of pandas, Polars and PyArrow in place of arrays, from `aggregate` and `Randomizer` down."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.plan_builders import held
from tests.refusals import refusal
from tests.slow_params import slow_but_for

import shufflesum as ss
from shufflesum.errors import DataError
from shufflesum.testing import SeededSource, unprotected_plan

GUIDE = Path(__file__).parent.parent / "docs" / "guide.md"
VALUES = np.random.default_rng(0).random((4000, 12))
NAMES = [f"c{j}" for j in range(12)]


def tables(values: np.ndarray) -> dict[str, Any]:
    """The same rows in every way a table can hold them."""
    polars = pl.DataFrame(values, schema=NAMES)
    return {
        "pandas": pd.DataFrame(values, columns=NAMES),
        "pandas, nullable": pd.DataFrame(values, columns=NAMES).astype("Float64"),
        "pandas, Arrow": pd.DataFrame(values, columns=NAMES).astype(pd.ArrowDtype(pa.float64())),
        "pandas, lists": pd.Series(list(values)),
        "polars": polars,
        "polars, lists": pl.Series("x", values.tolist()),
        "polars, arrays": pl.DataFrame({"x": values}),
        "arrow": polars.to_arrow(),
        "arrow, batch": polars.to_arrow().combine_chunks().to_batches()[0],
        "arrow, lists": pa.array(values.tolist()),
        "arrow, chunks": pa.chunked_array([values[:1000].tolist(), values[1000:].tolist()]),
    }


TABLES = tables(VALUES)


def run(arrays: Any, **words: Any) -> Any:
    return ss.aggregate(
        arrays,
        epsilon=1.0,
        delta=1e-6,
        mechanism=ss.RandomizedResponse.Options(coordinates=12, levels=2),
        source=SeededSource(1),
        **words,
    )


@pytest.fixture(scope="module")
def bare() -> Any:
    return run(VALUES)


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_a_table_gives_just_what_its_array_gives(kind: str, bare: ss.Estimate) -> None:
    estimate = run(TABLES[kind])
    plan, domain = estimate.plan, estimate.plan.domain.numbers
    assert replace(plan, domain=ss.Arrays(domain.structure, domain.bounds)) == bare.plan
    assert domain.columns is None or len(domain.columns) == 12
    assert estimate.table.tolist() == bare.table.tolist()


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_twelve_numbers_are_a_matrix_where_the_shape_says_so(kind: str, bare: ss.Estimate) -> None:
    estimate = run(TABLES[kind], shape=(3, 4))
    assert estimate.mean.shape == (3, 4)
    assert estimate.table.tolist() == bare.table.tolist()
    with refusal("wrong-shape", "4000", "12", "3", "5", error=DataError):
        run(TABLES[kind], shape=(3, 5))


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_the_randomizer_takes_tables_in_its_plans_shape(kind: str) -> None:
    plan = unprotected_plan(users=4000, shape=(4, 3), coordinates=3, levels=10)
    expected = ss.Randomizer(plan, source=SeededSource(3)).randomize(VALUES.reshape(-1, 4, 3))
    reports = ss.Randomizer(plan, source=SeededSource(3)).randomize(TABLES[kind])
    assert np.array_equal(reports.cells, expected.cells)


def test_structures_take_tables() -> None:
    matrices = VALUES[:, :4].reshape(-1, 2, 2)
    matrices = (matrices + matrices.transpose(0, 2, 1)) / 2
    estimate = run_with(pl.DataFrame(matrices.reshape(-1, 4)), ss.Symmetric(2))
    assert estimate.table.tolist() == run_with(matrices, ss.Symmetric(2)).table.tolist()
    vectors = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    spanned = VALUES[:, :2] @ vectors
    estimate = run_with(pd.DataFrame(spanned), ss.Span(vectors))
    assert estimate.table.tolist() == run_with(spanned, ss.Span(vectors)).table.tolist()


def run_with(arrays: Any, shape: Any) -> Any:
    return ss.aggregate(
        arrays,
        epsilon=1.0,
        delta=1e-6,
        shape=shape,
        mechanism=ss.RandomizedResponse.Options(coordinates=2, levels=2),
        source=SeededSource(1),
        clip=True,
        bounds=(0, 1),
    )


def test_a_column_by_itself_is_one_number_for_each_user() -> None:
    column = VALUES[:, 0]
    words: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "mechanism": ss.RandomizedResponse.Options(levels=2)}
    expected = ss.aggregate(column, **words, source=SeededSource(1))
    for series in (pd.Series(column), pl.Series(column), pa.array(column)):
        estimate = ss.aggregate(series, **words, source=SeededSource(1))
        assert estimate.mean.shape == ()
        assert estimate.table.tolist() == expected.table.tolist()


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_nulls_are_missing_values(kind: str) -> None:
    values = VALUES.copy()
    values[7, 3] = np.nan
    table = tables(values)[kind]
    if isinstance(table, pl.DataFrame) and kind == "polars":
        table = table.fill_nan(None)
    with refusal("missing-value", "row 7", "3", error=DataError):
        run(table)
    assert run(table, missing="midpoint").table.tolist() == run(values, missing="midpoint").table.tolist()


def test_workers_share_a_table_of_several_batches_and_name_the_row_in_the_whole() -> None:
    rng = np.random.default_rng(4)
    values = rng.integers(0, 2, (600_000, 20)).astype(np.float32)  # three batches
    table = pa.table({str(j): values[:, j] for j in range(20)})
    estimate = ss.aggregate(
        table, epsilon=1.0, delta=1e-6, mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=1), workers=3
    )
    assert estimate.users == 600_000
    # 20 normal errors within 7 standard errors: missed less than once in 10^10
    assert (np.abs(estimate.mean - values.mean(axis=0, dtype=np.float64)) < 7 * estimate.standard_error).all()
    values = values.copy()
    values[555_555, 2] = 9
    with refusal("out-of-bounds", "row 555555", "column_2", "9.0", error=DataError):
        ss.aggregate(
            pl.DataFrame(values),
            epsilon=1.0,
            delta=1e-6,
            mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=1),
            workers=3,
        )


@pytest.mark.parametrize(
    ("table", "refused"),
    [
        (pl.LazyFrame({"a": [1.0]}), ("no-rows", "collect()")),
        (pd.DataFrame({"a": [0.5], "city": ["x"]}), ("not-numbers", "column 'city'")),
        (pa.table({"x": [[1.0], [1.0, 2.0]]}), ("wrong-shape", "row 1")),
        (pl.DataFrame({"a": []}), ("no-rows",)),
    ],
)
def test_what_is_no_table_of_numbers_is_refused_by_all(table: Any, refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=DataError):
        ss.aggregate(table, epsilon=1.0, delta=1e-6)
    with refusal(*refused, error=DataError):
        ss.Randomizer(unprotected_plan(users=1, shape=1)).randomize(table)


LOADED = "assert not {'pandas', 'polars', 'pyarrow', 'pyspark'} & set(sys.modules), sorted(sys.modules)"
AGGREGATE = """
import sys
import numpy as np
import shufflesum as ss
estimate = ss.aggregate(np.full((3000, 2), 0.5), epsilon=1.0, delta=1e-6, mechanism=ss.RandomizedResponse.Options(1, 1))
estimate = ss.aggregate([[0.5, 0.5]] * 3000, epsilon=1.0, delta=1e-6, mechanism=ss.RandomizedResponse.Options(1, 1))
reports = ss.Randomizer(estimate.plan).randomize(np.full((3000, 2), 0.5))
assert estimate.users == 3000
"""
BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""
ONE_ALONE = {
    "pandas": "import pandas\ntable = pandas.DataFrame({'a': [0.5, 0.5, None] * 1000, 'b': [0.5] * 3000})",
    "polars": "import polars\ntable = polars.DataFrame({'a': [0.5, 0.5, None] * 1000, 'b': [0.5] * 3000})",
    "pyarrow": "import pyarrow\ntable = pyarrow.table({'a': [[0.5, 0.5]] * 3000})",
}


def python(text: str) -> None:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_arrays_are_aggregated_without_loading_any_library_of_tables() -> None:
    python(f"{AGGREGATE}\n{LOADED}")


@pytest.mark.slow
def test_arrays_are_aggregated_where_no_library_of_tables_is_installed() -> None:
    blocker = BLOCKER.format(blocked=set(ONE_ALONE))
    python(f"{blocker}\n{AGGREGATE}")
    for library in ONE_ALONE:
        with pytest.raises(AssertionError):
            python(f"{blocker}\nimport {library}")


@pytest.mark.parametrize("library", slow_but_for(["pandas", "pyarrow"], ["pandas"]))
def test_arrow_is_needed_only_for_what_is_not_numpy(library: str) -> None:
    python(
        f"{BLOCKER.format(blocked={*ONE_ALONE} - {library})}\n{ONE_ALONE[library]}\nimport shufflesum as ss\n"
        "one = ss.RandomizedResponse.Options(coordinates=1, levels=1)\n"
        "estimate = ss.aggregate(table, epsilon=1.0, delta=1e-6, mechanism=one, missing='midpoint')\n"
        "assert (estimate.users, estimate.mean.shape) == (3000, (2,))"
    )


@pytest.mark.slow
def test_a_table_that_needs_arrow_names_the_extra() -> None:
    python(
        f"{BLOCKER.format(blocked={'pyarrow'})}\n{ONE_ALONE['polars']}\nimport shufflesum as ss\n"
        "try:\n    ss.aggregate(table, epsilon=1.0, delta=1e-6)\n"
        "except ss.ShufflesumError as error:\n    assert 'shufflesum[files]' in str(error)\nelse:\n    assert False"
    )


@pytest.mark.parametrize("shape", [None, 2, (2,), [2], ss.GroupBy(["x", "y"], 2)], ids=str)
def test_an_estimate_says_the_columns_of_its_table(shape: Any) -> None:
    frame = pd.DataFrame({"age": [0.5] * 500, "income": [0.25] * 500})
    groups = ["x", "y"] * 250 if isinstance(shape, ss.GroupBy) else None
    estimate = ss.aggregate(frame, **held(shape), group_by=groups, epsilon=1, delta=1e-5)
    assert estimate.columns == ("age", "income")
    assert ss.aggregate(frame.to_numpy(), **held(shape), group_by=groups, epsilon=1, delta=1e-5).columns is None


def test_what_has_no_columns_of_numbers_says_none() -> None:
    frame = pd.DataFrame({"a": [0.5] * 500, "b": [0.25] * 500, "c": [0.25] * 500, "d": [0.25] * 500})
    for domain in (ss.Arrays((2, 2)), ss.L2Ball(4, 2.0), ss.Arrays(ss.Symmetric(2))):
        assert ss.aggregate(frame, domain=domain, epsilon=1, delta=1e-5).columns is None
    counts = ss.aggregate(["x", "y"] * 250, domain=ss.Categories(["x", "y"]), epsilon=1, delta=1e-5)
    assert counts.columns is None
    assert ss.aggregate(frame["a"], epsilon=1, delta=1e-5).columns == ("a",)


def test_the_guides_example_runs_and_names_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    section = re.search(r"## Data frames\n(.*?)\n## ", GUIDE.read_text(), flags=re.DOTALL)
    assert section is not None
    (block,) = re.findall(r"```python\n(.*?)```", section[1], flags=re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", section[1], flags=re.DOTALL)
    exec(block, {})
    printed = capsys.readouterr().out
    # Secure randomness: figures differ in each run, the words do not.
    assert re.sub(r"[\s\d.-]+", " ", printed) == re.sub(r"[\s\d.-]+", " ", shown)
