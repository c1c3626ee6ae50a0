"""Where the stores of the tests live, and what is put into them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import psycopg
from tests.service.servers import Deployment

from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.stores.store import ArrivingUpload, Batch, Store, UploadStatus, open_store
from shufflesum.wire import Task

USERS, ROUNDS = 3, 2
ACCEPTED, REPEATED = UploadStatus.ACCEPTED, UploadStatus.REPEATED


def new_task(folder: Path, **sizes: int) -> Task:
    return Deployment.small(folder, **({"users": USERS, "rounds": ROUNDS, "reports": 2} | sizes)).task


def new_upload(task: Task, round_number: int = 1, token: bytes | None = None) -> ArrivingUpload:
    return ArrivingUpload(
        round_number, secrets.token_bytes(16), secrets.token_bytes(task.plan.reports * SEALED_BYTES), token
    )


class PathOrUrl:
    """Where a store lives, to open it again and to look into its files."""

    def __init__(self, address: str, task: Task, files: Callable[[], list[Path]]) -> None:
        self.address, self.task, self._files = address, task, files

    def open(self) -> Store:
        return open_store(self.address, self.task)

    def analyze(self) -> None:
        """As PostgreSQL does by itself once tables grow: values of theirs go to its catalogue."""
        if self.address.startswith("postgresql"):
            with psycopg.connect(self.address, autocommit=True) as connection:
                connection.execute("ANALYZE")

    def held(self, needles: list[bytes]) -> list[bool]:
        contents = [path.read_bytes() for path in self._files()]
        return [any(needle in content for content in contents) for needle in needles]


def fill(store: Store, task: Task, users: int = USERS, round_number: int = 1) -> list[ArrivingUpload]:
    uploads = [new_upload(task, round_number) for _ in range(users)]
    assert store.take(uploads) == [ACCEPTED] * users
    return uploads


def released(store: Store, batch: Batch) -> list[bytes]:
    return split(b"".join(store.sealed(batch)))


def split(sealed: bytes) -> list[bytes]:
    return [sealed[start : start + SEALED_BYTES] for start in range(0, len(sealed), SEALED_BYTES)]


def close(store: Store, smallest: int = USERS) -> Batch:
    batch = store.close_round(smallest)
    assert batch is not None
    return batch
