"""Numbers that follow from a survey's tables, with their joint errors: weighted sums, and ratios of two of them.

Least squares over all tables splits them into residuals, and any count, sum or share is a weighted sum of these. So
every margin agrees with every other, and differences and ratios use the joint covariance (docs/surveys.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from shufflesum._format import plus_minus
from shufflesum.domains.survey.domain import Survey
from shufflesum.encodings import Marginals
from shufflesum.errors import ParameterError
from shufflesum.estimate import Floats, Linear, tail_of
from shufflesum.marginals import LeastSquares, Marginal, Residuals
from shufflesum.mechanisms.frequencies import CountNoise, quantile

if TYPE_CHECKING:
    from shufflesum.domains.survey.estimate import SurveyEstimate

SEEN = 0.99
"""A ratio needs a number of users that is above 0 at this level."""

_DIGITS = 10  # of weights: those that differ by rounding alone are one, and have one law

Weights: TypeAlias = Mapping[int, Floats]
"""For some attributes a weight of each of their values; a user counts with the product of all."""


@dataclass(frozen=True, eq=False)
class FittedTables:
    """Least squares over the tables of one collection."""

    estimate: SurveyEstimate
    tables: tuple[Floats, ...]
    """The noisy counts of each table, without bias."""
    noise: CountNoise
    layout: LeastSquares

    @property
    def survey(self) -> Survey:
        """The questions."""
        return self.estimate.survey

    @property
    def users(self) -> int:
        """How many users there are: public and exact."""
        return self.estimate.users

    @staticmethod
    def of(estimate: SurveyEstimate) -> FittedTables:
        """What the plan's mechanism makes of its table of counts."""
        plan: Any = estimate.plan
        encoding: Marginals = plan.encoding
        means: Any = estimate._means
        counts = estimate.users * means.mean
        firsts, layout = encoding.firsts.tolist(), encoding.least_squares(means.noise.variance)
        tables = tuple(
            counts[first : first + size].reshape(() if layout.single(table) else layout.shape(table))
            for first, size, table in zip(firsts, encoding.table_sizes, layout.tables, strict=False)
        )
        return FittedTables(estimate, tables, means.noise, layout)

    @cached_property
    def residuals(self) -> Residuals:
        """Those of all tables together."""
        return self.layout.fit(self.tables, self.users)

    @cached_property
    def known(self) -> frozenset[Marginal]:
        """The marginals that follow from the tables."""
        return frozenset(self.layout.subsets)

    def sum_of(self, weights: Weights) -> Quantity:
        """The users, each counted with the product of the weights of their values."""
        factor = 1.0
        kept: dict[int, Floats] = {}
        for attribute, values in sorted(weights.items()):
            if np.ptp(values) == 0:
                factor *= float(values[0])
            else:
                kept[attribute] = values
        marginal = tuple(kept)
        self.require(marginal)
        means = {attribute: float(values.mean()) for attribute, values in kept.items()}
        coefficients: Residuals = {}
        for subset in self.layout.subsets:
            if set(subset) <= kept.keys():
                outer = np.array(factor * math.prod(means[each] for each in marginal if each not in subset))
                for attribute in subset:
                    outer = np.multiply.outer(outer, kept[attribute] - means[attribute])
                coefficients[subset] = outer
        return Quantity(self, coefficients, factor**2 * self._rounding(kept))

    def reach(self, weights: Floats, rounding: float, tail: float) -> float:
        """How far a sum of cells, with these weights, is off with this probability at most."""
        sizes, many = np.unique(np.abs(weights), return_counts=True)
        return _reach(cast("Any", self.noise), sizes.tobytes(), many.tobytes(), _upwards(rounding), self.users, tail)

    def require(self, attributes: Sequence[int]) -> None:
        """Refuse a marginal that does not follow from the tables."""
        if tuple(sorted(attributes)) not in self.known:
            firsts = self.survey.first_attributes
            asked = [[name for name, first in firsts.items() if first <= attribute][-1] for attribute in attributes]
            names = ", ".join(repr(name) for name in dict.fromkeys(asked))
            raise ParameterError(
                "impossible-combination",
                f"how {names} go together was not collected: ask for fewer questions at once, or plan the next "
                f"collection with marginals=[({names}), ...]",
            )

    def _rounding(self, weights: Weights) -> float:
        """What rounding numbers at random brings at most: a quarter of the squared step from point to point, for each
        user of whom there may well be one."""
        total = 0.0
        for name, first in self.survey.first_attributes.items():
            question = self.survey.question(name)
            if question.levels is None or first not in weights:
                continue
            steps = np.diff(weights[first][: question.levels + 1])
            step = float(np.abs(steps).max())
            rest = {attribute: values for attribute, values in weights.items() if attribute != first}
            among = {attribute: np.where(values != 0, values**2, 0.0) for attribute, values in rest.items()}
            total += step**2 / 4 * self._at_most(among)
        return total

    def _at_most(self, weights: Weights) -> float:
        """A sum that is known only with noise, three deviations above."""
        if not any(np.ptp(values) for values in weights.values()):
            return self.users * math.prod(float(values[0]) for values in weights.values())
        found = self.sum_of(weights)
        most = self.users * math.prod(float(values.max()) for values in weights.values())
        return min(most, max(found.value + 3 * found.standard_error, 1.0))


