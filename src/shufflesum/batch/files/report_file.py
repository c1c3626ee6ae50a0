"""One file of reports: opened and checked, read in pieces, written whole or not at all."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from shufflesum._checks import check_choice
from shufflesum._machine import sync
from shufflesum.batch.disk import writing
from shufflesum.batch.identity import Identity
from shufflesum.batch.kinds import ReportKind
from shufflesum.errors import FileError, MissingExtraError
from shufflesum.tables import Place, reading, unread, visible

__all__ = [
    "Format",
    "ReportFile",
    "open_report_file",
    "parquet_settings",
    "read_records",
    "report_paths",
    "require_arrow",
    "write_part",
]

Format = Literal["parquet", "arrow"]

PART_KEY = "shufflesum.part"
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ReportFile:
    """One file of reports; `groups` (row groups or record batches) can be read independently.

    `part` is the name it was written under, whatever it is called now; files that Spark wrote have none.
    """

    path: Place
    rows: int
    bytes: int
    groups: int
    contribution_ids: tuple[str, ...]
    part: str | None


def require_arrow() -> None:
    """Refuse, naming the extra, where report files could not be read."""
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError("missing-extra", "files of reports need pyarrow: pip install 'shufflesum[files]'")


def report_paths(path: Place) -> list[Place]:
    """The report files of a folder, by name, or the one file; what is hidden or starts with _ does not count."""
    suffixes = tuple(f".{kind}" for kind in get_args(Format))
    with reading(path):
        if not path.exists():
            raise FileError(unread(path), f"{path}: does not exist; give a folder of report files, or one such file")
        found = visible(path) if path.is_dir() else [path]
        for file in found:
            if file.suffix not in suffixes or not file.is_file():
                raise FileError(
                    "unknown-file-type",
                    f"{file}: is no file of reports; a folder of reports holds {' and '.join(suffixes)} files",
                )
    if not found:
        raise FileError(
            "no-rows", f"{path}: is a folder without report files; give the output of shufflesum randomize or shuffle"
        )
    return found


def open_report_file(path: Place) -> tuple[ReportFile, Identity]:
    """What a file's footer says, checked."""
    import pyarrow as pa

    with _reading(path):
        if path.suffix == ".parquet":
            with _parquet(path) as file:
                schema, rows, groups = file.schema_arrow, file.metadata.num_rows, file.metadata.num_row_groups
        else:
            # Mapped, so that counting the rows reads no column.
            with pa.memory_map(str(path)) if isinstance(path, Path) else path.native() as source:
                file = pa.ipc.open_file(source)
                schema, groups = file.schema, file.num_record_batches
                rows = sum(file.get_batch(i).num_rows for i in range(groups))
        size = path.stat().st_size
    identity = Identity.from_arrow(schema, str(path))
    part = (schema.metadata or {}).get(PART_KEY.encode())
    name = None if part is None else part.decode(errors="replace")
    return ReportFile(path, rows, size, groups, identity.contribution_ids, name), identity


def read_records(file: ReportFile, rows_at_once: int, groups: Iterable[int] | None = None) -> Iterator[Any]:
    """The file's reports as record batches of at most `rows_at_once`; `groups` chooses some of its groups by number."""
    import pyarrow as pa

    chosen = list(range(file.groups) if groups is None else groups)
    with _reading(file.path):
        if file.path.suffix == ".parquet":
            with _parquet(file.path) as parquet_file:
                yield from parquet_file.iter_batches(rows_at_once, row_groups=chosen, use_threads=False)
            return
        # Not mapped: a file cut short by somebody while it is read would be a crash instead of an error.
        place = file.path
        with (
            pa.OSFile(str(place)) if isinstance(place, Path) else place.native() as source,
            pa.ipc.open_file(source) as reader,
        ):
            for group in chosen:
                records = reader.get_batch(group)
                records.validate(full=True)
                for start in range(0, len(records), rows_at_once):
                    yield records.slice(start, rows_at_once)


def _parquet(path: Place) -> Any:
    from pyarrow import parquet

    # Read as a stream: a file of one huge row group would otherwise be held whole.
    source = path if isinstance(path, Path) else path.native()
    return parquet.ParquetFile(source, page_checksum_verification=True, pre_buffer=False, buffer_size=_READ_BYTES)


@contextmanager
def _reading(path: Place) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (FileError, MemoryError):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FileError(
            "damaged",
            f"{path}: cannot be read as a file of reports ({error}); it may be cut short, damaged or of another "
            "format: copy or write it again",
        ) from error


def write_part(folder: Path, name: str, records: Iterable[Any], identity: Identity, format: Format = "parquet") -> int:
    """Write record batches as one file, `name` with the format's suffix; it appears whole or not at all.

    Returns its rows. The columns must have the types of the identity's schema; its metadata is put in here.
    Parquet files say nothing about their rows but the rows: row groups of a fixed size and no statistics.
    """
    check_choice("format", format, get_args(Format))
    final = folder / f"{name}.{format}"
    temporary = folder / f".{final.name}"
    rows = 0
    try:
        with writing(final, "make room on the disk and run the same again"):
            # With its name inside, no two parts have the same bytes by chance: whoever meets the same bytes met a copy.
            schema = identity.arrow_schema()
            schema = schema.with_metadata({**schema.metadata, PART_KEY: name})
            with _writer(temporary, schema, format, identity.kind) as write:
                for batch in records:
                    rows += len(batch)
                    write(batch)
            sync(temporary)
            os.replace(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def parquet_settings(kind: ReportKind) -> dict[str, Any]:
    """How Parquet files of reports are written, as arguments for PyArrow's writer."""
    return {
        "use_dictionary": False,
        "column_encoding": kind.encoding,
        "compression": "none",
        "write_statistics": False,
        "write_page_checksum": True,
    }


@contextmanager
def _writer(path: Path, schema: Any, format: Format, kind: ReportKind) -> Iterator[Any]:
    """A function that takes record batches, and cuts them into groups of a fixed number of rows."""
    import pyarrow as pa
    from pyarrow import parquet

    waiting: list[Any] = []
    group_rows = kind.group_rows
    with (
        parquet.ParquetWriter(path, schema, **parquet_settings(kind))
        if format == "parquet"
        else pa.ipc.new_file(str(path), schema)
    ) as file:

        def put(*, last: bool) -> None:
            table = pa.Table.from_batches(waiting, schema)
            whole = len(table) if last else len(table) - len(table) % group_rows
            for start in range(0, whole, group_rows):
                group = table.slice(start, min(group_rows, whole - start)).combine_chunks()
                file.write_table(group, group_rows)
            waiting[:] = table.slice(whole).to_batches()

        def write(records: Any) -> None:
            waiting.append(pa.RecordBatch.from_arrays([records.column(kind.column)], schema=schema))
            if sum(map(len, waiting)) >= group_rows:
                put(last=False)

        yield write
        put(last=True)
