"""One suite for both stores: what a shuffler relies on, and what must be gone afterwards."""

from __future__ import annotations

import secrets
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal
from tests.service.stores.store_urls import (
    ACCEPTED,
    REPEATED,
    USERS,
    PathOrUrl,
    close,
    fill,
    new_upload,
    released,
    split,
)

from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.stores import store as store_module
from shufflesum.service.stores.database import StoreError
from shufflesum.service.stores.store import ArrivingUpload, Batch, Rounds, Seen, Store, UploadStatus


def test_an_upload_id_counts_once_however_often_it_comes(store: Store, place: PathOrUrl) -> None:
    first, second = new_upload(place.task), new_upload(place.task)
    assert store.take([first, first, second]) == [ACCEPTED, REPEATED, ACCEPTED]
    assert store.take([second, first]) == [REPEATED, REPEATED]
    assert store.rounds() == Rounds(open_round=1, users=2, released=0)


def test_a_round_other_than_the_open_one_is_refused_and_leaves_nothing(store: Store, place: PathOrUrl) -> None:
    early = new_upload(place.task, 2)
    assert store.take([early]) == [UploadStatus.ROUND_NOT_OPEN]
    fill(store, place.task)
    close(store)
    late = new_upload(place.task, 1)
    assert store.take([late, early]) == [UploadStatus.ROUND_CLOSED, ACCEPTED]
    assert store.take([late]) == [UploadStatus.ROUND_CLOSED]


def test_a_repetition_is_recognised_after_its_round_was_released(store: Store, place: PathOrUrl) -> None:
    uploads = fill(store, place.task)
    batch = close(store)
    assert store.take(uploads) == [REPEATED] * USERS
    store.mark_released(batch)
    assert store.take(uploads) == [REPEATED] * USERS
    assert store.rounds() == Rounds(open_round=2, users=0, released=1)


def test_a_token_pays_for_one_upload_a_round(store: Store, place: PathOrUrl) -> None:
    token, other = secrets.token_bytes(32), secrets.token_bytes(32)
    paid = new_upload(place.task, token=token)
    assert store.take([paid, new_upload(place.task, token=token)]) == [ACCEPTED, UploadStatus.TOKEN_SPENT]
    assert store.take([paid]) == [REPEATED]
    assert store.take([new_upload(place.task, token=token), new_upload(place.task, token=other)]) == [
        UploadStatus.TOKEN_SPENT,
        ACCEPTED,
    ]
    fill(store, place.task, 1)
    store.mark_released(close(store))
    assert store.take([new_upload(place.task, 2, token)]) == [ACCEPTED]


def test_a_refused_upload_spends_no_token(store: Store, place: PathOrUrl) -> None:
    token = secrets.token_bytes(32)
    assert store.take([new_upload(place.task, 2, token)]) == [UploadStatus.ROUND_NOT_OPEN]
    assert store.take([new_upload(place.task, 1, token)]) == [ACCEPTED]


def test_a_copied_report_is_refused_with_the_whole_upload(store: Store, place: PathOrUrl) -> None:
    victim, token = new_upload(place.task), secrets.token_bytes(32)
    first, second = split(victim.sealed)
    fresh = secrets.token_bytes(SEALED_BYTES)
    copies = [
        ArrivingUpload(1, secrets.token_bytes(16), sealed, token)
        for sealed in (victim.sealed, second + first, fresh + first, fresh + fresh)
    ]
    assert store.take([victim, *copies]) == [ACCEPTED] + [UploadStatus.DUPLICATE] * 4
    assert store.take([*copies, victim]) == [UploadStatus.DUPLICATE] * 4 + [REPEATED]
    fill(store, place.task, 10)
    assert store.take([*copies, victim]) == [UploadStatus.DUPLICATE] * 4 + [REPEATED]
    assert store.rounds().users == 11
    # Nothing of a refused copy was kept: neither its token nor the fresh report next to the copied one.
    assert store.take(
        [ArrivingUpload(1, secrets.token_bytes(16), fresh + new_upload(place.task).sealed[:SEALED_BYTES], token)]
    ) == [ACCEPTED]


