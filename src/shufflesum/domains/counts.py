"""How many users hold each label: of `Categories`, one label each, of `MultiChoice`, several, and of words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from shufflesum.cautions import ShufflesumWarning, large_other, uninformative
from shufflesum.domains.labels import Label
from shufflesum.domains.structure import weights_of
from shufflesum.errors import ParameterError
from shufflesum.estimate import (
    BaseEstimate,
    BinBounds,
    Binned,
    EstimateTable,
    Floats,
    Linear,
    Quantile,
    Top,
    nearest_counts,
    tail_of,
    top_of,
)
from shufflesum.mechanisms import Target

if TYPE_CHECKING:
    from shufflesum.domains.base import LabelDomain
    from shufflesum.domains.open_vocabulary.estimate import WordCounts

_RANKED = 10  # labels in the sentence on ranks


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CountEstimate(BaseEstimate):
    """How many users hold each label, with error bars; entries are in the order of `labels`, `other` last.

    `counts` and `frequencies` are unbiased: they can be negative, and should be used wherever estimates are averaged,
    added up or compared. `consistent_counts` and `consistent_frequencies` are possible counts, to be shown to people.
    """

    what: ClassVar[str] = "Private counts"
    caption: ClassVar[str] = "How many users hold each label"

    @property
    def warnings(self) -> tuple[ShufflesumWarning, ...]:
        """What deserves a second look: of the plan, and of labels whose share may be anything."""
        share, deviation = self.frequencies, self.standard_error
        other = getattr(self._labelled, "other", False)
        outside = large_other(float(share[-1]), float(deviation[-1])) if other else ()
        return *self.plan.warnings, *outside, *uninformative(share, deviation)

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels as they were given to the plan, `other` last where it has one."""
        return self._labelled.cell_labels

    @property
    def names(self) -> tuple[str, ...]:
        """The labels as text."""
        return self._labelled.names

    @property
    def frequencies(self) -> Floats:
        """The unbiased estimate of the fraction of users who hold each label."""
        return self._means.mean

    @property
    def mean(self) -> Floats:
        """The same as `frequencies`."""
        return self.frequencies

    @property
    def counts(self) -> Floats:
        """The unbiased estimate of the number of users who hold each label."""
        return self.users * self.frequencies

    @property
    def consistent_counts(self) -> Floats:
        """The possible counts nearest to the unbiased ones, by least squares; biased: upwards for rare labels.

        With one label a user they are not negative and add up to the users. With several they lie between 0 and users.
        """
        return nearest_counts(self.counts, self.users, self.users if self._labelled.one_each else None)

    @property
    def consistent_frequencies(self) -> Floats:
        """Consistent counts over users."""
        return self.consistent_counts / self.users

    @property
    def standard_error(self) -> Floats:
        """The standard error of the frequencies, for these users."""
        return self.standard_error_of("users")

    @property
    def count_standard_error(self) -> Floats:
        """The standard error of the unbiased counts, for these users."""
        return self.users * self.standard_error

    @property
    def report_counts(self) -> NDArray[np.int64]:
        """Accepted reports of each label, noise included."""
        return self._means.report_counts

    def standard_error_of(self, target: Target) -> Floats:
        """The standard error of the frequencies, for these users or for the population they were drawn from."""
        return np.sqrt(self._means.variance(target))

    def confidence_interval(
        self, level: float = 0.95, *, simultaneous: bool = False, target: Target = "users"
    ) -> tuple[Floats, Floats]:
        """Lower and upper ends that hold each true frequency with at least this probability.

        `simultaneous` widens them so that all labels' hold together with that probability. The ends are not cut at 0
        and 1.
        """
        return self._means.interval(tail_of(level, self.domain.dimension if simultaneous else 1), target)

    def count_interval(
        self, level: float = 0.95, *, simultaneous: bool = False, target: Target = "users"
    ) -> tuple[Floats, Floats]:
        """The same for counts; for a population, of as many people drawn from it."""
        low, high = self.confidence_interval(level, simultaneous=simultaneous, target=target)
        return self.users * low, self.users * high

    def linear(self, weights: Any, *, level: float = 0.95, target: Target = "users") -> Linear:
        """The sum of weights times the frequencies, with its standard error and interval.

        Where users hold one label each, frequencies add up to 1, and their errors to 0.
        """
        found = self._means.combine(weights_of(weights, self.counts.shape), tail_of(level), target)
        return Linear.of(found, level)

    def count_linear(self, weights: Any, *, level: float = 0.95, target: Target = "users") -> Linear:
        """The same for counts."""
        found = self._means.combine(weights_of(weights, self.counts.shape), tail_of(level), target)
        return Linear.of(found, level, scale=self.users)

    def top(self, k: int, level: float = 0.95) -> Top:
        """The k labels with the largest counts, and which of them, and of their ranks, are certain at this level."""
        ends = self.count_interval(level, simultaneous=True)
        return top_of(self.labels, self.names, self.counts, ends, k, level)

    def quantile(self, q: float, level: float = 0.95, *, target: Target = "users") -> Quantile:
        """The q-quantile of numbers counted in bins; its interval reaches from edge to edge, never finer than bins.

        For `target="population"` it is that of the population the users were drawn from.
        """
        return self._binned.quantile(q, level, target)

    def median(self, level: float = 0.95, *, target: Target = "users") -> Quantile:
        """The quantile at one half."""
        return self.quantile(0.5, level, target=target)

    def suggest_bounds(self, cover: float = 0.99, level: float = 0.95) -> BinBounds:
        """Bounds for a later plan, of numbers counted in bins: edges that hold most users (`ss.suggest_bounds`)."""
        return self._binned.suggest(cover, level)

    def figures(self, level: float = 0.95) -> dict[str, Any]:
        """Labels, counts, frequencies, their errors and intervals, the consistent ones, and report_counts."""
        return count_figures(self, level) | {"report_counts": self.report_counts}

    def remarks(self, level: float = 0.95) -> list[str]:
        """Which ranks are certain."""
        return count_remarks(self, level)

    def _rows(self, level: float) -> EstimateTable:
        return count_rows(self, level)

    @property
    def _binned(self) -> Binned:
        edges = self.domain.bin_edges
        if edges is None:
            raise ParameterError(
                "impossible-combination",
                "quantiles and bounds are of numbers counted in bins, without other=True, under which nobody "
                "knows on which side a number is; plan with Categories(bins=[...])",
            )
        return Binned(self.plan, self.table, self.users, edges)

    @property
    def _labelled(self) -> LabelDomain:
        return cast("LabelDomain", self.domain)


