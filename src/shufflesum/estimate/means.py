"""The estimate of a mean, in the users' units and shape; what a table says is the mechanism's to decode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain import Box
from shufflesum.estimate.base import Floats, Released, tail_of
from shufflesum.mechanisms import Means, Target

__all__ = ["Estimate"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Estimate(Released):
    """The users' mean and sum, in their own units and shape, with error bars.

    Error bars are for the mean of these users; `target="population"` asks for those of the population the users were
    drawn from. Coordinates that nobody reported are NaN. `broken` says why the plan's guarantee does not hold, where
    somebody insisted on an estimate all the same; it is None wherever the guarantee holds.
    """

    @property
    def mean(self) -> Floats:
        """The unbiased estimate of the users' mean; it can leave the bounds, because cutting it off would bias it."""
        return self._box.to_user_mean(self._means.mean)

    @property
    def sum(self) -> Floats:
        """Users times mean."""
        return self.users * self.mean

    @property
    def standard_error(self) -> Floats:
        """The standard error of the mean, for the mean of these users."""
        return self.standard_error_of("users")

    @property
    def report_counts(self) -> NDArray[np.int64]:
        """Accepted reports of each entry; of each coefficient for `Span`."""
        counts = self._means.report_counts
        structure = self._box.structure
        return counts if structure.mixes else structure.restore(counts.astype(np.float64)).astype(np.int64)

    def standard_error_of(self, target: Target) -> Floats:
        """The standard error of the mean for either target, a little on the wide side for few reports."""
        return np.sqrt(self._box.to_user_variance(self._means.variance(target)))

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
        domain = self._box
        middle = domain.to_user_mean(centre)
        if not domain.structure.mixes:
            width = domain.structure.restore(half * domain.width)
            return middle - width, middle + width
        # Errors of many coefficients add up like their squares, but what they were shrunk by adds up as it is: the sum
        # is nearly normal around the unbiased mean, while a few coefficients alone need the shrunk centre.
        width = np.sqrt(domain.to_user_variance(half**2))
        mean = self.mean
        return np.minimum(middle, mean) - width, np.maximum(middle, mean) + width

    @property
    def _box(self) -> Box:
        return cast("Box", self.domain)

    @property
    def _means(self) -> Means:
        return self.plan.mechanism.decode(self.domain, self.table, self.users)
