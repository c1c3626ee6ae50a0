"""Servers that draw the noise: one draw for each round, whatever is killed, and no exact count anywhere."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.forked_processes import wait_until
from tests.refusals import refusal
from tests.service.processes import ServerProcess
from tests.service.proxy import LossyProxy
from tests.service.servers import Deployment, StandInAnalyzer, fake_upload

import shufflesum as ss
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.keys import RoundKeys, generate_private_key, load_public_keys
from shufflesum.mechanisms import NoisyTable
from shufflesum.noise_keys import NoiseKey, Role, draw_keys
from shufflesum.noisy_batch import set_digest
from shufflesum.plans import Plan
from shufflesum.privacy import NoiseDistribution
from shufflesum.sealing import Opener
from shufflesum.service.analyzer.server import check_serving
from shufflesum.service.client import Client, fetch_estimate
from shufflesum.service.shuffler.release import AnalyzerAddress, Releaser
from shufflesum.service.shuffler.server import ShufflerOptions
from shufflesum.service.stores.store import ArrivingUpload, open_store
from shufflesum.service.stores.tables import open_tables
from shufflesum.testing import UnprotectedTask, no_guarantee, unprotected_plan
from shufflesum.wire import Task

HELD = [["a"], ["a", "b"], [], ["b"], ["a"], ["c"]]
TRUE = [3, 2, 1]
DOMAIN = ss.MultiChoice(["a", "b", "c"], max_choices=2)
ROLES: tuple[Role, Role] = ("shuffler", "analyzer")
NOISE = NoiseDistribution(1.0, 1.5, 12)


class NoisyDeployment(Deployment):
    """A deployment with keys of rounds, and a noise key for each server."""

    @cached_property
    def task(self) -> Task:
        RoundKeys.write(self.folder / "analyzer", self.plan.rounds)
        for role in ROLES:
            (self.folder / role).mkdir()
            NoiseKey.write(self.folder / role / role)
        plain = Deployment(self.folder, unprotected_plan(users=1, shape=1, rounds=1)).task
        return UnprotectedTask(
            plain.name, self.plan, load_public_keys(self.folder / "analyzer.pub"), self.shuffler_url, plain.expires
        )

    @property
    def key_file(self) -> Path:
        assert self.task
        return self.folder / "analyzer.key"

    def noise_file(self, role: Role) -> Path:
        assert self.task
        return self.folder / role / f"{role}.noise"

    def start(self, role: Role, *options: str, **rest: Any) -> ServerProcess:
        noise = ("--noise-key", str(self.noise_file(role)))
        if role == "analyzer":
            return self.analyzer("--processes", "1", *noise, *options, **rest)
        return self.shuffler(*options, *noise, **rest)

    def draws(self, number: int) -> NDArray[np.int64]:
        """What both servers have drawn for a round, from their keys and what is listed beside them."""
        total = np.zeros(self.plan.cells, dtype=np.int64)
        for role in ROLES:
            key = NoiseKey(self.noise_file(role))
            digest = key.bound(role, self.task.id, number)
            assert digest is not None
            keys = draw_keys(key._key, role, self.task.id, number, digest)
            total += self.plan.mechanism.draw(self.plan.encoding, keys.noise_source())
        return total

    def check_rounds(self, rounds: int) -> None:
        """Every round's table is the truth with one draw of each server, and what was listed is what was counted."""
        counted = open_tables(f"sqlite:{self.folder / 'analyzer.db'}", self.task).counted()
        assert [batch.round_number for batch in counted] == list(range(1, rounds + 1))
        shuffler, analyzer = (NoiseKey(self.noise_file(role)) for role in ROLES)
        for batch in counted:
            number = batch.round_number
            assert (batch.table - self.draws(number)).tolist() == TRUE
            assert (batch.users, batch.blanks, batch.rejected, batch.unreadable) == (len(HELD), 0, 0, 0)
            assert shuffler.bound("batch", self.task.id, number) == analyzer.bound("analyzer", self.task.id, number)


def plan_of(rounds: int) -> Plan:
    return Plan(DOMAIN, NoisyTable("servers", (), (NOISE,)), no_guarantee(len(HELD), 1.0, rounds))


def send(deployment: NoisyDeployment, number: int) -> None:
    with Client(deployment.task, contributions=deployment.folder / "contributions", timeout=30) as client:
        client.upload_many(HELD, [f"user {i}" for i in range(len(HELD))], round_number=number)


def everything_written(deployment: NoisyDeployment) -> str:
    return "".join((deployment.folder / f"{role}.log").read_text() for role in ROLES)


