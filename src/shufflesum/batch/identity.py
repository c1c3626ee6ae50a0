"""What reports are and say about themselves: plain or sealed, whose they are, and how far they have come.

Plain or sealed is the one difference between reports in files, in frames and on their way through a shuffle. Either way
a report is one entry of one column, and an item of a fixed number of bytes that a shuffle moves unread. The rest stands
in a file's metadata, or a frame's.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice, check_size
from shufflesum.cells import BLANK
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.plans import Plan
from shufflesum.sealing import SEALED_BYTES

if TYPE_CHECKING:
    from shufflesum.wire import Task


Items = NDArray[Any]

_NO_CELL = BLANK - 1  # below it the number of a cell could be that of any plan


class ReportKind(ABC):
    """How reports of one kind are kept: the column's name and types, and how many are taken at a time."""

    column: ClassVar[str]
    item: ClassVar[np.dtype[Any]]
    spark_type: ClassVar[str]
    encoding: ClassVar[str]  # in Parquet files
    wanted: ClassVar[str]  # of a column, for people
    group_rows: ClassVar[int]  # the least that can be read of a file at once: some megabytes
    rows_at_once: ClassVar[int]  # read of a file
    part_reports: ClassVar[int]  # written at once by the randomizer: what an interruption loses at most, for a worker
    piece_reports: ClassVar[int]  # made at once by the randomizer: what nothing can interrupt

    @property
    @abstractmethod
    def arrow_type(self) -> Any:
        """The type of the column in files."""

    @abstractmethod
    def accepts(self, arrow_type: Any) -> bool:
        """Whether reports can be read from a column of this type."""

    @abstractmethod
    def items(self, records: Any) -> Items:
        """A record batch as items, none lost: what can be no report becomes one that every analyzer rejects."""

    def records(self, items: Items) -> Any:
        """Items as a record batch, without a copy; whose they are is put in where it is written."""
        import pyarrow as pa

        # Not pa.array, which loads pandas where it is installed.
        data = pa.py_buffer(np.ascontiguousarray(items))
        column = pa.Array.from_buffers(self.arrow_type, len(items), [None, data])
        return pa.RecordBatch.from_arrays([column], schema=pa.schema([self.field]))

    @property
    def field(self) -> Any:
        """The column of a file's schema."""
        import pyarrow as pa

        return pa.field(self.column, self.arrow_type, nullable=False)


class _Plain(ReportKind):
    """Cells that anybody can read."""

    column = "cell"
    item = np.dtype("<u4")
    spark_type = "long"
    # Cells have few bits each, which packing finds almost as well as a dictionary does, and writes faster; a compressor
    # would find little more.
    encoding = "DELTA_BINARY_PACKED"
    wanted = "integers"
    group_rows = 1 << 20
    rows_at_once = 1 << 17
    part_reports = 1 << 21
    piece_reports = 1 << 40

    @property
    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.uint32()

    def accepts(self, arrow_type: Any) -> bool:
        from pyarrow import types

        return bool(types.is_integer(arrow_type))

    def items(self, records: Any) -> Items:
        cells, rejected = cells_of(records)
        return np.append(cells, np.full(rejected, _NO_CELL, np.uint32)) if rejected else cells


class _Sealed(ReportKind):
    """Cells that only the analyzer can read."""

    column = "sealed"
    item = np.dtype([("sealed", np.uint8, (SEALED_BYTES,))])
    spark_type = "binary"
    encoding = "PLAIN"  # random bytes
    wanted = f"binary of {SEALED_BYTES} bytes"
    group_rows = 1 << 16
    rows_at_once = 1 << 14
    part_reports = 1 << 18
    piece_reports = 1 << 13  # sealing is slow: about a second of work

    @property
    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.binary(SEALED_BYTES)

    def accepts(self, arrow_type: Any) -> bool:
        from pyarrow import types

        fixed = types.is_fixed_size_binary(arrow_type) and arrow_type.byte_width == SEALED_BYTES
        return bool(fixed or types.is_binary(arrow_type) or types.is_large_binary(arrow_type))

    def items(self, records: Any) -> Items:
        rows, rejected = sealed_rows(records)
        found = np.frombuffer(rows.tobytes() + bytes(rejected * SEALED_BYTES), np.uint8) if rejected else rows
        return found.reshape(-1).view(self.item)


