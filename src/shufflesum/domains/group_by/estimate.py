"""The estimate of group sizes, sums and means, where the size of a group is noisy itself: `GroupBy`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice
from shufflesum.cautions import ShufflesumWarning, at_the_edge, uninformative
from shufflesum.domains.arrays import Arrays
from shufflesum.domains.group_by.domain import GroupBy
from shufflesum.domains.labels import Label
from shufflesum.domains.structure import weights_of
from shufflesum.errors import ParameterError
from shufflesum.estimate import BaseEstimate, EstimateTable, Floats, Linear, index_names, tail_of
from shufflesum.mechanisms.frequencies import outwards, quantile, reach
from shufflesum.mechanisms.mechanism import Combined, GroupSums, Target

_SEEN = 0.99  # a mean needs a group whose size is above 0 at this level


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GroupEstimate(BaseEstimate):
    """Size, sum and mean of each group, in the users' units; the first axis is that of the groups.

    Sizes and sums are unbiased. A mean is the ratio of the two, and its error bars include the noise in the size. A
    group is `too_few` for a mean where the 99 % interval of its size reaches 0: its mean is NaN, its interval infinite.
    """

    what: ClassVar[str] = "Private means by group"
    caption: ClassVar[str] = "Mean of each group"

    @property
    def warnings(self) -> tuple[ShufflesumWarning, ...]:
        """What deserves a second look: of the plan, and of the means of groups that have one."""
        ratio, arrays = self._ratio, self._domain.values
        if arrays.structure.mixes:  # bounds are on coefficients, of which these means are sums
            return self.plan.warnings
        kept = ~self.too_few
        mean = (ratio.unit[kept] / ratio.scale + ratio.origin).reshape(-1)
        deviation = (self.standard_error[kept] / ratio.scale).reshape(-1)
        names, entries = np.array(self.names, dtype=object)[kept], ratio.scale.size

        def name(place: int) -> str:
            entry = self.columns[place % entries] if self.columns else f"entry {place % entries}"
            return f"{entry} of group {names[place // entries]}"

        return (
            *self.plan.warnings,
            *at_the_edge(mean, deviation, name, named=bool(self.columns), clipped=self.may_be_clipped),
            *uninformative(mean, deviation),
        )

    @property
    def groups(self) -> tuple[Label, ...]:
        """The groups' labels as they were given to the plan."""
        return self._domain.cell_labels

    @property
    def names(self) -> tuple[str, ...]:
        """The groups' labels as text."""
        return self._domain.names

    @property
    def counts(self) -> Floats:
        """The unbiased estimate of each group's size."""
        return self._sums.counts

    @property
    def count_standard_error(self) -> Floats:
        """The standard error of the sizes."""
        sums = self._sums
        return np.full(len(sums.counts), np.sqrt(sums.count_variance))

    def count_interval(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[Floats, Floats]:
        """Ends that hold each group's size, or with `simultaneous` all of them, with at least this probability."""
        return self._sums.count_interval(tail_of(level, len(self.groups) if simultaneous else 1))

    @property
    def report_counts(self) -> NDArray[np.int64]:
        """Accepted reports of all cells of each group, noise included."""
        reports: NDArray[np.int64] = self.table.reshape(len(self.groups), -1).sum(axis=1)
        return reports

    @property
    def too_few(self) -> NDArray[np.bool_]:
        """For each group whether it has no mean, because its size cannot be told from 0 at 99 %."""
        return self._sums.count_interval(tail_of(_SEEN))[0] <= 0

    @property
    def sum(self) -> Floats:
        """The unbiased estimate of the sum over each group's users, also where they are too few for a mean."""
        ratio = self._ratio
        return ratio.sums + ratio.sizes * ratio.offset

    @property
    def sum_standard_error(self) -> Floats:
        """The standard error of the sums; where the bounds do not begin at 0 it includes the noise in the size."""
        ratio = self._ratio
        return np.sqrt(ratio.noise + ratio.rounding + ratio.offset**2 * ratio.size_variance)

    @property
    def mean(self) -> Floats:
        """Sum over size of each group; NaN where its users are too few. Its bias is far below its standard error."""
        ratio = self._ratio
        return ratio.offset + ratio.unit

    @property
    def standard_error(self) -> Floats:
        """The standard error of the means of these users; NaN where they are too few."""
        return self.standard_error_of("users")

    def standard_error_of(self, target: Target) -> Floats:
        """The standard error of the means for either target, to the first order in the noise of the size."""
        ratio = self._ratio
        squares = ratio.noise + ratio.spread(target, tail_of(0.95)) + ratio.unit**2 * ratio.size_variance
        return np.where(np.isnan(ratio.unit), np.nan, np.sqrt(squares) / np.abs(ratio.sizes))

    def confidence_interval(
        self, level: float = 0.95, *, simultaneous: bool = False, target: Target = "users"
    ) -> tuple[Floats, Floats]:
        """Lower and upper ends that hold each true mean with at least this probability; see `fieller`.

        `simultaneous` widens them so that all entries of all groups hold together with that probability. The ends are
        not cut at the bounds, and infinite where the users of a group are too few, at 99 % or at the level asked for.
        """
        ratio = self._ratio
        tail = tail_of(level, ratio.sums.size if simultaneous else 1)
        low, high = ratio.interval(tail, ratio.spread(target, tail))
        return ratio.offset + low, ratio.offset + high

    def linear(self, weights: Any, *, level: float = 0.95, target: Target = "users") -> Linear:
        """The sum of weights times the means of groups, with its standard error and interval.

        A group's part is one ratio: entries share the noise of its size. Groups have independent errors. NaN, with an
        infinite interval, where a group has a weight but too few users.
        """
        structure, arrays, sums = self._domain.values.structure, self._domain.values, self._sums
        given = weights_of(weights, (len(self.groups), *arrays.shape))
        ratio, tail = self._ratio, tail_of(level)
        kept = np.array([bool(row.any()) for row in given])
        gathered = np.array([structure.gather(row) for row in given[kept]]).reshape(-1, arrays.dimension)
        moved = gathered * arrays.width
        sizes, totals = sums.counts[kept], np.sum(moved * sums.sums[kept], axis=1)
        spread = self._combined_spread(ratio, given, moved, kept, target)
        variance = np.sum(moved**2, axis=1) * sums.sum_variance + spread
        report = np.abs(moved).max(axis=1, initial=0.0)
        low, high = fieller(totals, sizes, variance, sums.count_variance, report, tail, sums.excess)
        seen = ~self.too_few[kept]
        units = np.where(seen, totals / sizes, np.nan)
        value = float(np.sum(gathered @ (arrays.lower + sums.origin * arrays.width) + units))
        error = float(np.sqrt(np.sum((variance + units**2 * sums.count_variance) / sizes**2)))
        if not seen.all() or not np.isfinite(low).all():
            return Linear(value, error, -np.inf, np.inf, level)
        # Ends of sums of independent parts, from the parts' own ends (Zou and Donner, 2008).
        below, above = (float(np.sqrt(np.sum((end - units) ** 2))) for end in (low, high))
        return Linear(value, error, value - below, value + above, level)

    def count_linear(self, weights: Any, *, level: float = 0.95) -> Linear:
        """The same for the sizes of groups, whose noise is independent."""
        found, sums = weights_of(weights, (len(self.groups),)), self._sums
        variance, value = float(found @ found) * sums.count_variance, float(found @ sums.counts)
        off = reach(variance, float(np.abs(found).max()), tail_of(level), sums.excess)
        return Linear.of(Combined(value, variance, value - off, value + off), level)

    def figures(self, level: float = 0.95) -> dict[str, Any]:
        """Groups, names of columns where there are some, and sizes, means and sums with their errors and intervals."""
        named = {"groups": self.groups} | ({} if self.columns is None else {"names": self.columns})
        return named | {
            "counts": self.counts,
            "count_standard_error": self.count_standard_error,
            "too_few": self.too_few,
            "mean": self.mean,
            "standard_error": self.standard_error,
            "sum": self.sum,
            "sum_standard_error": self.sum_standard_error,
            "count_interval": self.count_interval(level),
            "confidence_interval": self.confidence_interval(level),
        }

    def remarks(self, level: float = 0.95) -> list[str]:
        """How many groups have no mean."""
        few = int(self.too_few.sum())
        groups = f"{few} of {len(self.groups):,} groups have too few users for a mean"
        return [f"{groups}: their size cannot be told from 0"] if few else []

    def _rows(self, level: float) -> EstimateTable:
        """The means; sizes are `users`, with `users_std_error`, `users_lower` and `users_upper`."""
        mean, (lower, upper) = self.mean, self.confidence_interval(level)
        entries = mean[0].size

        def of_each(values: NDArray[Any]) -> NDArray[Any]:
            return np.repeat(values, entries)

        fewest, most = self.count_interval(level)
        return EstimateTable(
            "mean",
            level,
            mean.ravel(),
            self.standard_error.ravel(),
            lower.ravel(),
            upper.ravel(),
            of_each(self.counts),
            of_each(np.where(self.too_few, "too few users", "")),
            mean.shape[1:],
            self._names,
            self.names,
            {
                "users_std_error": of_each(self.count_standard_error),
                "users_lower": of_each(fewest),
                "users_upper": of_each(most),
                "sum": self.sum.ravel(),
                "sum_std_error": self.sum_standard_error.ravel(),
            },
            bounds=self._bounds,
            named=self.columns is not None,
        )

    def _names(self, places: Sequence[int]) -> list[str]:
        columns = self.columns
        shape = self._domain.values.shape
        return index_names(shape, places) if columns is None else [columns[place] for place in places]

    def _combined_spread(
        self, ratio: _Ratio, given: Floats, moved: Floats, kept: NDArray[np.bool_], target: Target
    ) -> Floats:
        """What rounding brings, coin by coin; of a population's entries, that they may vary together fully."""
        if target == "users":
            many = np.maximum(self._sums.counts + 3 * np.sqrt(self._sums.count_variance), 1.0)[kept]
            rounding: Floats = many * self._sums.rounding * np.sum(moved**2, axis=1)
            return rounding
        spread = np.sqrt(ratio.spread(target, tail_of(0.95)))
        each: Floats = np.sum(np.abs(given) * spread, axis=tuple(range(1, given.ndim)))[kept] ** 2
        return each

    @property
    def _domain(self) -> GroupBy:
        return cast("GroupBy", self.domain)

    @property
    def _sums(self) -> GroupSums:
        return self.plan.mechanism.decode_groups(self.plan.encoding, self.table, self.users)

    @property
    def _ratio(self) -> _Ratio:
        return _Ratio.of(self._sums, self._domain.values, self.too_few)


@dataclass(frozen=True, slots=True, eq=False)
class _Ratio:
    """Sums above the lower bounds, in the users' units and shape, beside the sizes they are divided by."""

    sums: Floats  # T, (groups, *shape), counted from the origin
    sizes: Floats  # C, (groups, 1, ...)
    noise: Floats  # the variance of the noise in T
    rounding: Floats  # and of rounding, for as many users as the group may well have
    size_variance: float
    offset: Floats  # the mean where sums are counted from: the lower bounds, or farther up
    origin: float  # how far up, as a part of the width of the bounds
    scale: Floats  # how far one report can move T
    unit: Floats  # T / C, NaN where there are too few
    mixes: bool
    excess: float  # of the noise: the fourth cumulant over the squared variance

    @staticmethod
    def of(sums: GroupSums, arrays: Arrays, too_few: NDArray[np.bool_]) -> _Ratio:
        structure, width = arrays.structure, arrays.width
        ones = (1,) * len(arrays.shape)
        noise = structure.restore_variance(width**2 * np.broadcast_to(sums.sum_variance, width.shape))
        scale = structure.restore_variance(width**2)
        sizes = sums.counts.reshape(-1, *ones)
        # The size is not known exactly; more users round more often.
        many = np.maximum(sums.counts + 3 * np.sqrt(sums.count_variance), 1.0).reshape(-1, *ones)
        totals = np.stack([structure.restore(width * row) for row in sums.sums])
        with np.errstate(divide="ignore", invalid="ignore"):
            unit = np.where(too_few.reshape(-1, *ones), np.nan, totals / sizes)
        return _Ratio(
            totals,
            sizes,
            noise,
            many * sums.rounding * scale,
            sums.count_variance,
            structure.restore(arrays.lower + sums.origin * width),
            sums.origin,
            np.sqrt(scale),
            unit,
            structure.mixes,
            sums.excess,
        )

    def spread(self, target: Target, tail: float) -> Floats:
        """The variance of T beside noise: by rounding; for a population by its own spread instead, which covers it.

        Rounded values between 0 and 1 with mean m vary by m (1 - m) at most; m is the one of the interval nearest to
        the middle.
        """
        check_choice("target", target, ("users", "population"))
        if target == "users":
            return self.rounding
        if self.mixes:
            raise ParameterError(
                "impossible-combination",
                "target='population' is not possible for groups of a Span: its coefficients vary together from user to "
                "user, which the table of counts does not show; use target='users'",
            )
        many = np.maximum(self.sizes + 3 * np.sqrt(self.size_variance), 1.0) * self.scale**2
        low, high = self.interval(tail, many / 4)
        nearest = np.clip(0.5, low / self.scale + self.origin, high / self.scale + self.origin)
        spread: Floats = np.maximum(many * np.maximum(nearest * (1 - nearest), 0), self.rounding)
        return spread

    def interval(self, tail: float, spread: Floats) -> tuple[Floats, Floats]:
        low, high = fieller(
            self.sums, self.sizes, self.noise + spread, self.size_variance, self.scale, tail, self.excess
        )
        none = np.isnan(self.unit)
        return np.where(none, -np.inf, low), np.where(none, np.inf, high)


def fieller(
    sums: Floats,
    sizes: Floats,
    variance: Floats,
    size_variance: float,
    scale: Floats,
    tail: float,
    excess: float = 0.0,
) -> tuple[Floats, Floats]:
    """Ends for the ratio u of what `sums` T and `sizes` C estimate, as Fieller builds them.

    T and C have independent noise of variances V and W, so that T - u C has mean 0 and variance V + u^2 W at the true
    u, whatever the size: all u with (T - u C)^2 <= z^2 (V + u^2 W) hold it as often as z says. These are the u with
    a u^2 - 2 T C u + T^2 - z^2 V <= 0, a = C^2 - z^2 W. Where C is positive and a > 0, so that the size can be told
    from 0, this is an interval, (T C -+ z sqrt(T^2 W + a V)) / a; elsewhere arbitrarily large ratios belong to it, and
    the ends are infinite. (Sums above another origin than the lower bounds, say the middle, give the same u: T - u C
    does not change.)

    z is the normal quantile, moved outwards on both sides by what the third and fourth cumulants of the noise can add
    (Cornish and Fisher): noise consists of reports that move T - u C by at most `scale` each, which bounds its
    skewness by scale / sqrt(V), its excess by scale^2 / V; by half a report at least, for continuity. Noise that is
    drawn once for each cell has an `excess` of its own.
    """
    z = quantile(tail)
    with np.errstate(divide="ignore", invalid="ignore"):
        skewness = np.where(variance > 0, scale / np.sqrt(variance), 0.0)
        further = max(z**3 - 3 * z, 0.0) * excess / 24
        square = (z + np.maximum(outwards(z, skewness), skewness / 2) + further) ** 2
        a = sizes**2 - square * size_variance
        half = np.sqrt(square * (sums**2 * size_variance + a * variance))
        seen = (sizes > 0) & (a > 0)
        low, high = ((sums * sizes + sign * half) / a for sign in (-1, 1))
    return np.where(seen, low, -np.inf), np.where(seen, high, np.inf)
