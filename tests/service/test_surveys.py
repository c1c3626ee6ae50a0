"""A survey through real servers, each of which draws its own noise: what users sent is asked about afterwards."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from tests.forked_processes import wait_until
from tests.refusals import refusal
from tests.service.proxy import LossyProxy
from tests.service.test_noise_by_servers import NoisyDeployment

import shufflesum as ss
from shufflesum.cli import _group
from shufflesum.encodings import AttributeValues
from shufflesum.errors import DataError
from shufflesum.mechanisms import NoisyTable
from shufflesum.service.client import Client, estimates_in, fetch_estimate

SURVEY = ss.Survey(
    {
        "country": ["DE", "FR", "IT"],
        "age": ss.Question(bins=[0, 18, 65, 120], optional=True),
        "visits": ss.Question(bounds=(0, 4)),
        "hobbies": ss.Question(["chess", "golf"], multiple=True),
    }
)
PEOPLE: list[dict[str, Any]] = [
    {"country": "DE", "age": 20, "visits": 3, "hobbies": ["chess"]},
    {"country": "FR", "age": None, "visits": 0, "hobbies": []},
    {"country": "DE", "age": 70, "visits": 99, "hobbies": ["golf", "chess"]},  # a device moves numbers to the bounds
    {"country": "IT", "visits": 4, "hobbies": ["golf"]},
]


def test_a_survey_is_collected_by_servers_and_asked_afterwards(tmp_path: Path) -> None:
    plan = ss.plan(domain=SURVEY, users=1000, epsilon=4.0, delta=1e-4, noise_by="servers")
    with ExitStack() as stack:
        gate = stack.enter_context(LossyProxy(lambda: shuffler.port, loss=0, seed=1))
        deployment = NoisyDeployment(tmp_path, plan, shuffler_url=gate.url)
        analyzer = stack.enter_context(deployment.start("analyzer"))
        shuffler = stack.enter_context(deployment.start("shuffler", analyzer.url, "--release-at", str(len(PEOPLE))))
        with Client(deployment.task, contributions=tmp_path / "contributions", timeout=30) as client:
            with refusal("unknown-label", "country", error=DataError):
                client.upload({**PEOPLE[0], "country": "ES"}, user="somebody")
            for number, person in enumerate(PEOPLE):
                client.upload(person, user=f"user {number}")
        wait_until(lambda: shuffler.metric("shufflesum_batches_released_total") == 1)
        found = estimates_in(deployment.task, fetch_estimate(deployment.task, analyzer.url))[1]
        assert isinstance(found, ss.SurveyEstimate)
        assert found.users == len(PEOPLE)
        assert isinstance(plan.mechanism, NoisyTable)
        noise = deployment.draws(1) - 2 * plan.mechanism.noise[0].half_length
        block = SURVEY.prepare(PEOPLE, clip=True).block(0, len(PEOPLE))
        assert isinstance(block, AttributeValues)
        true = np.zeros(plan.cells, np.int64)
        plan.mechanism.tally(plan.encoding, _NoCoins()).add(block, true)  # whole numbers need no coins
        told = found.users * found.plan.mechanism.decode(plan.encoding, found.table, found.users).mean
        np.testing.assert_allclose(told, true + noise)
        assert found["country", "age"].counts.shape == (3, 4)
        kept = ("--keep", str(tmp_path / "estimate.json"))
        asked = ["estimate", "--task", str(deployment.task_file), analyzer.url, *kept]
        called = CliRunner().invoke(_group, asked)
        assert called.exit_code == 0, (called.output, called.exception)
        again: Any = ss.BaseEstimate.load(tmp_path / "estimate.json")
        np.testing.assert_array_equal(again["country"].counts, found["country"].counts)


class _NoCoins:
    def fill(self, out: Any) -> None:
        out[...] = 0
