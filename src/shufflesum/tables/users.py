"""One row per user: the unit of privacy is one row, so a user with two rows would get half the promise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shufflesum.errors import DataError, FileError

__all__ = ["as_text", "refuse_repeated_users"]


def as_text(chunk: Any) -> Any:
    """A piece of a user column as text: what is text in one file may be numbers in another."""
    import pyarrow as pa

    return _tidied(chunk).cast(pa.string())


def _tidied(chunk: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    array = chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        # " 7" and "7" are the same person typed twice, and a blank is nobody.
        array = compute.utf8_trim_whitespace(array)
        array = compute.if_else(compute.equal(array, ""), None, array)
    return array


def refuse_repeated_users(where: str, column: str, chunks: Iterable[Any]) -> int:
    """Read a user column (Arrow arrays) to its end and return its number of rows.

    Refuses a row without a user and a user with more than one row. Keeps the whole column in memory.
    """
    import pyarrow as pa
    from pyarrow import compute

    kept: list[Any] = []
    rows = 0
    for chunk in chunks:
        array = _tidied(chunk)
        if array.null_count:
            row = rows + compute.index(compute.is_null(array), True).as_py()
            raise DataError(
                "missing-value",
                f"{where}: data row {row} (counted from 0) has no user in column {column!r}; "
                "fill it in or remove the row: one row is one user",
                row=row,
            )
        kept.append(array)
        rows += len(array)
    if not kept:
        return 0
    users = pa.chunked_array(kept)
    try:
        counts = compute.value_counts(users)
    except pa.ArrowNotImplementedError as error:
        raise FileError(
            "not-comparable",
            f"{where}: user column {column!r} has type {users.type}, which cannot be compared; "
            "--user-column needs text or numbers",
        ) from error
    if len(counts) < rows:
        repeated = counts.filter(compute.greater(counts.field("counts"), 1))[0]
        raise DataError(
            "repeated-user",
            f"{where}: a user has {repeated['counts'].as_py()} rows; with "
            f"--user-column {column} each user has one. Combine each user's rows first, by their average or "
            f"sum (a group-by on {column!r}); leave --user-column out only if you want a guarantee per row",
            value=repr(repeated["values"].as_py()),
        )
    return rows
