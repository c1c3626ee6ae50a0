"""What a shuffler has released, so that no two outputs differ by a few users: their difference would show these."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shufflesum._documents import decode_checked, encode_checked, problem_of
from shufflesum._machine import replace_file
from shufflesum.batch.disk import writing
from shufflesum.errors import FileError, ParameterError, ReportsError
from shufflesum.tables import Place, local_path

__all__ = ["RELEASED", "Members", "Released"]

RELEASED = "_released.json"
_FORMAT = "shufflesum-released-2"


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

    def __init__(self, members: Members, folders: Iterable[Place], path: str | os.PathLike[str] | None = None) -> None:
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
        self._all: list[Place] = sorted({*beside, *self._written}, key=str)

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
                    replace_file(written, encode_checked(_FORMAT, document), 0o600)

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

    def _find(self, path: Place, releases: list[_Release]) -> _Release | None:
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


def _read(path: Place) -> list[_Release]:
    if not path.exists():
        return []
    try:
        return [_Release.read(entry) for entry in decode_checked(path.read_bytes(), _FORMAT)["releases"]]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise FileError(
            problem_of(error),
            f"{path}: the list of what was released cannot be understood ({error}); take a copy from before, or "
            "move it away if none of these reports was ever shuffled",
        ) from error
