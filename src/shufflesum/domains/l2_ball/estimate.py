"""The estimate of a mean of vectors with a bounded norm, of linear functions of it, and of how far all of it is off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shufflesum.cautions import ShufflesumWarning, uninformative
from shufflesum.domains.l2_ball.domain import L2Ball
from shufflesum.domains.structure import weights_of
from shufflesum.estimate import Floats, Linear, MeanEstimate, tail_of
from shufflesum.mechanisms.mechanism import Target, VectorMeans


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class L2BallEstimate(MeanEstimate):
    """The users' mean and sum; of layers as one vector, and in their own shapes as `layers`.

    The mean is unbiased; but where bits are sent for the clipping of rotated coordinates, which error bars include as
    it is on average over rotations. It can leave the ball.
    """

    @property
    def mean(self) -> Floats:
        """The estimate of the users' mean: of a single array's shape, or all layers as one vector."""
        return self._vector.reshape(self.plan.shape)

    @property
    def layers(self) -> Any:
        """The mean as the plan's shape was given: an array, or a list or dictionary of them."""
        return self._ball.unflatten(self._vector)

    @property
    def report_counts(self) -> NDArray[np.int64]:
        """Accepted reports: every entry is in all of them."""
        return self._vectors.report_counts.reshape(self.plan.shape)

    @property
    def warnings(self) -> tuple[ShufflesumWarning, ...]:
        """What deserves a second look: of the plan, and of entries that say nothing."""
        found = self._vectors
        # entries lie between minus and plus the clipping norm
        return *self.plan.warnings, *uninformative((found.mean + 1) / 2, np.sqrt(found.variance("users")) / 2)

    def standard_error_of(self, target: Target) -> Floats:
        """The standard error of the mean, for these users or for the population they were drawn from."""
        return np.full(self.plan.shape, self._ball.clipping_norm * self._vectors.deviation(target))

    def confidence_interval(
        self, level: float = 0.95, *, simultaneous: bool = False, target: Target = "users"
    ) -> tuple[Floats, Floats]:
        """Lower and upper ends that hold each true mean with at least this probability.

        `simultaneous` widens them so that all entries hold together with that probability. For a population they allow
        for users who differ by as much as the ball has room for in each entry.
        """
        tail = tail_of(level, self._ball.dimension if simultaneous else 1)
        reach, mean = self._ball.clipping_norm * self._vectors.reach(tail, target), self.mean
        return mean - reach, mean + reach

    def linear(self, weights: Any, *, level: float = 0.95, target: Target = "users") -> Linear:
        """The sum of weights times the mean's entries, with its standard error and interval.

        `weights` are public, of the mean's shape, or in layers as the plan's shape was given.
        """
        ball = self._ball
        if not (isinstance(weights, np.ndarray) and weights.shape == (ball.dimension,)):
            weights = ball.structure.flatten(weights, "weights")
        values = weights_of(weights, (ball.dimension,))
        offset = 0.0 if ball.center is None else float(values @ ball.center)
        return Linear.of(self._vectors.combine(ball.clipping_norm * values, tail_of(level), target), level, offset)

    def error_norm(self, level: float = 0.95) -> float:
        """A bound on the norm of the mean's error, for these users, that holds with at least this probability.

        The noise is nearly normal with the same variance in all directions, so its square is s^2 times a chi-square
        variable with d degrees of freedom: above d + 2 sqrt(d x) + 2 x with chance e^-x at most (Laurent and Massart,
        2000, lemma 1). Clipping adds its bias, at the worst.
        """
        x = -math.log(2 * tail_of(level))
        size, found = self._ball.dimension, self._vectors
        noise = math.sqrt(found.noise * (size + 2 * math.sqrt(size * x) + 2 * x))
        return self._ball.clipping_norm * (noise + math.sqrt(found.bias))

    def _names(self, places: Sequence[int]) -> list[str]:
        return self._ball.structure.names_of(places)

    @property
    def _vector(self) -> Floats:
        ball = self._ball
        mean = ball.clipping_norm * self._vectors.mean
        return mean if ball.center is None else mean + ball.center

    @property
    def _ball(self) -> L2Ball:
        return cast("L2Ball", self.plan.domain)

    @property
    def _vectors(self) -> VectorMeans:
        return cast("VectorMeans", self._means)
