from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

import shufflesum as ss
from shufflesum.audit import attacks as ss_audit
from shufflesum.cli.audit import audit_command as command
from shufflesum.errors import ParameterError, PlanError
from shufflesum.mechanisms.randomized_response.randomize import RandomizedResponseEncoder

FEW = ("--samples", "500000", "--trials", "20", "--seconds", "60")
FEWER = ("--samples", "20000", "--trials", "2", "--seconds", "60")  # where what is found does not matter
SMALL = ("--users", "1000", "--dimension", "3", "--levels", "2", "--coordinates", "3")


class HalfTheNoise(RandomizedResponseEncoder):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._noise_numerator //= np.uint64(2)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one row at a time shows takes its time, and is looked at in tests/audit."""
    monkeypatch.setattr(ss_audit, "_ONE_ROW_TIME", 0.01)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_the_installed_randomizer_is_found_consistent() -> None:
    """With confidence 1 - 1e-6, on secure randomness: this fails once in a million runs at most."""
    done = run(*SMALL, *FEWER)
    assert done.exit_code == 0, done.output
    assert "consistent" in done.stdout
    assert "epsilon <= 1.00" in done.stdout
    assert "confidence 0.999999" in done.stdout
    for path in ("many rows", "whole batches in one process", "one row at a time", "nothing compiled"):
        assert re.search(rf"by .*{path}: [0-9,]+ users who held [0-9]+ rows", done.stdout)
    assert "less noise for all of them would have shown" in done.stdout
    assert done.stderr == ""


def test_the_json_holds_both_bounds() -> None:
    done = run(*SMALL, *FEW, "--json")
    document = msgspec.json.decode(done.stdout, type=dict[str, Any])
    assert done.exit_code == 0
    assert document["passed"] is True
    assert document["findings"] == []
    assert 0.8 < document["epsilon_lower"] <= document["epsilon_upper"] <= 1
    assert document["epsilon_lower"] == max(document[a]["epsilon_lower"] for a in ("report_attack", "batch_attack"))
    assert document["report_attack"]["reports"] >= 500_000
    assert document["batch_attack"]["batches"] == 20
    assert {tuple(path) for path in document["paths"]} == {("path", "users", "held", "less_noise")}
    assert document["paths"][0]["users"] >= 500_000 // 3


def test_half_the_noise_fails_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shufflesum.mechanisms.randomized_response.mechanism.RandomizedResponseEncoder", HalfTheNoise)
    done = run(*SMALL, *FEW)
    assert done.exit_code == 1
    assert "FAILED" in done.stdout
    assert "AUDIT FAILED: epsilon is at least 1." in done.stderr
    assert "Release nothing" in done.stderr
    done = run(*SMALL, *FEW, "--json")
    document = msgspec.json.decode(done.stdout, type=dict[str, Any])
    assert done.exit_code == 1
    assert document["passed"] is False
    assert document["crossed"] is True
    assert document["epsilon_lower"] > document["epsilon_upper"]


def test_bounds_are_not_rounded_in_our_favour(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ss.plan(
        users=1000, shape=3, mechanism=ss.RandomizedResponse.Options(coordinates=3, levels=2), epsilon=1.0, delta=1e-6
    )
    attack = ss_audit.ReportAttack(10, 0.123456789, 0.98769)
    result = ss_audit.AuditResult(plan, 0.999999, 0.99991, attack, ss_audit.BatchAttack(0, 0.0), (), True)
    monkeypatch.setattr("shufflesum.cli.audit.audit", lambda *_, **__: result)
    shown = run(*SMALL).stdout
    assert "epsilon >= 0.9876," in shown
    assert "epsilon <= 1.000," in shown
    assert "0.1235 times" in shown


def test_a_plan_file_is_audited_and_fixes_all_parameters(tmp_path: Path) -> None:
    plan = ss.plan(
        users=1000,
        shape=(2, 2),
        mechanism=ss.RandomizedResponse.Options(coordinates=4, levels=1),
        epsilon=2.0,
        delta=1e-5,
        bounds=(-1.0, 1.0),
    )
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    done = run("--plan", path, *FEWER, "--json")
    assert msgspec.json.decode(done.stdout, type=dict[str, Any])["plan_id"] == plan.id
    refused = run("--plan", path, "--users", 5, *FEWER)
    assert isinstance(refused.exception, ParameterError)
    assert refused.exception.problem == "conflicting-arguments"
    assert "--users" in str(refused.exception)


def test_a_plan_file_with_a_false_claim_is_refused(tmp_path: Path) -> None:
    plan = ss.plan(users=1000, shape=1, mechanism=ss.RandomizedResponse.Options(levels=1), epsilon=2.0, delta=1e-5)
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json().replace('"users": 1000', '"users": 2000'))
    assert isinstance(run("--plan", path).exception, PlanError)
