"""`shufflesum send` as users run it: killed in the middle and started again, with tokens; and a shuffler over TLS."""

from __future__ import annotations

import random
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tests.forked_processes import wait_until
from tests.service.certificates import certificate
from tests.service.distinct_users import check_rounds, rows_of
from tests.service.processes import Program, ServerProcess
from tests.service.proxy import LossyProxy
from tests.service.servers import Deployment, StandInAnalyzer, fake_upload

from shufflesum.service.stores.tables import open_tables
from shufflesum.testing import unprotected_plan

USERS = 300


def ended(log: Path, *arguments: str | Path) -> tuple[int, str]:
    """A command from its start to its end: exit code, and what it said in one line."""
    before = log.stat().st_size if log.exists() else 0
    code = Program(log, [str(argument) for argument in arguments]).wait(120)
    return code, " ".join(log.read_bytes()[before:].decode().split())


class Senders:
    """A deployment whose task names an address that is known before its shuffler is."""

    def __init__(self, folder: Path, stack: ExitStack, *, users: int, rounds: int, loss: float = 0.0) -> None:
        self.folder = folder
        plan = unprotected_plan(users=users, shape=2, coordinates=2, levels=users, rounds=rounds)
        self.front = stack.enter_context(LossyProxy(lambda: self.shuffler.port, loss=loss, seed=1))
        self.deployment = Deployment(folder, plan, shuffler_url=self.front.url)
        self.shuffler: ServerProcess
        self.rows = folder / "rows.npy"
        np.save(self.rows, rows_of(users))

        self.log = folder / "send.log"

    def arguments(self, *rest: str | Path) -> list[str]:
        files = ["--task", self.deployment.task_file, "--contributions", self.folder / "contributions", self.rows]
        return ["send", *map(str, [*files, *rest])]

    def send(self, *rest: str | Path) -> tuple[int, str]:
        return ended(self.log, *self.arguments(*rest))


@pytest.mark.slow
@pytest.mark.parametrize("kills", [5, 30])
def test_a_client_killed_in_the_middle_loses_nothing_and_counts_nobody_twice(tmp_path: Path, kills: int) -> None:
    """Killed after a random number of uploads has arrived; connections are lost besides, with their answers."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    source = random.Random(seed)
    with ExitStack() as stack:
        senders = Senders(tmp_path, stack, users=USERS, rounds=1000, loss=0.2)
        deployment = senders.deployment
        analyzer = stack.enter_context(deployment.analyzer("--processes", "1"))
        senders.shuffler = stack.enter_context(deployment.shuffler(analyzer.url))

        def arrived() -> float:
            metric = senders.shuffler.metric
            return metric("shufflesum_uploads_total") + metric("shufflesum_refused_total")

        killed = rounds = 0
        while killed < kills:
            done = False
            while not done:
                enough = arrived() + source.choice([0, 1, source.randrange(USERS), source.randrange(2 * USERS)])
                said_before = senders.log.stat().st_size if senders.log.exists() else 0
                client = Program(senders.log, senders.arguments("--round", str(rounds + 1)))
                stack.callback(client.kill)
                while killed < kills and client.poll() is None and arrived() < enough:
                    time.sleep(0.002)
                if killed < kills and client.poll() is None:
                    time.sleep(source.uniform(0, 0.02))
                    client.kill()
                code = client.wait(120)
                killed += code == -signal.SIGKILL
                said = " ".join(senders.log.read_bytes()[said_before:].decode().split())
                # Killed between its last acknowledgement and its end, it has nothing left to do.
                done = code == 0 or (code == 2 and "rows have contributed to round" in said)
                assert done or code == -signal.SIGKILL, said
            rounds += 1
        tables = open_tables(f"sqlite:{tmp_path / 'analyzer.db'}", deployment.task)
        wait_until(lambda: len(tables.counted()) >= rounds)
        check_rounds(tables.counted(), rounds, USERS)
        print(f"{killed} kills, lost {senders.front.lost}, {rounds} rounds")


@pytest.mark.slow
def test_tokens_from_the_command_let_each_of_them_in_once(tmp_path: Path) -> None:
    files = (tmp_path / "tokens", tmp_path / "digests")
    assert ended(tmp_path / "log", "tokens", "--count", "8", "-o", files[0], "--digests", files[1])[0] == 0
    tokens = files[0].read_text().split()
    with ExitStack() as stack:
        senders = Senders(tmp_path, stack, users=8, rounds=2)
        nobody = stack.enter_context(StandInAnalyzer())
        senders.shuffler = stack.enter_context(
            senders.deployment.shuffler(nobody.url, "--tokens", str(files[1]), "--release-at", "9")
        )
        assert refused(senders.send(), "token-missing")
        assert senders.send("--tokens", files[0]) == (0, "8 rows were accepted for round 1")
        # Other people, as far as contributions tell, with tokens that were used, or never made.
        other = ("--row", "3", "--contributions", tmp_path / "others", "--tokens")
        (tmp_path / "spent").write_text(tokens[5])
        assert refused(senders.send(*other, tmp_path / "spent"), "token-spent")
        # One row of a file takes the token of its own line.
        alone = ("--contributions", tmp_path / "second", "--round", "1", "--tokens", tmp_path / "all")
        (tmp_path / "all").write_text("\n".join(["ab" * 16] * 3 + tokens[3:]))
        assert refused(senders.send("--row", "2", *alone), "token-unknown")
        assert refused(senders.send("--row", "3", *alone), "token-spent")
        (tmp_path / "unknown").write_text("ab" * 16)
        assert refused(senders.send(*other, tmp_path / "unknown"), "token-unknown")
        (tmp_path / "few").write_text("\n".join(tokens[:7]))
        code, said = senders.send("--tokens", tmp_path / "few", "--contributions", tmp_path / "third")
        assert code == 2
        assert "holds 7 tokens for 8 rows" in said
        assert senders.shuffler.metric("shufflesum_uploads_total") == 8


def refused(end: tuple[int, str], problem: str) -> bool:
    code, said = end
    return code == 2 and said.startswith("shufflesum: ") and said.count(problem) == 1 and f"[{problem}]" in said


def test_a_shuffler_trusts_the_certificate_it_was_given_and_no_other(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    (tmp_path / "strangers").mkdir()
    other, _ = certificate(tmp_path / "strangers")
    deployment = Deployment.small(tmp_path, users=3)
    with deployment.analyzer("--processes", "1", "--tls-cert", cert, "--tls-key", key) as analyzer:
        url = analyzer.url.replace("http:", "https:")
        tables = open_tables(f"sqlite:{tmp_path / 'analyzer.db'}", deployment.task)
        for options in ((), ("--analyzer-ca", other)):
            with deployment.shuffler(url, *options) as shuffler:
                for _ in range(3):
                    shuffler.upload(fake_upload(deployment.task))
                wait_until(lambda shuffler=shuffler: shuffler.metric("shufflesum_release_failures_total") >= 1)
                assert shuffler.metric("shufflesum_batches_released_total") == 0
            assert tables.counted() == []
        with deployment.shuffler(url, "--analyzer-ca", cert) as shuffler:
            wait_until(lambda: shuffler.metric("shufflesum_batches_released_total") == 1)
        (result,) = tables.counted()
        assert result.users >= 3
