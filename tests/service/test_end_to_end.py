"""Client, shuffler and analyzer as real processes, whole and under fire."""

from __future__ import annotations

import json
import random
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.forked_processes import wait_until
from tests.refusals import refusal
from tests.service.certificates import certificate
from tests.service.distinct_users import check_rounds, expected_table, rows_of
from tests.service.postgres import Postgres
from tests.service.processes import ServerProcess
from tests.service.proxy import LossyProxy
from tests.service.servers import Deployment

import shufflesum as ss
from shufflesum.cli.clients import estimate_command, send_command
from shufflesum.keys import generate_private_key
from shufflesum.planning import PlanOptions
from shufflesum.service.client import Client, ContributedError, RefusedError, UnreachableError, fetch_estimate
from shufflesum.service.stores.tables import CountedBatch, open_tables
from shufflesum.testing import unprotected_plan
from shufflesum.wire import Upload

USERS = 24


class Trial:
    """A deployment under fire: connections are lost on both ways, and both servers are killed."""

    def __init__(self, folder: Path, seed: int, store: str | None, stack: ExitStack) -> None:
        self.random = random.Random(seed)
        plan = unprotected_plan(users=USERS, shape=2, coordinates=2, levels=USERS, rounds=10**6)
        outside = stack.enter_context(LossyProxy(lambda: self.shuffler.port, loss=0.4, seed=seed + 1))
        between = stack.enter_context(LossyProxy(lambda: self.analyzer.port, loss=0.5, seed=seed + 2))
        self.proxies = (outside, between)
        self.deployment = Deployment(folder, plan, shuffler_url=outside.url)
        self.address = store or f"sqlite:{folder}/analyzer.db"
        self.analyzer = self.deployment.analyzer("--processes", "1", store=self.address)
        stack.callback(self.analyzer.kill)
        self.shuffler = self.deployment.shuffler(between.url, store=store)
        stack.callback(self.shuffler.kill)
        self.rounds = 0
        self.finished = threading.Event()
        self.failures: list[BaseException] = []

    @property
    def faults(self) -> int:
        return sum(proxy.faults for proxy in self.proxies)

    def send(self) -> None:
        """Round after round, all users, until told to stop; each failure is a client that ends and starts anew."""
        users = [f"user {i}" for i in range(USERS)]
        try:
            while not self.finished.is_set():
                while not self._sent(users, self.rounds + 1):
                    pass
                self.rounds += 1
        except BaseException as error:
            self.failures.append(error)

    def _sent(self, users: list[str], number: int) -> bool:
        try:
            with Client(
                self.deployment.task, contributions=self.deployment.folder / "contributions", timeout=2
            ) as client:
                client.upload_many(rows_of(USERS), users, round_number=number)
        except UnreachableError:
            return False
        except RefusedError as error:
            if error.final:
                raise
            return False
        return True

    def kill_some(self) -> int:
        """One or both, at any moment or while a round is being released, the more delicate one; returns how many."""
        if self.random.random() < 0.5:
            now, end = self.rounds, time.monotonic() + 5
            while self.rounds == now and time.monotonic() < end:
                time.sleep(0.005)
        time.sleep(self.random.uniform(0, 0.25))
        victims = self.random.choice([[self.shuffler], [self.analyzer], [self.analyzer, self.shuffler]])
        for victim in victims:
            victim.kill()
        logged = [victim.log.stat().st_size for victim in victims]
        for victim in victims:
            victim.start(wait=False)
        for victim, seen in zip(victims, logged, strict=True):
            victim.wait_until_listening(seen)
        return len(victims)


