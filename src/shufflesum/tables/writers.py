"""Output files that appear whole or not at all, and estimates as JSON, CSV, Parquet or .npz."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._machine import sync
from shufflesum.errors import FileError, MissingExtraError
from shufflesum.estimate import Released
from shufflesum.estimate.contents import columns_of, contents_of
from shufflesum.tables.places import local_path

__all__ = ["WRITABLE", "StagedOutputs", "estimate_to_json", "warnings_to_json", "write_estimate"]

WRITABLE = (".json", ".csv", ".parquet", ".npz")


@dataclass(slots=True)
class StagedOutputs:
    """Output files written beside their final place and moved there together when the block ends well.

    If the block fails, every temporary file is removed and the final places are as before. Each file moves
    atomically.
    """

    _moves: dict[Path, Path] = field(default_factory=dict)

    def stage(self, path: str | os.PathLike[str], suffixes: Sequence[str]) -> Path:
        """Check that ``path`` can be written; return the temporary path, of the same suffix, to write to."""
        given = local_path(path)
        if given.suffix.lower() not in suffixes:
            raise FileError(
                "unknown-file-type",
                f"{given}: files ending in {given.suffix!r} cannot be written here; allowed are {', '.join(suffixes)}",
            )
        if given.suffix.lower() == ".parquet":
            _require_arrow()  # now, not after the work is done
        final = given.resolve()  # a link keeps pointing to the file that is replaced
        if final in self._moves:
            raise FileError("conflicting-arguments", f"{given}: is named for two outputs; give each its own file")
        if final.exists() and not (final.is_file() and os.access(final, os.W_OK)):
            problem = "is write-protected" if final.is_file() else "is not a regular file"
            raise FileError("unwritable", f"{given}: {problem}; choose another output file")
        temporary = final.with_name(f".{final.stem[:100]}.{secrets.token_hex(6)}{final.suffix}")
        self._moves[final] = temporary  # before it is there: an interrupt between the two would leave it behind
        try:
            # Opened like any new file, so that it gets the permissions the user's umask asks for.
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except OSError as error:
            del self._moves[final]
            raise FileError(
                "unwritable",
                f"{given}: cannot be written: {error.strerror}; choose an output in a folder that exists "
                "and that you may write to",
            ) from error
        return temporary

    def write(self, staged: Path, text: str) -> None:
        """Write the text of a staged file."""
        try:
            staged.write_text(text, encoding="utf-8")
        except OSError as error:
            raise self._cannot_be_written(error) from error

    def __enter__(self) -> StagedOutputs:
        """Start with nothing staged."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Move every file into place, or remove every temporary file."""
        try:
            if error is None:
                self._move_all()
        finally:
            for temporary in self._moves.values():
                temporary.unlink(missing_ok=True)
            self._moves.clear()

    def _move_all(self) -> None:
        try:
            for temporary in self._moves.values():
                sync(temporary)
            for final, temporary in self._moves.items():
                temporary.replace(final)
            for folder in {final.parent for final in self._moves}:
                sync(folder)
        except OSError as error:
            raise self._cannot_be_written(error) from error

    def _cannot_be_written(self, error: OSError) -> FileError:
        return FileError(
            "unwritable",
            f"{', '.join(map(str, self._moves))}: cannot be written: {error.strerror or error}; "
            "check the disk and its free space",
        )


def _require_arrow() -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError(
            "missing-extra", "writing .parquet files needs pyarrow: pip install 'shufflesum[files]'"
        )


def estimate_to_json(estimate: Released, level: float = 0.95, names: Sequence[str] | None = None) -> dict[str, Any]:
    """The estimate as plain lists in the user's shape, ready for JSON; what is not finite is None."""
    contents = contents_of(estimate, level, names)
    return (
        {name: list(labels) for name, labels in contents.labels.items() if labels is not None}
        | {name: _as_lists(array) for name, array in contents.arrays.items()}
        | {name: [_as_lists(end) for end in ends] for (name, _), ends in contents.intervals.items()}
        | {
            "confidence_level": level,
            "round": int(estimate.round_number),
            "users": int(estimate.users),
            "rejected_reports": int(estimate.rejected),
            "guarantee_holds": estimate.guarantee_holds,
            "warnings": warnings_to_json(estimate),
        }
        | ({} if estimate.broken is None else {"why_broken": estimate.broken})
        | ({"adjusted": list(estimate.adjusted), "adjustment": estimate.adjustment} if estimate.adjusted else {})
    )


