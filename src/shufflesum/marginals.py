"""Noisy marginals of one population, and what they say together: least squares, in closed form.

Users have m attributes with D_a values each. A marginal counts them by the values of some attributes. It is a sum of
residuals, one for each subset A of its attributes: what is left of the marginal on A when all smaller ones are taken
off. If every cell of every table gets independent noise, a table's residuals are independent of each other, and so the
least squares estimate of a residual is the mean of what the tables that hold its attributes say of it, each weighted by
its precision (docs/surveys.md, Theorem S1). No system of equations is solved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Marginal: TypeAlias = tuple[int, ...]
"""Some attributes by their numbers, rising."""

Residuals: TypeAlias = dict[Marginal, Floats]
"""For each subset of attributes an array over their values, whose sums along every axis are 0."""


def closure(marginals: Iterable[Marginal]) -> list[Marginal]:
    """All marginals that follow from these, the empty one among them: by size, then by attributes."""
    found = {part for each in marginals for size in range(len(each) + 1) for part in combinations(each, size)}
    return sorted(found, key=lambda part: (len(part), part))


def maximal(marginals: Iterable[Marginal]) -> list[Marginal]:
    """Those that are part of no other."""
    given = list(dict.fromkeys(marginals))
    return [one for one in given if not any(set(one) < set(other) for other in given)]


@dataclass(frozen=True)
class LeastSquares:
    """Tables of one population, each with independent noise of one variance in every cell.

    A table of one attribute with two values is one cell, which counts the second value: the number of users is known.
    It says as much as two cells of twice the variance, and is taken for these.
    """

    sizes: tuple[int, ...]
    """D_a, the number of values of each attribute."""
    tables: tuple[Marginal, ...]
    variances: tuple[float, ...]
    """Of a cell's noise, for each table."""

    def single(self, table: Marginal) -> bool:
        """Whether a table is one cell."""
        return len(table) == 1 and self.sizes[table[0]] == 2

    def shape(self, marginal: Marginal) -> tuple[int, ...]:
        """How many values each of its attributes has."""
        return tuple(self.sizes[attribute] for attribute in marginal)

    def cells(self, marginal: Marginal) -> int:
        """How many cells a marginal has."""
        return math.prod(self.shape(marginal))

    @cached_property
    def subsets(self) -> tuple[Marginal, ...]:
        """The subsets of attributes whose residuals are known; the empty one is the number of users."""
        return tuple(closure(self.tables))

    @cached_property
    def holders(self) -> Mapping[Marginal, tuple[int, ...]]:
        """The tables that hold each subset of attributes."""
        found: dict[Marginal, list[int]] = {subset: [] for subset in self.subsets}
        for number, table in enumerate(self.tables):
            for subset in closure([table]):
                found[subset].append(number)
        return {subset: tuple(numbers) for subset, numbers in found.items()}

    @cached_property
    def residual_variances(self) -> Mapping[Marginal, float]:
        """v_A: the covariance of the residual on A is v_A times the projection onto arrays with sums of 0.

        Table t gives its residual on A the variance V_t times the product of the other attributes' D. Precisions add
        up. That of the number of users, which is public, is 0.
        """
        found = {
            subset: 1.0 / sum(1.0 / self._table_variance(number, subset) for number in numbers)
            for subset, numbers in self.holders.items()
        }
        return found | {(): 0.0}

    def fit(self, tables: Sequence[Floats], users: int) -> Residuals:
        """The residuals of all tables together, each of which has the shape of its marginal, or is a single cell."""
        found = {subset: np.zeros(self.shape(subset)) for subset in self.subsets}
        whole = [
            np.array([users - float(np.sum(table)), float(np.sum(table))]) if self.single(marginal) else table
            for marginal, table in zip(self.tables, tables, strict=True)
        ]
        for subset, numbers in self.holders.items():
            for number in numbers if subset else ():
                share = self.residual_variances[subset] / self._table_variance(number, subset)
                found[subset] += share * projected(summed_out(whole[number], self.tables[number], subset))
        found[()] = np.array(float(users))
        return found

    def marginal(self, residuals: Residuals, marginal: Marginal) -> Floats:
        """The counts of a marginal that follows from the tables."""
        counts: Floats = np.zeros(self.shape(marginal))
        for subset in closure([marginal]):
            counts += _expanded(residuals[subset], subset, marginal) * (self.cells(subset) / self.cells(marginal))
        return counts

    def cell_variance(self, marginal: Marginal) -> float:
        """The variance of each of its cells: the same for all."""
        total = 0.0
        for subset in closure([marginal])[1:]:
            spread = math.prod(1.0 - 1.0 / size for size in self.shape(subset))
            total += self.residual_variances[subset] * spread * (self.cells(subset) / self.cells(marginal)) ** 2
        return total

    def coefficients(self, weights: Floats, marginal: Marginal) -> Residuals:
        """A weighted sum of a marginal's cells as a sum over residuals: the array to multiply each of them with."""
        return {
            subset: projected(summed_out(weights, marginal, subset) * (self.cells(subset) / self.cells(marginal)))
            for subset in closure([marginal])
        }

    def value(self, coefficients: Residuals, residuals: Residuals) -> float:
        """The estimate of a weighted sum."""
        return float(sum(np.vdot(each, residuals[subset]) for subset, each in coefficients.items()))

    def covariance(self, one: Residuals, other: Residuals) -> float:
        """The covariance of two weighted sums: residuals on different subsets are independent."""
        variances = self.residual_variances
        return float(sum(variances[part] * np.vdot(one[part], other[part]) for part in one.keys() & other.keys()))

    def table_weights(self, coefficients: Residuals) -> dict[int, Floats]:
        """How much each collected cell counts in a weighted sum, by table; tables that count nothing are left out."""
        found: dict[int, Floats] = {}
        for subset, each in coefficients.items():
            if subset and each.any():
                for number in self.holders[subset]:
                    share = self.residual_variances[subset] / self._table_variance(number, subset)
                    spread = np.broadcast_to(
                        _expanded(share * each, subset, self.tables[number]), self.shape(self.tables[number])
                    )
                    found[number] = found.get(number, 0.0) + spread
        return {
            number: np.diff(weights) if self.single(self.tables[number]) else weights
            for number, weights in found.items()
        }

    def _table_variance(self, number: int, subset: Marginal) -> float:
        table = self.tables[number]
        doubled = 2.0 if self.single(table) else 1.0
        return doubled * self.variances[number] * self.cells(table) / self.cells(subset)


def summed_out(counts: Floats, marginal: Marginal, kept: Marginal) -> Floats:
    """A marginal's counts by fewer of its attributes."""
    summed: Floats = counts.sum(axis=tuple(axis for axis, each in enumerate(marginal) if each not in kept))
    return summed


def projected(values: Floats) -> Floats:
    """The nearest array whose sums along every axis are 0."""
    for axis in range(values.ndim):
        values = values - values.mean(axis=axis, keepdims=True)
    return values


def _expanded(values: Floats, subset: Marginal, marginal: Marginal) -> Floats:
    """An array over some attributes, with axes of length 1 for the others of a marginal."""
    places = iter(values.shape)
    return values.reshape([next(places) if each in subset else 1 for each in marginal])