def nothing_lost_nothing_twice(folder: Path, kills: int, store: str | None = None) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    with ExitStack() as stack:
        trial = Trial(folder, seed, store, stack)
        sender = threading.Thread(target=trial.send)
        sender.start()
        try:
            killed, deadline = 0, time.monotonic() + 120 + 10 * kills
            while killed < kills or trial.faults < kills or not trial.rounds:
                killed += trial.kill_some()
                assert not trial.failures
                assert time.monotonic() < deadline, "too few connections were lost, or no round was released"
        finally:
            for proxy in trial.proxies:
                proxy.loss = 0
            trial.finished.set()
            sender.join(120)
        lost = [dict(proxy.lost) for proxy in trial.proxies]
        print(f"{killed} kills, lost {lost}, {trial.rounds} rounds")
        assert not trial.failures
        assert not sender.is_alive()
        tables = open_tables(trial.address, trial.deployment.task)
        wait_until(lambda: len(tables.counted()) >= trial.rounds, 60)
        check_rounds(tables.counted(), trial.rounds, USERS)


def test_nothing_is_lost_and_nothing_counts_twice_through_kills_and_losses(tmp_path: Path) -> None:
    nothing_lost_nothing_twice(tmp_path, kills=4)


def test_nothing_is_lost_and_nothing_counts_twice_on_postgresql(tmp_path: Path, postgres: Postgres) -> None:
    nothing_lost_nothing_twice(tmp_path, kills=2, store=postgres.address)


@pytest.mark.slow
def test_nothing_is_lost_through_a_hundred_kills(tmp_path: Path) -> None:
    nothing_lost_nothing_twice(tmp_path, kills=100)


@pytest.mark.slow
def test_nothing_is_lost_through_a_hundred_kills_on_postgresql(tmp_path: Path, postgres: Postgres) -> None:
    nothing_lost_nothing_twice(tmp_path, kills=100, store=postgres.address)


@pytest.mark.parametrize("change", [-1, 1])
def test_one_report_lost_or_doubled_would_be_noticed(change: int) -> None:
    table = expected_table(USERS)
    check_rounds([CountedBatch(1, "a", USERS, 0, 0, 0, table)], 1, USERS)
    table[USERS + 1 + 5] += change
    with pytest.raises(AssertionError):
        check_rounds([CountedBatch(1, "a", USERS, 0, 0, 0, table)], 1, USERS)


@pytest.mark.parametrize("mechanism", [pytest.param("randomized-response", marks=pytest.mark.slow), "noisy-counts"])
def test_the_commands_carry_a_crowd_to_its_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    monkeypatch.setenv("SHUFFLESUM_CONTRIBUTIONS", str(tmp_path / "contributions"))
    fixed: PlanOptions = (
        {"mechanism": ss.NoisyCounts.Options(digits=2)}
        if mechanism == "noisy-counts"
        else {"mechanism": ss.RandomizedResponse.Options(coordinates=1)}
    )
    plan = ss.plan(users=300, shape=2, epsilon=2.0, delta=1e-4, **fixed)
    assert plan.mechanism.kind == mechanism
    rows = np.random.default_rng(3).uniform((0.1, 0.6), (0.3, 0.8), (300, 2))
    np.save(tmp_path / "rows.npy", rows)
    with LossyProxy(lambda: shuffler.port, loss=0, seed=0) as front:
        deployment = Deployment(tmp_path, plan, shuffler_url=front.url)
        with deployment.analyzer() as analyzer, deployment.shuffler(analyzer.url) as shuffler:
            task = ["--task", str(deployment.task_file)]
            early = CliRunner().invoke(estimate_command, [*task, analyzer.url])
            assert isinstance(early.exception, RefusedError)
            assert early.exception.problem == "no-estimate-yet"
            astray = CliRunner().invoke(estimate_command, [*task, shuffler.url])
            assert "no analyzer's address" in str(astray.exception)
            one = CliRunner().invoke(send_command, [*task, "--row", "7", str(tmp_path / "rows.npy")])
            assert one.exit_code == 0, one.exception
            sent = CliRunner().invoke(send_command, [*task, str(tmp_path / "rows.npy")])
            assert "299 rows were accepted for round 1; 1 had contributed before" in " ".join(sent.output.split())
            again = CliRunner().invoke(send_command, [*task, str(tmp_path / "rows.npy")])
            assert isinstance(again.exception, ContributedError)
            np.save(tmp_path / "more.npy", np.concatenate([rows, rows[:5]]))
            late = CliRunner().invoke(send_command, [*task, "--round", "1", str(tmp_path / "more.npy")])
            assert isinstance(late.exception, RefusedError)
            assert "note: 300 of the 305 rows count in round 1" in late.output
            wait_until(lambda: shuffler.metric("shufflesum_batches_released_total") == 1)
            answer = CliRunner().invoke(estimate_command, [*task, "--json", analyzer.url])
            (found,) = json.loads(answer.output)["rounds"]
            assert (found["users"], found["rejected_reports"], found["guarantee"]["holds"]) == (300, 0, True)
            # Seven standard errors: a false alarm of 1e-8 or so.
            assert np.all(np.abs(found["mean"] - rows.mean(axis=0)) < 7 * np.array(found["standard_error"]))
            picture = tmp_path / "round.svg"
            page = tmp_path / "round.html"
            drawn = ["--plot", str(picture), "--report", str(page)]
            shown = CliRunner().invoke(estimate_command, [*task, analyzer.url, *drawn])
            assert "300 users, 0 reports rejected" in shown.output
            assert "300 users, epsilon 2.0, delta 0.0001" in picture.read_text()
            assert "Private estimates of task" in page.read_text()
            assert "epsilon 2" in shown.output
            assert analyzer.stop() == 0
            assert shuffler.stop() == 0


