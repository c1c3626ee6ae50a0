"""Counts of labels with public binomial noise, as frequencies with error bars that hold from one user on.

A count Y is the number of users who hold a label and N ~ Binomial(trials, probability) noise reports: that many users
are Y - trials x probability without bias, and with exact tails between Y and the ends of N's law (docs/accuracy.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shufflesum._checks import check_choice
from shufflesum.mechanisms.coins import Coins, binomial_ends, rare_beyond
from shufflesum.mechanisms.linear import Combined, reach
from shufflesum.mechanisms.mechanism import Floats, Table, Target

__all__ = ["Frequencies"]


@dataclass(frozen=True, slots=True, eq=False)
class Frequencies:
    """How many of the users hold each label, as a part of them; `trials` and `probability` are of a cell's noise."""

    table: Table
    users: int
    trials: int
    probability: float
    in_all: bool = False
    """Whether `trials` noise reports were made in all, each in one of the cells, and not so many for each cell."""

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
        """What is left of a count where noise is as large, or as small, as it is with this chance at most: exact.

        Of a population, also all frequencies at which users drawn from it and noise bring such a count often enough.
        """
        check_choice("target", target, ("users", "population"))
        low, high = binomial_ends(self.trials, self.probability, tail)
        lower, upper = (self.table - high) / self.users, (self.table - low) / self.users
        if target == "users":
            return lower, upper
        noise, p = self._noise * self.users**2, self.probability

        def law(frequency: Floats) -> tuple[Floats, Floats, Floats]:
            drawn = self.users * frequency * (1 - frequency)
            third = drawn * (1 - 2 * frequency) + noise * (1 - 2 * p)
            return self.users * frequency + self.trials * p, drawn + noise, third

        coins = self.users + self.trials
        far_below, far_above = (rare_beyond(self.table, self.mean, coins, law, tail, sign) for sign in (-1.0, 1.0))
        return np.minimum(lower, far_below), np.maximum(upper, far_above)

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """Noise is independent from cell to cell, or else a known number of reports, each in a uniform cell.

        Then what is said of all cells together is exact, and only how weights differ from their mean matters.
        The ends of a count over several labels are exact; otherwise, and for populations, nearly normal.
        """
        check_choice("target", target, ("users", "population"))
        value, users = float(weights @ self.mean), self.users
        apart = weights - weights.mean() if self.in_all else weights
        each = self.trials * self.probability * (1.0 if self.in_all else 1 - self.probability)
        variance = float(apart @ apart) * each / users**2
        counted = np.flatnonzero(weights)
        weight = float(weights[counted[0]]) if len(counted) else 0.0
        if target == "users" and len(counted) < len(weights) and len(counted) and (weights[counted] == weight).all():
            reports = int(self.table[counted].sum())
            noise = binomial_ends(*self._noise_in(len(counted)), tail)
            return Combined(value, variance, *sorted(weight * (reports - end) / users for end in noise))
        report = float(np.abs(apart).max())
        if target == "population":
            variance += self._spread_of(weights, value, variance)
            report = max(report, float(np.ptp(weights)) if self.in_all else float(np.abs(weights).sum()))
        off = reach(variance, report / users, tail)
        return Combined(value, variance, value - off, value + off)

    def coins(self, cells: int, held: float, target: Target) -> tuple[Coins, Coins]:
        """What makes the count of several cells, where this part of the users, or of a population, hold their labels.

        One label of each user; of a population, users are drawn independently.
        """
        own = (round(held * self.users), 1.0) if target == "users" else (self.users, held)
        return own, self._noise_in(cells)

    def _noise_in(self, cells: int) -> Coins:
        """The noise of several cells together."""
        return (self.trials, cells * self.probability) if self.in_all else (cells * self.trials, self.probability)

    def _spread_of(self, weights: Floats, value: float, noise: float) -> float:
        """What drawing users from a population adds.

        With one label of each user (`in_all`) users' weights vary by the mean of (w - value)^2 at most, which is
        estimated as any mean, and taken two deviations above. Several labels may be held together in any way.
        """
        if not self.in_all:
            return float(np.abs(weights) @ np.sqrt(self._spread("population"))) ** 2
        squares, most = (weights - value) ** 2, float(np.ptp(weights)) ** 2
        mean = max(float(squares @ self.mean), 0.0)
        noisy = math.sqrt(float(np.var(squares)) * self.trials) / self.users
        sampled = math.sqrt(most * mean / self.users) + most / self.users
        return min(mean + 2 * (noisy + sampled), most / 4) / self.users

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
