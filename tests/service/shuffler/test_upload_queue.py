"""Uploads on their way into the store: together, but never too many at once."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from tests.service.servers import Deployment, fake_upload

from shufflesum.service.http.problems import Refusal
from shufflesum.service.shuffler.upload_queue import Intake
from shufflesum.service.stores.store import Entry, Outcome, open_store


async def outcomes(intake: Intake, entries: list[Entry]) -> list[Outcome | BaseException]:
    writing = asyncio.ensure_future(intake.run())
    found = await asyncio.gather(*(intake.add(entry) for entry in entries), return_exceptions=True)
    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    intake.close()
    return found


@pytest.mark.parametrize(
    ("upload_bytes", "most_pending", "group", "pending"),
    [(100, 2000, 30, 30), (1 << 20, 2000, 4, 30), (1 << 23, 2000, 1, 8), (100, 7, 7, 7)],
)
def test_groups_and_those_who_wait_are_bounded_in_number_and_size(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    upload_bytes: int,
    most_pending: int,
    group: int,
    pending: int,
) -> None:
    task = Deployment.small(tmp_path).task
    store = open_store(f"sqlite:{tmp_path / 'store.db'}", task)
    sizes: list[int] = []
    stored: list[int] = []
    add = store.add

    def counted(entries: list[Entry]) -> list[Outcome]:
        sizes.append(len(entries))
        return add(entries)

    monkeypatch.setattr(store, "add", counted)
    intake = Intake(store, upload_bytes=upload_bytes, most_pending=most_pending, stored=stored.append)
    uploads = [fake_upload(task) for _ in range(30)]
    found = asyncio.run(outcomes(intake, [Entry(1, upload.upload_id, upload.sealed) for upload in uploads]))
    refused = [error for error in found if isinstance(error, Refusal)]
    assert found.count(Outcome.STORED) == store.status().users == pending
    assert [error.problem.name for error in refused] == ["overloaded"] * (30 - pending)
    assert max(sizes) == group
    assert sum(stored) == pending
    store.close()


def test_uploads_that_are_being_read_need_room_as_well(tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path / 'store.db'}", Deployment.small(tmp_path).task)
    intake = Intake(store, upload_bytes=1 << 24, most_pending=2000, stored=lambda _: None)
    with contextlib.ExitStack() as reading:
        for _ in range(4):  # 64 MB
            reading.enter_context(intake.room())
        with pytest.raises(Refusal, match="too many uploads"), intake.room():
            pass
    with intake.room():
        pass
    intake.close()
    store.close()
