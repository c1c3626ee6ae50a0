"""Mean and variance from one plan: each user holds the value and its square, around the middle of the bounds.

With y = (x - middle)/half in [-1, 1] a user holds (y, y^2): an array in a box, with the guarantee of any such plan. The
variance is half^2 (mean of y^2 - square of the mean of y); how errors add up is in docs/accuracy.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from shufflesum.aggregation import aggregate_rows, complete_rows, require_bounds, round_of, without_rows
from shufflesum.budget import Budget
from shufflesum.cautions import EdgeOfBoundsWarning
from shufflesum.domains import Arrays, Missing, MissingOrDrop, users_rows
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.domains.bounds import default_bounds_named
from shufflesum.domains.frames import FrameRows, batches_of
from shufflesum.errors import DataError, ParameterError
from shufflesum.estimate import Floats, adjusted_by
from shufflesum.mechanisms import NoisyCounts
from shufflesum.mechanisms.mechanism import Target
from shufflesum.planning import PlanOptions
from shufflesum.planning import plan as make_plan
from shufflesum.randomness import RandomSource


@dataclass(frozen=True, slots=True)
class Squares:
    """Values in a box, and their squares: what users hold whose variance is asked for."""

    box: Arrays

    def __post_init__(self) -> None:
        """Refuse structures whose entries are not the coordinates."""
        if self.box.structure.mixes or self.box.dimension != int(np.prod(self.box.shape)):
            raise ParameterError("impossible-combination", "variances are of the entries of plain arrays; give a shape")

    @property
    def domain(self) -> Arrays:
        """(2 d,): all values, scaled to [-1, 1], then all squares."""
        d, names = self.box.dimension, self.box.columns
        bounds = np.repeat([-1.0, 0.0], d), np.ones(2 * d)
        return Arrays(2 * d, bounds, None if names is None else [*names, *(f"{name} squared" for name in names)])

    def rows(self, values: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse") -> Floats:
        """Users' values, (m, *shape), as the domain takes them; what is out of bounds is refused, or clipped."""
        self.box.check_options(clip=clip, missing=missing)
        found = self.box.block(values, first_row, clip=clip, missing=missing)
        found.check()
        scaled = np.clip((found.values.astype(np.float64) - self._middle) / self._half, -1.0, 1.0)
        return np.concatenate([scaled, scaled**2], axis=1)

    @property
    def _half(self) -> Floats:
        return self.box.width / 2

    @property
    def _middle(self) -> Floats:
        return self.box.lower + self._half


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Mean, variance and standard deviation of each entry, in the users' units and shape, with intervals."""

    squares: Squares
    estimate: Estimate
    """Of the scaled values and their squares; its plan is the one that was run."""

    def __post_init__(self) -> None:
        """Refuse the estimate of another plan."""
        if self.estimate.plan.domain != self.squares.domain:
            raise ParameterError("plan-mismatch", "this estimate is not one of these values and their squares")

    @classmethod
    def of(cls, squares: Squares, estimate: Estimate, *, clip: bool, missing: Missing) -> Moments:
        """The moments of values that `squares.rows` prepared like that; their estimate says so."""
        return cls(squares, replace(estimate, adjusted=(*adjusted_by(clip=clip, missing=missing), *estimate.adjusted)))

    @property
    def users(self) -> int:
        """How many there were."""
        return self.estimate.users

    @property
    def mean(self) -> Floats:
        """The unbiased estimate of the mean."""
        return self._restored(self.squares._middle + self.squares._half * self._split(self.estimate.mean)[0])

    @property
    def variance(self) -> Floats:
        """The mean square of the distance from the mean, divided by users, never below 0."""
        first, second = self._split(self.estimate.mean)
        return self._restored(self.squares._half**2 * np.maximum(second - first**2, 0.0))

    @property
    def standard_deviation(self) -> Floats:
        """The root of the variance."""
        return np.sqrt(self.variance)

    def mean_interval(self, level: float = 0.95, *, target: Target = "users") -> tuple[Floats, Floats]:
        """Ends that hold each mean with at least this probability."""
        lower, upper = (self._split(end)[0] for end in self.estimate.confidence_interval(level, target=target))
        middle, half = self.squares._middle, self.squares._half
        return self._restored(middle + half * lower), self._restored(middle + half * upper)

    def variance_interval(self, level: float = 0.95, *, target: Target = "users") -> tuple[Floats, Floats]:
        """Ends that hold each variance with at least this probability; for a population, that of the population."""
        independent = target == "users" and isinstance(self.estimate.plan.mechanism, NoisyCounts)
        lower, upper = self._by_errors(level) if independent else self._by_corners(level, target)
        unit = self.squares._half**2
        # between 0 and what values at both ends of the bounds have
        return self._restored(unit * np.clip(lower, 0.0, 1.0)), self._restored(unit * np.clip(upper, 0.0, 1.0))

    def standard_deviation_interval(self, level: float = 0.95, *, target: Target = "users") -> tuple[Floats, Floats]:
        """The roots of the variance's."""
        lower, upper = self.variance_interval(level, target=target)
        return np.sqrt(lower), np.sqrt(upper)

    def _by_errors(self, level: float) -> tuple[Floats, Floats]:
        """Where both means have independent errors e1 and e2: the variance is off by -e2 + 2 m e1 + e1^2, m the mean.

        Half of what may be missed is for the linear part, half for e1, which bounds the square and how far m is off.
        """
        mean = self.estimate.mean
        lower, upper = self.estimate.confidence_interval((1 + level) / 2)
        first, second = self._split(mean)
        reach, square_reach = self._split(np.maximum(mean - lower, upper - mean))
        width = np.hypot(square_reach, 2 * (np.abs(first) + reach) * reach) + reach**2
        variance = second - first**2
        return variance - width, variance + width

    def _by_corners(self, level: float, target: Target) -> tuple[Floats, Floats]:
        """However both errors depend on each other: all that means within their intervals allow for (union bound)."""
        lower, upper = self.estimate.confidence_interval((1 + level) / 2, target=target)
        (low, low_square), (high, high_square) = self._split(lower), self._split(upper)
        farthest, nearest = np.maximum(np.abs(low), np.abs(high)), np.clip(0.0, low, high)
        return low_square - farthest**2, high_square - nearest**2

    def _split(self, values: Floats) -> tuple[Floats, Floats]:
        return values[: len(values) // 2], values[len(values) // 2 :]

    def _restored(self, values: Floats) -> Floats:
        return values.reshape(self.squares.box.shape)


def moments(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    clip: bool = False,
    missing: MissingOrDrop = "refuse",
    workers: int | None = None,
    source: RandomSource | None = None,
    budget: Budget | None = None,
    **choices: Unpack[PlanOptions],
) -> Moments:
    """The private mean and variance of `values`, of shape (users, *shape); other arguments as of `aggregate`."""
    rows = users_rows(values)
    if rows.ndim == 0 or len(rows) == 0:
        raise DataError("no-rows", f"values has shape {rows.shape}; at least one user's are expected")
    shape = rows.shape[1:]
    bounds, names = choices.get("bounds"), choices.get("columns")
    if names is None and isinstance(rows, FrameRows) and rows.names and shape == (len(rows.names),):
        names = rows.names
    require_bounds(clip=clip, unbounded=bounds is None)
    rows, left_out = complete_rows(rows, missing)
    filled: Missing = "refuse" if missing == "drop" else missing
    squares = Squares(Arrays(shape, (0.0, 1.0) if bounds is None else bounds, names))
    domain = squares.domain
    choices |= {"bounds": (domain.lower, domain.upper), "columns": domain.columns}
    choices.setdefault("noise_by", "curator")
    plan = make_plan(users=len(rows), shape=domain.shape, epsilon=epsilon, delta=delta, **choices)

    def batches() -> Iterator[Floats]:
        for start, batch in batches_of(rows, 2 * domain.dimension):  # squares take memory of their own
            yield squares.rows(batch, start, clip=clip, missing=filled)

    with quiet_squares(), default_bounds_named(bounds is None):
        begin = round_of(budget, plan)
        estimate = aggregate_rows(batches, plan, begin=begin, workers=workers, source=source)
    return Moments.of(squares, without_rows(estimate, missing, left_out), clip=clip, missing=filled)


@contextmanager
def quiet_squares() -> Iterator[None]:
    """Say nothing of squares at the lower end of their bounds: they are wherever values are near the middle."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgeOfBoundsWarning)
        yield
