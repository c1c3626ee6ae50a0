"""One round's mean update under each kind of privacy, all from the same clients, clipped alike.

Noise of the curator and of local privacy is Gaussian: `2 clipping_norm` x the least multiplier for (epsilon, delta)
x sqrt(rounds) because rounds compose; added once to the sum by a curator, and by every user themselves where
nobody is trusted.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from experiments.federated.models import Classifier, Updates
from shufflesum.cautions import UninformativePlanWarning
from shufflesum.domains import L2Ball
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan
from shufflesum.privacy.engine.gaussian import gaussian_noise
from shufflesum.protocol import Tally
from shufflesum.release import release
from shufflesum.testing import SeededSource

Blocks: TypeAlias = Iterable[Updates]

NO_PRIVACY, CURATOR, OURS = "no privacy", "trusted curator", "shuffled bits (ours)"
BOX, LOCAL = "paper's protocol, certified", "local privacy"
METHODS = (NO_PRIVACY, CURATOR, OURS, BOX, LOCAL)

_SEED = bytes(range(16))  # of the public rotation; any will do, and a fixed one can be repeated


@dataclass(frozen=True, slots=True)
class Setting:
    """What all methods share: so many clients, rounds, the clip, and (epsilon, delta) over all rounds."""

    users: int
    rounds: int
    clipping_norm: float
    epsilon: float
    delta: float = 1e-6


class Method(Protocol):
    """How a round's updates become an estimate of their mean."""

    def mean(self, blocks: Blocks, round_number: int, seed: list[int]) -> NDArray[np.float64]:
        """The estimated mean of the clipped updates."""


@dataclass(frozen=True, slots=True)
class _Gaussian:
    """The mean with normal noise of this standard deviation in every coordinate; 0 for no privacy."""

    clipping_norm: float
    deviation: float

    def mean(self, blocks: Blocks, round_number: int, seed: list[int]) -> NDArray[np.float64]:
        """The exact mean, and noise."""
        sums = [(block.clipped_sum(self.clipping_norm), len(block)) for block in blocks]
        mean: NDArray[np.float64] = np.sum([one for one, _ in sums], axis=0) / sum(users for _, users in sums)
        return mean + np.random.default_rng([*seed, round_number]).normal(0, 1, mean.shape) * self.deviation


@dataclass(frozen=True, slots=True)
class _Shuffled:
    """The whole protocol under a plan: randomized, counted and released as always; only its bits are seeded."""

    plan: Plan
    clipping_norm: float

    def mean(self, blocks: Blocks, round_number: int, seed: list[int]) -> NDArray[np.float64]:
        """The estimate from all users' reports."""
        source = SeededSource(int(np.random.SeedSequence([*seed, round_number]).generate_state(1, np.uint64)[0]))
        tally = Tally(self.plan, clip=True, source=source, round_number=round_number)
        for block in blocks:
            rows = block.rows()
            if not isinstance(self.plan.domain, L2Ball):  # a box would clip single values, not the norm
                rows *= np.minimum(1, self.clipping_norm / np.maximum(block.norms(), 1e-30))[:, np.newaxis]
            tally.add(rows)
        return np.asarray(release(tally.counts()).mean, dtype=np.float64).reshape(-1)


def method(name: str, model: Classifier, setting: Setting) -> Method:
    """The method of that name in this setting."""
    curator = 2 * setting.clipping_norm * gaussian_noise(setting.epsilon, setting.delta) * math.sqrt(setting.rounds)
    if name == NO_PRIVACY:
        return _Gaussian(setting.clipping_norm, 0.0)
    if name == CURATOR:
        return _Gaussian(setting.clipping_norm, curator / setting.users)
    if name == LOCAL:  # the mean of n users' own noise
        return _Gaussian(setting.clipping_norm, curator / math.sqrt(setting.users))
    return _Shuffled((l2_ball_plan if name == OURS else box_plan)(model, setting), setting.clipping_norm)


@cache
def l2_ball_plan(model: Classifier, setting: Setting) -> Plan:
    """Our plan for updates of this model."""
    domain = L2Ball(model.layers, clipping_norm=setting.clipping_norm, seed=_SEED)
    return _plan(setting, domain=domain)


@cache
def box_plan(model: Classifier, setting: Setting) -> Plan:
    """The paper's protocol at a certified noise: every coordinate may be anything up to the clipping norm."""
    bounds = (-setting.clipping_norm, setting.clipping_norm)
    return _plan(setting, shape=model.dimension, bounds=bounds, mechanism="randomized-response")


def _plan(setting: Setting, **choices: object) -> Plan:
    budget: dict[str, object] = {
        "users": setting.users,
        "epsilon": setting.epsilon,
        "delta": setting.delta,
        "rounds": setting.rounds,
    }
    with warnings.catch_warnings():  # a line that is worse than guessing is part of the picture
        warnings.simplefilter("ignore", UninformativePlanWarning)
        return make_plan(**budget, **choices)  # type: ignore[arg-type]
