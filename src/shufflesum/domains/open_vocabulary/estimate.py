"""The estimate for open vocabularies: how often any word that somebody names afterwards was held (`OpenVocabulary`).

Y[s, b] counts the reports of bucket b under function s. A user of a word puts one report into one of the S cells of
the word, (s, h_s(word)), and everything else spreads evenly over the B buckets, for random hash functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum._format import between, number, percent
from shufflesum.domains.counts import Top, count_figures, count_remarks, count_rows, nearest_counts, top_of
from shufflesum.domains.open_vocabulary.domain import OpenVocabulary
from shufflesum.errors import ParameterError
from shufflesum.estimate import BaseEstimate, EstimateTable, Floats, tail_of
from shufflesum.mechanisms.frequencies import ends_of
from shufflesum.mechanisms.noisy_slots import TELLING_FUNCTIONS

_Buckets = NDArray[np.uint32]
_Places = NDArray[np.int64]

_PASSES = 4
_HEAVY = 3.0  # standard errors above 0 from which on a word is subtracted from the others' cells
_FREE = 4  # numbers that cells can tell apart, at least, for each word that is subtracted
_BLOCK = 1 << 16  # words hashed and scored at once
_FINEST, _MOST_POINTS = 0.01, 1 << 20  # the grid: this part of a standard error, unless that were too many points
_KEPT = 1 << 29  # bytes of buckets kept for the next pass; of longer lists they are hashed again


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WordCounts(BaseEstimate):
    """How many users hold each of the words asked for, in their order, with error bars.

    `counts` are unbiased over the choice of the hash key, up to what errors of heavier words leave behind; they can be
    negative. `consistent_counts` are cut off at 0 and at the users, and so biased upwards for rare words.
    """

    what: ClassVar[str] = "Private word counts"
    caption: ClassVar[str] = "How many users hold each word"

    labels: tuple[str, ...] = field(kw_only=True)
    counts: Floats = field(kw_only=True)
    count_standard_error: Floats = field(kw_only=True)
    subtracted: Floats = field(kw_only=True)
    """What was taken out of the cells of heavy words, so that they do not disturb others; 0 for light ones."""
    heavier: Floats = field(kw_only=True)
    """The part of the variance that heavier words in the same cells bring."""
    others: ResidualDistribution = field(kw_only=True)
    """What all others bring."""

    @property
    def names(self) -> tuple[str, ...]:
        """The words, as all labels have names."""
        return self.labels

    @property
    def frequencies(self) -> Floats:
        """Counts over users."""
        return self.counts / self.users

    @property
    def standard_error(self) -> Floats:
        """The standard error of the frequencies."""
        return self.count_standard_error / self.users

    @property
    def consistent_counts(self) -> Floats:
        """The counts between 0 and users nearest to the unbiased ones."""
        return nearest_counts(self.counts, self.users, None)

    @property
    def consistent_frequencies(self) -> Floats:
        """Consistent counts over users."""
        return self.consistent_counts / self.users

    def count_interval(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[Floats, Floats]:
        """Ends that hold each word's count, or with `simultaneous` all of them, with at least this probability.

        Over noise, the users' choice of a function, and the hash functions, which are new in every round: under the
        same functions a given word's collisions would be the same each time. What collides in a cell only adds to it,
        so the lower end is the farther one. With few functions or buckets the upper one is farther than the table
        shows: the word's own reports fill cells that would be among the emptiest (`ResidualDistribution.filled`).
        """
        tail = tail_of(level, len(self.counts) if simultaneous else 1)
        less, more = self.others.ends(0.9 * tail)
        known = NormalDist().inv_cdf(max(tail, 1e-300)) ** 2 * self.heavier
        found = self.counts - self.subtracted
        low, high = found - np.sqrt(more**2 + known), found + np.sqrt(less**2 + known)
        shrunk, grown = self.others.filled(0.1 * tail)
        all_there = np.maximum(found, 0) + self.others.even + np.sqrt(known)  # everything in its cells
        farther = all_there if np.isinf(grown) else grown * high
        return self.subtracted + np.minimum(low, shrunk * low), self.subtracted + np.maximum(high, farther)

    def confidence_interval(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[Floats, Floats]:
        """The same for frequencies."""
        low, high = self.count_interval(level, simultaneous=simultaneous)
        return low / self.users, high / self.users

    def top(self, k: int, level: float = 0.95) -> Top:
        """The k most frequent of these words, each once, and which of them, and of their places, are certain."""
        low, high = self.count_interval(level, simultaneous=True)
        once = np.sort(np.unique(np.array(self.labels, dtype=object), return_index=True)[1])
        labels = [self.labels[place] for place in once.tolist()]
        return top_of(labels, labels, self.counts[once], (low[once], high[once]), k, level)

    @property
    def words(self) -> list[str]:
        """The same as `labels`."""
        return list(self.labels)

    def figures(self, level: float = 0.95) -> dict[str, Any]:
        """Labels, counts, frequencies, their errors and intervals, and the consistent ones."""
        return count_figures(self, level)

    def not_listed(self, level: float = 0.95) -> tuple[float, float, float]:
        """How many users hold none of these words, and the ends of its interval, cut off at 0 and at the users.

        Words that share cells have errors that depend on each other, so standard errors are added up as they are: the
        standard error of a sum is never more than that. The interval is wide for long lists.
        """
        once = np.unique(np.array(self.labels, dtype=object), return_index=True)[1]
        left = self.users - float(self.counts[once].sum())
        half = NormalDist().inv_cdf(0.5 + level / 2) * float(self.count_standard_error[once].sum())
        value, low, high = np.clip([left, left - half, left + half], 0, self.users).tolist()
        return value, low, high

    def remarks(self, level: float = 0.95) -> list[str]:
        """Which places are certain, and how many users hold a word that is not among these."""
        left, low, high = self.not_listed(level)
        error = (high - low) / 4
        missed = f"About {number(left, error)} of {self.users:,} users hold a word that is not on this list"
        return [*count_remarks(self, level), f"{missed} ({percent(level)} %: {between(low, high, error)})."]

    def _rows(self, level: float) -> EstimateTable:
        return count_rows(self, level)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VocabularyEstimate(BaseEstimate):
    """Counts of any words, asked for as often as one likes: all of it is computed from what was released.

    There is no mean before words are named.
    """

    what: ClassVar[str] = "Private word counts"
    caption: ClassVar[str] = "How many users hold each word"

    @property
    def prompt(self) -> str:
        """That words must be named."""
        functions, buckets = self.cells.shape
        cells = f"a table of {functions:,} by {buckets:,} cells, from which any word can be counted that is named"
        return f"{cells}: estimate.counts_of(words)"

    def counts_of(self, words: Sequence[str]) -> WordCounts:
        """How many users hold each of these words, heavier ones of them subtracted where they share a cell.

        The longer the list, the better: a frequent word that is not on it disturbs those it collides with, and the
        error bars say so. A word named twice is counted once, and told twice.
        """
        if isinstance(words, str | bytes):
            raise ParameterError("wrong-type", f"words is {words!r}; give a list of words, [{words!r}]")
        domain = self._domain
        labels = domain.texts(domain.rows(words))
        places: dict[bytes, int] = {}
        order = np.array([places.setdefault(label, len(places)) for label in labels])
        found = _Subtraction.of(self._shares, self._noise, _Candidates(domain, list(places)), sampled=self._sampled)
        counts, heavier, rest = found.scores()
        return self.read_as(
            WordCounts,
            labels=tuple(label.decode() for label in labels),
            counts=counts[order],
            subtracted=found.subtracted[order],
            count_standard_error=np.sqrt(rest + heavier)[order],
            heavier=heavier[order],
            others=found.others,
        )

    def top(self, k: int, *, among: Sequence[str], level: float = 0.95) -> Top:
        """The k most frequent words of a list, and which of them, and of their places, are certain at this level.

        `certain` is among the words of the list: of others nothing is said.
        """
        return self.counts_of(among).top(k, level)

    @property
    def cells(self) -> NDArray[np.int64]:
        """The reports of each bucket of each function, (functions, buckets), noise included."""
        return self.table.reshape(self._domain.layout)

    @property
    def report_counts(self) -> NDArray[np.int64]:
        """The same as `cells`."""
        return self.cells

    def figures(self, level: float = 0.95) -> dict[str, Any]:
        """The table itself: from it anybody who has the plan can count words later."""
        return {"report_counts": self.cells}

    def _rows(self, level: float) -> EstimateTable:
        """How many users put their word into each bucket of each function they chose; words come with `counts_of`."""
        means, (functions, buckets) = self._means, self.cells.shape
        lower, upper = means.interval(tail_of(level), "users")
        function, bucket = (at.ravel() for at in np.indices((functions, buckets)))
        return EstimateTable(
            "users",
            level,
            self.users * means.mean,
            self.users * np.sqrt(means.variance("users")),
            self.users * lower,
            self.users * upper,
            np.full(len(function), self.users),
            np.full(len(function), ""),
            function.shape,
            lambda places: [f"function {place // buckets}, bucket {place % buckets}" for place in places],
            further={"share": means.mean, "function": function, "bucket": bucket, "report_count": self.table},
            entry="bucket",
            of_users=True,
            beside=("share", 100 / self.users, " %"),
        )

    @property
    def _domain(self) -> OpenVocabulary:
        return cast("OpenVocabulary", self.domain)

    @property
    def _sampled(self) -> bool:
        """Whether each user reports under one function, drawn at random, and not under all of them."""
        return self.plan.positions is None

    @property
    def _shares(self) -> Floats:
        """The table as if each user had one report, an equal part of it in each function that they reported under."""
        cells = self.cells.astype(np.float64)
        if self._sampled:
            return cells
        shares: Floats = self.users * self._means.mean.reshape(cells.shape) / len(cells)
        return shares

    @property
    def _noise(self) -> float:
        """The variance of the noise in all cells of a word together, one under each function, of such parts."""
        functions, _ = self._domain.layout
        parts = functions if self._sampled else 1 / functions
        return parts * self.users**2 * float(self._means.variance("users").max())


@dataclass(frozen=True, slots=True, eq=False)
class ResidualDistribution:
    """The distribution of sum_s (R[s, b_s] - mean of row s), each b_s uniform and independent, on a grid.

    A candidate's buckets are uniform over the keys of the hash, so this is what others put into its cells: noise, light
    labels, and heavy ones that nobody named, whose rare collisions are far from normal.
    """

    values: Floats
    below: Floats  # P(sum <= value)
    above: Floats  # P(sum >= value)
    functions: int
    buckets: int
    even: float  # mean of all S cells of a word
    scale: float

    @staticmethod
    def of(residual: Floats, usual: NDArray[np.bool_], scale: float = 1.0) -> ResidualDistribution:
        """Convolve the distributions of all rows, of their usual cells only, times `scale`; some in each row must be.

        A value between two grid points is divided among them: the mean stays, the variance grows a little.
        """
        means = residual.mean(axis=1, keepdims=True)
        centred = np.where(usual, scale * (residual - means), 0.0)
        deviation = float(np.sqrt(centred.var(axis=1).sum()))
        low, high = (float(ends.sum()) for ends in (centred.min(axis=1), centred.max(axis=1)))
        # Sums far beyond are impossible, or need more collisions at once than any level asks about.
        width = min(high - low, 40 * deviation + 8 * float(centred.max() - centred.min()))
        step = max(_FINEST * deviation, width / (_MOST_POINTS // 2)) or 1.0
        points = 1 << int(np.ceil(np.log2(max(2 * width / step, 16))))
        transform = np.ones(points // 2 + 1, dtype=np.complex128)
        for row, cells in zip(centred / step, usual, strict=True):
            values = row[cells]
            floor = np.floor(values)
            place, part = floor.astype(np.int64), values - floor
            counts = np.bincount(place % points, 1 - part, points) + np.bincount((place + 1) % points, part, points)
            transform *= np.fft.rfft(counts / len(values))
        pmf = np.maximum(np.fft.fftshift(np.fft.irfft(transform, points)), 0)
        pmf /= pmf.sum()
        grid: Floats = (np.arange(points, dtype=np.float64) - points // 2) * step
        below, above = np.cumsum(pmf), np.cumsum(pmf[::-1])[::-1]
        functions, buckets = residual.shape
        return ResidualDistribution(grid, below, above, functions, buckets, float(means.sum()), scale)

    def filled(self, tail: float) -> tuple[float, float]:
        """What the lower and the upper end of a count must be multiplied with, because the table holds the word itself.

        The distribution ought to be that of a table without the word's own c reports. A random choice of cells meets
        own cells of the word k times, with Binomial(S, 1/B), and then finds k c/S reports fewer; more than k times it
        does with at most this probability. So c - k c/S is at most what the distribution allows for, which for k = S
        says nothing; and c itself is at least that.
        """
        _, hits = ends_of((self.functions, 1 / self.buckets), tail)
        return 1 / self.scale, np.inf if hits == self.functions else 1 / (self.scale * (1 - hits / self.functions))

    def ends(self, tail: float) -> tuple[float, float]:
        """How far below and above its mean the sum lies with probability at most `tail`, each: both positive."""
        low = self.values[max(int(np.searchsorted(self.below, tail, side="right")) - 1, 0)]
        above = self.above[::-1]
        high = self.values[len(above) - 1 - max(int(np.searchsorted(above, tail, side="right")) - 1, 0)]
        return -float(low), float(high)


@dataclass(slots=True, eq=False)
class _Candidates:
    """Different words and their buckets, block by block; kept in memory where they are not too many."""

    hashes: OpenVocabulary
    labels: list[bytes]
    _kept: dict[int, _Buckets] = field(default_factory=dict)
    _bytes: int = 0

    def blocks(self) -> Iterator[tuple[slice, _Buckets]]:
        for first in range(0, len(self.labels), _BLOCK):
            buckets = self._kept.get(first)
            if buckets is None:
                buckets = np.ascontiguousarray(self.hashes.bucket_table(self.labels[first : first + _BLOCK]))
                if self._bytes + buckets.nbytes <= _KEPT:
                    self._kept[first] = buckets
                    self._bytes += buckets.nbytes
            yield slice(first, first + len(buckets)), buckets


@dataclass(slots=True, eq=False)
class _Subtraction:
    """A table from which the heavier candidates have been subtracted, each 1/S of its count from each of its cells.

    The estimate of a count is c + (sum_s R[s, h_s] - (N - sum of all c) / B) / (1 - 1/B), where c is what was
    subtracted for the word itself, R the table after all subtractions and N the number of reports that are not blank.
    """

    table: Floats
    residual: Floats
    noise: float  # variance of the dummy reports in a word's cells together
    candidates: _Candidates
    subtracted: Floats
    sampled: bool = True  # whether users' choice of a function leaves variance in the cells of words subtracted

    @staticmethod
    def of(cells: Floats, noise: float, candidates: _Candidates, *, sampled: bool) -> _Subtraction:
        """Subtract in at most four passes, heaviest first: an error in the heavy ones would spoil all others.

        Within a pass each word is estimated from a table that the heavier ones have left already. Words that are not
        surely there, three standard errors above 0, are not subtracted: of a million words some always seem to be. Nor
        are words that would not be there but for one of their cells, which may be full of a word that nobody named: to
        subtract them would hide it from the error bars, and with few functions always might. Nor more than a quarter
        of the numbers that cells can tell apart.
        """
        table = np.ascontiguousarray(cells, dtype=np.float64)
        state = _Subtraction(table, table.copy(), noise, candidates, np.zeros(len(candidates.labels)), sampled)
        for _ in range(_PASSES if len(table) >= TELLING_FUNCTIONS else 0):
            before = state.subtracted.copy()
            state._pass()
            if np.max(np.abs(state.subtracted - before)) <= 0.05 * np.sqrt(state._rest):
                break
        return state

    @property
    def _scale(self) -> float:
        """1/(1 - 1/B): a word's own share of what is expected in its cells."""
        return 1 / (1 - 1 / int(self.table.shape[1]))

    @property
    def _freedom(self) -> int:
        """How many numbers cells can tell apart: those of a function add up to its reports."""
        functions, wide = self.table.shape
        return int(functions * (wide - 1))

    @property
    def _fitted(self) -> float:
        """Of every word, and of all else, the words that were fitted to the table took in this part: it is undone."""
        return 1 / (1 - int(np.count_nonzero(self.subtracted)) / self._freedom)

    @property
    def _rest(self) -> float:
        """The variance of a word's cells but for words subtracted there: the spread of the table, noise at least."""
        spread = self.residual.var(axis=1).sum() - self.sampled * self.subtracted.sum() / self.table.shape[1]
        return self._scale**2 * self._fitted * max(float(spread) * self._fitted, self.noise)

    def scores(self) -> tuple[Floats, Floats, float]:
        """Estimates of all candidates; their variance in two parts, by heavier words and by all the rest.

        A word of count c puts Binomial(c, 1/S) reports into a cell of its own, of which c/S are subtracted: for others
        in that cell about c/S of variance remain, which is just what was subtracted there; none where users report
        under all functions.
        """
        counts, heavier = np.empty_like(self.subtracted), np.empty_like(self.subtracted)
        for block, buckets in self.candidates.blocks():
            counts[block], heavier[block] = self._score(block, buckets)
        return counts, heavier, self._rest

    @property
    def others(self) -> ResidualDistribution:
        """What the cells of a word hold but for words subtracted there, whose variance is known apart."""
        if not self.sampled:  # what was subtracted leaves nothing behind
            return ResidualDistribution.of(
                self.residual, np.ones(self.residual.shape, bool), self._scale * self._fitted
            )
        usual = (self.table - self.residual) * self.table.shape[0] <= self._rest
        # Where most cells of a function are shared with heavy words, their share is counted twice: on the safe side.
        usual |= usual.mean(axis=1, keepdims=True) < 0.5
        return ResidualDistribution.of(self.residual, usual, self._scale * self._fitted)

    def _score(self, block: slice, buckets: _Buckets) -> tuple[Floats, Floats]:
        left, held = np.empty(len(buckets)), np.empty(len(buckets))
        _gather(self.residual, self.table, buckets, left, held)
        own = self.subtracted[block]
        even = (self.table.sum() - self.subtracted.sum()) / self.table.shape[1]
        found = self._scale * np.where(own > 0, 1.0, self._fitted) * (left - even)
        return own + found, self.sampled * self._scale**2 * np.maximum(held - left - own, 0)

    def _pass(self) -> None:
        places, rows, estimates = [], [], []
        rest = self._rest
        for block, buckets in self.candidates.blocks():
            counts, heavier = self._score(block, buckets)
            heavy = np.flatnonzero((counts > _HEAVY * np.sqrt(rest + heavier)) | (self.subtracted[block] > 0))
            places.append(block.start + heavy)
            rows.append(buckets[heavy])
            estimates.append(counts[heavy])
        falling = np.argsort(-np.concatenate(estimates), kind="stable")
        order = np.concatenate(places)[falling]
        own = self.subtracted[order]
        others = float(self.subtracted.sum() - own.sum())
        _subtract(
            self.residual,
            self.table,
            np.concatenate(rows)[falling],
            own,
            self.table.sum() - others,
            rest,
            _HEAVY,
            self._freedom // _FREE,
            float(self.sampled),
        )
        self.subtracted[order] = own