def test_a_round_is_released_with_one_draw_of_each_server(tmp_path: Path) -> None:
    """As users of the commands see it: with a plan that is certified, and a guarantee that is computed again."""
    with ExitStack() as stack:
        plan = ss.plan(domain=DOMAIN, users=1000, epsilon=2.0, delta=1e-4, rounds=2, noise_by="servers")
        gate = stack.enter_context(LossyProxy(lambda: shuffler.port, loss=0, seed=1))
        deployment = NoisyDeployment(tmp_path, plan, shuffler_url=gate.url)
        analyzer = stack.enter_context(deployment.start("analyzer"))
        shuffler = stack.enter_context(deployment.start("shuffler", analyzer.url, "--release-at", "6"))
        keys = deployment.key_file.read_text()
        for number in (1, 2):
            send(deployment, number)
            wait_until(lambda number=number: shuffler.metric("shufflesum_batches_released_total") == number)
            assert deployment.key_file.read_text() != keys
            assert RoundKeys.load(deployment.key_file).first_round == number + 1
        deployment.check_rounds(2)
        assert sorted(path.name for path in (tmp_path / "shuffler").iterdir()) == [
            "shuffler.noise",
            "shuffler.noise.used",
        ]
        answer = fetch_estimate(deployment.task, analyzer.url)
        for found in answer["rounds"]:
            assert (found["users"], found["rejected_reports"]) == (6, 0)
            assert found["rejected_kinds"] == {"unreadable": 0, "no_cell": 0}
            counts = np.array(found["counts"]) + 2 * plan.mechanism.noise[0].half_length  # type: ignore[attr-defined]
            assert counts.tolist() == (deployment.draws(found["round"]) + TRUE).tolist()
        for name in ("accepted", "blank", "rejected"):
            assert analyzer.metric(f"shufflesum_reports_{name}_total") == 0
        lines = [json.loads(line) for line in everything_written(deployment).splitlines()]
        counted = [line for line in lines if line["event"] == "batch counted"]
        assert len(counted) == 2
        assert all(line.keys().isdisjoint({"rejected", "blanks", "unreadable", "accepted"}) for line in counted)


