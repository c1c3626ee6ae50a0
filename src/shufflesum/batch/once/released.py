"""What a shuffler has released, so that no two outputs differ by a few users: their difference would show these."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._documents import decode_checked, encode_checked
from shufflesum._machine import replace_file
from shufflesum.batch.disk import writing
from shufflesum.errors import FileError, ReportsError

__all__ = ["LEDGER", "Members", "ReleaseLedger"]

LEDGER = "_released.json"
_FORMAT = "shufflesum-released-2"


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """Who is in a batch: the sorted ids of its batches or uploads, and a digest where ids do not tell all.

    Ids have 32 hexadecimal digits; as an array they take 32 bytes each.
    """

    ids: NDArray[np.bytes_]
    content: str = ""

    @classmethod
    def of(cls, digits: str, content: str = "") -> Members:
        """From all ids, one after another."""
        return cls(np.sort(np.frombuffer(digits.encode("ascii"), dtype="S32")), content)

    @property
    def digits(self) -> str:
        """All ids, one after another."""
        return self.ids.tobytes().decode("ascii")


class ReleaseLedger:
    """The file that lists releases and who was in each; by default `_released.json` in each input folder.

    `check` before the work and `record` before the output appears refuse members of whom some were released before,
    unless they are exactly the same: another order of the same reports shows nothing new. Where another file is
    named, those in the input folders count as well.
    """

    def __init__(self, members: Members, folders: Iterable[Path], path: str | os.PathLike[str] | None = None) -> None:
        self._members = members
        self._folders = sorted({folder.resolve() for folder in folders})
        beside = {(folder / LEDGER).resolve() for folder in self._folders}  # a link keeps pointing to what is replaced
        self._written = sorted(beside) if path is None else [Path(path).resolve()]
        self._all = sorted(beside.union(self._written))

    def check(self) -> None:
        """Refuse what overlaps an earlier release, and a ledger that could not be written."""
        with self._locked():
            for path in self._written:
                if not os.access(path.parent, os.W_OK):
                    raise PermissionError(None, "no permission to write there")
            for path in self._all:
                self._find(path, self._releases(path))

    def record(self, shuffle_id: str | None) -> None:
        """Add a release, checked again; it is on the disk when this returns."""
        with self._locked():
            for path in self._all:
                self._find(path, self._releases(path))
            for path in self._written:
                releases = self._releases(path)
                if (known := self._find(path, releases)) is None:
                    known = (self._members, [])
                    releases.append(known)
                if shuffle_id not in known[1]:  # a run that was interrupted after this has it there already
                    known[1].append(str(shuffle_id))
                    _replace(path, releases)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the ledgers in their folders: each is replaced, so a lock on the file itself would not last."""
        advice = "name a file in a folder you may write to (--ledger, ledger=)"
        problem = "the list of what was released cannot be kept"
        with writing(", ".join(map(str, self._written)), advice, problem), ExitStack() as locks:
            opened = {}
            for folder in {path.parent for path in self._written}:
                lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                locks.callback(os.close, lock)
                status = os.fstat(lock)
                opened[status.st_dev, status.st_ino] = lock  # one folder may have two names
            for _, lock in sorted(opened.items()):  # in order, so that no two wait in turns
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _find(self, path: Path, releases: list[tuple[Members, list[str]]]) -> tuple[Members, list[str]] | None:
        """The release of exactly these members in a ledger, if there was one; others with some of them are refused."""
        ids = self._members.ids
        where = ", ".join(map(str, self._folders))
        for released, shuffles in releases:
            common = len(np.intersect1d(released.ids, ids, assume_unique=True))
            if common == len(ids) == len(released.ids) and released.content == self._members.content:
                return released, shuffles
            if common:
                raise ReportsError(
                    f"{where}: some of these reports were released before, by shuffle {shuffles[0][:12]} (see {path}), "
                    "together with others or without these; the difference of two outputs would show the users in only "
                    "one of them. Late files wait for the next batch: keep them in a folder of their own"
                )
        return None

    def _releases(self, path: Path) -> list[tuple[Members, list[str]]]:
        try:
            return [_release(entry) for entry in decode_checked(path.read_bytes(), _FORMAT)["releases"]]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
            raise FileError(
                f"{path}: the list of what was released cannot be understood ({error}); take a copy from before, or "
                "move it away if none of these reports was ever shuffled"
            ) from error


def _replace(path: Path, releases: list[tuple[Members, list[str]]]) -> None:
    entries = [
        {"shuffles": shuffles, "members": members.digits, "content": members.content} for members, shuffles in releases
    ]
    replace_file(path, encode_checked(_FORMAT, {"releases": entries}), 0o600)


def _release(entry: Any) -> tuple[Members, list[str]]:
    shuffles = [str(shuffle) for shuffle in entry["shuffles"]]
    if not shuffles:
        raise ValueError("a release without a shuffle")
    return Members.of(entry["members"], str(entry["content"])), shuffles