@kernel
def _gather(residual: Floats, table: Floats, buckets: _Buckets, left: Floats, held: Floats) -> None:
    """Sums over the cells of each word, of what is left and of all that came."""
    for word in range(len(buckets)):
        in_residual = in_table = 0.0
        for function in range(buckets.shape[1]):
            bucket = buckets[word, function]
            in_residual += residual[function, bucket]
            in_table += table[function, bucket]
        left[word] = in_residual
        held[word] = in_table


@kernel
def _subtract(
    residual: Floats,
    table: Floats,
    buckets: _Buckets,
    own: Floats,
    reports: float,
    rest: float,
    heavy: float,
    most: int,
    sampled: float,
) -> None:
    """Estimate each word in turn, and put what it holds out of its cells before the next one; words come and go."""
    functions, wide = residual.shape
    scale = 1 / (1 - 1 / wide)
    total = own.sum()
    fitted = 0
    for word in range(len(buckets)):
        left = held = 0.0
        fullest = -np.inf
        for function in range(functions):
            bucket = buckets[word, function]
            left += residual[function, bucket]
            held += table[function, bucket]
            fullest = max(fullest, residual[function, bucket])
        even = (reports - total) / wide
        count = own[word] + scale * (left - even)
        least = heavy * np.sqrt(rest + sampled * scale**2 * max(held - left - own[word], 0.0))
        without = count - own[word] / functions - scale * (fullest - even / functions)
        seen = count > least and without > least * np.sqrt(1 - 1 / functions)
        if seen and fitted < most:
            fitted += 1
        else:
            count = 0.0
        change = count - own[word]
        if change != 0.0:
            for function in range(functions):
                residual[function, buckets[word, function]] -= change / functions
            own[word] = count
            total += change