def test_a_copy_is_recognised_after_the_store_was_opened_again_and_in_its_round_only(
    store: Store, place: PathOrUrl
) -> None:
    victim = fill(store, place.task)[0]
    store.close()
    again = place.open()
    try:
        assert again.take([ArrivingUpload(1, secrets.token_bytes(16), victim.sealed)]) == [UploadStatus.DUPLICATE]
        close(again)
        # Sealed for round 1, it cannot be opened in round 2 and counts as rejected there.
        assert again.take([ArrivingUpload(2, secrets.token_bytes(16), victim.sealed)]) == [ACCEPTED]
    finally:
        again.close()


@pytest.mark.parametrize("asked", [0, 1, USERS])
def test_no_batch_is_fixed_below_the_smallest_whatever_is_asked(store: Store, place: PathOrUrl, asked: int) -> None:
    fill(store, place.task, USERS - 1)
    assert store.close_round(asked) is None
    assert store.pending() is None
    fill(store, place.task, 1)
    assert store.close_round(USERS + 1) is None
    assert close(store, asked).users == USERS


def test_a_batch_holds_all_users_of_its_round_and_every_report_once(store: Store, place: PathOrUrl) -> None:
    uploads = fill(store, place.task, 10)
    batch = close(store)
    fill(store, place.task, 2, round_number=2)
    assert (batch.round_number, batch.users) == (1, 10)
    assert released(store, batch) == released(store, batch)
    assert sorted(released(store, batch)) == sorted(split(b"".join(e.sealed for e in uploads)))


def test_one_batch_waits_at_a_time_and_rounds_end(store: Store, place: PathOrUrl) -> None:
    fill(store, place.task)
    first = close(store)
    fill(store, place.task, round_number=2)
    assert store.close_round(USERS) is None
    assert store.pending() == first
    store.mark_released(first)
    second = close(store)
    assert second.batch_id != first.batch_id
    assert store.rounds() == Rounds(open_round=None, users=0, released=1)
    store.mark_released(second)
    assert store.close_round(0) is None
    assert store.take([new_upload(place.task, 2), new_upload(place.task, 1)]) == [UploadStatus.ROUND_CLOSED] * 2


def test_a_batch_survives_the_process_with_its_id_and_its_reports(store: Store, place: PathOrUrl) -> None:
    fill(store, place.task, 5)
    batch = close(store)
    reports = released(store, batch)
    store.close()
    again = place.open()
    try:
        assert again.pending() == batch
        assert released(again, batch) == reports
        again.mark_released(batch)
        again.mark_released(batch)
        assert again.pending() is None
        assert again.rounds().released == 1
    finally:
        again.close()


def test_only_the_waiting_batch_can_be_acknowledged(store: Store, place: PathOrUrl) -> None:
    fill(store, place.task)
    batch = close(store)
    store.mark_released(Batch("0" * 32, 1, USERS))
    assert store.pending() == batch


def test_nothing_of_a_released_batch_is_left_in_the_files(store: Store, place: PathOrUrl) -> None:
    token = secrets.token_bytes(32)
    uploads = [*fill(store, place.task, 50), new_upload(place.task, token=token)]
    store.take(uploads[-1:])
    batch = close(store)
    kept = fill(store, place.task, 1, round_number=2)
    traces = [*(report for e in uploads for report in split(e.sealed)), token]
    assert all(place.held(traces))
    place.analyze()
    store.mark_released(batch)
    assert not any(place.held(traces))
    assert all(place.held([kept[0].sealed[:SEALED_BYTES]]))


