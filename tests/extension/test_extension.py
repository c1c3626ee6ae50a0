"""A domain and a mechanism from outside go through plan, run, files, servers, audit, card and statement."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.extension.angles import Angles, DirectionEstimate
from tests.extension.coin import FairCoin
from tests.extension.registration import register_all
from tests.forked_processes import wait_until
from tests.service.proxy import LossyProxy
from tests.service.servers import Deployment

import shufflesum as ss
from shufflesum import domains, mechanisms
from shufflesum.audit import audit
from shufflesum.cli.output import print_rows
from shufflesum.estimate import EstimateTable
from shufflesum.pages import report_page
from shufflesum.plans import Plan
from shufflesum.plots import rounds_chart
from shufflesum.service.client import Client, estimates_in, fetch_estimate
from shufflesum.statement import statement
from shufflesum.tables.writers import estimate_to_json, write_estimate

USERS, NORTH_EAST = 2_000, 45.0
GUARANTEE: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    known = dict(domains.DOMAINS), dict(mechanisms.MECHANISMS)
    register_all()
    yield
    for registry, before in ((domains.DOMAINS, known[0]), (mechanisms.MECHANISMS, known[1])):
        for kind in registry.keys() - before.keys():
            del registry[kind]


def headings(users: int = USERS) -> NDArray[np.float64]:
    return NORTH_EAST + np.random.default_rng(7).normal(0, 30, users)


def shufflesum(folder: Path, *commands: list[str]) -> list[str]:
    """What each command prints, one after another in a process of their own, with both registered."""
    root = Path(__file__).parents[2]
    kept = {name: os.environ[name] for name in ("NUMBA_CACHE_DIR", "PYTHONPYCACHEPREFIX") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "tests.extension", *(word for command in commands for word in (*command, "then"))],
        check=False,
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(root), "HOME": str(folder), **kept},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split("\f")[:-1]
    assert len(printed) == len(commands)
    return printed


@pytest.mark.parametrize("mechanism", [None, "noisy-counts", "randomized-response", "fair-coin"])
def test_a_new_domain_is_planned_for_and_aggregated(mechanism: str | None) -> None:
    estimate = ss.aggregate(headings(), domain=Angles(), mechanism=mechanism, **GUARANTEE)
    assert isinstance(estimate, DirectionEstimate)
    assert abs(estimate.mean_direction - NORTH_EAST) < 10
    assert Plan.from_json(estimate.plan.to_json()) == estimate.plan
    assert estimate.to_table().columns["value"].sum() == pytest.approx(USERS, rel=0.1)
    assert "degrees" in str(estimate)


def test_what_angles_cannot_be_is_refused() -> None:
    with pytest.raises(ss.ShufflesumError, match="not a finite number"):
        ss.aggregate([*headings(), np.nan], domain=Angles(), **GUARANTEE)


def test_card_statement_and_simulation_speak_of_it() -> None:
    plan = ss.plan(users=USERS, domain=Angles(36), **GUARANTEE)
    assert "mean direction of angles in 36 sectors" in statement(plan)
    assert "angles" in str(ss.simulate(plan, repeats=3))


@pytest.mark.processes
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DensityEstimate(DirectionEstimate):
    """A kind of estimate that no renderer has heard of: users per degree."""

    what: ClassVar[str] = "Private densities"

    def _rows(self, level: float) -> EstimateTable:
        counts = DirectionEstimate._rows(self, level)
        per_degree = counts.shape[0] / 360.0
        scaled = {name: per_degree * getattr(counts, name) for name in ("value", "std_error", "lower", "upper")}
        notes = np.array([""] * (len(counts) - 1) + ["the last one"])
        return replace(counts, quantity="density", entry="bearing", of_users=False, notes=notes, **scaled)


def test_every_renderer_takes_the_table_of_a_new_kind_of_estimate(tmp_path: Path, capsys: Any) -> None:
    found = ss.aggregate(headings(), domain=Angles(6), **GUARANTEE)
    density = DensityEstimate(found.plan, found.users, found.rejected, found.table)
    heads, names = ("bearing", "density", "95 % interval"), [f"{60 * sector} degrees" for sector in range(6)]
    print_rows(density, 0.95)
    page = report_page([density], title="Bearings", made=datetime(2026, 1, 1, tzinfo=UTC))
    for shown in (str(density), density._repr_html_(), page.lower(), capsys.readouterr().out):
        for words in (*heads, *names, " ± "):
            assert words in shown
    write_estimate(tmp_path / "density.csv", density)
    with (tmp_path / "density.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == names
    assert [float(row["value"]) for row in rows] == pytest.approx(density.to_table().value.tolist())
    assert rows[-1]["notes"] == "the last one"
    for chart in (density.plot().chart, rounds_chart([density, replace(density, round_number=1)], title="t")):
        assert "Density" in json.dumps(chart.to_dict())
    document = json.loads(json.dumps(estimate_to_json(density)))
    assert document["value"] == pytest.approx(density.to_table().value.tolist())
    assert document["name"] == names


def test_commands_have_its_options_and_files_carry_its_reports(tmp_path: Path) -> None:
    (tmp_path / "headings.csv").write_text("heading\n" + "\n".join(f"{angle:.2f}" for angle in headings()))
    sectors = ["--sectors", "24", "--epsilon", "2", "--delta", "1e-6"]
    ran, planned, _, _, analyzed = shufflesum(
        tmp_path,
        ["run", "headings.csv", "--angles", "heading", *sectors],
        ["plan", "--users", str(USERS), "--angles", *sectors, "-o", "plan.json"],
        ["randomize", "headings.csv", "--plan", "plan.json", "-o", "reports.parquet"],
        ["shuffle", "reports.parquet", "-o", "shuffled.parquet"],
        ["analyze", "shuffled.parquet", "--plan", "plan.json"],
    )
    assert "mean direction" in ran
    assert "sector" in planned
    assert "mean direction" in analyzed


@pytest.mark.servers
@pytest.mark.parametrize("mechanism", ["noisy-counts", "fair-coin"])
def test_sealed_reports_reach_real_servers(tmp_path: Path, mechanism: str) -> None:
    users = 300
    plan = ss.plan(users=users, domain=Angles(6), epsilon=4.0, delta=1e-3, mechanism=mechanism)
    with (
        LossyProxy(lambda: shuffler.port, loss=0, seed=0) as front,
        (deployment := Deployment(tmp_path, plan, shuffler_url=front.url)).analyzer(
            "--processes", "1", prepare=register_all
        ) as analyzer,
        deployment.shuffler(analyzer.url, prepare=register_all) as shuffler,
    ):
        with Client(deployment.task, contributions=tmp_path / "contributions") as client:
            client.upload_many(headings(users), [f"user {i}" for i in range(users)])
        wait_until(lambda: shuffler.metric("shufflesum_batches_released_total") == 1)
        (estimate,) = estimates_in(deployment.task, fetch_estimate(deployment.task, analyzer.url)).values()
    assert isinstance(estimate, DirectionEstimate)
    assert abs(estimate.mean_direction - NORTH_EAST) < 45


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ["noisy-counts", "fair-coin"])
def test_the_audit_attacks_it(mechanism: str) -> None:
    plan = ss.plan(users=1_000, domain=Angles(6), epsilon=3.0, delta=1e-4, mechanism=mechanism)
    found = audit(plan, samples=100_000, trials=20)
    assert found.passed


def test_a_new_mechanism_is_written_into_plans() -> None:
    plan = ss.plan(users=USERS, domain=ss.Categories(["yes", "no"]), mechanism="fair-coin", **GUARANTEE)
    assert plan.mechanism == FairCoin()
    assert plan.privacy.delta(2.0).upper <= 1e-6
    reports = ss.Randomizer(plan).randomize(["yes"] * USERS)
    estimate = ss.Analyzer(plan).analyze(ss.shuffle(reports))
    assert estimate.counts[0] == pytest.approx(USERS, abs=6 * np.sqrt(USERS))
