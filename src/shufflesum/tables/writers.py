"""Output files that appear whole or not at all, and estimates as JSON, CSV, Parquet or .npz."""

from __future__ import annotations

import csv
import json
import os
import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._machine import sync, writing
from shufflesum.domains.frames import require_arrow
from shufflesum.errors import FileError
from shufflesum.estimate import BaseEstimate
from shufflesum.tables.paths import local_path

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
            require_arrow("writing .parquet files needs PyArrow")  # now, not after the work is done
        final = given.resolve()  # a link keeps pointing to the file that is replaced
        if final in self._moves:
            raise FileError("conflicting-arguments", f"{given}: is named for two outputs; give each its own file")
        if final.exists() and not (final.is_file() and os.access(final, os.W_OK)):
            problem = "is write-protected" if final.is_file() else "is not a regular file"
            raise FileError("unwritable", f"{given}: {problem}; choose another output file")
        temporary = final.with_name(f".{final.stem[:100]}.{secrets.token_hex(6)}{final.suffix}")
        self._moves[final] = temporary  # before it is there: an interrupt between the two would leave it behind
        try:
            with writing(given, "choose an output in a folder that exists and that you may write to"):
                # Opened like any new file, so that it gets the permissions the user's umask asks for.
                os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileError:
            del self._moves[final]
            raise
        return temporary

    def write(self, staged: Path, text: str) -> None:
        """Write the text of a staged file."""
        with self._writing():
            staged.write_text(text, encoding="utf-8")

    def __enter__(self) -> StagedOutputs:
        """Start with nothing staged."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Move every file into place, or remove every temporary file."""
        try:
            if error is None:
                with self._writing():
                    self._move_all()
        finally:
            for temporary in self._moves.values():
                temporary.unlink(missing_ok=True)
            self._moves.clear()

    def _move_all(self) -> None:
        for temporary in self._moves.values():
            sync(temporary)
        for final, temporary in self._moves.items():
            temporary.replace(final)
        for folder in {final.parent for final in self._moves}:
            sync(folder)

    def _writing(self) -> AbstractContextManager[None]:
        return writing(", ".join(map(str, self._moves)), "check the disk and its free space")


def estimate_to_json(estimate: BaseEstimate, level: float = 0.95, names: Sequence[str] | None = None) -> dict[str, Any]:
    """The estimate as plain lists in the user's shape, ready for JSON; what is not finite is None."""
    return (
        {
            name: figure if isinstance(figure, list) else _as_lists(figure)
            for name, figure in _figures(estimate, level, names).items()
        }
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


def warnings_to_json(estimate: BaseEstimate) -> list[dict[str, str]]:
    """What deserves a second look, for programs and for people."""
    return [{"problem": each.problem, "message": str(each)} for each in estimate.warnings]


def write_estimate(
    path: str | os.PathLike[str], estimate: BaseEstimate, level: float = 0.95, names: Sequence[str] | None = None
) -> None:
    """Write the estimate in the format of the path's suffix: .json, .csv, .parquet or .npz.

    CSV and Parquet have the columns of `EstimateTable`, one row for each estimated number: name, value, std_error,
    lower, upper, users, notes, and those of a kind. JSON and .npz have the arrays in their own shape, under the names
    that the estimate itself has for them. Of open vocabularies they are of the words asked for (`counts_of`), or else
    of all cells. The plan's summary goes into all but CSV: as ``plan`` in JSON, as JSON text under that name in the
    .npz file and in Parquet's metadata. ``names``, one per entry of a mean, take the place of the plan's.
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
    with writing(path, "check the disk"):
        write(path, estimate, level, names)


def _write_json(path: Path, estimate: BaseEstimate, level: float, names: Sequence[str] | None) -> None:
    document = {"plan": estimate.plan.summary(), "estimate": estimate_to_json(estimate, level, names)}
    path.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _write_csv(path: Path, estimate: BaseEstimate, level: float, names: Sequence[str] | None) -> None:
    columns = _columns(estimate, level, names)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(_as_lists(column) for column in columns.values()), strict=True))


def _write_parquet(path: Path, estimate: BaseEstimate, level: float, names: Sequence[str] | None) -> None:
    pa = require_arrow("writing .parquet files needs PyArrow")
    from pyarrow import parquet

    found = _columns(estimate, level, names)
    columns = {name: pa.array(column, from_pandas=True) for name, column in found.items()}
    metadata = {
        "plan": json.dumps(estimate.plan.summary()),
        "round": str(int(estimate.round_number)),
        "users": str(int(estimate.users)),
        "confidence_level": str(level),
        "guarantee_holds": str(estimate.guarantee_holds).lower(),
    }
    parquet.write_table(pa.table(columns).replace_schema_metadata(metadata), path)


def _columns(estimate: BaseEstimate, level: float, names: Sequence[str] | None) -> dict[str, NDArray[Any]]:
    """The columns of the table; of several tables one below the other, and `entry` says what a row is."""
    tables = [each.to_table(level).with_names(names) for each in (estimate, *estimate.beside)]
    if len(tables) == 1:
        return tables[0].columns
    found = {"entry": np.concatenate([np.full(len(table), table.entry) for table in tables])}
    for name in dict.fromkeys(name for table in tables for name in table.columns):
        found[name] = np.concatenate([table.columns.get(name, np.full(len(table), np.nan)) for table in tables])
    return found


def _write_npz(path: Path, estimate: BaseEstimate, level: float, names: Sequence[str] | None) -> None:
    arrays: dict[str, Any] = {
        name: np.array(list(map(_text, figure)), dtype=np.str_) if isinstance(figure, list) else figure
        for name, figure in _figures(estimate, level, names).items()
    }
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


def _figures(estimate: BaseEstimate, level: float, names: Sequence[str] | None) -> dict[str, Any]:
    """What is estimated, by name: lists of labels, and arrays; intervals are arrays of lower and upper ends."""
    figures = estimate.figures(level) | ({} if names is None else {"names": names})
    listed = {name: list(figures.pop(name)) for name in ("labels", "groups", "names") if name in figures}
    return listed | {name: np.asarray(figure) for name, figure in figures.items()}


def _as_lists(values: NDArray[Any]) -> Any:
    if values.dtype.kind != "f":
        return values.tolist()
    plain = values.astype(object)
    plain[~np.isfinite(values)] = None
    return plain.tolist()


def _text(label: Any) -> str:
    return label if isinstance(label, str) else json.dumps(label)
