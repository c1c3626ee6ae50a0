"""The audit of noise that one process draws for sums: right noise passes; missing or other noise is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shufflesum as ss
from shufflesum.audit import AuditResult, audit
from shufflesum.mechanisms import NoisySums
from shufflesum.mechanisms.noisy_sums import mechanism as noisy_sums
from shufflesum.mechanisms.noisy_sums.randomize import drawn
from shufflesum.privacy import NoiseDistribution
from shufflesum.testing import SeededSource

TARGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "noise_by": "curator"}
NUMBERS = ss.plan(users=1000, shape=200, bounds=(-1.0, 3.0), **TARGET)
FEW = ss.plan(users=1000, shape=3, **TARGET | {"epsilon": 8.0})
VECTORS = ss.plan(users=1000, domain=ss.L2Ball(200, 2.0), **TARGET)
PLANS = {"numbers": NUMBERS, "few": FEW, "vectors": VECTORS}


def audited(plan: ss.Plan) -> AuditResult:
    return audit(plan, samples=6000 if plan is FEW else 80_000, trials=200, seconds=30.0)


@pytest.mark.parametrize("name", PLANS)
def test_noise_as_planned_passes(name: str) -> None:
    result = audited(PLANS[name])
    assert result.passed, result.findings
    assert sum(tested.events for tested in result.tested) > 5000
    assert result.epsilon_lower <= 1.0 or name == "few"


def changed(mechanism: NoisySums, factor: float) -> NoisySums:
    """Noise of another scale, in the tables that matter."""
    *first, last = mechanism.noise
    other = NoiseDistribution(last.shape, last.scale * factor, round(last.half_length * factor))
    found = object.__new__(NoisySums)
    for name in ("noise_by", "levels", "step", "stride"):
        object.__setattr__(found, name, getattr(mechanism, name))
    object.__setattr__(found, "noise", (*first, other))
    return found


Draw = Callable[[NoisySums, int, Any], Any]
WRONG: dict[str, Draw] = {
    "missing": lambda mechanism, size, source: np.full(size, round(mechanism.noise_mean)),
    "halved": lambda mechanism, size, source: drawn(changed(mechanism, 0.5), size, source),
    "a tenth less": lambda mechanism, size, source: drawn(changed(mechanism, 0.9), size, source),
    "repeated": lambda mechanism, size, source: drawn(mechanism, size, SeededSource(7)),
    "one draw for all": lambda mechanism, size, source: np.repeat(drawn(mechanism, 1, source), size),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ["numbers", "vectors"])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_noise_is_found(name: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noisy_sums, "drawn", WRONG[wrong])
    assert not audited(PLANS[name]).passed


@pytest.mark.parametrize("wrong", ["missing", "repeated"])
def test_wrong_noise_of_few_numbers_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noisy_sums, "drawn", WRONG[wrong])
    assert not audited(FEW).passed


def test_noise_without_anything_below_a_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def coarse(mechanism: NoisySums, size: int, source: Any) -> Any:
        return drawn(mechanism, size, source) // mechanism.step * mechanism.step

    monkeypatch.setattr(noisy_sums, "drawn", coarse)
    assert not audited(NUMBERS).passed


@pytest.mark.parametrize("name", ["numbers", "vectors"])
def test_as_much_less_noise_as_it_says_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = audited(PLANS[name]).paths
    assert path.less_noise is not None
    assert 0.02 < path.less_noise < 0.2
    factor = 1 - path.less_noise
    monkeypatch.setattr(
        noisy_sums, "drawn", lambda mechanism, size, source: drawn(changed(mechanism, factor), size, source)
    )
    assert not audited(PLANS[name]).passed
