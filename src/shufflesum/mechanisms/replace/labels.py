"""`replace` on categories: a user reports one label, replaced by a uniform one with the noise probability.

Symbols: D labels, gamma noise probability. A label that c of n users hold is reported by c (1 - gamma) + n gamma/D of
them on average; the debiased frequency is (Y/n - gamma/D)/(1 - gamma).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice
from shufflesum.cells import BLANK
from shufflesum.domain import Categories
from shufflesum.mechanisms.coins import Coins, held_ends, rare_beyond
from shufflesum.mechanisms.linear import Combined, quantile, reach
from shufflesum.mechanisms.mechanism import ExpectedError, Floats, Table, Target
from shufflesum.randomness import RandomSource
from shufflesum.randomness.trials import uniform_or_blank

__all__ = ["ReplaceFrequencies", "ReplaceLabelsEncoder", "labels_error", "most_frequent_error"]


class ReplaceLabelsEncoder:
    """Randomized response over labels, with secure randomness unless a test gives another source."""

    def __init__(self, domain: Categories, noise_probability: float, source: RandomSource) -> None:
        self._domain, self._noise_probability, self._source = domain, noise_probability, source

    def encode(self, codes: NDArray[Any], first_row: int) -> NDArray[np.uint32]:
        """One cell for each user: the own label, or a uniform one."""
        self._domain.check_codes(codes, first_row)
        cells = uniform_or_blank(self._source, len(codes), self._noise_probability, self._domain.cells)
        np.copyto(cells, codes.astype(np.uint32), where=cells == BLANK)
        return cells


def labels_error(cells: int, noise_probability: float, users: int) -> ExpectedError:
    """Squared error of the frequencies, summed over labels, whatever the data: p (1 - p) for each label of a report."""
    keep, other = 1 - noise_probability, noise_probability / cells
    if keep == 0:
        return ExpectedError(0.0, 0.0, math.inf)
    variance = (keep + other) * (1 - keep - other) + (cells - 1) * other * (1 - other)
    return ExpectedError(sampling=0.0, rounding=0.0, noise=variance / (users * keep**2))


def most_frequent_error(cells: int, noise_probability: float, users: int) -> float:
    """Squared error of one frequency at the worst: of a label that everybody holds."""
    keep, other = 1 - noise_probability, noise_probability / cells
    return max((keep + other) * (1 - keep - other), other * (1 - other)) / (users * keep**2)


@dataclass(frozen=True, slots=True, eq=False)
class ReplaceFrequencies:
    """How often each label is held, as a part of the users."""

    table: Table
    users: int
    noise_probability: float

    @property
    def mean(self) -> Floats:
        """Unbiased frequencies; they add up to 1, and single ones may be negative."""
        mean: Floats = (self.table / self.table.sum() - self._other) / (1 - self.noise_probability)
        return mean

    @property
    def report_counts(self) -> Table:
        """Accepted reports of each label."""
        return self.table

    def variance(self, target: Target) -> Floats:
        """The squared standard error at the frequencies estimated, within their range."""
        return self._cumulants(np.clip(self.mean, 0.0, 1.0), target)[0] / self._scale**2

    def interval(self, tail: float, target: Target) -> tuple[Floats, Floats]:
        """All frequencies at which a count as far off as this one has at least this chance.

        A sum of independent coins, of which some show heads with one chance and the others with another: nearly normal,
        up to its skewness, where its variance allows, and else bounded as any such sum is (Chernoff).
        """
        return self._end(tail, target, -1.0), self._end(tail, target, 1.0)

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """A user's report has the weight of the own label, or with probability gamma of a uniform one.

        It varies by gamma V + (1 - gamma) gamma (w - m)^2, with m and V mean and variance of all weights, w the own:
        over users, the mean of (w - m)^2 is estimated as any other. For ends it is taken as far above as `tail` says.
        The ends of how many of these users hold one of several labels are exact.
        """
        check_choice("target", target, ("users", "population"))
        gamma, keep = self.noise_probability, 1 - self.noise_probability
        value, apart = float(weights @ self.mean), weights - weights.mean()
        squares, uniform = apart**2, float(np.var(weights))
        least, most = float(squares.min()), float(squares.max())
        mean = float(np.clip(squares @ self.mean, least, most))
        report = float(np.ptp(weights)) / self._scale

        def variance(square: float) -> float:
            own = (gamma * uniform + keep * gamma * square) / (self.users * keep**2)
            if target == "users":
                return own
            all_users = keep * square + gamma * uniform - (keep * (value - float(weights.mean()))) ** 2
            return max(own, all_users / (self.users * keep**2))

        # of the estimated mean: squares of users differ by no more than their own mean square, most x mean, and theirs
        apart_square = (keep * gamma if target == "users" else keep) * (most * mean + float(squares.mean()) ** 2)
        unsure = (
            math.sqrt((gamma * float(np.var(squares)) + apart_square) / (self.users * keep**2)) + most / self._scale
        )
        counted = np.flatnonzero(weights)
        if target == "users" and 0 < len(counted) < len(weights) and (weights[counted] == weights[counted[0]]).all():
            ends = held_ends(
                lambda held: self.coins(len(counted), held / self.users, target),
                self.users,
                int(self.table[counted].sum()),
                tail,
            )
            lower, upper = sorted(float(weights[counted[0]]) * end / self.users for end in ends)
            return Combined(value, variance(mean), min(lower, value), max(upper, value))
        off = reach(variance(min(mean + quantile(tail) * unsure, most)), report, tail)
        return Combined(value, variance(mean), value - off, value + off)

    def coins(self, cells: int, held: float, target: Target) -> tuple[Coins, Coins]:
        """Reports in several cells: of those who hold their labels, this part of the users, and of the others.

        Of a population each user is one of them with the same chance, so that all coins are alike.
        """
        other = cells * self._other
        kept = 1 - self.noise_probability + other
        if target == "population":
            return (self.users, other + (kept - other) * held), (0, 0.0)
        holders = round(held * self.users)
        return (holders, kept), (self.users - holders, other)

    @property
    def _other(self) -> float:
        return self.noise_probability / len(self.table)

    @property
    def _scale(self) -> float:
        """Reports for each unit of frequency."""
        return self.users * (1 - self.noise_probability)

    def _cumulants(self, frequency: Floats, target: Target) -> tuple[Floats, Floats]:
        """Variance and third cumulant of a count, where so many of the users hold its label."""
        check_choice("target", target, ("users", "population"))
        held, other = 1 - self.noise_probability + self._other, self._other
        if target == "population":
            chance = other + (held - other) * frequency
            return self.users * chance * (1 - chance), self.users * chance * (1 - chance) * (1 - 2 * chance)
        parts = [(frequency, held), (1 - frequency, other)]
        variance = sum((self.users * part * p * (1 - p) for part, p in parts), np.zeros(1))
        third = sum((self.users * part * p * (1 - p) * (1 - 2 * p) for part, p in parts), np.zeros(1))
        return variance, third

    def _end(self, tail: float, target: Target, sign: float) -> Floats:
        """Where the count seen becomes too rare."""

        def law(frequency: Floats) -> tuple[Floats, Floats, Floats]:
            return self.users * self._other + self._scale * frequency, *self._cumulants(frequency, target)

        return rare_beyond(self.table, self.mean, self.users, law, tail, sign)