PLAIN, SEALED = _Plain(), _Sealed()


def cells_of(records: Any) -> tuple[NDArray[np.uint32], int]:
    """The cells in a record batch, and how many rows were rejected: nulls, and numbers that no report has.

    Any integer column will do; that of our own files is not copied, and Spark's is looked through once.
    """
    import pyarrow as pa
    from pyarrow import compute

    column = records.column(PLAIN.column)
    if column.type == pa.uint32() and not column.null_count:
        # As it lies in memory; its own to_numpy would load pandas where it is installed.
        data = np.frombuffer(column.buffers()[1] or b"", dtype=np.uint32)
        return data[column.offset : column.offset + len(column)], 0
    if column.type == pa.int64() and not column.null_count:
        wide = np.frombuffer(column.buffers()[1] or b"", dtype=np.uint64)[column.offset : column.offset + len(column)]
        if not len(wide) or wide.max() <= BLANK:  # negative ones are far above
            return wide.astype(np.uint32), 0
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    valid = (numbers >= 0) & (numbers <= BLANK)
    if column.null_count:
        valid &= compute.is_valid(column).to_numpy(zero_copy_only=False)
    cells = (numbers if valid.all() else numbers[valid]).astype(np.uint32)
    return cells, len(column) - len(cells)


def sealed_rows(records: Any) -> tuple[NDArray[np.uint8], int]:
    """The sealed reports in a record batch, each a row of bytes, and how many rows are none by their size."""
    import pyarrow as pa

    column = records.column(SEALED.column)
    if column.type == pa.binary(SEALED_BYTES) and not column.null_count:
        data = np.frombuffer(column.buffers()[1] or b"", dtype=np.uint8)
        start, stop = column.offset * SEALED_BYTES, (column.offset + len(column)) * SEALED_BYTES
        return data[start:stop].reshape(-1, SEALED_BYTES), 0
    rows = [row for row in column.to_pylist() if row is not None and len(row) == SEALED_BYTES]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(-1, SEALED_BYTES), len(column) - len(rows)


Stage = Literal["reports", "shuffled"]

FORMAT = "shufflesum-reports-2"
METADATA_KEY = "shufflesum"

_SPARK_KEY = b"org.apache.spark.sql.parquet.row.metadata"
_SHORT_ID = re.compile("[0-9a-f]{32}")
_LONG_ID = re.compile("[0-9a-f]{64}")
_MOST = (1 << 63) - 1
_WORDS = {"plan_id": "plan", "task_id": "task", "round_number": "round", "shuffle_id": "shuffle"}


