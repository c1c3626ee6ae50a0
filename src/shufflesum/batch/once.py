"""Once: nothing that a user sent is released twice with other company, or counted twice.

A *contribution* is what one data owner's run of the randomizer, or one client's upload, brings to a batch. Within a
batch, what is there twice is refused. Between batches, the shuffler remembers what it has `Released`, and the analyzer
what it has `Counted`. (Whether a client has contributed to a round is the service's to remember.)
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shufflesum._documents import decode_checked, encode_checked, problem_of
from shufflesum._machine import lock_file, replace_file, writing
from shufflesum.batch.identity import Identity
from shufflesum.errors import FileError, ParameterError, ReportsError
from shufflesum.plans import Plan
from shufflesum.release import why_broken
from shufflesum.reports import Counts
from shufflesum.tables import PathOrUrl, local_path

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


RELEASED = "_released.json"
_RELEASED_FORMAT = "shufflesum-released-2"


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

    @classmethod
    def read(cls, entry: Any) -> Self:
        shuffles = [str(shuffle) for shuffle in entry["shuffles"]]
        if not shuffles:
            raise ValueError("a release without a shuffle")
        return cls(Members.of(entry["contributions"], str(entry["content"])), shuffles)

    def entry(self) -> dict[str, Any]:
        return {"shuffles": self.shuffles, "contributions": self.members.digits, "content": self.members.content}


class Released:
    """The shuffler's list of batches it released; by default the file `_released.json` in each input folder.

    `check` before the work and `record` before the output appears refuse a batch of which some was released before,
    unless it is exactly the same: another order of the same reports shows nothing new. Where another file is named,
    those in the input folders count as well.
    """

    def __init__(
        self, members: Members, folders: Iterable[PathOrUrl], path: str | os.PathLike[str] | None = None
    ) -> None:
        self._members = members
        self._folders = sorted({folder.resolve() for folder in folders}, key=str)
        # Resolved, so that a link keeps pointing to what is replaced.
        beside = [(folder / RELEASED).resolve() for folder in self._folders]
        here = [place for place in beside if isinstance(place, Path)]
        if path is None and len(here) < len(beside):
            raise ParameterError(
                "missing-argument",
                f"{self._folders[0]}: no list of what was released can be kept at an address; name a file of this "
                "machine, always the same (--released, released=)",
            )
        self._written = sorted(here) if path is None else [local_path(path).resolve()]
        self._all: list[PathOrUrl] = sorted({*beside, *self._written}, key=str)

    def check(self) -> None:
        """Refuse what overlaps an earlier release, and a list that could not be written."""
        with self._locked():
            for written in self._written:
                if not os.access(written.parent, os.W_OK):
                    raise PermissionError(None, "no permission to write there")
            for path in self._all:
                self._find(path, _read(path))

    def knows(self, shuffle_id: str | None) -> bool:
        """Whether exactly this batch was released by this shuffle."""
        found = (self._find(path, _read(path)) for path in self._all)
        return any(release is not None and shuffle_id in release.shuffles for release in found)

    def record(self, shuffle_id: str | None) -> None:
        """Add a release, checked again; it is on the disk when this returns."""
        with self._locked():
            for path in self._all:
                self._find(path, _read(path))
            for written in self._written:
                releases = _read(written)
                if (known := self._find(written, releases)) is None:
                    known = _Release(self._members, [])
                    releases.append(known)
                if shuffle_id not in known.shuffles:  # a run that was interrupted after this has it there already
                    known.shuffles.append(str(shuffle_id))
                    document = {"releases": [release.entry() for release in releases]}
                    replace_file(written, encode_checked(_RELEASED_FORMAT, document), 0o600)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the lists in their folders: each is replaced, so a lock on the file itself would not last."""
        advice = "name a file in a folder you may write to (--released, released=)"
        problem = "the list of what was released cannot be kept"
        with writing(", ".join(map(str, self._written)), advice, problem), ExitStack() as locks:
            opened = {}
            for folder in {path.parent for path in self._written}:
                lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                locks.callback(os.close, lock)
                found = os.fstat(lock)
                opened[found.st_dev, found.st_ino] = lock  # one folder may have two names
            for _, lock in sorted(opened.items()):  # in order, so that no two wait in turns
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _find(self, path: PathOrUrl, releases: list[_Release]) -> _Release | None:
        """The release of exactly this batch in a list, if there was one; others with some of it are refused."""
        for release in releases:
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