def warnings_to_json(estimate: Released) -> list[dict[str, str]]:
    """What deserves a second look, for programs and for people."""
    return [{"problem": each.problem, "message": str(each)} for each in estimate.warnings]


def write_estimate(
    path: str | os.PathLike[str],
    estimate: Released,
    level: float = 0.95,
    names: Sequence[str] | None = None,
) -> None:
    """Write the estimate in the format of the path's suffix: .json, .csv, .parquet or .npz.

    CSV and Parquet have one row per entry. Of means: ``index_0``, ``index_1``, ... and the columns mean, sum,
    standard_error, lower, upper, report_count (empty where entries and coordinates differ). Of counts: label, count,
    frequency, their errors and ends, and the consistent ones. Of groups: group, index, mean, sum, and the group's own
    count. Of hashed words: the counts of the words asked for (`counts_of`), or else the table of all cells. The plan's
    summary goes into all but CSV: as ``plan`` in JSON, as JSON text under that name in the .npz file and in
    Parquet's metadata. ``names``, one per entry of a mean, go along as a column, or list, of that name.
    Not atomic by itself: write to a path from `StagedOutputs.stage`.
    """
    path = Path(path)
    writers = {".json": _write_json, ".csv": _write_csv, ".parquet": _write_parquet, ".npz": _write_npz}
    write = writers.get(path.suffix.lower())
    if write is None:
        raise FileError(
            "unknown-file-type",
            f"{path}: files ending in {path.suffix!r} cannot be written; allowed are {', '.join(WRITABLE)}",
        )
    try:
        write(path, estimate, level, names)
    except OSError as error:
        raise FileError(
            "unwritable", f"{path}: cannot be written: {error.strerror or error}; check the disk"
        ) from error


def _write_json(path: Path, estimate: Released, level: float, names: Sequence[str] | None) -> None:
    document = {"plan": estimate.plan.summary(), "estimate": estimate_to_json(estimate, level, names)}
    path.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _write_csv(path: Path, estimate: Released, level: float, names: Sequence[str] | None) -> None:
    columns = columns_of(estimate, level, names)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(_as_lists(column) for column in columns.values()), strict=True))


def _write_parquet(path: Path, estimate: Released, level: float, names: Sequence[str] | None) -> None:
    _require_arrow()
    import pyarrow as pa
    from pyarrow import parquet

    columns = {
        name: pa.array(column, pa.int64() if name == "report_count" else None, from_pandas=True)
        for name, column in columns_of(estimate, level, names).items()
    }
    metadata = {
        "plan": json.dumps(estimate.plan.summary()),
        "round": str(int(estimate.round_number)),
        "users": str(int(estimate.users)),
        "confidence_level": str(level),
        "guarantee_holds": str(estimate.guarantee_holds).lower(),
    }
    parquet.write_table(pa.table(columns).replace_schema_metadata(metadata), path)


def _write_npz(path: Path, estimate: Released, level: float, names: Sequence[str] | None) -> None:
    contents = contents_of(estimate, level, names)
    arrays: dict[str, Any] = dict(contents.arrays)
    for (_, begin), (lower, upper) in contents.intervals.items():
        arrays |= {f"{begin}lower": lower, f"{begin}upper": upper}
    arrays |= {name: np.asarray(texts, dtype=np.str_) for name, texts in contents.texts.items()}
    arrays |= {
        "confidence_level": np.asarray(level, dtype=np.float64),
        "round": np.asarray(estimate.round_number, dtype=np.int64),
        "users": np.asarray(estimate.users, dtype=np.int64),
        "rejected_reports": np.asarray(estimate.rejected, dtype=np.int64),
        "guarantee_holds": np.asarray(estimate.guarantee_holds),
        "plan": np.array(json.dumps(estimate.plan.summary())),
    }
    with path.open("wb") as file:
        np.savez(file, **arrays)


def _as_lists(values: NDArray[Any]) -> Any:
    values = np.asarray(values)
    if values.dtype.kind != "f":
        return values.tolist()
    plain = values.astype(object)
    plain[~np.isfinite(values)] = None
    return plain.tolist()
