"""How many users hold each label: of `Categories`, one label or bin each, of `MultiChoice`, several, and of words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice, check_number, check_size
from shufflesum._format import Shown, between, percent
from shufflesum.cautions import ShufflesumWarning, large_other, uninformative
from shufflesum.domains.labels import Label
from shufflesum.domains.structure import weights_of
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.estimate import BaseEstimate, EstimateTable, Floats, Linear, tail_of
from shufflesum.mechanisms.frequencies import Frequencies, unlikely
from shufflesum.mechanisms.mechanism import Target
from shufflesum.mechanisms.randomized_response.decode import RandomizedResponseFrequencies

if TYPE_CHECKING:
    from shufflesum.domains import Label
    from shufflesum.domains.base import LabelDomain
    from shufflesum.domains.open_vocabulary.estimate import WordCounts
    from shufflesum.plans import Plan

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

    def quantiles(self, parts: Sequence[float]) -> QuantileEstimate:
        """Several quantiles as one table, which files, pages and pictures show."""
        self._binned  # noqa: B018  refused where there are no bins
        for part in parts:
            check_number("q", part, above=0, below=1)
        return self.read_as(QuantileEstimate, counts=self, parts=tuple(map(float, parts)))

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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class QuantileEstimate(BaseEstimate):
    """Quantiles of numbers that were counted in bins; each interval holds by itself, and reaches from edge to edge.

    People see the counts of bins beside them, unless these are `QUANTILE_BINS`, of which nobody asked for the counts.
    `save` writes the counts, from which any quantiles can be asked for again.
    """

    what: ClassVar[str] = "Private quantiles"
    caption: ClassVar[str] = "Quantiles of the users' numbers"

    counts: CountEstimate = field(kw_only=True)
    parts: tuple[float, ...] = field(kw_only=True)

    @property
    def beside(self) -> tuple[CountEstimate, ...]:
        """The counts of the bins, where they were asked for."""
        return () if self.domain.bin_edges == QUANTILE_BINS else (self.counts,)

    def figures(self, level: float = 0.95) -> dict[str, Any]:
        """Quantiles, their values and intervals, and what else people see: the counts of bins."""
        table = self.to_table(level)
        found = {"quantiles": self.parts, "values": table.value, "value_interval": (table.lower, table.upper)}
        return found | {name: figure for each in self.beside for name, figure in each.figures(level).items()}

    def _rows(self, level: float) -> EstimateTable:
        found = [self.counts.quantile(part, level) for part in self.parts]
        size = len(found)
        return EstimateTable(
            "value",
            level,
            np.array([each.value for each in found]),
            np.full(size, np.nan),
            np.array([each.lower for each in found]),
            np.array([each.upper for each in found]),
            np.full(size, self.users),
            np.full(size, ""),
            (size,),
            lambda places: [f"{self.parts[place]:.15g}" for place in places],
            entry="quantile",
            named=True,
            indexed=False,
        )


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
    different = len(set(estimate.names))  # a word that was named twice has one rank
    return [estimate.top(min(_RANKED, different), level).statement]


# ---- Numbers that were counted in bins: their quantiles, and bounds that hold most of them, with confidence.
#
# A bin is all that a count knows of a number, so nothing here is finer than the bins are (docs/accuracy.md).

_FARTHEST, _NEAREST = 1e30, 1e-30
_OCCUPIED = 0.999  # one bin that is taken for occupied by mistake may put a bound anywhere
_SAME = 1e-12  # frequencies that differ by no more may be equal but for rounding


def _logarithmic_bins(steps: Sequence[float]) -> tuple[float, ...]:
    fine = [float(f"{step}e{power}") for power in range(-6, 12) for step in steps]
    sizes = [_NEAREST, 1e-24, 1e-18, 1e-15, 1e-12, 1e-9, *fine, 1e12, 1e15, 1e18, 1e21, 1e24, _FARTHEST]
    largest = float(np.finfo(np.float64).max)
    # a bin holds its lower edge: so a whole 100 is among 50 to 100, and -100 among -100 to -50
    rising = [math.nextafter(size, math.inf) for size in sizes]
    return (-largest, *(-size for size in reversed(sizes)), *rising, largest)


WIDE_BINS = _logarithmic_bins((1, 2, 5))
"""Public edges for numbers of which nothing is known: 1, 2, 5, 10, ... from a millionth to a million millions.

Of both signs, with coarser steps beyond, up to the largest double, and one bin for 0 and what is nearly 0.
"""

QUANTILE_BINS = _logarithmic_bins([round(10 ** (step / 24), 1) for step in range(24)])
"""The same in 24 steps from each power of ten to the next: 1, 1.1, 1.2, 1.3, 1.5, ..., 8.3, 9.1, 10.

