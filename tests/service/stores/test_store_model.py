"""Both stores against a model of them: a few Python sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.service.stores.store_urls import (
    ACCEPTED,
    REPEATED,
    ROUNDS,
    USERS,
    PathOrUrl,
    new_task,
    released,
    split,
)

from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.stores.store import ArrivingUpload, Batch, Rounds, UploadStatus


class _Model(RuleBasedStateMachine):
    """A store does what a few Python sets do, through any sequence of calls, openings included."""

    make: Callable[[], PathOrUrl]

    @initialize()
    def start(self) -> None:
        self.place = type(self).make()
        self.store = self.place.open()
        self.open: int | None = 1
        self.seen: dict[bytes, ArrivingUpload] = {}
        self.members: dict[int, list[ArrivingUpload]] = {1: []}
        self.spent: set[tuple[int, bytes]] = set()
        self.sealed: set[tuple[int, bytes]] = set()
        self.fixed: Batch | None = None
        self.released = 0

    def expect(self, e: ArrivingUpload) -> UploadStatus:
        if e.upload_id in self.seen:
            return REPEATED
        if self.open is None or e.round_number < self.open:
            return UploadStatus.ROUND_CLOSED
        if e.round_number > self.open:
            return UploadStatus.ROUND_NOT_OPEN
        if e.token is not None and (e.round_number, e.token) in self.spent:
            return UploadStatus.TOKEN_SPENT
        reports = {(e.round_number, report) for report in split(e.sealed)}
        if reports & self.sealed:
            return UploadStatus.DUPLICATE
        self.sealed |= reports
        self.seen[e.upload_id] = e
        self.members[e.round_number].append(e)
        if e.token is not None:
            self.spent.add((e.round_number, e.token))
        return ACCEPTED

    @rule(
        parts=st.lists(
            st.tuples(st.integers(1, ROUNDS), st.integers(0, 30), st.integers(0, 99), st.none() | st.integers(0, 5)),
            max_size=6,
        )
    )
    def add(self, parts: list[tuple[int, int, int, int | None]]) -> None:
        uploads = [
            ArrivingUpload(
                r,
                bytes([i, r] * 8),
                bytes([s] * SEALED_BYTES + [s + 1] * SEALED_BYTES),  # its neighbours have one report of it
                None if t is None else bytes([t] * 32),
            )
            for r, i, s, t in parts
        ]
        assert self.store.take(uploads) == [self.expect(e) for e in uploads]

    @rule(asked=st.integers(0, 6))
    def close_round(self, asked: int) -> None:
        batch = self.store.close_round(asked)
        enough = self.open is not None and len(self.members[self.open]) >= max(asked, USERS)
        assert (batch is not None) == (enough and self.fixed is None)
        if batch is not None:
            assert self.open is not None
            assert (batch.round_number, batch.users) == (self.open, len(self.members[self.open]))
            self.fixed = batch
            self.open = self.open + 1 if self.open < ROUNDS else None
            if self.open is not None:
                self.members[self.open] = []

    @precondition(lambda self: self.fixed is not None)
    @rule()
    def acknowledge(self) -> None:
        assert self.fixed is not None
        members = self.members[self.fixed.round_number]
        assert sorted(released(self.store, self.fixed)) == sorted(split(b"".join(e.sealed for e in members)))
        self.store.mark_released(self.fixed)
        self.fixed = None
        self.released += 1

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store = self.place.open()

    @invariant()
    def agrees(self) -> None:
        users = 0 if self.open is None else len(self.members[self.open])
        assert self.store.rounds() == Rounds(self.open, users, self.released)
        assert self.store.pending() == self.fixed

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


@pytest.mark.parametrize("examples", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_a_store_does_what_sets_do(place: PathOrUrl, tmp_path_factory: pytest.TempPathFactory, examples: int) -> None:
    def make() -> PathOrUrl:
        folder = tmp_path_factory.mktemp("model")
        address = f"sqlite:{folder / 'store.db'}" if place.address.startswith("sqlite") else place.address
        return PathOrUrl(address, new_task(folder), list)

    machine: Any = type("Machine", (_Model,), {"make": staticmethod(make)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
