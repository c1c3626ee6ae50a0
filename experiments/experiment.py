"""Trials run on one set of beats as often as asked for, what was measured beside what is predicted, and its tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from experiments.data import Heartbeats
from experiments.measurements import Measurements
from experiments.trials import AnyTrial, Encoding, Moments, Prediction, Trial, measure, predict

Row: TypeAlias = dict[str, float | int | str | bool | None]


def columns(rows: Sequence[Row]) -> list[str]:
    """All columns that any row has, in the order they come."""
    return list(dict.fromkeys(column for row in rows for column in row))


def number(row: Row, column: str) -> float:
    """The number in a column that holds numbers; 0 where it is empty."""
    return float(row[column] or 0)


def least(rows: Sequence[Row], column: str) -> Row:
    """The row with the least number in that column."""
    return min(rows, key=lambda row: number(row, column))


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

    def missing(self, wanted: Iterable[AnyTrial]) -> list[tuple[AnyTrial, int]]:
        """What is still to be measured."""
        runs = itertools.product(dict.fromkeys(wanted), range(self.repeats))
        return [(trial, repeat) for trial, repeat in runs if self.measurements.get(trial, repeat) is None]

    def run(self, wanted: Iterable[AnyTrial], progress: Callable[[], None]) -> None:
        """Measure what is missing, on all cores; what is done is kept even if this is stopped."""
        seed = self.measurements.content.seed
        with ThreadPoolExecutor(self.workers) as pool:
            futures = {
                pool.submit(measure, self.data.beats, trial, seed, repeat): (trial, repeat)
                for trial, repeat in self.missing(wanted)
            }
            try:
                for future in as_completed(futures):
                    self.measurements.put(*futures[future], future.result())
                    progress()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                self.measurements.save()

    def measured(self, trial: AnyTrial) -> Measured:
        """Measured beside predicted."""
        errors = np.array([self.measurements.content.trials[trial.key][repeat] for repeat in range(self.repeats)])
        mean_error, paper_error = errors.mean(axis=0)
        error = float(errors[:, 0].std(ddof=1)) / math.sqrt(self.repeats) if self.repeats > 1 else None
        return Measured(self.repeats, float(mean_error), error, float(paper_error), self.predict(trial))

    def predict(self, trial: AnyTrial) -> Prediction:
        """From the moments of the very beats that the trial uses."""
        encoding = trial.encoding if isinstance(trial, Trial) else "paper"
        return predict(self._moments_of(trial.users, trial.mechanism.levels, encoding), trial)

    def _moments_of(self, users: int, levels: int, encoding: Encoding) -> Moments:
        key = users, levels, encoding
        if key not in self._moments:
            self._moments[key] = Moments.of(self.data.beats[:users], levels, encoding)
        return self._moments[key]
