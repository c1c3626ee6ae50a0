"""Sealed reports to our shuffler, the round's estimate from our analyzer: both as real processes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("flwr", reason="Flower is not installed; make test-flower runs these tests")

from flwr.app import ArrayRecord
from tests.federated.flower.crowd import Crowd, context, trainer
from tests.service.proxy import LossyProxy
from tests.service.servers import Deployment

import shufflesum as ss
from shufflesum.federated import Training, l2_ball_of
from shufflesum.federated.flower import Shuffled, upload_mod

USERS, ROUNDS = 30, 2


def model() -> dict[str, NDArray[np.float32]]:
    return {"weight": np.zeros((6, 8), dtype=np.float32), "bias": np.zeros(2, dtype=np.float32)}


@pytest.mark.servers
@pytest.mark.filterwarnings("ignore::shufflesum.cautions.UninformativePlanWarning")  # few clients, and quick
@pytest.mark.filterwarnings("ignore::shufflesum.cautions.ArraysAreBetterWarning")
def test_a_training_through_shuffler_and_analyzer_shows_flower_nothing_but_who_took_part(tmp_path: Path) -> None:
    ball = l2_ball_of(model(), clipping_norm=1.0)
    plan = ss.plan(users=USERS, domain=ball, epsilon=20.0, delta=1e-3, rounds=ROUNDS, max_reports=64)
    random = np.random.default_rng(4)
    rows = random.normal(0.1, 0.05, (USERS, 50)).astype(np.float32)
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    with LossyProxy(lambda: shuffler.port, loss=0, seed=0) as front:
        deployment = Deployment(tmp_path, plan, shuffler_url=front.url)
        with deployment.analyzer("--processes", "1") as analyzer, deployment.shuffler(analyzer.url) as shuffler:
            mod = upload_mod(deployment.task, contributions=tmp_path / "contributions")
            crowd = Crowd(trainer(mod, rows), USERS)

            def start(timeout: float) -> tuple[Training, bool]:
                training = Training(plan, model(), rounds=tmp_path / "rounds.db")
                if (tmp_path / "model.npz").exists():
                    training.restore(tmp_path / "model.npz")
                used = Shuffled(training, analyzer=analyzer.url, task=deployment.task, timeout=timeout)
                result = used.start(grid=crowd, initial_arrays=ArrayRecord({}), num_rounds=1)
                training.save(tmp_path / "model.npz")
                return training, bool(result.arrays)

            crowd.silent = {3, 4}
            training, moved = start(timeout=1.0)
            assert (moved, training.waiting) == (False, 1)
            crowd.silent = set()
            crowd.contexts = [context(node, number=1000 + node) for node in range(USERS)]  # a server may call them so
            training, moved = start(timeout=60.0)  # the same round goes on, and nobody counts twice
            assert (moved, training.waiting, training.rounds_left) == (True, None, ROUNDS - 1)
            assert analyzer.metric("shufflesum_reports_rejected_total") == 0
            with closing(sqlite3.connect(tmp_path / "contributions")) as contributions:
                assert contributions.execute("SELECT count(*) FROM contributions").fetchone() == (USERS,)
            training, moved = start(timeout=60.0)
            assert (moved, training.rounds_left) == (True, 0)
    found = np.concatenate([layer.reshape(-1) for layer in training.parameters.values()])
    deviation = np.sqrt(ROUNDS * plan.expected_error.total / plan.dimension)
    # Seven standard errors in each of 50 entries, which the plan's expected error bounds.
    assert np.all(np.abs(found - ROUNDS * rows.mean(axis=0)) < 7 * deviation)
    for reply in crowd.replies:
        assert not reply.content.array_records
        assert not reply.content.metric_records