Fine enough for quantiles of numbers of which nothing is known: an edge is at most 16 % above the one before, on average
10 %.
"""


@dataclass(frozen=True, slots=True)
class Quantile:
    """The least value that a part `q` of the users does not exceed, with an interval that holds it."""

    q: float
    value: float
    lower: float
    upper: float
    level: float
    target: Target


@dataclass(frozen=True, slots=True)
class BinBounds:
    """Bounds between two edges, and which part of the users is within: estimated, and with confidence `level`."""

    lower: float
    upper: float
    within: float
    within_lower: float
    within_upper: float
    level: float


@dataclass(frozen=True, slots=True, eq=False)
class Binned:
    """A table whose cells from `first` on count one number of each user in bins with these edges."""

    plan: Plan
    table: NDArray[np.int64]
    users: int
    edges: tuple[float, ...]
    first: int = 0

    @property
    def bins(self) -> int:
        """How many there are."""
        return len(self.edges) - 1

    def within(self, start: int, stop: int, tail: float) -> tuple[float, float, float]:
        """The part of the users in bins `start` up to `stop`, and ends that it lies beyond with this chance, each."""
        weights = np.zeros(len(self.table))
        weights[self.first + start : self.first + stop] = 1.0
        found = self._means.combine(weights, tail, "users")
        return found.value, found.lower, found.upper

    def quantile(self, q: float, level: float, target: Target) -> Quantile:
        """The q-quantile of these users, or of the population they were drawn from.

        The interval reaches from edge to edge, and holds it with at least this probability: an exact test at one edge
        decides on either end (docs/accuracy.md). From the left, edges are passed as long as so few reports below them
        are unlikely if the quantile is below; from the right, as long as so many are if it is not.
        """
        check_number("q", q, above=0, below=1)
        check_choice("target", target, ("users", "population"))
        tail = tail_of(level)
        found, mine = self._means, self.table[self.first : self.first + self.bins]
        reports = np.concatenate([[0], np.cumsum(mine)])
        fewest, most = (q, q) if target == "population" else self._holders(q)

        def unlikely_below(edge: int, held: float) -> tuple[bool, bool]:
            """Whether so few, or so many, reports below the edge are; on the other side there may be less noise."""
            if 2 * edge <= self.bins:
                return unlikely(*found.laws(edge, held, target), int(reports[edge]), tail)
            above = int(reports[-1] - reports[edge])
            few, many = unlikely(*found.laws(self.bins - edge, 1 - held, target), above, tail)
            return many, few

        low, high = 0, self.bins
        while low + 1 < self.bins and unlikely_below(low + 1, fewest)[0]:
            low += 1
        while high - 1 > low and unlikely_below(high - 1, most)[1]:
            high -= 1
        lower, upper = _plain(self.edges[low]), _plain(self.edges[high])
        return Quantile(q, min(max(self._value(q), lower), upper), lower, upper, level, target)

    def suggest(self, cover: float, level: float, together: int = 1) -> BinBounds:
        """Edges that hold this part of the users who are in certainly occupied bins, as much left out on either side.

        A bin is certainly occupied if its count is above what noise alone may bring to any bin, at this level or 99.9 %
        if that is more. What is said of the users within holds for whichever edges come out, and in `together` such
        suggestions at once.
        """
        check_number("cover", cover, above=0, most=1)
        found = self._means
        mine = slice(self.first, self.first + self.bins)
        lowest, _ = found.interval(tail_of(max(level, _OCCUPIED), together * self.bins), "users")
        occupied = lowest[mine] > 0
        # users beyond what can be computed with are within no bounds
        computable = np.abs([_plain(edge) for edge in self.edges]) <= _FARTHEST
        counts = np.where(occupied & computable[:-1] & computable[1:], found.mean[mine], 0.0)
        if occupied.any() and not counts.any():
            raise ParameterError(
                "bad-bounds",
                f"values lie beyond {_FARTHEST:g} in size, and no bounds can hold them; divide them by a public number",
            )
        if not counts.any():
            raise PrivacyError(
                "nothing-but-noise",
                f"no bin holds certainly anybody among the noise: {self.users} users are too few for epsilon "
                f"{self.plan.epsilon:g}; spend more on it (epsilon, share, --share), or give fewer, wider bins (bins)",
            )
        reached = np.cumsum(counts) / counts.sum()
        left = (1 - cover) / 2
        start = int(np.searchsorted(reached, left, side="right"))
        stop = int(np.searchsorted(reached, min(1 - left, reached[-1]) - _SAME, side="left")) + 1
        choices = self.bins * (self.bins + 1) // 2
        part, lower, upper = self.within(start, stop, tail_of(level, together * choices))
        low, high = _bound(self.edges[start]), _bound(self.edges[stop])
        if not low < high:  # nothing but 0
            high = _NEAREST
        return BinBounds(low, high, _part(part), _part(lower), _part(upper), level)

    @property
    def _means(self) -> Frequencies | RandomizedResponseFrequencies:
        found = self.plan.mechanism.decode(self.plan.encoding, self.table, self.users)
        assert isinstance(
            found, Frequencies | RandomizedResponseFrequencies
        )  # all that labels and choices are decoded to
        return found

    def _holders(self, q: float) -> tuple[float, float]:
        """The fewest users below an edge, as a part, if the quantile is below it, and the most if it is not."""
        return math.ceil((q - _SAME) * self.users) / self.users, (math.ceil((q + _SAME) * self.users) - 1) / self.users

    def _value(self, q: float) -> float:
        """By the possible counts nearest to those estimated, evenly spread over their bins."""
        mine = slice(self.first, self.first + self.bins)
        found = self._means.mean[mine]
        reached: Floats = np.append(0.0, np.cumsum(nearest_counts(self.users * found, self.users, self.users)))
        wanted = q * self.users
        at = min(max(int(np.searchsorted(reached, wanted)), 1), self.bins)
        low, high = (min(max(edge, -_FARTHEST), _FARTHEST) for edge in self.edges[at - 1 : at + 1])
        held = reached[at] - reached[at - 1]
        return low + (high - low) * (float((wanted - reached[at - 1]) / held) if held > 0 else 0.5)


def _part(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _plain(edge: float) -> float:
    """An edge without its last bit where that only says that the bin below holds the plain number, too."""
    plain = float(f"{edge:.15g}")
    return plain if math.nextafter(plain, math.inf) == edge else edge


def _bound(edge: float) -> float:
    """An edge as a bound: 0 for what is nearly 0."""
    plain = _plain(edge)
    return 0.0 if abs(plain) <= _NEAREST else plain


# ---- Counts of labels: possible counts nearest to unbiased ones, and the most frequent labels with sure places.


@dataclass(frozen=True, slots=True)
class TopRow:
    """One of the most frequent labels by estimated count, with an interval that holds together with all others'.

    `certain`: it is among the k most frequent wherever all intervals hold. `rank_certain`: it has exactly this rank.
    """

    rank: int
    label: Label
    count: float
    lower: float
    upper: float
    certain: bool
    rank_certain: bool


@dataclass(frozen=True, slots=True)
class Top:
    """The k labels with the largest estimated counts, largest first, and a sentence on which ranks are certain."""

    rows: tuple[TopRow, ...]
    level: float
    statement: str

    def __str__(self) -> str:
        """The labels with their counts: the same as a notebook shows."""
        return self._shown().text()

    def _repr_html_(self) -> str:
        return self._shown().html()

    def _shown(self) -> Shown:
        heads = ("label", "rank", "users", f"{percent(self.level)} % interval, of all together")
        rows = [
            (str(row.label), str(row.rank), f"{row.count:,.0f}", between(row.lower, row.upper, 10.0))
            for row in self.rows
        ]
        return Shown(f"Top {len(rows)}", [self.statement], (heads, rows))

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels alone, most frequent first."""
        return tuple(row.label for row in self.rows)


