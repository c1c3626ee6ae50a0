"""Uploads on their way into the store: together, but never too many at once."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from tests.refusals import refusal
from tests.service.servers import Deployment, fake_upload

from shufflesum.service.http.messages import Refusal
from shufflesum.service.shuffler.server import UploadQueue
from shufflesum.service.stores.store import ArrivingUpload, UploadStatus, open_store


async def answers(queue: UploadQueue, uploads: list[ArrivingUpload]) -> list[UploadStatus | BaseException]:
    writing = asyncio.ensure_future(queue.run())
    found = await asyncio.gather(*(queue.take(upload) for upload in uploads), return_exceptions=True)
    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    queue.close()
    return found


@pytest.mark.parametrize(
    ("upload_bytes", "max_pending", "group", "pending"),
    [(100, 2000, 30, 30), (1 << 20, 2000, 4, 30), (1 << 23, 2000, 1, 8), (100, 7, 7, 7)],
)
def test_groups_and_those_who_wait_are_bounded_in_number_and_size(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    upload_bytes: int,
    max_pending: int,
    group: int,
    pending: int,
) -> None:
    task = Deployment.small(tmp_path).task
    store = open_store(f"sqlite:{tmp_path / 'store.db'}", task)
    sizes: list[int] = []
    taken: list[int] = []
    take = store.take

    def counted(group: list[ArrivingUpload]) -> list[UploadStatus]:
        sizes.append(len(group))
        return take(group)

    monkeypatch.setattr(store, "take", counted)
    queue = UploadQueue(store, upload_bytes=upload_bytes, max_pending=max_pending, taken=taken.append)
    uploads = [fake_upload(task) for _ in range(30)]
    found = asyncio.run(answers(queue, [ArrivingUpload(1, upload.upload_id, upload.sealed) for upload in uploads]))
    refused = [error for error in found if isinstance(error, Refusal)]
    assert found.count(UploadStatus.ACCEPTED) == store.rounds().users == pending
    assert [error.problem for error in refused] == ["overloaded"] * (30 - pending)
    assert max(sizes) == group
    assert sum(taken) == pending
    store.close()


def test_uploads_that_are_being_read_need_room_as_well(tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path / 'store.db'}", Deployment.small(tmp_path).task)
    queue = UploadQueue(store, upload_bytes=1 << 24, max_pending=2000, taken=lambda _: None)
    with contextlib.ExitStack() as reading:
        for _ in range(4):  # 64 MB
            reading.enter_context(queue.room())
        with refusal("overloaded", error=Refusal), queue.room():
            pass
    with queue.room():
        pass
    queue.close()
    store.close()