@lru_cache(maxsize=4096)
def _reach(noise: CountNoise, sizes: bytes, many: bytes, rounding: float, users: int, tail: float) -> float:
    """Cells of one marginal are alike, and so are those of another estimate of the same plan."""
    weights = np.repeat(np.frombuffer(sizes, np.float64), np.frombuffer(many, np.int64))
    return float(noise.reach(weights, rounding, math.sqrt(rounding / users), tail))


def _upwards(variance: float) -> float:
    """The variance to two digits, rounded up."""
    if variance <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(variance)) - 1)
    return math.ceil(variance / unit) * unit


@dataclass(frozen=True, eq=False, repr=False)
class Quantity:
    """A number that follows from the tables, with its errors.

    Quantities of one estimate can be added, subtracted, multiplied with numbers and divided by one another: their
    errors come from one covariance, so what they share cancels.
    """

    fitted: FittedTables = field(repr=False)
    coefficients: Residuals = field(repr=False)
    """What each residual counts."""
    rounding: float = 0.0
    """The variance that rounding users' numbers at random brings at most."""
    constant: float = 0.0

    @cached_property
    def value(self) -> float:
        """The estimate; without bias where nothing was divided."""
        return self.constant + self.fitted.layout.value(self.coefficients, self.fitted.residuals)

    @cached_property
    def variance(self) -> float:
        """The squared standard error."""
        return self.fitted.layout.covariance(self.coefficients, self.coefficients) + self.rounding

    @property
    def standard_error(self) -> float:
        """The standard error, for these users."""
        return math.sqrt(self.variance)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Ends that hold the true number with at least this probability."""
        tail = tail_of(level)
        if math.isnan(self.value):
            return -math.inf, math.inf
        off = self.reach(tail)
        return self.value - off, self.value + off

    def linear(self, level: float = 0.95) -> Linear:
        """Value, standard error and interval."""
        return Linear(self.value, self.standard_error, *self.interval(level), level)

    def reach(self, tail: float) -> float:
        """How far the estimate is off with this probability at most, on either side."""
        return self.fitted.reach(self._cell_weights, self.rounding, tail)

    @cached_property
    def _cell_weights(self) -> Floats:
        """How much each collected cell counts."""
        found = self.fitted.layout.table_weights(self.coefficients)
        if not found:
            return np.zeros(1)
        weights = np.concatenate([each.reshape(-1) for each in found.values()])
        largest = float(np.abs(weights).max())
        return weights if largest == 0 else np.round(weights / largest, _DIGITS) * largest

    def covariance(self, other: Quantity) -> float:
        """What noise does to both; rounding is taken apart."""
        return self.fitted.layout.covariance(self.coefficients, other.coefficients)

    def __str__(self) -> str:
        low, high = self.interval()
        if math.isnan(self.value):
            return "too few users"
        return f"{plus_minus(self.value, max(high - self.value, self.value - low))} (95 % interval)"

    def __repr__(self) -> str:
        return f"<{self}>"

    def __add__(self, other: Quantity | float) -> Quantity:
        if not isinstance(other, Quantity):
            return Quantity(self.fitted, self.coefficients, self.rounding, self.constant + float(other))
        if other.fitted is not self.fitted:
            raise ParameterError("conflicting-arguments", "these numbers are of different estimates; take both of one")
        keys = self.coefficients.keys() | other.coefficients.keys()
        together = {key: self.coefficients.get(key, 0.0) + other.coefficients.get(key, 0.0) for key in keys}
        # users round for both at once, perhaps the same way
        rounding = (math.sqrt(self.rounding) + math.sqrt(other.rounding)) ** 2
        found = {key: np.asarray(values) for key, values in together.items()}
        return Quantity(self.fitted, found, rounding, self.constant + other.constant)

    __radd__ = __add__

    def __mul__(self, times: float) -> Quantity:
        found = {key: times * values for key, values in self.coefficients.items()}
        return Quantity(self.fitted, found, times**2 * self.rounding, times * self.constant)

    __rmul__ = __mul__

    def __neg__(self) -> Quantity:
        return self * -1.0

    def __sub__(self, other: Quantity | float) -> Quantity:
        return self + (-other)

    def __rsub__(self, other: float) -> Quantity:
        return -self + other

    def __truediv__(self, other: Quantity | float) -> Quantity:
        return Ratio.of(self, other) if isinstance(other, Quantity) else self * (1.0 / other)


@dataclass(frozen=True, eq=False, repr=False)
class Ratio(Quantity):
    """One quantity over another, as a share or a mean; NaN, with an infinite interval, where the other may be 0.

    To the first order it is a weighted sum as well, which is what sums and differences of ratios are made of; its own
    interval is Fieller's.
    """

    numerator: Quantity = field(kw_only=True, repr=False)
    denominator: Quantity = field(kw_only=True, repr=False)

    @staticmethod
    def of(above: Quantity, below: Quantity) -> Ratio:
        """Its value, and how it changes with both."""
        low, _ = below.interval(SEEN)
        value = above.value / below.value if low > 0 else math.nan
        slope = (above - value * below) * (1.0 / below.value) if low > 0 else above * math.nan
        return Ratio(
            slope.fitted,
            slope.coefficients,
            slope.rounding,
            slope.constant + value,
            numerator=above,
            denominator=below,
        )

    @cached_property
    def value(self) -> float:
        """Numerator over denominator."""
        return self.constant if math.isnan(self.constant) else self.numerator.value / self.denominator.value

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """As Fieller builds it: all u for which numerator - u x denominator may well be 0.

        With variances V, W and covariance C of numerator T and denominator N these are the u with
        (T - u N)^2 <= z^2 (V - 2 u C + u^2 W). z is the number of deviations that T - u N is off at the estimated u.
        """
        if math.isnan(self.value):
            return -math.inf, math.inf
        above, below = self.numerator, self.denominator
        apart = above - self.value * below
        spread = apart.standard_error
        z = apart.reach(tail_of(level)) / spread if spread > 0 else quantile(tail_of(level))
        covariance, square = above.covariance(below), z * z
        a = below.value**2 - square * below.variance
        b = above.value * below.value - square * covariance
        c = above.value**2 - square * above.variance
        root = b * b - a * c
        if a <= 0 or root < 0:
            return -math.inf, math.inf
        return (b - math.sqrt(root)) / a, (b + math.sqrt(root)) / a