def through_kills(folder: Path, rounds: int, kills: int) -> None:
    """Both servers are killed while they release, and answers between them are lost."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    source, killed = random.Random(seed), 0
    with ExitStack() as stack:
        gate = stack.enter_context(LossyProxy(lambda: shuffler.port, loss=0, seed=seed))
        between = stack.enter_context(LossyProxy(lambda: analyzer.port, loss=0.3, seed=seed + 1))
        deployment = NoisyDeployment(folder, plan_of(rounds), shuffler_url=gate.url)
        analyzer = deployment.start("analyzer")
        stack.callback(analyzer.kill)
        shuffler = deployment.start("shuffler", between.url)
        stack.callback(shuffler.kill)
        for number in range(1, rounds + 1):
            send(deployment, number)
            for _ in range(-(-(kills - killed) // (rounds + 1 - number))):
                time.sleep(source.uniform(0, 0.1))
                victim = source.choice([shuffler, analyzer])
                victim.kill()
                seen = victim.log.stat().st_size
                victim.start(wait=False)
                victim.wait_until_listening(seen)
                killed += 1
            tables = open_tables(f"sqlite:{folder / 'analyzer.db'}", deployment.task)
            wait_until(lambda number=number, tables=tables: len(tables.counted()) == number, 60)
        wait_until(lambda: RoundKeys.load(deployment.key_file).first_round == rounds + 1)
        wait_until(lambda: not list((folder / "shuffler").glob("*batch-*")))
        deployment.check_rounds(rounds)


def test_kills_during_releases_give_one_draw_for_each_round(tmp_path: Path) -> None:
    through_kills(tmp_path, rounds=2, kills=4)


@pytest.mark.slow
def test_two_hundred_kills_during_releases_give_one_draw_for_each_round(tmp_path: Path) -> None:
    through_kills(tmp_path, rounds=50, kills=200)


def test_a_restored_store_releases_nothing_again(tmp_path: Path) -> None:
    """The store of before the release has one user less; its batch is refused beside the noise key, again and again."""
    with ExitStack() as stack:
        gate = stack.enter_context(LossyProxy(lambda: shuffler.port, loss=0, seed=1))
        deployment = NoisyDeployment(tmp_path, plan_of(2), shuffler_url=gate.url)
        with closing(open_store(f"sqlite:{tmp_path / 'shuffler.db'}", deployment.task)) as store:
            fake = fake_upload(deployment.task)
            store.take([ArrivingUpload(1, fake.upload_id, fake.sealed)])
        shutil.copy(tmp_path / "shuffler.db", tmp_path / "backup.db")
        analyzer = stack.enter_context(deployment.start("analyzer"))
        shuffler = stack.enter_context(deployment.start("shuffler", analyzer.url, "--release-at", "7"))
        send(deployment, 1)
        wait_until(lambda: shuffler.metric("shufflesum_batches_released_total") == 1)
        shuffler.kill()
        for path in tmp_path.glob("shuffler.db*"):
            path.unlink()
        shutil.copy(tmp_path / "backup.db", tmp_path / "shuffler.db")
        seen = shuffler.log.stat().st_size
        shuffler.start(wait=False)
        shuffler.wait_until_listening(seen)
        for user in range(6):
            assert shuffler.upload(fake_upload(deployment.task)).status == 201, user
        wait_until(lambda: shuffler.metric("shufflesum_release_failures_total") >= 1)
        assert b"another set" in shuffler.log.read_bytes()[seen:]
        assert not list((tmp_path / "shuffler").glob("*batch-*"))


def test_an_analyzer_with_another_noise_key_gets_no_batch(tmp_path: Path) -> None:
    deployment = NoisyDeployment(tmp_path, plan_of(1))
    task, key = deployment.task, NoiseKey(deployment.noise_file("shuffler"))
    with closing(open_store(f"sqlite:{tmp_path / 'shuffler.db'}", task)) as store:
        uploads = [fake_upload(task) for _ in HELD]
        store.take([ArrivingUpload(1, upload.upload_id, upload.sealed) for upload in uploads])
    digest, _ = set_digest(lambda: [upload.sealed for upload in uploads], task, 1)
    key.bind("shuffler", task.id, 1, digest, partner="aa" * 16)  # handed to an analyzer with this key before
    with deployment.start("analyzer") as analyzer, deployment.start("shuffler", analyzer.url) as shuffler:
        wait_until(lambda: shuffler.metric("shufflesum_release_failures_total") >= 2)
        assert "aa" * 16 in shuffler.log.read_text()
        assert key.bound("batch", task.id, 1) is None
    assert NoiseKey(deployment.noise_file("analyzer")).bound("analyzer", task.id, 1) is None


@pytest.mark.parametrize("noise_by", ["shuffler", "servers"])
def test_servers_do_not_start_without_their_keys(noise_by: Any, tmp_path: Path) -> None:
    plan = replace(plan_of(1), mechanism=NoisyTable(noise_by, (), (NOISE,)))
    deployment = NoisyDeployment(tmp_path, plan)
    task, keys = deployment.task, RoundKeys.load(deployment.key_file)
    with refusal("missing-argument", "--noise-key", error=ParameterError):
        ShufflerOptions(AnalyzerAddress("http://127.0.0.1:1", "s" * 16)).check(task)
    if noise_by == "servers":
        with refusal("missing-argument", "--noise-key", error=ParameterError):
            check_serving(task, Opener(keys, processes=1), "s" * 16, None)
    noise_key = NoiseKey(deployment.noise_file("analyzer"))
    with refusal("key-mismatch", "--rounds", error=ParameterError):
        check_serving(task, Opener(generate_private_key(), processes=1), "s" * 16, None, noise_key)
    check_serving(task, Opener(keys, processes=1), "s" * 16, None, noise_key)
    with refusal("wrong-stage", error=ReportsError):
        task.open_reports(b"", 1, Opener(keys, processes=1))


def test_a_releaser_without_a_noise_key_hands_over_nothing(tmp_path: Path) -> None:
    deployment = NoisyDeployment(tmp_path, plan_of(1))
    uploads = [fake_upload(deployment.task) for _ in HELD]

    async def first_failure(releaser: Releaser) -> None:
        running = asyncio.create_task(releaser.run())
        await asyncio.wait_for(failed.wait(), 30)
        running.cancel()

    with (
        StandInAnalyzer() as analyzer,
        closing(open_store(f"sqlite:{tmp_path / 'shuffler.db'}", deployment.task)) as store,
    ):
        store.take([ArrivingUpload(1, upload.upload_id, upload.sealed) for upload in uploads])
        failed = asyncio.Event()
        address = AnalyzerAddress(analyzer.url, "s" * 16)
        releaser = Releaser(
            store, deployment.task, address, release_at=None, released=lambda _: None, failed=failed.set
        )
        asyncio.run(first_failure(releaser))
        assert not analyzer.attempts
        assert store.pending() is not None
