"""Sealed bytes that somebody got hold of count once, however often they are posted."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

from tests.service.servers import Deployment, StandInAnalyzer, fake_upload

from shufflesum.wire import SEALED_BYTES

USERS = 4


def test_copies_of_a_victims_reports_never_fill_a_batch(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=USERS, reports=3)
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url) as server:
        victim = fake_upload(deployment.task)
        assert server.upload(victim).status == 201
        one = victim.sealed[SEALED_BYTES : 2 * SEALED_BYTES]
        for sealed in (victim.sealed, one + fake_upload(deployment.task).sealed[SEALED_BYTES:], one * 3) * USERS:
            answer = server.upload(replace(victim, upload_id=secrets.token_bytes(16), sealed=sealed))
            assert (answer.status, answer.problem) == (409, "copied")
        assert server.upload(victim).problem == "repeated"
        assert server.metric("shufflesum_uploads_total") == 1
        others = [fake_upload(deployment.task) for _ in range(USERS - 1)]
        assert [server.upload(upload).status for upload in others] == [201] * (USERS - 1)
        (batch,) = analyzer.wait_for(1)
    assert batch.users == USERS
    assert len(set(batch.reports)) == len(batch.reports) == 3 * USERS
