"""Audits of random bits: the honest coin passes, and one that is fixed, shared or rounds to the nearest is caught."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow_params import slow_but_for

import shufflesum as ss
from shufflesum.audit import AuditResult, audit
from shufflesum.mechanisms.one_bit.randomize import Rotation
from shufflesum.protocol import Randomizer
from shufflesum.randomness import SecureSource
from shufflesum.testing import SeededSource

DOMAINS: dict[str, ss.L2Ball] = {
    "vector": ss.L2Ball(1000, clipping_norm=2.0),
    "few": ss.L2Ball((3, 3), clipping_norm=1.0),
    "layers": ss.L2Ball(
        {"a": (10, 8), "b": (8,)}, clipping_norm=1.0, center={"a": np.full((10, 8), 3.0), "b": np.ones(8)}
    ),
}


@cache
def planned(name: str) -> ss.Plan:
    return ss.plan(users=500, domain=DOMAINS[name], epsilon=1.0, delta=1e-6)


def run(plan: ss.Plan, randomize: Any = None) -> AuditResult:
    return audit(plan, randomize=randomize, trials=20, seconds=8)


@pytest.mark.parametrize("name", slow_but_for(DOMAINS, ["vector"]))
def test_the_honest_coin_passes_with_a_lower_bound_near_what_is_certified(name: str) -> None:
    """False alarms once in a million audits."""
    plan = planned(name)
    result = run(plan)
    assert result.passed, result.findings
    assert 0.7 * result.epsilon_upper < result.epsilon_lower <= result.epsilon_upper <= plan.epsilon


def bits_of(plan: ss.Plan, rows: Any) -> tuple[NDArray[np.int64], Any]:
    """The levels that an honest client tosses for, and the plan's mechanism."""
    mechanism: Any = plan.mechanism
    domain: Any = plan.domain
    encoding: Any = plan.encoding
    return Rotation(encoding, mechanism.tau).of(domain.block(domain.rows(rows)).values).astype(np.int64), mechanism


def reports_of(plan: ss.Plan, bits: NDArray[Any]) -> ss.Reports:
    """(users, bits, coordinates) as cells."""
    cells = 2 * np.arange(bits.shape[2], dtype=np.uint32) + bits.astype(np.uint32)
    return ss.Reports(plan.id, cells.reshape(-1).astype(np.uint32))


class Coin:
    """Compares the chance with uniform numbers that somebody chose badly."""

    def __init__(self, plan: ss.Plan) -> None:
        self.plan, self.rng = plan, np.random.default_rng(1)
        os.register_at_fork(after_in_child=lambda: setattr(self, "rng", np.random.default_rng()))

    def __call__(self, rows: Any) -> ss.Reports:
        levels, mechanism = bits_of(self.plan, rows)
        chances = (1 + mechanism.amplitude * levels[:, None, :] / 2**15) / 2
        shape = (len(levels), mechanism.bits, levels.shape[1])
        return reports_of(self.plan, self.uniform(shape) < chances)

    def uniform(self, shape: tuple[int, int, int]) -> NDArray[np.float64]:
        return self.rng.uniform(size=shape)


class Fixed(Coin):
    """The same coins every time, different for each user and coordinate."""

    def uniform(self, shape: tuple[int, int, int]) -> NDArray[np.float64]:
        return np.random.default_rng(7).uniform(size=shape)


class Half(Coin):
    def uniform(self, shape: tuple[int, int, int]) -> NDArray[np.float64]:
        return np.full(shape, 0.5 - 1e-9)


class SharedByUsers(Coin):
    def uniform(self, shape: tuple[int, int, int]) -> NDArray[np.float64]:
        return np.broadcast_to(self.rng.uniform(size=shape[1:]), shape)


class SharedByTwoUsers(Coin):
    def uniform(self, shape: tuple[int, int, int]) -> NDArray[np.float64]:
        uniform = self.rng.uniform(size=shape)
        uniform[1::2] = uniform[: len(uniform) - 1 : 2]
        return uniform


class SharedByCoordinates(Coin):
    def uniform(self, shape: tuple[int, int, int]) -> NDArray[np.float64]:
        return np.broadcast_to(self.rng.uniform(size=(*shape[:2], 1)), shape)


class Nearest(Coin):
    """No coin at all: the bit is the sign."""

    def __call__(self, rows: Any) -> ss.Reports:
        levels, mechanism = bits_of(self.plan, rows)
        return reports_of(self.plan, np.repeat((levels > 0)[:, None, :], mechanism.bits, axis=1))


class NearestOfNoise(Coin):
    """Rounded to the nearest, then replaced by a fair bit: noise is there, but the coin of rounding is not."""

    def __call__(self, rows: Any) -> ss.Reports:
        levels, mechanism = bits_of(self.plan, rows)
        shape = (len(levels), mechanism.bits, levels.shape[1])
        fair = self.rng.uniform(size=shape) < 0.5
        noise = self.rng.uniform(size=shape) < 1 - mechanism.amplitude
        return reports_of(self.plan, np.where(noise, fair, (levels > 0)[:, None, :]))


class LessNoise(Coin):
    """A tenth more amplitude than the plan has."""

    def __call__(self, rows: Any) -> ss.Reports:
        levels, mechanism = bits_of(self.plan, rows)
        chances = (1 + 1.1 * mechanism.amplitude * levels[:, None, :] / 2**15) / 2
        return reports_of(self.plan, self.uniform((len(levels), mechanism.bits, levels.shape[1])) < chances)


class UnboundedNorm(Coin):
    """Forgets to divide by tau: coordinates are clipped, their norm is not what the certificate counts on."""

    def __call__(self, rows: Any) -> ss.Reports:
        levels, mechanism = bits_of(self.plan, rows)
        larger = np.clip(levels * mechanism.tau, -(2**15), 2**15)
        chances = (1 + mechanism.amplitude * larger[:, None, :] / 2**15) / 2
        return reports_of(self.plan, self.uniform((len(levels), mechanism.bits, levels.shape[1])) < chances)


@pytest.mark.slow
def test_the_coin_that_others_are_spoilt_from_passes_itself() -> None:
    plan = planned("vector")
    assert run(plan, Coin(plan)).passed


SABOTAGE = [Fixed, Half, SharedByUsers, SharedByTwoUsers, Nearest, NearestOfNoise, LessNoise, UnboundedNorm]


@pytest.mark.parametrize(
    "sabotage",
    slow_but_for(
        (*SABOTAGE, SharedByCoordinates), [UnboundedNorm]
    ),  # the others are much like those of test_sabotage.py
)
def test_a_bad_coin_is_caught(sabotage: type[Coin]) -> None:
    plan = planned("vector")
    result = run(plan, sabotage(plan))
    assert not result.passed
    if sabotage in (Nearest, NearestOfNoise, UnboundedNorm):
        assert result.crossed


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", [Fixed, SharedByUsers, Nearest])
@pytest.mark.parametrize("name", ["few", "layers"])
def test_the_same_in_other_shapes(name: str, sabotage: type[Coin]) -> None:
    plan = planned(name)
    assert not run(plan, sabotage(plan)).passed


@pytest.mark.slow
def test_a_seed_in_place_of_secure_bits_is_caught_where_it_repeats() -> None:
    plan = planned("vector")
    assert not run(plan, lambda rows: Randomizer(plan, source=SeededSource(1)).randomize(rows)).passed
    assert run(plan, lambda rows: Randomizer(plan, source=SecureSource()).randomize(rows)).passed
