"""Layers from clients through real servers: each round is rotated, and rotated back, with signs of its own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.forked_processes import wait_until
from tests.service.proxy import LossyProxy
from tests.service.servers import Deployment

import shufflesum as ss
from shufflesum.cli.clients import estimate_command
from shufflesum.domains import L2Ball
from shufflesum.domains.l2_ball.estimate import L2BallEstimate
from shufflesum.estimate import estimate_of
from shufflesum.service.client import Client, estimates_in, fetch_estimate

USERS = 60
FALSE_ALARM = 1e-7
BALL = L2Ball(
    {"weight": (6, 7), "bias": (6,)}, clipping_norm=1.0, seed=bytes(range(16))
)  # whose rounds have other signs


@pytest.mark.filterwarnings("ignore::shufflesum.cautions.UninformativePlanWarning")  # few users, and quick
@pytest.mark.filterwarnings("ignore::shufflesum.cautions.ArraysAreBetterWarning")
def test_both_rounds_of_layers_end_in_their_own_mean(tmp_path: Path) -> None:
    plan = ss.plan(users=USERS, domain=BALL, epsilon=20.0, delta=1e-3, rounds=2, max_reports=64)
    random = np.random.default_rng(8)
    middle = 0.8 * random.choice([-1.0, 1.0], 48) / np.sqrt(48)  # no small entries: wrong signs cannot pass for right
    rows = middle + 0.1 * random.normal(size=(USERS, 48)) / np.sqrt(48)
    held = [{"weight": row[:42].reshape(6, 7), "bias": row[42:]} for row in rows]
    names = [f"user {i}" for i in range(USERS)]
    with LossyProxy(lambda: shuffler.port, loss=0, seed=0) as front:
        deployment = Deployment(tmp_path, plan, shuffler_url=front.url)
        with deployment.analyzer("--processes", "1") as analyzer, deployment.shuffler(analyzer.url) as shuffler:
            with Client(deployment.task, contributions=tmp_path / "contributions") as client:
                client.upload(held[0], user=names[0])
                client.upload(rows[1], user=names[1])
                client.upload_many(held[2:], names[2:])
                wait_until(lambda: shuffler.metric("shufflesum_batches_released_total") == 1)
                client.upload_many(-rows, names, round_number=2)
                wait_until(lambda: shuffler.metric("shufflesum_batches_released_total") == 2)
            document = fetch_estimate(deployment.task, analyzer.url)
            asked = ["--task", str(deployment.task_file), analyzer.url, "--json"]
            said = CliRunner().invoke(estimate_command, asked)
    found = estimates_in(deployment.task, document)
    assert list(found) == [1, 2]
    for number, estimate in found.items():
        truth = rows.mean(axis=0) * (-1) ** (number - 1)
        assert isinstance(estimate, L2BallEstimate)
        assert estimate.layers["weight"].shape == (6, 7)
        within = estimate.error_norm(1 - FALSE_ALARM)
        assert np.linalg.norm(estimate.mean - truth) < within
        other = estimate_of(plan, USERS, 0, estimate.table, None, 3 - number)
        assert isinstance(other, L2BallEstimate)
        assert np.linalg.norm(other.mean - truth) > within
    assert said.exit_code == 0, said.exception
    assert [answer["round"] for answer in json.loads(said.output)["rounds"]] == [1, 2]
