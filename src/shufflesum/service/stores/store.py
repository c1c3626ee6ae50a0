"""*Once*, at the shuffler: which uploads it has taken and which batches it has released, whatever they are kept in.

Sealed reports are kept until their round is released, and no longer. A store never learns who sent an upload or when;
upload ids are remembered apart from the reports, without order.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol
from urllib.parse import urlsplit

from shufflesum.errors import ParameterError, ShufflesumError
from shufflesum.wire import SEALED_BYTES, Task

__all__ = [
    "Batch",
    "NewUpload",
    "Rounds",
    "Store",
    "StoreError",
    "UploadAnswer",
    "Usage",
    "WrongStoreError",
    "decide",
    "open_store",
    "split",
    "sqlite_path",
]


class StoreError(ShufflesumError):
    """The store cannot be reached or cannot write now; nothing was acknowledged, and trying again is safe."""


class WrongStoreError(StoreError):
    """What is there belongs to another task, another version or somebody else; trying again will not help."""


class UploadAnswer(enum.Enum):
    """What a shuffler answers to an upload; all but the first are names of problems."""

    TAKEN = "taken"
    REPEATED = "repeated"
    ROUND_CLOSED = "round-closed"
    ROUND_NOT_OPEN = "round-not-open"
    TOKEN_SPENT = "token-spent"
    COPIED = "copied"


@dataclass(frozen=True)
class NewUpload:
    """One upload to be taken: its sealed reports, and the digest of the token that pays for it, if any."""

    round_number: int
    upload_id: bytes
    sealed: bytes
    token: bytes | None = None

    @cached_property
    def reports(self) -> list[bytes]:
        """The sealed reports one by one."""
        return split(self.sealed)


@dataclass(frozen=True, slots=True)
class Batch:
    """The reports of one round that are released together, under the random id that the analyzer knows them by."""

    batch_id: str
    round_number: int
    users: int


@dataclass(frozen=True, slots=True)
class Rounds:
    """Where a task's rounds stand: the open one (None after the last), its users, and how many were released."""

    open_round: int | None
    users: int
    released: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes that a store takes, and bytes that are free where it lies; None where that cannot be seen from here."""

    used: int
    free: int | None


class Store(Protocol):
    """A durable place for one task's uploads. Methods block, and may be called from several threads.

    Every method raises StoreError where the store is out of reach; the next call tries afresh, without help.
    """

    def take(self, uploads: Sequence[NewUpload]) -> list[UploadAnswer]:
        """Take uploads, all in one transaction, and return once they are durable; one answer each, in order.

        A known upload id is REPEATED before anything else is looked at, so that a lost answer can always be asked for
        again, even after its round was closed. A token is spent only by an upload that is TAKEN. An upload is COPIED,
        and refused whole, where one of its reports is in it twice or in another upload of the open round.
        """
        ...

    def check(self) -> None:
        """Raise StoreError where an upload could not be taken now; found out by a durable write that needs room."""
        ...

    def rounds(self) -> Rounds:
        """Where the task's rounds stand."""
        ...

    def close_round(self, smallest: int) -> Batch | None:
        """Close the open round, whose users are a batch, and open the next one; None where there are fewer."""
        ...

    def pending(self) -> Batch | None:
        """The batch of a closed round that is not released yet; at most one."""
        ...

    def sealed(self, batch: Batch) -> Iterator[bytes]:
        """The batch's sealed reports, some at a time, in a random order that was drawn for the batch as a whole."""
        ...

    def mark_released(self, batch: Batch) -> None:
        """The analyzer has the batch: delete its reports and tokens for good; its upload ids stay, without order.

        What cannot be deleted at once is left to `finish_deletion`.
        """
        ...

    def delete_all(self, *, pending: bool = False) -> None:
        """Delete all uploads, upload ids and tokens for good and close every round: the task has expired.

        The batch of a closed round stays, unless `pending` says that it goes as well. What cannot be deleted at once
        is left to `finish_deletion`.
        """
        ...

    def finish_deletion(self) -> None:
        """Finish a deletion that was interrupted; cheap where there is none."""
        ...

    def usage(self) -> Usage:
        """How large the store is, and how much more it can hold."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


def split(sealed: bytes) -> list[bytes]:
    """Sealed reports one by one; no two that were sealed are alike, and a copy that is not exact cannot be opened."""
    return [sealed[start : start + SEALED_BYTES] for start in range(0, len(sealed), SEALED_BYTES)]


def decide(
    uploads: Sequence[NewUpload], open_round: int | None, known: set[bytes], spent: set[bytes], sealed: set[bytes]
) -> list[UploadAnswer]:
    """The answer to each upload, given what the store knows of them: upload ids, the open round's tokens and reports.

    The sets are added to, so that uploads which repeat each other within one call are recognised as well.
    """
    answers = []
    for upload in uploads:
        reports = upload.reports
        if upload.upload_id in known:
            answer = UploadAnswer.REPEATED
        elif open_round is None or upload.round_number < open_round:
            answer = UploadAnswer.ROUND_CLOSED
        elif upload.round_number > open_round:
            answer = UploadAnswer.ROUND_NOT_OPEN
        elif upload.token in spent:
            answer = UploadAnswer.TOKEN_SPENT
        elif len(set(reports)) < len(reports) or not sealed.isdisjoint(reports):
            answer = UploadAnswer.COPIED
        else:
            answer = UploadAnswer.TAKEN
            known.add(upload.upload_id)
            sealed.update(reports)
            if upload.token is not None:
                spent.add(upload.token)
        answers.append(answer)
    return answers


def open_store(address: str, task: Task, begin: Callable[[str], None] | None = None) -> Store:
    """The store at `sqlite:PATH` or `postgresql://...`, made for this task where it is new.

    It may be out of reach, full or in use by another server for now: then its methods say so until it is not. `begin`
    is called with the random name that a store keeps for good, before anything is taken or released: once it is within
    reach, and perhaps again. Where it raises, the store is refused.
    """
    path = sqlite_path(address)
    if path is not None:
        from shufflesum.service.stores.sqlite import SqliteStore

        return SqliteStore(path, task, begin)
    from shufflesum.service.stores.postgres import PostgresStore

    return PostgresStore(address, task, begin)


def sqlite_path(address: str) -> str | None:
    """The path in `sqlite:PATH`, None for `postgresql://...`; any other address of a store is refused."""
    if address.startswith("sqlite:") and address != "sqlite:":
        return address.removeprefix("sqlite:")
    if urlsplit(address).scheme in ("postgresql", "postgres"):
        return None
    raise ParameterError(
        "unknown-choice",
        f"store {address.partition(':')[0][:40]!r} is not known; write sqlite:PATH or postgresql://user@host/database",
    )
