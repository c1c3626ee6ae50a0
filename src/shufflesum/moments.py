"""Mean and variance from one plan: each user holds the value and its square, around the middle of the bounds.

With y = (x - middle)/half in [-1, 1] a user holds (y, y^2): an array with the guarantee of any plan for arrays. The
variance is half^2 (mean of y^2 - square of the mean of y); how errors add up is in docs/accuracy.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Unpack

import numpy as np

from shufflesum.aggregation import aggregate_rows, complete_rows, round_of, users_numbers, without_rows
from shufflesum.budget import Budget
from shufflesum.cautions import EdgeOfBoundsWarning
from shufflesum.domains import Arrays, Missing, MissingOrDrop
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.domains.bounds import DEFAULT_BOUNDS, explicit_bounds
from shufflesum.domains.frames import batches_of
from shufflesum.errors import ParameterError
from shufflesum.estimate import BaseEstimate, EstimateTable, Floats, adjusted_by, index_names
from shufflesum.mechanisms import NoisyCounts
from shufflesum.mechanisms.mechanism import Target
from shufflesum.planning import PlanOptions, plan_in_process
from shufflesum.randomness import RandomSource

_FIGURES = ("mean", "variance", "standard deviation")


@dataclass(frozen=True, slots=True)
class Squares:
    """Values with bounds, and their squares: what users hold whose variance is asked for."""

    arrays: Arrays

    def __post_init__(self) -> None:
        """Refuse structures whose entries are not the coordinates."""
        if self.arrays.structure.mixes or self.arrays.dimension != int(np.prod(self.arrays.shape)):
            raise ParameterError("impossible-combination", "variances are of the entries of plain arrays; give a shape")

    @property
    def domain(self) -> Arrays:
        """(2 d,): all values, scaled to [-1, 1], then all squares."""
        d, names = self.arrays.dimension, self.arrays.columns
        bounds = np.repeat([-1.0, 0.0], d), np.ones(2 * d)
        return Arrays(2 * d, bounds, None if names is None else [*names, *(f"{name} squared" for name in names)])

    def rows(self, values: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse") -> Floats:
        """Users' values, (m, *shape), as the domain takes them; what is out of bounds is refused, or clipped."""
        self.arrays.check_options(clip=clip, missing=missing)
        found = self.arrays.block(values, first_row, clip=clip, missing=missing)
        found.check()
        scaled = np.clip((found.values.astype(np.float64) - self._middle) / self._half, -1.0, 1.0)
        return np.concatenate([scaled, scaled**2], axis=1)

    @property
    def _half(self) -> Floats:
        return self.arrays.width / 2

    @property
    def _middle(self) -> Floats:
        return self.arrays.lower + self._half


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Moments(BaseEstimate):
    """Mean, variance and standard deviation of each entry, in the users' units and shape, with intervals."""

    what: ClassVar[str] = "Private mean and variance"
    caption: ClassVar[str] = "Mean, variance and standard deviation over all users"

    squares: Squares = field(kw_only=True)

    def __post_init__(self) -> None:
        """Refuse the estimate of another plan."""
        if self.plan.domain != self.squares.domain:
            raise ParameterError("plan-mismatch", "this estimate is not one of these values and their squares")

    @staticmethod
    def of(squares: Squares, estimate: Estimate, *, clip: bool = False, missing: Missing = "refuse") -> Moments:
        """The moments of values that `squares.rows` prepared like that, which they say."""
        adjusted = (*adjusted_by(clip=clip, missing=missing), *estimate.adjusted)
        return replace(estimate, adjusted=adjusted).read_as(Moments, squares=squares)

    @property
    def estimate(self) -> Estimate:
        """That of the scaled values and their squares, under the plan that was run."""
        return self.read_as(Estimate)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """What the entries are called; None where they have no names."""
        return self.squares.arrays.columns

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
        by_errors = target == "users" and self._independent
        lower, upper = self._by_errors(level) if by_errors else self._by_corners(level, target)
        unit = self.squares._half**2
        # between 0 and what values at both ends of the bounds have
        return self._restored(unit * np.clip(lower, 0.0, 1.0)), self._restored(unit * np.clip(upper, 0.0, 1.0))

    def standard_deviation_interval(self, level: float = 0.95, *, target: Target = "users") -> tuple[Floats, Floats]:
        """The roots of the variance's."""
        lower, upper = self.variance_interval(level, target=target)
        return np.sqrt(lower), np.sqrt(upper)

    def figures(self, level: float = 0.95) -> dict[str, Any]:
        """Names, where there are some, mean, variance and standard_deviation, and the interval of each."""
        return ({} if self.columns is None else {"names": self.columns}) | {
            "mean": self.mean,
            "mean_interval": self.mean_interval(level),
            "variance": self.variance,
            "variance_interval": self.variance_interval(level),
            "standard_deviation": self.standard_deviation,
            "standard_deviation_interval": self.standard_deviation_interval(level),
        }

    def _rows(self, level: float) -> EstimateTable:
        """All means, then all variances, then all standard deviations, the last without a standard error at 0."""
        arrays, half = self.squares.arrays, self.squares._half
        shape, entries = arrays.shape, arrays.dimension
        named = self.columns or index_names(shape, range(entries))
        names = [f"{what} of {name}" if shape else what for what in _FIGURES for name in named]
        (first, _), (error, square_error) = self._split(self.estimate.mean), self._split(self.estimate.standard_error)
        slope = 2 * np.abs(first) * error
        # where both errors may depend on each other, at most their sum
        together = np.hypot(square_error, slope) if self._independent else square_error + slope
        variance_error = half**2 * together
        deviation = np.ravel(self.standard_deviation)
        with np.errstate(divide="ignore"):
            errors = half * error, variance_error, np.where(deviation > 0, variance_error / (2 * deviation), np.nan)
        intervals = self.mean_interval(level), self.variance_interval(level), self.standard_deviation_interval(level)
        zero = np.zeros(entries)
        return EstimateTable(
            "value",
            level,
            np.concatenate([np.ravel(each) for each in (self.mean, self.variance, deviation)]),
            np.concatenate(errors),
            np.concatenate([np.ravel(lower) for lower, _ in intervals]),
            np.concatenate([np.ravel(upper) for _, upper in intervals]),
            np.full(3 * entries, self.users),
            np.full(3 * entries, ""),
            (3 * entries,),
            lambda places: [names[place] for place in places],
            bounds=(np.concatenate([arrays.lower, zero, zero]), np.concatenate([arrays.upper, half**2, half])),
            named=True,
            indexed=False,
        )

    @property
    def _independent(self) -> bool:
        """Whether the errors of a mean and of its square are independent."""
        return isinstance(self.plan.mechanism, NoisyCounts)

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
        return values.reshape(self.squares.arrays.shape)


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
    rows, found = users_numbers(values)
    shape, bounds, names = rows.shape[1:], choices.get("bounds"), choices.get("columns")
    names = found if names is None else names
    rows, left_out = complete_rows(rows, missing)
    filled: Missing = "refuse" if missing == "drop" else missing
    squares = Squares(Arrays(shape, DEFAULT_BOUNDS if bounds is None else bounds, names))
    domain = squares.domain
    choices |= {"bounds": (domain.lower, domain.upper), "columns": domain.columns}
    plan = plan_in_process(users=len(rows), shape=domain.shape, epsilon=epsilon, delta=delta, **choices)

    def batches() -> Iterator[Floats]:
        for start, batch in batches_of(rows, 2 * domain.dimension):  # squares take memory of their own
            yield squares.rows(batch, start, clip=clip, missing=filled)

    with quiet_squares(), explicit_bounds(bounds is None, clip=clip):
        begin = round_of(budget, plan)
        estimate = aggregate_rows(batches, plan, begin=begin, workers=workers, source=source)
    return Moments.of(squares, without_rows(estimate, missing, left_out), clip=clip, missing=filled)


@contextmanager
def quiet_squares() -> Iterator[None]:
    """Say nothing of squares at the lower end of their bounds: they are wherever values are near the middle."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgeOfBoundsWarning)
        yield