def _read(path: PathOrUrl) -> list[_Release]:
    if not path.exists():
        return []
    try:
        return [_Release.read(entry) for entry in decode_checked(path.read_bytes(), _RELEASED_FORMAT)["releases"]]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise FileError(
            problem_of(error),
            f"{path}: the list of what was released cannot be understood ({error}); take a copy from before, or "
            "move it away if none of these reports was ever shuffled",
        ) from error


_COUNTED_FORMAT = "shufflesum-counts-3"


class Counted:
    """Counts that grow day by day in a file such as counts.json, of one round of a plan, locked while the block runs.

    `check` before counting and `noisy-counts` afterwards refuse what is in the table already. `save` replaces the file
    as a whole; without it, or after any error, it stays as it was.
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
        self._final = self.path.resolve()  # a link keeps pointing to the file that is replaced
        self._lock_path = self._final.with_name(f".{self._final.name}.lock")
        self._lock = -1

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
                f"{str(identity.task_id)[:12]}, round {identity.round_number}; name another --state for each",
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
        try:
            self._take_lock()
            if os.path.lexists(self.path):
                self._load()
        except OSError as error:
            self._release()
            if isinstance(error, FileError):
                raise
            raise FileError(
                "unwritable",
                f"{self.path}: cannot be used: {error.strerror or error}; name a file in a folder you may write to",
            ) from error
        except BaseException:
            self._release()
            raise
        return self

    def _take_lock(self) -> None:
        if (lock := lock_file(self._lock_path)) is None:
            raise FileError("in-use", f"{self.path}: another run is adding to it; wait until that has ended")
        self._lock = lock

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let others at the file."""
        self._release()

    def _release(self) -> None:
        if self._lock >= 0:
            self._lock_path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1

    def save(self) -> None:
        """Replace the file, whole."""
        with writing(self.path, "it is as it was before"):
            replace_file(self._final, encode_checked(_COUNTED_FORMAT, self._content()))

    def _content(self) -> dict[str, Any]:
        return {
            "plan": self.counts.plan.id,
            "counts": _encoded(self.counts),
            "pending": {shuffle: _encoded(batch) for shuffle, batch in self.pending.items()},
            "flaws": self.flaws,
            "files": self.files,
            "contributions": self.contributions,
            "parts": self.parts,
            "places": self.places,
            "task": self.task,
            "names_id": self.names_id,
        }

    def _load(self) -> None:
        try:
            content = decode_checked(self.path.read_bytes(), _COUNTED_FORMAT)
        except ValueError as error:
            raise FileError(
                problem_of(error),
                f"{self.path}: is no file of counts that can be used ({error}); take a copy from before, or count all "
                "files again into a new one",
            ) from error
        plan = self.counts.plan
        if content["plan"] != plan.id:
            raise ReportsError(
                "plan-mismatch",
                f"{self.path}: holds counts of plan {str(content['plan'])[:12]}, not of plan {plan.id[:12]}; "
                "name another --state for another plan",
            )
        try:
            self.task = content["task"]
            if self.task == [None, None]:
                self.task = [None, 1]  # files of before plain reports knew their round
            number = 1 if self.task == [] else self.task[1]
            self.counts = _decoded(content["counts"], plan, number)
            self.pending = {shuffle: _decoded(batch, plan, number) for shuffle, batch in content["pending"].items()}
            self.files, self.contributions = content["files"], content["contributions"]
            self.parts = content["parts"]
            self.places = content.get("places", {})  # files of before have none
            self.flaws, self.names_id = content["flaws"], content["names_id"]
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
