"""What is there twice within one batch: a file, a part that was rewritten, a sealed report.

Of plain reports, two that are equal are no copies: users may well say the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import FileError, ReportsError
from shufflesum.tables import Place

__all__ = ["SealedReports", "refuse_same_files", "refuse_same_parts", "refuse_same_reports"]

_COMPARED = 1 << 10  # the first bytes tell most files apart
_PIECE = 1 << 20
_KEY_ROOM = 32  # bytes of memory for each report whose first eight are compared

SealedReports = Iterable[tuple[Callable[[int], str], NDArray[np.uint8]]]


def refuse_same_files(files: Iterable[Place]) -> None:
    """Refuse two files with the same bytes: everybody in them would be there twice."""
    by_size: dict[int, list[Place]] = {}
    for file in files:
        by_size.setdefault(file.stat().st_size, []).append(file)
    for same_size in by_size.values():
        by_start: dict[bytes, list[Place]] = {}
        for file in same_size if len(same_size) > 1 else ():
            with file.open("rb") as stream:
                alike = by_start.setdefault(stream.read(_COMPARED), [])
            for other in alike:
                if _same_bytes(file, other):
                    raise FileError(
                        "counted-twice",
                        f"{other} and {file} are the same, byte for byte; whoever is in them would count twice: move "
                        "one of them away",
                    )
            alike.append(file)


def _same_bytes(one: Place, other: Place) -> bool:
    with one.open("rb") as first, other.open("rb") as second:
        while True:
            piece = first.read(_PIECE)
            if piece != second.read(_PIECE):
                return False
            if not piece:
                return True


def refuse_same_parts(parts: Iterable[tuple[Hashable, str, Place]]) -> None:
    """Refuse two files that were written as the same part of the same contributions, though bytes may differ since."""
    known: dict[tuple[Hashable, str], Place] = {}
    for contributions, part, path in parts:
        if (earlier := known.setdefault((contributions, part), path)) is not path:
            raise ReportsError(
                "counted-twice",
                f"{earlier} and {path} are the same part, {part}, of one run; its reports would count twice: move one "
                "of them away",
            )


def refuse_same_reports(sealed: Callable[[], SealedReports], reports: int, memory: int) -> None:
    """Refuse a sealed report that is there twice: it would count twice, and show its user's value in the estimate.

    `sealed` gives all of them, some rows of bytes at a time, each time it is called, with a function that says where a
    row is. They begin with random bytes: the first eight of all are compared, in as many passes as keep to `memory`,
    and the whole of those that begin alike.
    """
    passes = max(1, math.ceil(_KEY_ROOM * reports / memory))
    for turn in range(passes):
        found = [keys[keys % passes == turn] for keys in (_keys(rows) for _, rows in sealed())]
        keys = np.sort(np.concatenate(found))
        alike = np.unique(keys[1:][keys[1:] == keys[:-1]])
        if len(alike):
            _refuse_alike(sealed(), alike)


def _refuse_alike(sealed: SealedReports, alike: NDArray[np.uint64]) -> None:
    known: dict[bytes, str] = {}
    for where, rows in sealed:
        for row in np.flatnonzero(np.isin(_keys(rows), alike)).tolist():
            report = rows[row].tobytes()
            if report in known:
                raise ReportsError(
                    "counted-twice",
                    f"{known[report]} and {where(row)}: hold the same sealed report, which would count twice and show "
                    "its user's value; one is copied: find out whose, and leave that out",
                )
            known[report] = where(row)


def _keys(rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(rows[:, :8]).view(np.uint64).ravel()
