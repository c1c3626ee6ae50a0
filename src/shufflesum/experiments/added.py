"""One setting of the mechanism `add`: its error measured by running it in one process, and predicted from the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain import Box
from shufflesum.errors import ParameterError
from shufflesum.experiments.trials import Errors, Moments, Prediction, source_of
from shufflesum.mechanisms import Add, ExpectedError
from shufflesum.plans import Plan
from shufflesum.protocol.tally import Tally
from shufflesum.testing import no_guarantee

__all__ = ["AddTrial", "measure", "predict"]


@dataclass(frozen=True, slots=True)
class AddTrial:
    """Everything that a run depends on, but for the beats and the seed."""

    users: int
    dimension: int
    mechanism: Add

    @property
    def key(self) -> str:
        """A name for this trial that tells it from all others."""
        used = self.mechanism
        noise = " ".join(f"{q}*{p!r}" for q, p in zip(used.trials, used.probabilities, strict=True))
        return f"n={self.users} d={self.dimension} add J={used.digits} {noise}"

    @property
    def plan(self) -> Plan:
        """What is run."""
        return Plan(Box.of(self.dimension, (0.0, 1.0)), self.mechanism, no_guarantee(self.users))

    @staticmethod
    def of(plan: Plan) -> AddTrial:
        """What a plan would do, but for the cap: hardly any user's noise ever reaches it."""
        if not isinstance(plan.mechanism, Add):
            raise ParameterError("wrong-type", f"this trial is of the mechanism add, not {plan.mechanism.kind}")
        return AddTrial(plan.users, plan.dimension, plan.mechanism)


def measure(beats: NDArray[np.float32], trial: AddTrial, seed: int, repeat: int) -> Errors:
    """Run the protocol once on the first users and coordinates of `beats`; every value is reported."""
    tally = Tally(trial.plan, source=source_of(seed, trial.key, repeat))
    rows = np.ascontiguousarray(beats[: trial.users, : trial.dimension])
    tally.add(rows)
    mean = trial.mechanism.decode(trial.plan.domain, tally.counts().table, tally.users).mean
    error = float(np.sum((mean - rows.mean(axis=0, dtype=np.float64)) ** 2))
    return Errors(error, error * trial.dimension**2)


def predict(moments: Moments, trial: AddTrial) -> Prediction:
    """The public variance of the noise and the data's own f(1 - f)/k^2, over users, for each coordinate."""
    used = trial.mechanism
    noise = float(np.sum(used.weights**2 * used.noise_variances)) / trial.users
    rounding = moments.rounding[: trial.dimension] / trial.users
    parts = ExpectedError(0.0, float(np.sum(rounding)), trial.dimension * noise)
    return Prediction(parts, parts.total * trial.dimension**2, rounding + noise)
