"""One setting of the paper's protocol, or of `noisy-counts`: its error measured by running it and predicted from the
data.

The predictions are those of docs/accuracy.md. Two errors are kept. `mean_error` compares with the true mean of the
users, summed over coordinates. `paper_error` is the paper's: the debiased sums against the sums of the values that
happened to be sampled, divided by (n/d)^2 whatever the number of reports, so that what sampling loses does not count.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum.domains import Arrays
from shufflesum.encodings import Levels
from shufflesum.errors import ParameterError
from shufflesum.mechanisms import NoisyCounts, RandomizedResponse
from shufflesum.mechanisms.mechanism import ExpectedError
from shufflesum.mechanisms.randomized_response.decode import expected_inverse_count, rounding_variance
from shufflesum.plans import Plan
from shufflesum.protocol import Randomizer, Tally
from shufflesum.reports import Counts
from shufflesum.testing import SeededSource, no_guarantee

Encoding = Literal["paper", "authors"]
_Floats = NDArray[np.float64]
_Beats = NDArray[np.float32]


class Errors(NamedTuple):
    """The squared errors of one run."""

    mean_error: float
    paper_error: float


@dataclass(frozen=True, slots=True)
class Trial:
    """Everything that a run depends on, but for the beats and the seed.

    `encoding="authors"` is the choice of the paper's authors in their code: coordinates drawn with replacement, x sent
    as (1 + x)/2, and the estimate mapped back by 2z - 1.
    """

    users: int
    dimension: int
    mechanism: RandomizedResponse
    encoding: Encoding = "paper"

    @property
    def key(self) -> str:
        """A name for this trial that tells it from all others."""
        used = self.mechanism
        return (
            f"n={self.users} d={self.dimension} k={used.levels} t={used.coordinates} "
            f"gamma={used.noise_probability!r} {used.sampling} {self.encoding}"
        )

    @property
    def passes(self) -> int:
        """How often the whole crowd is asked: drawing t times with replacement is asking for one report t times."""
        return self.mechanism.coordinates if self.encoding == "authors" else 1

    @staticmethod
    def of(plan: Plan) -> Trial:
        """What a plan would do, with the paper's encoding."""
        if not isinstance(plan.mechanism, RandomizedResponse):
            raise ParameterError("wrong-type", f"a trial is of randomized-response, not {plan.mechanism.kind}")
        return Trial(plan.users, plan.dimension, plan.mechanism)

    @property
    def one_pass(self) -> RandomizedResponse:
        """The mechanism of one pass over the crowd."""
        return replace(self.mechanism, coordinates=self.mechanism.coordinates // self.passes)

    @property
    def plan(self) -> Plan:
        """The plan of one pass; the authors' encoding is that of bounds (-1, 1)."""
        box = Arrays(self.dimension, (-1.0, 1.0) if self.encoding == "authors" else (0.0, 1.0))
        return Plan(box, self.one_pass, no_guarantee(self.users))


@dataclass(frozen=True, slots=True)
class AddTrial:
    """Everything that a run depends on, but for the beats and the seed."""

    users: int
    dimension: int
    mechanism: NoisyCounts

    @property
    def key(self) -> str:
        """A name for this trial that tells it from all others."""
        used = self.mechanism
        noise = " ".join(f"{q}*{p!r}" for q, p in zip(used.trials, used.probabilities, strict=True))
        return f"n={self.users} d={self.dimension} add J={used.digits} {noise}"

    @property
    def plan(self) -> Plan:
        """What is run."""
        return Plan(Arrays(self.dimension, (0.0, 1.0)), self.mechanism, no_guarantee(self.users))

    @staticmethod
    def of(plan: Plan) -> AddTrial:
        """What a plan would do, but for the cap: hardly any user's noise ever reaches it."""
        if not isinstance(plan.mechanism, NoisyCounts):
            raise ParameterError("wrong-type", f"this trial is of the mechanism add, not {plan.mechanism.kind}")
        return AddTrial(plan.users, plan.dimension, plan.mechanism)


AnyTrial: TypeAlias = Trial | AddTrial


def source_of(seed: int, key: str, repeat: int) -> SeededSource:
    """The random bits of one run, its own for each trial and repeat."""
    digest = hashlib.sha256(f"{seed}/{key}/{repeat}".encode()).digest()
    return SeededSource(int.from_bytes(digest[:8]))


def measure(beats: _Beats, trial: AnyTrial, seed: int, repeat: int) -> Errors:
    """Run the protocol once on the first users and coordinates of `beats`."""
    if isinstance(trial, AddTrial):
        return _measure_add(beats, trial, seed, repeat)
    source = source_of(seed, trial.key, repeat)
    plan, mechanism = trial.plan, trial.one_pass
    rows = np.ascontiguousarray(beats[: trial.users, : trial.dimension])
    counts, sampled = Counts(plan), np.zeros(plan.dimension)
    for _ in range(trial.passes):
        start = 0
        for reports in Randomizer(plan, source=source).blocks(rows):
            counts.add(reports)
            coordinates = reports.cells // mechanism.values
            chosen = coordinates.reshape(-1, plan.reports)
            values = np.take_along_axis(rows[start : start + len(chosen)], chosen, axis=1)
            sampled += np.bincount(coordinates, weights=values.reshape(-1), minlength=plan.dimension)
            start += len(chosen)
    # z = (v/k - gamma c/2) / (1 - gamma) in the unit interval, then back to the users' units (Algorithm 3).
    table = counts.table.reshape(plan.dimension, mechanism.values)
    gamma, reported = mechanism.noise_probability, table.sum(axis=1)
    total = table @ np.arange(mechanism.values) / mechanism.levels
    box = plan.domain.numbers
    debiased = box.lower * reported + box.width * (total - gamma / 2 * reported) / (1 - gamma)
    truth = rows.mean(axis=0, dtype=np.float64)
    scale = trial.users / trial.dimension
    return Errors(
        float(np.sum((debiased / reported - truth) ** 2)),
        float(np.sum((debiased - sampled) ** 2) / scale**2),
    )


def _measure_add(beats: _Beats, trial: AddTrial, seed: int, repeat: int) -> Errors:
    """Every value is reported."""
    tally = Tally(trial.plan, source=source_of(seed, trial.key, repeat))
    rows = np.ascontiguousarray(beats[: trial.users, : trial.dimension])
    tally.add(rows)
    mean = trial.plan.mechanism.decode(trial.plan.encoding, tally.counts().table, tally.users).mean
    error = float(np.sum((mean - rows.mean(axis=0, dtype=np.float64)) ** 2))
    return Errors(error, error * trial.dimension**2)


@dataclass(frozen=True, eq=False)
class Moments:
    """What a prediction needs to know of the beats at given levels: averages over users, coordinate by coordinate."""

    mean: _Floats
    square: _Floats
    rounding: _Floats
    spread: _Floats  # S^2, the users' variance

    @staticmethod
    def of(beats: _Beats, levels: int, encoding: Encoding = "paper") -> Moments:
        """Averages over all rows, in pieces that stay in cache; in the unit interval of the encoding."""
        total = np.zeros((3, beats.shape[1]))
        for start in range(0, len(beats), 2048):
            x = beats[start : start + 2048].astype(np.float64)
            if encoding == "authors":
                x = (1 + x) / 2
            total += (x.sum(axis=0), (x * x).sum(axis=0), rounding_variance(x, levels).sum(axis=0))
        mean, square, rounding = total / len(beats)
        return Moments(mean, square, rounding, (square - mean**2) * len(beats) / (len(beats) - 1))

    def report_variance(self, levels: int, noise_probability: float) -> _Floats:
        """Var of one debiased report, averaged over users: `error.report_variance` is linear in these moments."""
        gamma, keep = noise_probability, 1 - noise_probability
        uniform_square = (2 * levels + 1) / (6 * levels)
        noise = gamma * (keep * (self.square - self.mean) + uniform_square - gamma / 4) / keep**2
        return self.rounding / keep + noise


@dataclass(frozen=True, eq=False)
class Prediction:
    """The expected errors of a trial on the data at hand."""

    parts: ExpectedError
    paper_error: float
    coordinates: _Floats  # the expected squared error of each

    @cached_property
    def standard_deviation(self) -> float:
        """How much the mean error of one run varies: 2 v^2 for the square of each nearly normal error."""
        return math.sqrt(2 * float(np.sum(self.coordinates**2)))


def predict(moments: Moments, trial: AnyTrial) -> Prediction:
    """(mean Var + S^2) E[1/c] - S^2/users for each coordinate, with the data's own Var and S^2."""
    if isinstance(trial, AddTrial):
        return _predict_add(moments, trial)
    plan, here = trial.plan, slice(trial.dimension)
    draws = trial.users * trial.passes
    sampled, mechanism = trial.one_pass.sampling_probabilities(Levels(trial.dimension)), trial.mechanism
    inverse_counts = {p: expected_inverse_count(draws, p) for p in np.unique(sampled)}
    inverse = np.array([inverse_counts[p] for p in sampled])
    variance = moments.report_variance(mechanism.levels, mechanism.noise_probability)[here]
    spread, rounding = moments.spread[here], moments.rounding[here]
    # Asked t times, a user is t entries in the urn that the c reports are drawn from.
    sampling = spread * (inverse - 1 / draws)
    unit = plan.domain.numbers.width**2
    parts = ExpectedError(
        float(np.sum(unit * sampling)),
        float(np.sum(unit * rounding * inverse)),
        float(np.sum(unit * (variance - rounding) * inverse)),
    )
    expected_reports = draws * sampled
    paper_error = float(np.sum(unit * variance * expected_reports)) / (trial.users / trial.dimension) ** 2
    return Prediction(parts, paper_error, unit * (sampling + variance * inverse))


def _predict_add(moments: Moments, trial: AddTrial) -> Prediction:
    """The public variance of the noise and the data's own f(1 - f)/k^2, over users, for each coordinate."""
    used = trial.mechanism
    noise = float(np.sum(used.weights**2 * used.noise_variances)) / trial.users
    rounding = moments.rounding[: trial.dimension] / trial.users
    parts = ExpectedError(0.0, float(np.sum(rounding)), trial.dimension * noise)
    return Prediction(parts, parts.total * trial.dimension**2, rounding + noise)
