"""What an analyzer has counted: a file with the table of counts, and which files and batches are in it.

A batch may come file by file. What its reports say about its users is seen once all of them are there, and stays: one
batch that breaks the plan's guarantee breaks it for the whole table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from types import TracebackType
from typing import Any

import numpy as np

from shufflesum._documents import decode_checked, encode_checked, problem_of
from shufflesum._machine import lock_file, replace_file
from shufflesum.batch.disk import writing
from shufflesum.batch.identity import Identity
from shufflesum.errors import FileError, ReportsError
from shufflesum.plans import Plan
from shufflesum.release import why_broken
from shufflesum.reports import Counts
from shufflesum.tables import Place, local_path

__all__ = ["Counted"]

_FORMAT = "shufflesum-counts-3"


class Counted:
    """Counts that grow day by day in a file such as counts.json, of one round of a plan, locked while the block runs.

    `check` before counting and `add` afterwards refuse what is in the table already. `save` replaces the file as a
    whole; without it, or after any error, it stays as it was.
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
                "other-round" if self.task[0] == identity.task_id else "mixed-reports",
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

    def has(self, place: Place, digests: Callable[[], Mapping[Any, str]]) -> bool:
        """Whether exactly these files were counted from this very place: the same command, a second time."""
        known = self.places.get(str(place.absolute()))
        return known is not None and known == _joined(digests())

    def add(
        self,
        counts: Counts,
        identity: Identity,
        digests: Mapping[Any, str],
        parts: Sequence[str | None] = (),
        place: Place | None = None,
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
            replace_file(self._final, encode_checked(_FORMAT, self._content()))

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
            content = decode_checked(self.path.read_bytes(), _FORMAT)
        except ValueError as error:
            raise FileError(
                problem_of(error),
                f"{self.path}: is no file of counts that can be used ({error}); take a copy from before, or count all "
                "files again into a new one",
            ) from error
        plan = self.counts.plan
        if content["plan"] != plan.id:
            raise ReportsError(
                "other-plan",
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
