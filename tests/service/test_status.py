"""What servers say of where they stand, to whom, and as gauges; and rules that go by those."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families
from tests.forked_processes import wait_until
from tests.service.postgres import Postgres
from tests.service.processes import ServerProcess
from tests.service.servers import Deployment, StandInAnalyzer, fake_upload

import shufflesum as ss
from shufflesum.cli.clients import status_command
from shufflesum.service.analyzer.interface import AnalyzerStatus
from shufflesum.service.http.openapi import figures
from shufflesum.service.shuffler.interface import ShufflerStatus

USERS = 5
DEPLOY = Path(__file__).parents[2] / "deploy"


def gauges(server: ServerProcess, headers: dict[str, str] | None = None) -> dict[str, float]:
    text = server.request("GET", "/metrics", headers=headers).body.decode()
    found = {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}
    return {name.removeprefix("shufflesum_status_"): value for name, value in found.items() if "_status_" in name}


def asked(deployment: Deployment, *options: object) -> Result:
    return CliRunner().invoke(status_command, ["--task", str(deployment.task_file), *map(str, options)])


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_shuffler_tells_its_operator_where_it_stands(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    deployment = Deployment.small(tmp_path, users=USERS, rounds=3)
    store: str | None = request.getfixturevalue("postgres").address if kind == "postgres" else None
    path = f"/tasks/{deployment.task.id}/status"
    with StandInAnalyzer() as analyzer:
        analyzer.answer = 503
        options = ("--operator-secret-file", str(deployment.operator_file), "--release-at", str(USERS + 1))
        with deployment.shuffler(analyzer.url, *options, store=store) as server:

            def status() -> dict[str, Any]:
                found: dict[str, Any] = server.request("GET", path, headers=deployment.operator).json
                return found

            for _ in range(USERS):
                assert server.upload(fake_upload(deployment.task)).status == 201
            first = status()
            assert first["task"] == deployment.task.id
            assert (first["open_round"], first["users"], first["rounds"]) == (1, USERS, 3)
            assert (first["smallest_batch"], first["release_at"]) == (USERS, USERS + 1)
            assert (first["waiting_round"], first["waiting_users"], first["released_rounds"]) == (None, None, 0)
            assert first["store_bytes"] > 0
            assert (first["free_bytes"] is None) == (kind == "postgres")
            assert server.upload(fake_upload(deployment.task)).status == 201
            wait_until(lambda: status()["waiting_round"] == 1)
            assert server.upload(fake_upload(deployment.task, 2)).status == 201
            waiting = status()
            assert (waiting["waiting_users"], waiting["open_round"], waiting["users"]) == (USERS + 1, 2, 1)
            shown = gauges(server, deployment.operator)
            for name, value in waiting.items():
                if name not in ("task", "expires", "store_bytes", "free_bytes"):
                    assert shown[name] == value, name
            assert shown["expires"] == deployment.task.expires.timestamp()
            assert math.isnan(shown["free_bytes"]) == (kind == "postgres")
            analyzer.answer = 201
            wait_until(lambda: status()["released_rounds"] == 1)
            assert gauges(server, deployment.operator)["waiting_round"] == 0


def test_only_the_operator_learns_how_many_users_there_are(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=USERS)
    path = f"/tasks/{deployment.task.id}/status"
    nobody: dict[str, str] = {}
    guess = {"Authorization": f"Bearer {'0' * 32}"}
    with StandInAnalyzer() as analyzer:
        with deployment.shuffler(analyzer.url, "--operator-secret-file", str(deployment.operator_file)) as server:
            for headers in (nobody, guess, deployment.bearer):  # the last is what the analyzer knows
                for asked_for in (path, "/metrics"):
                    answer = server.request("GET", asked_for, headers=headers)
                    assert (answer.status, answer.problem) == (401, "wrong-secret")
            assert server.request("GET", "/metrics", headers=deployment.operator).status == 200
            assert server.request("GET", path.replace(deployment.task.id, "0" * 64)).problem == "wrong-task"
        with deployment.shuffler(analyzer.url) as server:  # without such a secret nobody can ask
            for headers in (nobody, guess, deployment.bearer):
                assert server.request("GET", path, headers=headers).problem == "wrong-secret"


def test_gauges_of_a_store_out_of_reach_are_unknown(tmp_path: Path, postgres: Postgres) -> None:
    deployment = Deployment.small(tmp_path, users=USERS)
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url, store=postgres.address) as server:
        assert gauges(server)["rounds"] == 1
        postgres.stop()
        try:
            assert all(math.isnan(value) for value in gauges(server).values())
        finally:
            postgres.start()
        wait_until(lambda: gauges(server)["rounds"] == 1)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_the_command_asks_both_servers(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    plan = ss.plan(
        users=20, shape=2, epsilon=20.0, delta=0.1, rounds=2, mechanism=ss.RandomizedResponse.Options(coordinates=1)
    )
    deployment = Deployment(tmp_path, plan)
    store: str | None = request.getfixturevalue("postgres").address if kind == "postgres" else None
    secret = ("--operator-secret-file", deployment.operator_file)
    with (
        deployment.analyzer("--processes", "1", store=store) as analyzer,
        deployment.shuffler(analyzer.url, *map(str, secret), "--show-progress", store=store) as shuffler,
    ):
        where = ("--shuffler", shuffler.url, "--analyzer", analyzer.url)
        for _ in range(13):
            assert shuffler.upload(fake_upload(deployment.task)).status == 201
        done = asked(deployment, *where, *secret)
        assert done.exit_code == 0, done.output
        for words in (
            "open round    1 of 2",
            "13; the smallest batch is 20",
            "waiting batch",
            "0 released of 2",
            "0 counted of 2",
        ):
            assert words in done.output
        public = asked(deployment, "--shuffler", shuffler.url)
        assert public.exit_code == 0, public.output
        assert "at least 10 of 20" in public.output
        shown = public.output.partition("open round")[2]  # before it are an id, an address and a time with any digits
        assert "at least 10 of 20" in shown
        assert "13" not in shown
        for _ in range(7):
            assert shuffler.upload(fake_upload(deployment.task)).status == 201
        both = ("--json", *where, *secret)
        wait_until(lambda: json.loads(asked(deployment, *both).output)["analyzer"]["counted_rounds"] == 1)
        found = json.loads(asked(deployment, *both).output)
        assert (found["shuffler"]["open_round"], found["shuffler"]["users"]) == (2, 0)
        assert found["analyzer"]["store_bytes"] > 0
        assert gauges(analyzer)["counted_rounds"] == 1
        analyzer.kill()
        alone = asked(deployment, *where, *secret)
        assert alone.exit_code == 1
        assert "open round    2 of 2" in alone.output
        assert "connection refused" in alone.output


def test_rules_go_by_metrics_that_there_are(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=USERS)
    with deployment.analyzer("--processes", "1") as analyzer, deployment.shuffler(analyzer.url) as shuffler:
        text = "".join(server.request("GET", "/metrics").body.decode() for server in (analyzer, shuffler))
    known = set(re.findall(r"^# TYPE (\w+)", text, flags=re.MULTILINE)) | {"up"}
    rules = [rule for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
    used = {name for rule in rules for name in re.findall(r"\b(?:shufflesum_\w+|up)\b", rule["expr"])}
    assert used <= known
    assert {f"shufflesum_status_{name}" for name in figures(ShufflerStatus) | figures(AnalyzerStatus)} <= known
    if promtool := shutil.which("promtool"):
        subprocess.run([promtool, "check", "rules", DEPLOY / "alerts.yml"], check=True, capture_output=True)
