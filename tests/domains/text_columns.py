"""Labels of any kind, and a column of text in every way that it may come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import strategies as st

from shufflesum.domains.labels import text_of

__all__ = ["TEXT", "TEXT_COLUMNS", "halves", "labels"]

labels = st.lists(
    st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=5).filter(lambda text: bool(text.strip())),
    min_size=1,
    max_size=8,
    unique_by=text_of,
)


def halves(column: Any) -> Any:
    """The same column in two chunks."""
    middle = len(column) // 2
    return pa.chunked_array([column[:middle], column[middle:]])


def arrow_halves(values: list[Any]) -> Any:
    """Each chunk with a dictionary of its own."""
    middle = len(values) // 2
    return pa.chunked_array([pa.array(part).dictionary_encode() for part in (values[:middle], values[middle:])])


TEXT = ["b", "a", None, "zz", " c ", "a"]
TEXT_COLUMNS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "object array": lambda v: np.array(v, dtype=object),
    "pandas object": lambda v: pd.Series(v, dtype=object),
    "pandas index": lambda v: pd.Index(v, dtype=object),
    "pandas string": lambda v: pd.Series(v, dtype="string[python]"),
    "pandas arrow string": lambda v: pd.Series(v, dtype="string[pyarrow]"),
    "pandas arrow type": lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.string())),
    "pandas categorical": lambda v: pd.Series(v, dtype="category"),
    "pandas bare categorical": pd.Categorical,
    "pandas frame": lambda v: pd.DataFrame({"answer": v}),
    "pandas other index": lambda v: pd.Series(v, dtype=object, index=range(10, 10 + len(v))),
    "polars string": lambda v: pl.Series("answer", v, dtype=pl.String),
    "polars categorical": lambda v: pl.Series(v, dtype=pl.Categorical),
    "polars enum": lambda v: pl.Series(v, dtype=pl.Enum(["unused", "zz", "a", "b", " c "])),
    "polars frame": lambda v: pl.DataFrame({"answer": v}),
    "arrow": pa.array,
    "arrow large": lambda v: pa.array(v, pa.large_string()),
    "arrow view": lambda v: pa.array(v, pa.string_view()),
    "arrow binary": lambda v: pa.array([None if x is None else x.encode() for x in v], pa.binary()),
    "arrow chunks": lambda v: halves(pa.array(v)),
    "arrow dictionary": lambda v: pa.array(v).dictionary_encode(),
    "arrow unsigned dictionary": lambda v: pa.array(v).cast(pa.dictionary(pa.uint8(), pa.string())),
    "arrow dictionaries": arrow_halves,
    "arrow sliced": lambda v: pa.array(["b", *v]).dictionary_encode()[1:],
    "arrow table": lambda v: pa.table({"answer": v}),
}