def top_of(
    labels: Sequence[Label], names: Sequence[str], counts: Floats, ends: tuple[Floats, Floats], k: int, level: float
) -> Top:
    """Ranks from intervals that hold together with probability `level`.

    A label surely belongs to the k most frequent if fewer than k others can be as frequent: their upper ends reach its
    lower end. It surely has rank p if p - 1 others are surely more frequent and all the rest surely less.
    """
    check_size("k", k, 1, len(counts))
    lower, upper = ends
    order = np.argsort(-counts, kind="stable")[:k]
    lows, highs = lower[order], upper[order]
    reach = len(counts) - np.searchsorted(np.sort(upper), lows, side="left") - 1  # itself reaches, too
    above = len(counts) - np.searchsorted(np.sort(lower), highs, side="right")
    ranks = np.arange(k)
    certain = (reach < k).tolist(), ((above == ranks) & (reach == ranks)).tolist()
    listed = (ranks + 1).tolist(), [labels[index] for index in order.tolist()], counts[order].tolist()
    rows = tuple(map(TopRow, *listed, lows.tolist(), highs.tolist(), *certain))
    return Top(rows, level, _statement(rows, [names[index] for index in order.tolist()], level, whole=k == len(counts)))


def _statement(rows: Sequence[TopRow], names: Sequence[str], level: float, *, whole: bool) -> str:
    ranks = [row.rank for row in rows if row.rank_certain]
    members = [name for row, name in zip(rows, names, strict=True) if row.certain and not row.rank_certain]
    open_ones = sum(not row.certain for row in rows)
    k = len(rows)
    said = (
        [f"{'Rank' if len(ranks) == 1 else 'Ranks'} {_runs(ranks)} {_is(len(ranks))} certain"]
        if ranks
        else ["No rank is certain"]
    )
    said[0] += f" ({percent(level)} %)."
    if members:
        named = ", ".join(f'"{label}"' for label in members[:10])
        more = f" and {len(members) - 10} more" if len(members) > 10 else ""
        among = f"{_is(len(members))} certainly in the top {k}, in an uncertain order."
        said.append(f"The order of {named}{more} is uncertain." if whole else f"{named}{more} {among}")
    if open_ones:
        said.append(f"{open_ones} of these {k} may not belong in the top {k}.")
    return " ".join(said)


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _runs(ranks: Sequence[int]) -> str:
    """1, 2, 3, 5 as "1-3 and 5"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


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