# ---- what labels of a list and words that were asked for share -------------------------------------------------------


def count_rows(estimate: CountEstimate | WordCounts, level: float) -> EstimateTable:
    """Counts as a table, with each label's `share` of the users and the `consistent_count`."""
    counts, names = estimate.counts, estimate.names
    return EstimateTable(
        "users",
        level,
        counts,
        estimate.count_standard_error,
        *estimate.count_interval(level),
        np.full(len(counts), estimate.users),
        np.full(len(counts), ""),
        counts.shape,
        lambda indices: [names[index] for index in indices],
        further={"share": estimate.frequencies, "consistent_count": estimate.consistent_counts},
        entry="label",
        of_users=True,
        beside=("share", 100 / estimate.users, " %"),
    )


def count_figures(estimate: CountEstimate | WordCounts, level: float) -> dict[str, Any]:
    """Labels as they were given, and all that is estimated of them."""
    return {
        "labels": estimate.labels,
        "counts": estimate.counts,
        "count_standard_error": estimate.count_standard_error,
        "consistent_counts": estimate.consistent_counts,
        "frequencies": estimate.frequencies,
        "standard_error": estimate.standard_error,
        "consistent_frequencies": estimate.consistent_frequencies,
        "count_interval": estimate.count_interval(level),
        "confidence_interval": estimate.confidence_interval(level),
    }


def count_remarks(estimate: CountEstimate | WordCounts, level: float) -> list[str]:
    """Which of the first ranks are certain."""
    return [estimate.top(min(_RANKED, len(estimate.counts)), level).statement]
