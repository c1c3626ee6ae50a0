"""A whole deployment under audit: the honest one passes, and one whose client adds no noise is caught."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner
from tests.refusals import refusal

import shufflesum as ss
from shufflesum import loopback as service_audit
from shufflesum.audit.findings import Sums, judged
from shufflesum.cli.audit import audit_command as command
from shufflesum.errors import PlanError
from shufflesum.keys import generate_private_key
from shufflesum.loopback import Deployment, Server, audit_service, deployed
from shufflesum.service.client import Client, estimates_in, fetch_estimate
from shufflesum.testing import UnprotectedTask
from shufflesum.wire import Upload


@cache
def planned() -> ss.Plan:
    return ss.plan(
        users=60,
        shape=4,
        epsilon=8.0,
        delta=1e-3,
        rounds=3,
        mechanism=ss.RandomizedResponse.Options(coordinates=4, levels=2),
    )


class NoNoise(Client):
    def _randomizer_for(self, round_number: int, *, compiled: bool) -> ss.Randomizer:
        randomizer = super()._randomizer_for(round_number, compiled=compiled)
        cast(Any, randomizer._encoder)._noise_numerator = np.uint64(0)
        return randomizer


def test_known_users_go_through_real_servers_and_the_audit_says_what_it_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHUFFLESUM_BUDGET", str(tmp_path / "missing"))  # they are nobody, and spend nobody's budget
    (tmp_path / "plan.json").write_text(planned().to_json())
    result = CliRunner().invoke(command, ["--service", "--plan", str(tmp_path / "plan.json"), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["passed"]
    assert 1 <= document["batches"] <= 3
    assert document["uploads"] == 60 * document["batches"]
    assert set(document["tested"]) >= {
        *("files while a round is open", "files after the release", "sizes of uploads", "sealed reports"),
        *("noise in whole batches", "variance across batches", "parity"),
    }


def test_a_service_whose_client_adds_no_noise_is_caught() -> None:
    result = audit_service(planned(), client=NoNoise, seconds=1.0)
    assert not result.passed
    assert any("another value than the one held" in finding for finding in result.findings)


def test_what_a_server_keeps_or_sends_wrongly_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_audit, "_RELEASED_SECONDS", 0.0)
    plan = planned()
    task = UnprotectedTask(
        name="kept",
        plan=plan,
        analyzer_key=generate_private_key().public_key().public_bytes_raw(),
        shuffler="http://127.0.0.1:1",
        expires=datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1),
    )
    reports = ss.Randomizer(plan).randomize(np.zeros((1, 4)))
    bodies = [Upload.seal(task, reports, 1).encode() for _ in range(3)]
    deployment = Deployment(task, tmp_path, cast(Server, None), "")

    def found(bodies: list[bytes]) -> tuple[str, ...]:
        sums = Sums()
        service_audit._look_at_uploads(deployment, bodies, sums)
        return judged(list(sums.counts().items()), 1e-6).findings

    assert found(bodies) == ()
    assert any("sealed alike" in text for text in found([*bodies, bodies[0]]))
    (tmp_path / "uploads-wal").write_bytes(b"before" + bodies[1] + b"after")
    assert any("kept after its release" in text for text in found(bodies))


def test_noise_of_servers_is_refused_before_they_start() -> None:
    plan = ss.plan(users=10, domain=["a", "b"], epsilon=1.0, delta=1e-6, noise_by="servers")
    with refusal("impossible-combination", "servers", error=PlanError):
        audit_service(plan)


def test_a_deployment_on_this_machine_draws_the_noise_of_its_servers() -> None:
    plan = ss.plan(users=30, domain=["a", "b"], epsilon=1.0, delta=1e-6, noise_by="servers")
    with deployed("noisy", plan) as deployment:
        with Client(deployment.task, contributions=deployment.contributions) as client:
            client.upload_many(["a"] * 30, [f"user {user}" for user in range(30)])
        document = fetch_estimate(deployment.task, deployment.analyzer_url, wait=60.0)
    (found,) = estimates_in(deployment.task, document).values()
    assert isinstance(found, ss.CountEstimate)
    low, high = found.count_interval(1 - 1e-7)
    assert (low <= [30, 0]).all()
    assert (high >= [30, 0]).all()
    assert found.users == 30
