"""The estimate of labels that were found: how many users hold each, and how many hold something else."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from shufflesum._format import between, counted, number, percent, visible
from shufflesum.domains.counts import Top, top_of
from shufflesum.errors import ReportsError
from shufflesum.estimate import BaseEstimate, EstimateTable, Floats, tail_of

if TYPE_CHECKING:
    from shufflesum.domains.unlisted_labels import UnlistedLabels
    from shufflesum.mechanisms import PartitionSelection

_RANKED = 10  # labels in the sentence on ranks
_SURE = 0.9


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DiscoveryEstimate(BaseEstimate):
    """Labels that enough users hold, the largest noisy count first, with intervals, and how many hold something else.

    `table` has a noisy count for each label and one for the rest, as they were released: the mean of the noise is not
    taken off. A label is counted for the users of whose labels it was drawn, where not all of them count.
    """

    what: ClassVar[str] = "Private label counts"
    caption: ClassVar[str] = "How many users hold each label"

    labels: tuple[str, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what cannot have been released: labels in another order than that of their counts among it."""
        most = 2 * self.mechanism.noise.half_length
        noisy, rest = self.table[:-1], self.table[-1:]
        keys = list(zip((-noisy).tolist(), self.labels, strict=False))
        if (
            len(noisy) != len(set(self.labels))
            or len(keys) != len(self.labels)
            or len(rest) != 1
            or sorted(keys) != keys
        ):
            raise ReportsError("malformed", "labels stand in the order of their counts, each once, and then the rest")
        users = self.users + np.array([most, 2 * self.mechanism.rest_noise.half_length])
        if (noisy <= most).any() or (noisy > users[0]).any() or not 0 <= int(rest[0]) <= users[1]:
            raise ReportsError("malformed", "a count is one that its noise does not allow for")

    @property
    def mechanism(self) -> PartitionSelection:
        """The noise, and the threshold that follows from it."""
        return cast("PartitionSelection", self.plan.mechanism)

    @property
    def threshold(self) -> int:
        """The least count, with its noise, that is listed."""
        return self.mechanism.threshold

    @property
    def max_items(self) -> int:
        """How many labels of a user count at most."""
        return self._labelled.counted_items

    @property
    def found_from(self) -> int:
        """The number of users from which on a label is listed with probability 0.9."""
        return self.mechanism.found_from(_SURE)

    @property
    def names(self) -> tuple[str, ...]:
        """The labels, as all labels have names."""
        return self.labels

    @property
    def words(self) -> list[str]:
        """The same as `labels`."""
        return list(self.labels)

    @property
    def counts(self) -> Floats:
        """How many users hold each label, with noise; a label just above the threshold has fewer, more likely."""
        counts: Floats = self.table[:-1].astype(np.float64) - self.mechanism.noise.half_length
        return counts

    @property
    def frequencies(self) -> Floats:
        """Counts over users."""
        return self.counts / self.users

    @property
    def count_standard_error(self) -> Floats:
        """The standard deviation of the noise."""
        return np.full(len(self.labels), math.sqrt(self.mechanism.noise.variance))

    def count_interval(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[Floats, Floats]:
        """Ends that hold each label's count, or with `simultaneous` all of them, with at least this probability.

        They allow for a label being listed because its noise was large: whichever labels are listed, each interval
        holds with this probability. The lower end of a label just above the threshold is far below its count.
        """
        tail = tail_of(level, max(1, len(self.labels)) if simultaneous else 1)
        return self.mechanism.label_interval(self.table[:-1], tail, self.users)

    def not_listed(self, level: float = 0.95) -> tuple[float, float, float]:
        """How many users hold a label that is not listed, and the ends of its interval, cut off at 0 and at the users.

        All labels of a user matter here, those among them that did not count.
        """
        noisy = int(self.table[-1])
        value = min(max(float(noisy - self.mechanism.rest_noise.half_length), 0.0), float(self.users))
        return (value, *self.mechanism.rest_interval(noisy, tail_of(level), self.users))

    @property
    def not_listed_standard_error(self) -> float:
        """The standard deviation of the noise in `not_listed`."""
        return math.sqrt(self.mechanism.rest_noise.variance)

    def top(self, k: int, level: float = 0.95) -> Top:
        """The k labels with the largest counts, and which of them, and of their ranks, are certain among all listed."""
        return top_of(
            self.labels,
            list(map(visible, self.labels)),
            self.counts,
            self.count_interval(level, simultaneous=True),
            k,
            level,
        )

    def figures(self, level: float = 0.95) -> dict[str, Any]:
        """Labels, counts, frequencies, errors and intervals, the rest, and from which count on labels are listed."""
        value, low, high = self.not_listed(level)
        return {
            "labels": self.labels,
            "counts": self.counts,
            "count_standard_error": self.count_standard_error,
            "count_interval": self.count_interval(level),
            "frequencies": self.frequencies,
            "not_listed": value,
            "not_listed_standard_error": self.not_listed_standard_error,
            "not_listed_interval": (low, high),
            "threshold": self.threshold,
            "found_from": self.found_from,
            "max_items": self.max_items,
        }

    def remarks(self, level: float = 0.95) -> list[str]:
        """Which ranks are certain, how many users hold something not listed, and what is listed at all."""
        value, low, high = self.not_listed(level)
        error = self.not_listed_standard_error
        ranks = [self.top(min(_RANKED, len(self.labels)), level).statement] if self.labels else ["No label is listed."]
        rest = f"About {number(value, error)} of {self.users:,} users hold a label that is not listed"
        listed = (
            f"A label is listed where its count with noise is at least {self.threshold:,}; held by "
            f"{self.found_from:,} users it is with probability {percent(_SURE)} %."
        )
        drawn = (
            f"Of each user at most {counted(self.max_items, 'label')} count, drawn at random: counts are too low by "
            "all others, which no interval covers."
        )
        several = [] if self._labelled.max_items is None else [drawn]
        return [*ranks, f"{rest} ({percent(level)} %: {between(low, high, error)}).", listed, *several]

    def _rows(self, level: float) -> EstimateTable:
        counts, labels = self.counts, self.labels
        return EstimateTable(
            "users",
            level,
            counts,
            self.count_standard_error,
            *self.count_interval(level),
            np.full(len(counts), self.users),
            np.full(len(counts), "", dtype=np.str_),
            counts.shape,
            lambda places: [labels[place] for place in places],
            further={"share": self.frequencies},
            entry="label",
            of_users=True,
            beside=("share", 100 / self.users, " %"),
        )

    @property
    def _labelled(self) -> UnlistedLabels:
        return cast("UnlistedLabels", self.domain)
