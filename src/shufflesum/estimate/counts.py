"""The estimate of how many users hold each label: `Categories`, one label each, and `Choices`, several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain import Categories, Choices, Label
from shufflesum.estimate.base import Floats, tail_of
from shufflesum.estimate.means import Estimate
from shufflesum.estimate.top import Top, top_of
from shufflesum.mechanisms import Target

__all__ = ["CountEstimate", "nearest_counts"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CountEstimate(Estimate):
    """How many users hold each label, with error bars; entries are in the order of `labels`, `other` last.

    `counts` and `frequencies` are unbiased: they can be negative, and should be used wherever estimates are averaged,
    added up or compared. `consistent_counts` and `consistent_frequencies` are possible counts, to be shown to people.
    """

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
        total = None if isinstance(self.domain, Choices) else self.users
        return nearest_counts(self.counts, self.users, total)

    @property
    def consistent_frequencies(self) -> Floats:
        """Consistent counts over users."""
        return self.consistent_counts / self.users

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

    def top(self, k: int, level: float = 0.95) -> Top:
        """The k labels with the largest counts, and which of them, and of their places, are certain at this level."""
        ends = self.count_interval(level, simultaneous=True)
        return top_of(self.labels, self.names, self.counts, ends, k, level)

    @property
    def _labelled(self) -> Categories | Choices:
        return cast("Categories | Choices", self.domain)


def nearest_counts(counts: Floats, users: int, total: int | None) -> Floats:
    """The point of [0, users]^D nearest to `counts`, with its sum equal to `total` if one is given (users, then).

    With a sum: the projection on a simplex takes the same from every count and stops at 0. What it takes is found by
    sorting: with the m largest kept it is (their sum - total) / m, for the largest m that leaves them all positive.
    """
    if total is None:
        return np.clip(counts, 0, users)
    falling = -np.sort(-counts)
    taken = (np.cumsum(falling) - total) / np.arange(1, len(counts) + 1)
    kept = int(np.flatnonzero(falling > taken)[-1])
    nearest: Floats = np.maximum(counts - taken[kept], 0)
    return nearest
