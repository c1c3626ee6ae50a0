"""Once: nothing that a user sent is released twice with other company, or counted twice.

A *contribution* is what one data owner's run of the randomizer, or one client's upload, brings to a batch. Within a
batch, what is there twice is refused. Between batches, the shuffler remembers what it has `Released`, and the analyzer
what it has `Counted`. (Whether a client has contributed to a round is the service's to remember.)
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shufflesum._machine import WriteError
from shufflesum.batch.identity import Identity
from shufflesum.errors import FileError, ParameterError, ReportsError
from shufflesum.ledger import Ledger, Records, records_in
from shufflesum.plans import Plan
from shufflesum.release import why_broken
from shufflesum.reports import Counts
from shufflesum.tables.paths import Address, PathOrUrl, local_path

_COMPARED = 1 << 10  # the first bytes tell most files apart
_PIECE = 1 << 20
_KEY_ROOM = 32  # bytes of memory for each report whose first eight are compared

SealedReports = Iterable[tuple[Callable[[int], str], NDArray[np.uint8]]]


def refuse_same_files(files: Iterable[PathOrUrl]) -> None:
    """Refuse two files with the same bytes: everybody in them would be there twice."""
    by_size: dict[int, list[PathOrUrl]] = {}
    for file in files:
        by_size.setdefault(file.stat().st_size, []).append(file)
    for same_size in by_size.values():
        by_start: dict[bytes, list[PathOrUrl]] = {}
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


def _same_bytes(one: PathOrUrl, other: PathOrUrl) -> bool:
    with one.open("rb") as first, other.open("rb") as second:
        while True:
            piece = first.read(_PIECE)
            if piece != second.read(_PIECE):
                return False
            if not piece:
                return True


def refuse_same_parts(parts: Iterable[tuple[Hashable, str, PathOrUrl]]) -> None:
    """Refuse two files that were written as the same part of the same contributions, though bytes may differ since."""
    known: dict[tuple[Hashable, str], PathOrUrl] = {}
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


RELEASED = "_released.db"
_RELEASED_FORMAT = "shufflesum-released-3"


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """Who is in a batch: the sorted ids of its contributions, and a digest where ids do not say all.

    Ids have 32 hexadecimal digits; as an array they take 32 bytes each.
    """

    ids: NDArray[np.bytes_]
    content: str = ""

    @classmethod
    def of(cls, digits: str, content: str = "") -> Self:
        """From all ids, one after another."""
        return cls(np.sort(np.frombuffer(digits.encode("ascii"), dtype="S32")), content)

    @property
    def digits(self) -> str:
        """All ids, one after another."""
        return self.ids.tobytes().decode("ascii")

    def shared(self, other: Members) -> int:
        """How many contributions are in both."""
        return len(np.intersect1d(self.ids, other.ids, assume_unique=True))

    def same(self, other: Members) -> bool:
        """Whether all is in both."""
        return self.shared(other) == len(self.ids) == len(other.ids) and self.content == other.content


@dataclass(frozen=True, slots=True)
class _Release:
    members: Members
    shuffles: list[str]


class Released:
    """The shuffler's list of batches it released; by default the ledger `_released.db` in each input folder.

    `check` before the work and `record` before the output appears refuse a batch of which some was released before,
    unless it is exactly the same: another order of the same reports shows nothing new. Where another file is named,
    those in the input folders count as well; at an address they are only read.
    """

    def __init__(
        self, members: Members, folders: Iterable[PathOrUrl], path: str | os.PathLike[str] | None = None
    ) -> None:
        self._members = members
        self._folders = sorted({folder.resolve() for folder in folders}, key=str)
        beside = [(folder / RELEASED).resolve() for folder in self._folders]
        here = {place for place in beside if isinstance(place, Path)}
        if path is None and len(here) < len(set(beside)):
            raise ParameterError(
                "missing-argument",
                f"{self._folders[0]}: no list of what was released can be kept at an address; name a file of this "
                "machine, always the same (released=)",
            )
        named = here if path is None else {local_path(path).resolve()}
        # in order, so that no two processes wait in turns; one folder may have two names
        self._written = [_ledger(place) for place in sorted({_inode(place): place for place in named}.values())]
        self._read = [_ledger(place) for place in sorted(here - named)]
        self._remote = [place for place in beside if isinstance(place, Address)]

    def check(self) -> None:
        """Refuse what overlaps an earlier release, and a list that could not be written."""
        for written in self._written:
            if not os.access(written.path.parent, os.W_OK):
                raise WriteError(
                    "unwritable",
                    f"{written.path}: the list of what was released cannot be kept: no permission to write there; name "
                    "a file in a folder you may write to (released=)",
                )
        for _ in self._found():
            pass

    def knows(self, shuffle_id: str | None) -> bool:
        """Whether exactly this batch was released by this shuffle."""
        return any(release is not None and shuffle_id in release.shuffles for release in self._found())

    def record(self, shuffle_id: str | None) -> None:
        """Add a release, checked again; it is on the disk when this returns."""
        with ExitStack() as opened:
            changes = [(written.path, opened.enter_context(written.change())) for written in self._written]
            for _ in self._found(with_written=False):
                pass
            for path, change in changes:
                release = self._find(path, change.records)
                if release is None:
                    who = {"contributions": self._members.digits, "content": self._members.content}
                    change.append({"shuffle": str(shuffle_id), **who})
                elif shuffle_id not in release.shuffles:  # a run that was interrupted after this has it there already
                    change.append({"shuffle": str(shuffle_id), "again": release.shuffles[0]})

    def _found(self, *, with_written: bool = True) -> Iterator[_Release | None]:
        """The release of exactly this batch in each list, if there was one; others with some of it are refused."""
        for place in self._remote:
            try:
                records = records_in(place.read_bytes(), _RELEASED_FORMAT) if place.exists() else Records()
            except ValueError as error:
                raise FileError("damaged", f"{place}: is no {_WHAT} that can be used ({error}); {_ADVICE}") from error
            yield self._find(place, records)
        for ledger in [*self._read, *(self._written if with_written else ())]:
            yield self._find(ledger.path, ledger.read())

    def _find(self, path: PathOrUrl, records: Records) -> _Release | None:
        releases: dict[str, _Release] = {}  # by the first shuffle of each
        try:
            for record in records:
                if "again" in record:
                    releases[record["again"]].shuffles.append(record["shuffle"])
                else:
                    members = Members.of(record["contributions"], record["content"])
                    releases[record["shuffle"]] = _Release(members, [record["shuffle"]])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FileError("damaged", f"{path}: is no {_WHAT} that can be used ({error!r}); {_ADVICE}") from error
        for release in releases.values():
            if release.members.same(self._members):
                return release
            if release.members.shared(self._members):
                raise ReportsError(
                    "released-before",
                    f"{', '.join(map(str, self._folders))}: some of these reports were released before, by shuffle "
                    f"{release.shuffles[0][:12]} (see {path}), together with others or without these; the difference "
                    "of two outputs would show the users in only one of them. Late files wait for the next batch: keep "
                    "them in a folder of their own",
                )
        return None


_WHAT = "list of what was released"
_ADVICE = "take a copy from before, or move it away if none of these reports was ever shuffled (or see released=)"


def _ledger(path: Path) -> Ledger:
    return Ledger(path, _RELEASED_FORMAT, _WHAT, _ADVICE, mode=0o600)


def _inode(path: Path) -> tuple[int, int, str]:
    try:
        found = path.parent.stat()
    except OSError:
        return 0, 0, str(path)
    return found.st_dev, found.st_ino, path.name


_COUNTED_FORMAT = "shufflesum-counts-4"
_KEPT = ("flaws", "files", "contributions", "parts", "places", "task", "names_id")  # as they are, beside the counts


class Counted:
    """Counts that grow day by day in a ledger such as counts.db, of one round of a plan, locked while the block runs.

    `check` before counting and `add` afterwards refuse what is in the table already. What was saved is on the disk when
    the block ends well; without `save`, or after any error, the file stays as it was.
    """

    def __init__(self, path: str | os.PathLike[str], plan: Plan) -> None:
        self.path = local_path(path)
        self.counts = Counts(plan)
        self.contributions: dict[str, str] = {}  # their ids -> the shuffle that they came in
        self.files: dict[str, str] = {}  # SHA-256 -> the name it had
        self.parts: dict[str, list[str]] = {}  # shuffle id -> the names that files were written under
        self.pending: dict[str, Counts] = {}  # shuffle id -> what is there of a batch that is not whole yet
        self.flaws: dict[str, str] = {}  # shuffle id -> why the guarantee does not hold for that batch
        self.places: dict[str, str] = {}  # where a folder or file was that was counted -> a digest of its files
        self.names_id: str | None = None  # the columns that coordinates come from
        self.task: list[str | int | None] = []  # its id, None for plain reports, and the round of what was counted
        advice = "take a copy from before, or count all files again into a new one"
        self._ledger = Ledger(self.path, _COUNTED_FORMAT, "file of counts", advice)
        self._block = ExitStack()

    @property
    def shuffles(self) -> int:
        """How many batches were released to us."""
        return len(set(self.contributions.values()))

    @property
    def whole(self) -> bool:
        """Whether all reports of every batch are there: of a part nobody can see who was honest."""
        return not self.pending

    def check(self, identity: Identity) -> None:
        """Refuse another shuffle of a batch that is counted already, and reports of another task or round."""
        if self.task not in ([], [identity.task_id, identity.round_number]):
            raise ReportsError(
                "round-mismatch" if self.task[0] == identity.task_id else "mixed-reports",
                f"{self.path} has counted reports of task {str(self.task[0])[:12]}, round {self.task[1]}, not of task "
                f"{str(identity.task_id)[:12]}, round {identity.round_number}; name another file for each (state=)",
            )
        identity.check_names(self.names_id)
        for contribution in identity.contribution_ids:
            if (known := self.contributions.get(contribution)) not in (None, identity.shuffle_id):
                raise ReportsError(
                    "counted-twice",
                    f"{self.path} has counted contribution {contribution[:12]} in shuffle {str(known)[:12]}; shuffle "
                    f"{str(identity.shuffle_id)[:12]} holds the same users again, and no report counts twice",
                )

    def has(self, place: PathOrUrl, digests: Callable[[], Mapping[Any, str]]) -> bool:
        """Whether exactly these files were counted from this very place: the same command, a second time."""
        known = self.places.get(str(place.absolute()))
        return known is not None and known == _joined(digests())

    def add(
        self,
        counts: Counts,
        identity: Identity,
        digests: Mapping[Any, str],
        parts: Sequence[str | None] = (),
        place: PathOrUrl | None = None,
    ) -> None:
        """Take in the counts of new files, all or none; `parts` are the names that they were written under.

        `place` is where they were found, together.
        """
        if identity.shuffle_id is None:
            raise ReportsError("wrong-stage", "only shuffled reports can be counted; run shufflesum shuffle first")
        self.check(identity)
        self._refuse_known(digests)
        known = self.parts.get(identity.shuffle_id, [])
        for part in filter(None, parts):
            if part in known:
                raise ReportsError(
                    "counted-twice",
                    f"{self.path} has counted {part} of shuffle {identity.shuffle_id[:12]} already, perhaps before it "
                    "was rewritten; no report counts twice: give only new files",
                )
        batch = self.pending.get(identity.shuffle_id) or Counts(self.counts.plan, identity.round_number)
        if not self.task:
            self.counts = Counts(self.counts.plan, identity.round_number)
        self.counts.merge(counts)
        self.parts[identity.shuffle_id] = [*known, *filter(None, parts)]
        self.files |= {digest: path.name for path, digest in digests.items()}
        self.contributions |= dict.fromkeys(identity.contribution_ids, identity.shuffle_id)
        self.task = [identity.task_id, identity.round_number]
        self.pending.pop(identity.shuffle_id, None)
        batch.merge(counts)
        if batch.received != identity.written:
            self.pending[identity.shuffle_id] = batch
        elif (why := why_broken(batch)) is not None:
            self.flaws[identity.shuffle_id] = f"shuffle {identity.shuffle_id[:12]}: {why}"
        self.names_id = self.names_id or identity.names_id
        if place is not None:
            self.places[str(place.absolute())] = _joined(digests)

    def _refuse_known(self, digests: Mapping[Any, str]) -> None:
        known = dict(self.files)
        for path, digest in digests.items():
            if digest in known:
                raise ReportsError(
                    "counted-twice",
                    f"{path}: {self.path} has counted this file, or a copy of it, already ({known[digest]}); "
                    "no report counts twice: give only new files",
                )
            known[digest] = path.name

    def __enter__(self) -> Counted:
        """Lock and read the file; where there is none the counts are zero."""
        new = not self._ledger.exists()
        with ExitStack() as block:
            self._change = block.enter_context(self._ledger.change(patience=0))
            if new:
                block.callback(self._forget)
            if self._change.records:
                self._load(self._change.records[-1])
            self._block = block.pop_all()
        return self

    def _forget(self) -> None:
        """Take away a file that was made for the lock alone; SQLite lets nobody write to it once it has no name."""
        if not self._change.records and not self._change.added:
            self.path.resolve().unlink()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let others at the file."""
        self._block.__exit__(kind, error, trace)

    def save(self) -> None:
        """Put these counts in the place of the earlier ones, once the block ends well."""
        self._change.replace(self._content())

    def _content(self) -> dict[str, Any]:
        return {
            "plan": self.counts.plan.id,
            "counts": _encoded(self.counts),
            "pending": {shuffle: _encoded(batch) for shuffle, batch in self.pending.items()},
            **{name: getattr(self, name) for name in _KEPT},
        }

    def _load(self, content: dict[str, Any]) -> None:
        plan = self.counts.plan
        if content.get("plan") != plan.id:
            raise ReportsError(
                "plan-mismatch",
                f"{self.path}: holds counts of plan {str(content.get('plan'))[:12]}, not of plan {plan.id[:12]}; "
                "name another file for another plan (state=)",
            )
        try:
            for name in _KEPT:
                setattr(self, name, content[name])
            number = 1 if self.task == [] else self.task[1]
            self.counts = _decoded(content["counts"], plan, number)
            self.pending = {shuffle: _decoded(batch, plan, number) for shuffle, batch in content["pending"].items()}
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            raise FileError(
                "damaged", f"{self.path}: is no file of counts that can be used ({error!r}); take a copy from before"
            ) from error


def _joined(digests: Mapping[Any, str]) -> str:
    return sha256("".join(sorted(digests.values())).encode()).hexdigest()


def _encoded(counts: Counts) -> dict[str, Any]:
    cells = np.flatnonzero(counts.table)
    return {
        "cells": cells.tolist(),
        "counts": counts.table[cells].tolist(),
        "blanks": counts.blanks,
        "rejected": counts.rejected,
    }


def _decoded(content: dict[str, Any], plan: Plan, round_number: Any) -> Counts:
    """Undo `_encoded`; a ValueError, or another one of Python's, where it is none."""
    counts = Counts(plan, round_number)
    cells, numbers = (np.array(content[name], dtype=np.int64) for name in ("cells", "counts"))
    blanks, rejected = int(content["blanks"]), int(content["rejected"])
    if cells.shape != numbers.shape or min([*cells, *numbers, blanks, rejected]) < 0:
        raise ValueError("cells and their counts do not fit")
    counts.table[cells] = numbers
    counts.blanks, counts.rejected = blanks, rejected
    return counts
