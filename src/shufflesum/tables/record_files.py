"""Parquet and Arrow IPC files: what columns they have, and record batches of some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shufflesum.errors import FileError
from shufflesum.tables.places import Place

__all__ = ["ARROW_FILES", "describe", "stream"]

ARROW_FILES = (".arrow", ".feather")
"""How files of Arrow's IPC format end; the second version of Feather is the same."""


def describe(path: Place) -> tuple[Any, int]:
    """The Arrow schema of a file, and how many rows it has; at most one column is read."""
    with _opened(path) as file:
        if not _is_ipc(path):
            return file.schema_arrow, file.metadata.num_rows
        schema = file.schema
    with _opened(path, schema.names[:1]) as file:
        return schema, sum(file.get_batch(index).num_rows for index in range(file.num_record_batches))


def stream(path: Place, names: Sequence[str], rows_at_once: int, coded: Sequence[str] = ()) -> Iterator[Any]:
    """Record batches of these columns, at most so many rows each.

    `coded` columns of text in Parquet come as the dictionaries that they are in the file.
    """
    with _opened(path, names, coded) as file:
        if not _is_ipc(path):
            yield from file.iter_batches(batch_size=rows_at_once, columns=list(names))
            return
        for index in range(file.num_record_batches):
            batch = file.get_batch(index)
            batch.validate(full=True)
            for start in range(0, len(batch), rows_at_once):
                yield batch.slice(start, rows_at_once)


def _is_ipc(path: Place) -> bool:
    return path.suffix.lower() in ARROW_FILES


@contextmanager
def _opened(path: Place, names: Sequence[str] | None = None, coded: Sequence[str] = ()) -> Iterator[Any]:
    """A file to read these columns from; whatever is wrong with it is said with its name."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if not _is_ipc(path):
            where = path if isinstance(path, Path) else path.native()
            with parquet.ParquetFile(where, memory_map=True, read_dictionary=list(coded)) as file:
                yield file
            return
        with pa.OSFile(str(path)) if isinstance(path, Path) else path.native() as source:
            chosen = None if names is None else _places(pa.ipc.open_file(source).schema, names)
            with pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=chosen)) as file:
                yield file
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileError):
            raise
        kind = "an Arrow IPC file" if _is_ipc(path) else "Parquet"
        raise FileError(
            "damaged",
            f"{path}: cannot be read as {kind} ({error}); it may be cut short, damaged or of another format: write it "
            "again",
        ) from error


def _places(schema: Any, names: Sequence[str]) -> list[int]:
    wanted = set(names)
    return [place for place, name in enumerate(schema.names) if name in wanted]
