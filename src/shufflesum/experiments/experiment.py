"""Trials run on one set of beats as often as asked for, and what was measured beside what is predicted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

import numpy as np

from shufflesum.experiments.data import Heartbeats
from shufflesum.experiments.measurements import Measurements
from shufflesum.experiments.rows import Row
from shufflesum.experiments.trials import Encoding, Moments, Prediction, Trial, measure, predict

__all__ = ["Experiment", "Measured"]


@dataclass(frozen=True, slots=True)
class Measured:
    """A trial's measured errors over its repeats, beside what was predicted."""

    repeats: int
    mean_error: float
    standard_error: float | None  # of that mean; unknown from a single run
    paper_error: float
    prediction: Prediction

    @property
    def predicted_standard_error(self) -> float:
        """Of the mean over the repeats."""
        return self.prediction.standard_deviation / math.sqrt(self.repeats)

    @property
    def row(self) -> Row:
        """Both metrics, as columns of a table."""
        return {
            "measured": self.mean_error,
            "standard error": self.standard_error,
            "predicted": self.prediction.parts.total,
            "measured, paper's metric": self.paper_error,
            "predicted, paper's metric": self.prediction.paper_error,
        }


@dataclass(slots=True)
class Experiment:
    """The beats, how often each trial is run on them, and everything measured so far."""

    data: Heartbeats
    measurements: Measurements
    repeats: int
    workers: int
    _moments: dict[tuple[int, int, Encoding], Moments] = field(default_factory=dict)

    def missing(self, trials: Iterable[Trial]) -> list[tuple[Trial, int]]:
        """What is still to be measured."""
        wanted = itertools.product(dict.fromkeys(trials), range(self.repeats))
        return [(trial, repeat) for trial, repeat in wanted if self.measurements.get(trial, repeat) is None]

    def run(self, trials: Iterable[Trial], progress: Callable[[], None]) -> None:
        """Measure what is missing, on all cores; what is done is kept even if this is stopped."""
        seed = self.measurements.content.seed
        with ThreadPoolExecutor(self.workers) as pool:
            futures = {
                pool.submit(measure, self.data.beats, trial, seed, repeat): (trial, repeat)
                for trial, repeat in self.missing(trials)
            }
            try:
                for future in as_completed(futures):
                    self.measurements.put(*futures[future], future.result())
                    progress()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                self.measurements.save()

    def measured(self, trial: Trial) -> Measured:
        """Measured beside predicted."""
        errors = np.array([self.measurements.content.trials[trial.key][repeat] for repeat in range(self.repeats)])
        mean_error, paper_error = errors.mean(axis=0)
        error = float(errors[:, 0].std(ddof=1)) / math.sqrt(self.repeats) if self.repeats > 1 else None
        return Measured(self.repeats, float(mean_error), error, float(paper_error), self.predict(trial))

    def predict(self, trial: Trial) -> Prediction:
        """From the moments of the very beats that the trial uses."""
        levels = trial.mechanism.levels
        key = trial.users, levels, trial.encoding
        if key not in self._moments:
            self._moments[key] = Moments.of(self.data.beats[: trial.users], levels, trial.encoding)
        return predict(self._moments[key], trial)