def test_a_client_that_was_shown_another_task_is_refused_or_its_reports_cannot_be_opened(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=5)
    with deployment.analyzer("--processes", "1") as analyzer, deployment.shuffler(analyzer.url) as shuffler:
        key = generate_private_key().public_key().public_bytes_raw()
        shown = replace(deployment.task, analyzer_key=key, shuffler=shuffler.url)
        with (
            Client(shown, contributions=tmp_path / "contributions") as client,
            refusal("wrong-task", error=RefusedError),
        ):
            client.upload([0.5] * 4)
        reports = ss.Randomizer(shown.plan).randomize(np.full((1, 4), 0.5))
        for _ in range(5):
            upload = Upload.seal(shown, reports, 1)
            forged = replace(upload, task_id=deployment.task.id)
            assert shuffler.upload(forged).status == 201
        wait_until(lambda: shuffler.metric("shufflesum_batches_released_total") == 1)
        assert analyzer.metric("shufflesum_reports_rejected_total") == 5
        with refusal("wrong-key", error=RefusedError) as withheld:
            fetch_estimate(deployment.task, analyzer.url)
        assert withheld.value.problem == "wrong-key"


def test_everything_works_over_tls_and_nobody_is_trusted_without_a_certificate(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    tls = ("--tls-cert", cert, "--tls-key", key)

    def url(server: ServerProcess) -> str:
        return server.url.replace("http:", "https:")

    deployment = Deployment.small(tmp_path, users=3)
    with (
        deployment.analyzer("--processes", "1", *tls) as analyzer,
        deployment.shuffler(url(analyzer), "--analyzer-ca", cert, *tls) as shuffler,
    ):
        front = f"https://127.0.0.1:{shuffler.port}"
        # The task names an address that is only known now; the id it is known by stays.
        task = deployment.task
        object.__setattr__(task, "shuffler", front)
        with (
            Client(task, contributions=tmp_path / "contributions", timeout=0.3) as stranger,
            refusal("untrusted", error=UnreachableError),
        ):
            stranger.upload([0.5] * 4, user="0")
        with Client(task, contributions=tmp_path / "contributions", ca_file=cert) as client:
            client.upload_many(np.full((3, 4), 0.5), ["0", "1", "2"])

        def estimated() -> bool:
            try:
                return bool(fetch_estimate(task, url(analyzer), ca_file=cert)["rounds"])
            except RefusedError:
                return False

        wait_until(estimated)
