"""Whatever is sent to an analyzer, nothing of a batch shows before all of it is in."""

from __future__ import annotations

import contextlib
import secrets
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.service.analyzer.analyzer_in_thread import TASK, USERS, honest_cells, running, sealed

from shufflesum.sealing import SEALED_BYTES

USER_BYTES = TASK.plan.reports * SEALED_BYTES


class NothingEarly(RuleBasedStateMachine):
    """Whatever is sent, nothing of a batch shows before all of it is in, from at least the smallest number of users."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.stack = contextlib.ExitStack()
        self.remote = self.stack.enter_context(running(TASK, f"sqlite:{self.folder.name}/tables"))
        self.batches = [secrets.token_hex(16) for _ in range(3)]
        self.body = sealed(TASK, honest_cells(USERS))
        self.complete = False

    @rule(users=st.integers(0, USERS - 1), batch=st.integers(0, 2))
    def too_few(self, users: int, batch: int) -> None:
        body = self.body[: users * USER_BYTES]
        assert self.remote.post(body, users=users, batch=self.batches[batch])[0] >= 400

    @rule(
        length=st.integers(0, USERS * USER_BYTES - 1),
        users=st.integers(USERS, 9),
        batch=st.integers(0, 2),
        stream=st.booleans(),
    )
    def cut_short(self, length: int, users: int, batch: int, stream: bool) -> None:
        piece = self.body[:length]
        known = self.complete and batch == 0
        status, _ = self.remote.post(iter([piece]) if stream else piece, users=users, batch=self.batches[batch])
        assert status >= 400 or known

    @rule(batch=st.integers(0, 2))
    def without_the_secret(self, batch: int) -> None:
        assert self.remote.post(self.body, batch=self.batches[batch], authorization="Bearer no")[0] == 401

    @rule()
    def whole(self) -> None:
        assert self.remote.post(self.body, batch=self.batches[0])[0] == (200 if self.complete else 201)
        self.complete = True

    @invariant()
    def nothing_shows(self) -> None:
        document, metrics = self.remote.estimate(), self.remote.metrics()
        counted = {name: value for name, value in metrics.items() if not name.startswith("shufflesum_refused")}
        if self.complete:
            assert document["rounds"][0]["users"] == USERS
            assert sum(counted.values()) == 1 + 2 * USERS
        else:
            assert document["type"] == "urn:shufflesum:problem:no-estimate-yet"
            assert set(counted.values()) == {0}

    def teardown(self) -> None:
        self.stack.close()
        self.folder.cleanup()


NothingEarly.TestCase.settings = settings(max_examples=8, stateful_step_count=10, deadline=None)
TestNothingEarly = NothingEarly.TestCase
