"""The estimate of a mean of arrays, in the users' units and shape; what a table says is the mechanism's to decode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shufflesum.cautions import ShufflesumWarning, at_the_edge, uninformative, unreported
from shufflesum.domains.arrays.domain import Arrays
from shufflesum.domains.structure import Span, weights_of
from shufflesum.errors import ParameterError
from shufflesum.estimate import Floats, Linear, MeanEstimate, index_names, tail_of
from shufflesum.mechanisms.mechanism import Means, Target


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Estimate(MeanEstimate):
    """The users' mean and sum, in their own units and shape, with error bars.

    Error bars are for the mean of these users; `target="population"` asks for those of the population the users were
    drawn from. Coordinates that nobody reported are NaN. `broken` says why the plan's guarantee does not hold, where
    somebody insisted on an estimate all the same; it is None wherever the guarantee holds.
    """

    @property
    def mean(self) -> Floats:
        """The unbiased estimate of the users' mean; it can leave the bounds, because cutting it off would bias it."""
        return self._arrays.to_user_mean(self._means.mean)

    @property
    def warnings(self) -> tuple[ShufflesumWarning, ...]:
        """What deserves a second look: the plan's, bounds that are probably wrong, estimates that say nothing."""
        means, structure = self._means, self._arrays.structure
        mean, columns = means.mean, self.columns
        deviation = np.sqrt(means.variance("users"))
        name = columns.__getitem__ if columns else structure.describe
        return (
            *self.plan.warnings,
            *unreported(np.isnan(mean), structure.describe),
            *at_the_edge(mean, deviation, name, named=bool(columns), clipped=self.may_be_clipped),
            *uninformative(mean, deviation),
        )

    @property
    def report_counts(self) -> NDArray[np.int64]:
        """Accepted reports of each entry; of each coefficient for `Span`."""
        counts = self._means.report_counts
        structure = self._arrays.structure
        return counts if structure.mixes else structure.restore(counts.astype(np.float64)).astype(np.int64)

    def standard_error_of(self, target: Target) -> Floats:
        """The standard error of the mean for either target, a little on the wide side for few reports."""
        return np.sqrt(self._arrays.to_user_variance(self._means.variance(target)))

    def confidence_interval(
        self, level: float = 0.95, *, simultaneous: bool = False, target: Target = "users"
    ) -> tuple[Floats, Floats]:
        """Lower and upper ends that hold each true mean with at least this probability, from 10 reports on.

        `simultaneous` widens them so that all entries hold together with that probability. The ends are not cut at
        the bounds.
        """
        tail = tail_of(level, math.prod(self.plan.shape) if simultaneous else 1)
        low, high = self._means.interval(tail, target)
        centre, half = (low + high) / 2, (high - low) / 2
        domain = self._arrays
        middle = domain.to_user_mean(centre)
        if not domain.structure.mixes:
            width = domain.structure.restore(half * domain.width)
            return middle - width, middle + width
        # Errors of many coefficients add up like their squares, but what they were shrunk by adds up as it is: the sum
        # is nearly normal around the unbiased mean, while a few coefficients alone need the shrunk centre.
        width = np.sqrt(domain.to_user_variance(half**2))
        mean = self.mean
        return np.minimum(middle, mean) - width, np.maximum(middle, mean) + width

    def linear(self, weights: Any, *, level: float = 0.95, target: Target = "users") -> Linear:
        """The sum of weights times the mean's entries, with its standard error and interval.

        `weights` are public, of the mean's shape. Errors of entries that have to do with each other are taken as they
        are (of a matrix' mirrored entries, of a `Span`), and at their worst where the table does not show it.
        """
        arrays = self._arrays
        gathered = arrays.structure.gather(weights_of(weights, arrays.shape))
        found = self._means.combine(gathered * arrays.width, tail_of(level), target)
        return Linear.of(found, level, offset=float(gathered @ arrays.lower))

    @property
    def coefficients(self) -> Coefficients:
        """The coefficients of a `Span`, with errors of their own; refused where entries are the coordinates."""
        arrays = self._arrays
        if not isinstance(arrays.structure, Span):
            raise ParameterError(
                "impossible-combination", f"coefficients are those of a Span, not of {type(arrays.structure).__name__}"
            )
        return Coefficients(arrays, self._means, arrays.structure.kept)

    def _names(self, places: Sequence[int]) -> list[str]:
        columns = self.columns
        return index_names(self.plan.shape, places) if columns is None else [columns[place] for place in places]

    @property
    def _arrays(self) -> Arrays:
        return cast("Arrays", self.domain)


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """Means of the users' coefficients, in the order of the span's kept vectors, each with error bars of its own."""

    arrays: Arrays
    means: Means
    kept: tuple[int, ...]
    """The places of the vectors they belong to, among those that were given."""

    def __repr__(self) -> str:
        """Say how many; the figures are its attributes."""
        return f"Coefficients({len(self.kept)} of vectors {self.kept})"

    @property
    def mean(self) -> Floats:
        """Unbiased estimates."""
        return self.arrays.lower + self.arrays.width * self.means.mean

    @property
    def standard_error(self) -> Floats:
        """The standard errors, for the mean of these users."""
        return self.standard_error_of("users")

    def standard_error_of(self, target: Target) -> Floats:
        """The standard errors for either target."""
        errors: Floats = self.arrays.width * self.means.variance(target) ** 0.5
        return errors

    def confidence_interval(
        self, level: float = 0.95, *, simultaneous: bool = False, target: Target = "users"
    ) -> tuple[Floats, Floats]:
        """Ends that hold each coefficient, or with `simultaneous` all of them, with at least this probability."""
        low, high = self.means.interval(tail_of(level, len(self.kept) if simultaneous else 1), target)
        return self.arrays.lower + self.arrays.width * low, self.arrays.lower + self.arrays.width * high
