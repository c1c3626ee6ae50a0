"""Counts of labels with public binomial noise, as frequencies with error bars that hold from one user on.

A count Y is the number of users who hold a label and N ~ Binomial(trials, probability) noise reports: that many users
are Y - trials x probability without bias, and with exact tails between Y and the ends of N's law (docs/accuracy.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from shufflesum._checks import check_choice
from shufflesum.mechanisms.mechanism import Floats, Table, Target
from shufflesum.privacy.engine.laws import binomial_window

__all__ = ["Frequencies", "binomial_ends"]


@dataclass(frozen=True, slots=True, eq=False)
class Frequencies:
    """How many of the users hold each label, as a part of them; `trials` and `probability` are of a cell's noise."""

    table: Table
    users: int
    trials: int
    probability: float

    @property
    def mean(self) -> Floats:
        """Unbiased frequencies; single ones may be negative, or above 1."""
        mean: Floats = (self.table - self.trials * self.probability) / self.users
        return mean

    @property
    def report_counts(self) -> Table:
        """Accepted reports of each label, noise among them."""
        return self.table

    def variance(self, target: Target) -> Floats:
        """The squared standard error: public, but for the spread of a population."""
        return np.full(len(self.table), self._noise) + self._spread(target)

    def interval(self, tail: float, target: Target) -> tuple[Floats, Floats]:
        """What is left of a count where noise is as large, or as small, as it is with this chance at most: exact."""
        spread = self._spread(target)
        low, high = binomial_ends(self.trials, self.probability, tail)
        lower, upper = (self.table - high) / self.users, (self.table - low) / self.users
        if target == "users":
            return lower, upper
        reach, mean = -NormalDist().inv_cdf(max(tail, 1e-300)) * np.sqrt(spread), self.mean
        return mean - np.hypot(mean - lower, reach), mean + np.hypot(upper - mean, reach)

    @property
    def _noise(self) -> float:
        return self.trials * self.probability * (1 - self.probability) / self.users**2

    def _spread(self, target: Target) -> Floats:
        """f (1 - f)/users among so many users of a population, for the f within two deviations that makes it most."""
        check_choice("target", target, ("users", "population"))
        if target == "users":
            return np.zeros(len(self.table))
        mean = self.mean
        sampled = np.sqrt(np.clip(mean * (1 - mean), 0.0, 0.25) / self.users) + 1 / self.users
        reach = 2 * (math.sqrt(self._noise) + sampled)
        nearest = np.clip(0.5, mean - reach, mean + reach)
        spread: Floats = np.maximum(nearest * (1 - nearest), 0) / self.users
        return spread


def binomial_ends(trials: int, probability: float, tail: float) -> tuple[int, int]:
    """Counts (low, high) below and above which Binomial(trials, probability) lies with at most this chance, each."""
    if trials == 0 or probability == 0.0:
        return 0, 0
    odds = probability / (1.0 - probability)
    lowest, terms, total, outside = binomial_window(trials, probability, odds, 1e-3 * max(tail, 1e-290))
    # what the window leaves out counts on both sides
    below = (np.cumsum(terms) + outside) / total
    above = (np.cumsum(terms[::-1]) + outside) / total
    low = int(np.searchsorted(below, tail, side="right"))
    high = int(np.searchsorted(above, tail, side="right"))
    return lowest + low, lowest + len(terms) - 1 - high