def fresh_id() -> str:
    """32 random hexadecimal digits."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose reports these are, and how far they have come: randomized, or shuffled as well.

    `users` and `reports` are the plan's, so that a shuffler needs no plan to refuse a batch that is too small.
    `contribution_ids` (sorted) name the runs of the randomizer that the reports come from, `shuffle_id` the run of the
    shuffler, and `written` is how many reports that wrote in all: a part never passes for the whole. `round_number` is
    the plan's round that they are for; sealed reports know their task too. `names_id` stands for the names of the
    users' columns, in order, where they had some: a coordinate must mean the same to everybody.
    """

    stage: Stage
    plan_id: str
    users: int
    reports: int
    contribution_ids: tuple[str, ...]
    shuffle_id: str | None = None
    written: int | None = None
    task_id: str | None = None
    round_number: int = 1
    names_id: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no run could have written."""
        check_choice("stage", self.stage, get_args(Stage))
        check_size("users", self.users, 1, _MOST)
        check_size("reports", self.reports, 1, _MOST)
        _check_id("plan_id", self.plan_id, _LONG_ID)
        if not self.contribution_ids or list(self.contribution_ids) != sorted(set(self.contribution_ids)):
            raise ParameterError(
                "malformed",
                f"contribution_ids has {len(self.contribution_ids)} ids; at least one, each once, in order, is needed",
            )
        for contribution in self.contribution_ids:
            _check_id("contribution_ids", contribution, _SHORT_ID)
        for name in ("shuffle_id", "written"):
            if (getattr(self, name) is not None) != (self.stage == "shuffled"):
                raise ParameterError(
                    "malformed", f"{name} is {getattr(self, name)!r} at stage {self.stage!r}; shuffled reports have one"
                )
        if self.shuffle_id is not None and self.written is not None:
            _check_id("shuffle_id", self.shuffle_id, _SHORT_ID)
            check_size("written", self.written, 1, _MOST)
        check_size("round_number", self.round_number, 1, (1 << 32) - 1)
        if self.task_id is not None:
            _check_id("task_id", self.task_id, _LONG_ID)
        if self.names_id is not None:
            _check_id("names_id", self.names_id, _SHORT_ID)

    @classmethod
    def for_plan(cls, plan: Plan, names: Sequence[str] | None = None, round_number: int = 1) -> Self:
        """A new contribution of plain reports for a round of a plan, from columns of these names."""
        plan.check_round(round_number)
        once, named = (fresh_id(),), _names_id(names)
        return cls("reports", plan.id, plan.users, plan.reports, once, round_number=round_number, names_id=named)

    @classmethod
    def for_task(cls, task: Task, round_number: int, names: Sequence[str] | None = None) -> Self:
        """A new contribution of reports sealed for a round of a task."""
        task.check_round(round_number)
        return replace(cls.for_plan(task.plan, names, round_number), task_id=task.id)

    @property
    def kind(self) -> ReportKind:
        """Plain, or sealed for a task."""
        return PLAIN if self.task_id is None else SEALED

    @property
    def least_reports(self) -> int:
        """Reports (not users) below which nothing may be released."""
        return self.users * self.reports

    def check_enough(self, reports: int) -> None:
        """Refuse a batch with fewer reports than the plan's smallest."""
        if reports < self.least_reports:
            raise ReportsError(
                "too-few-users",
                f"there are {reports} reports, but the plan hides a user among {self.users} users with {self.reports} "
                f"reports each; wait for {self.least_reports - reports} more reports",
            )

    def shuffled(self, written: int) -> Self:
        """The identity of these reports, so many, after a new shuffle."""
        return replace(self, stage="shuffled", shuffle_id=fresh_id(), written=written)

    def merge(self, other: Identity) -> Self:
        """The identity of both together; an error names what keeps them apart."""
        if self.kind is not other.kind:
            raise ReportsError(
                "mixed-reports", "some reports are sealed and some are not; keep them in folders of their own"
            )
        for name, word in {"stage": "stage", **_WORDS}.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ReportsError(
                    "round-mismatch" if word == "round" else "mixed-reports",
                    f"reports of {word} {_short(mine)} and of {word} {_short(theirs)} cannot be mixed; "
                    "keep them in folders of their own",
                )
        if (self.users, self.reports, self.written) != (other.users, other.reports, other.written):
            raise ReportsError(
                "changed-afterwards",
                f"the same plan and shuffle are said to be of {self.users} users with {self.reports} reports each, "
                f"{self.written} written, and of {other.users} with {other.reports}, {other.written} written; one of "
                "the files was changed",
            )
        self.check_names(other.names_id)
        return replace(
            self,
            contribution_ids=tuple(sorted({*self.contribution_ids, *other.contribution_ids})),
            names_id=self.names_id or other.names_id,
        )

    def check_names(self, other: str | None) -> None:
        """Refuse reports from columns of other names, or in another order; what had no names goes with anything."""
        if None not in (self.names_id, other) and self.names_id != other:
            raise ReportsError(
                "mixed-reports",
                "the reports come from columns of different names, or in different order, so that their coordinates "
                "do not mean the same; give the files the same header, in the same order, and randomize again",
            )

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read `to_json` back; anything else is refused."""
        try:
            document = json.loads(text)
            found = document.pop("format")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ReportsError(
                "malformed",
                f"the description of the reports is no JSON object with a format ({error}); the file was changed",
            ) from error
        if found != FORMAT:
            raise ReportsError(
                "format-mismatch",
                f"the reports have format {str(found)[:80]!r}, but this version reads {FORMAT!r}: randomize again",
            )
        names = {field.name for field in fields(cls)}
        if document.keys() != names:
            raise ReportsError("malformed", f"the description of the reports does not have the fields of {FORMAT!r}")
        ids = document["contribution_ids"]
        if not isinstance(ids, list) or not all(isinstance(x, str) for x in ids):
            raise ReportsError(
                "malformed", "the description of the reports has no list of contribution ids; the file was changed"
            )
        try:
            return cls(**{**document, "contribution_ids": tuple(ids)})
        except ParameterError as error:
            raise ReportsError("malformed", f"the description of the reports is not valid: {error}") from error

    def arrow_schema(self) -> Any:
        """The column of a file of these reports, with the identity in the metadata."""
        import pyarrow as pa

        return pa.schema([self.kind.field], metadata={METADATA_KEY: self.to_json()})

    @classmethod
    def from_arrow(cls, schema: Any, where: str) -> Self:
        """The identity in an Arrow schema, or in what Spark's columns say in files that Spark wrote.

        The column is checked as well: it must be there and have a type that reports can be read from.
        """
        texts = _descriptions(schema)
        if not texts:
            raise ReportsError(
                "malformed",
                f"{where}: holds no reports: its metadata has no {METADATA_KEY!r}; give files written by "
                "shufflesum randomize or shufflesum shuffle",
            )
        try:
            identity = cls.from_json(texts[0])
            for text in texts[1:]:
                if cls.from_json(text) != identity:
                    raise ReportsError(
                        "mixed-reports", "its columns say that they are of different runs; the file was changed"
                    )
        except ReportsError as error:
            raise ReportsError(error.problem, f"{where}: {error}") from error
        identity.check_columns(list(schema.names), where)
        found = schema.field(identity.kind.column).type
        if not identity.kind.accepts(found):
            raise ReportsError(
                "wrong-type",
                f"{where}: column {identity.kind.column!r} has type {found}; it must hold {identity.kind.wanted}",
            )
        return identity

    def check_columns(self, names: Sequence[str], where: str) -> None:
        """Refuse columns that reports of this kind do not have."""
        if list(names) != [self.kind.column]:
            raise ReportsError(
                "unknown-column",
                f"{where}: has the columns {', '.join(map(repr, names[:10])) or 'none'}; these reports have exactly "
                f"one, {self.kind.column!r}",
            )


def _descriptions(schema: Any) -> list[str | bytes]:
    metadata = schema.metadata or {}
    if METADATA_KEY.encode() in metadata:
        return [metadata[METADATA_KEY.encode()]]
    try:
        columns = json.loads(metadata.get(_SPARK_KEY, b"{}")).get("fields", [])
        found = [column["metadata"][METADATA_KEY] for column in columns if METADATA_KEY in column.get("metadata", {})]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return []
    return [text for text in found if isinstance(text, str)]


def _names_id(names: Sequence[str] | None) -> str | None:
    if names is None or len(names) < 2:  # a single column cannot be out of order
        return None
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()[:32]


def _check_id(name: str, value: object, pattern: re.Pattern[str]) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ParameterError(
            "malformed", f"{name} is {str(value)[:80]!r}; it must be lower-case hexadecimal of the usual length"
        )


def _short(value: object) -> str:
    return value[:12] if isinstance(value, str) else "none" if value is None else str(value)