def test_a_reading_that_fails_makes_nothing_forgotten(
    store: Store, place: PathOrUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = fill(store, place.task, 2)
    store.close()
    again = place.open()
    assert again.rounds().users == 2

    def torn(_: bytes) -> object:
        raise StoreError("store-unavailable", "the disk did not answer")

    with monkeypatch.context() as broken:
        broken.setattr(store_module, "marks", torn)
        with refusal("store-unavailable", error=StoreError):
            again.take(uploads)
    assert again.take(uploads) == [REPEATED] * 2
    fill(again, place.task, 1)
    batch = close(again)
    assert (batch.users, len(released(again, batch))) == (3, 6)
    again.close()


def test_forgetting_leaves_nothing_at_all(store: Store, place: PathOrUrl) -> None:
    uploads = fill(store, place.task, USERS - 1)
    traces = [e.sealed[:SEALED_BYTES] for e in uploads] + [e.upload_id for e in uploads]
    assert all(place.held(traces))
    place.analyze()
    store.delete_all()
    assert store.rounds().open_round is None
    assert not any(place.held(traces))
    assert store.take(uploads) == [UploadStatus.ROUND_CLOSED] * len(uploads)


def test_forgetting_spares_the_waiting_batch_until_told_otherwise(store: Store, place: PathOrUrl) -> None:
    uploads = fill(store, place.task)
    batch = close(store)
    late = fill(store, place.task, 1, round_number=2)
    gone = [e.sealed[:SEALED_BYTES] for e in late] + [e.upload_id for e in late]
    kept = [e.upload_id + e.sealed[:SEALED_BYTES] for e in uploads]
    store.delete_all()
    assert store.pending() == batch
    assert all(place.held(kept))
    assert not any(place.held(gone))
    store.delete_all(pending=True)
    assert store.pending() is None
    assert store.rounds() == Rounds(open_round=None, users=0, released=0)
    assert not any(place.held(kept))


def test_a_batch_can_be_acknowledged_after_the_rest_was_forgotten(store: Store, place: PathOrUrl) -> None:
    fill(store, place.task)
    batch = close(store)
    store.delete_all()
    store.mark_released(batch)
    store.delete_all()
    assert store.rounds() == Rounds(open_round=None, users=0, released=1)


def test_uploads_go_on_while_a_batch_is_read(store: Store, place: PathOrUrl) -> None:
    fill(store, place.task, 9000)
    batch = close(store)
    reading = store.sealed(batch)
    first = next(reading)
    fill(store, place.task, 5, round_number=2)
    assert len(first) + sum(map(len, reading)) == batch.users * place.task.plan.reports * SEALED_BYTES


def test_threads_that_add_at_once_lose_and_double_nothing(store: Store, place: PathOrUrl) -> None:
    uploads = [new_upload(place.task) for _ in range(120)]
    outcomes: list[UploadStatus] = []

    def add(part: list[ArrivingUpload]) -> None:
        for start in range(0, len(part), 7):
            outcomes.extend(store.take(part[start : start + 7]))

    threads = [threading.Thread(target=add, args=(uploads[i * 20 : i * 20 + 40],)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(ACCEPTED) == 120
    assert outcomes.count(REPEATED) == 80
    assert store.rounds().users == 120


@given(st.lists(st.lists(st.integers(0, 40), max_size=12), max_size=12), st.lists(st.integers(0, 45), max_size=9))
def test_what_was_seen_is_what_a_set_holds(groups: list[list[int]], asked: list[int]) -> None:
    seen, known = Seen(), set[int]()
    for group in groups:
        new = sorted({number << 32 | 2 for number in group} - known)
        seen.add(np.array(new, dtype=np.uint64))
        known |= set(new)
    wanted = [number << 32 | 2 for number in asked]
    assert seen.holds(np.array(wanted, dtype=np.uint64)).tolist() == [number in known for number in wanted]


def test_what_was_seen_stays_known_while_it_grows() -> None:
    numbers = np.random.default_rng(1).integers(0, 1 << 63, 300_000, dtype=np.uint64)
    seen = Seen()
    for part in np.split(numbers[:200_000], [0, 1, 3000, 90_000]):
        seen.add(part)
    assert seen.holds(numbers[:200_000]).all()
    assert not seen.holds(numbers[200_000:]).any()


@pytest.mark.parametrize("ending", [b"\0", b"\0\0\1", b"a"])
def test_ids_that_end_in_zeros_are_told_apart(store: Store, place: PathOrUrl, ending: bytes) -> None:
    ids = [(b"x" * length).ljust(16 - len(ending), b"\0") + ending for length in (1, 2, 3)]
    uploads = [ArrivingUpload(1, id_, new_upload(place.task).sealed) for id_ in ids]
    assert store.take(uploads) == [ACCEPTED] * 3
    close(store)
    assert store.take(uploads) == [REPEATED] * 3
    assert store.take([new_upload(place.task, 2)]) == [ACCEPTED]


def test_a_deletion_that_was_interrupted_is_finished_by_the_next_server(
    store: Store, place: PathOrUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = [report for e in fill(store, place.task, 20) for report in split(e.sealed)]
    batch = close(store)

    def killed() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "finish_deletion", killed)
        with pytest.raises(KeyboardInterrupt):
            store.mark_released(batch)
    store.close()
    assert any(place.held(traces))
    again = place.open()
    again.finish_deletion()
    assert not any(place.held(traces))
    assert again.rounds() == Rounds(open_round=2, users=0, released=1)
    again.close()
