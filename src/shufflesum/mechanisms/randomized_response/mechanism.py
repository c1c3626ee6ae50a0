"""The parameters of `randomized-response`, and where its answers are found: a user reports t of d coordinates, one cell
each.

A value is rounded at random to one of K = levels + 1 values; the cell of a report is coordinate x K + value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice, check_number, check_size
from shufflesum._format import downwards
from shufflesum.cells import MOST_CELLS
from shufflesum.encodings import Encoding, Levels
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.mechanism import Candidate, CountTable, ExpectedError, Floats, Mechanism, Search
from shufflesum.mechanisms.randomized_response import decode
from shufflesum.mechanisms.randomized_response.attack import RandomizedResponseAttack
from shufflesum.mechanisms.randomized_response.randomize import (
    RandomizedResponseEncoder,
    RandomizedResponseLabelsEncoder,
)
from shufflesum.mechanisms.rounding import EncodedTally
from shufflesum.privacy import Guarantee, RandomizedResponseAccountant
from shufflesum.privacy.engine.composition import MOST_COMPOSITIONS
from shufflesum.privacy.randomized_response import published
from shufflesum.privacy.randomized_response.accountant import Sampling
from shufflesum.privacy.randomized_response.blanket import MOST_LEVELS
from shufflesum.privacy.randomized_response.schemes import guess_noise_probability
from shufflesum.randomness import PROBABILITY_BITS, RandomSource

MAX_LEVELS = 32_766  # a rounded value fits 15 bits, as the drawing kernels need


def on_grid(noise_probability: float) -> float:
    """The least noise probability that can be drawn with and is not below this one; what is none stays as it is."""
    if not 0 <= noise_probability <= 1:
        return noise_probability
    return math.ceil(noise_probability * 2.0**PROBABILITY_BITS) * 2.0**-PROBABILITY_BITS


@dataclass(frozen=True, slots=True)
class RandomizedResponse(Mechanism):
    """Every user reports `coordinates` of the d coordinates, each replaced by a uniform value with some probability.

    `stratified` sampling draws one coordinate from each of as many public blocks, `uniform` any subset.
    """

    kind: ClassVar[str] = "randomized-response"
    family: ClassVar[str] = "randomized-response"
    accepts: ClassVar[type[Encoding]] = Levels

    coordinates: int
    levels: int
    noise_probability: float
    sampling: Sampling = "stratified"

    def __post_init__(self) -> None:
        """Refuse what no domain could make sense of, and keep Python's own numbers: others read otherwise in JSON."""
        check_size("coordinates", self.coordinates, 1, MOST_CELLS)
        check_size("levels", self.levels, 1, MOST_CELLS)
        check_choice("sampling", self.sampling, get_args(Sampling))
        check_number("noise_probability", self.noise_probability)
        numerator = self.noise_probability * 2.0**PROBABILITY_BITS
        if not 0 <= self.noise_probability <= 1 or not float(numerator).is_integer():
            raise ParameterError(
                "out-of-range",
                f"noise_probability is {self.noise_probability!r}; it must be a multiple of 2**-53 between 0 and 1",
            )
        for name, number in (("coordinates", int), ("levels", int), ("noise_probability", float)):
            object.__setattr__(self, name, number(getattr(self, name)))

    @property
    def values(self) -> int:
        """K: how many values a coordinate is rounded to."""
        return self.levels + 1

    def check(self, encoding: Levels) -> None:
        """Refuse more coordinates than there are, and more cells than a report can number."""
        check_size("coordinates", self.coordinates, 1, encoding.dimension)
        if encoding.levels is not None:
            check_size("levels", self.levels, encoding.levels, encoding.levels)
            return
        check_size("levels", self.levels, 1, MAX_LEVELS)
        if self.cells(encoding) > MOST_CELLS:
            raise ParameterError(
                "too-many-cells",
                f"dimension {encoding.dimension} with {self.levels} levels needs {self.cells(encoding)} report cells; "
                "the report format has fewer than 2**32: lower the dimension or the levels",
            )

    def cells(self, encoding: Levels) -> int:
        """K for each coordinate; one for each label."""
        return encoding.dimension * self.values

    def reports(self, encoding: Levels) -> int:
        """One for each sampled coordinate, never a blank."""
        return self.coordinates

    def block_starts(self, encoding: Levels) -> NDArray[np.int64]:
        """Where the public blocks of stratified sampling begin: one report of every user falls into each."""
        return np.arange(self.coordinates) * encoding.dimension // self.coordinates

    def sampling_probabilities(self, encoding: Levels) -> Floats:
        """For each coordinate, the chance that a given user reports it."""
        if self.sampling == "uniform":
            return np.full(encoding.dimension, self.coordinates / encoding.dimension)
        sizes = np.diff(self.block_starts(encoding), append=encoding.dimension)
        return np.repeat(1 / sizes, sizes)

    def encoder(
        self, encoding: Levels, source: RandomSource
    ) -> RandomizedResponseEncoder | RandomizedResponseLabelsEncoder:
        """Algorithm 1 of the paper, on the coordinates that Algorithm 2 samples, or on labels."""
        if encoding.scale is None:
            return RandomizedResponseLabelsEncoder(self, source)
        return RandomizedResponseEncoder(self, encoding.scale, encoding.dimension, source)

    def tally(self, encoding: Levels, source: RandomSource) -> EncodedTally:
        """Every user's reports, counted."""
        return EncodedTally(self.encoder(encoding, source), self.cells(encoding))

    def blanks(self, encoding: Levels) -> float:
        """None."""
        return 0.0

    def dummy_reports(self, encoding: Levels) -> float:
        """Those that are replaced."""
        return self.coordinates * self.noise_probability

    def decode(
        self, encoding: Levels, table: CountTable, users: int
    ) -> decode.RandomizedResponseMeans | decode.RandomizedResponseFrequencies:
        """Algorithm 3 of the paper, with error bars."""
        if self.noise_probability == 1:
            raise ParameterError(
                "nothing-but-noise",
                "noise_probability is 1: every report is noise and says nothing about the users; "
                "plan with more users or a larger epsilon",
            )
        if encoding.scale is None:
            return decode.RandomizedResponseFrequencies(table, users, self.noise_probability)
        return decode.RandomizedResponseMeans(
            table=table.reshape(encoding.dimension, self.values),
            users=users,
            coordinates=self.coordinates,
            noise_probability=self.noise_probability,
            sampling_probabilities=self.sampling_probabilities(encoding),
            mixes=encoding.mixes,
        )

    def expected_error(self, encoding: Levels, users: int, assumed_std: float | None = None) -> ExpectedError:
        """The sum over coordinates of `coordinate_error`, each in its own units; of labels, over their frequencies."""
        if encoding.scale is None:
            return decode.labels_error(self.values, self.noise_probability, users)
        total = ExpectedError(0.0, 0.0, 0.0)
        sampled, width = self.sampling_probabilities(encoding), encoding.scale.width
        for probability in np.unique(sampled):
            alike = width[sampled == probability]
            weight = float(np.sum(alike**2))
            # In units of the width; within their bounds users differ by no more than half of it.
            apart = None if assumed_std is None else min(assumed_std * math.sqrt(len(alike) / weight), 0.5)
            error = decode.coordinate_error(users, float(probability), self.levels, self.noise_probability, apart)
            total += error * weight
        return total

    def accountant(self, encoding: Levels, guarantee: Guarantee) -> RandomizedResponseAccountant:
        """The certified bounds of the sampled coordinates, or the published ones."""
        return RandomizedResponseAccountant(
            users=guarantee.users,
            levels=self.levels,
            noise_probability=self.noise_probability,
            coordinates=self.coordinates,
            rounds=guarantee.rounds,
            dimension=encoding.dimension,
            sampling=self.sampling,
            honest_fraction=guarantee.honest_fraction,
        )

    def min_malicious(self, encoding: Levels, table: CountTable, blanks: int, rejected: int, users: int) -> int:
        """Whoever follows the protocol sends no blanks, has all reports accepted, one in each block, or none twice.

        A user who does not can leave a block out, or put all reports into one coordinate.
        """
        fewest = math.ceil((blanks + rejected) / self.coordinates)
        counts = table.reshape(encoding.dimension, self.values).sum(axis=1)
        if self.sampling == "stratified":
            counts = np.add.reduceat(counts, self.block_starts(encoding))
        if len(counts) == self.coordinates:
            fewest = max(fewest, users - int(counts.min()))
        if self.coordinates > 1:
            fewest = max(fewest, math.ceil((int(counts.max()) - users) / (self.coordinates - 1)))
        return fewest

    def max_shift(self, encoding: Levels, users: int, malicious: int) -> float:
        """All reports of malicious users in one coordinate, at the value that everybody else is farthest from.

        Of m reports of theirs and c of others, the mean moves by m/(m + c) of a debiased report's range. Where c is
        left to chance, it is taken five deviations below its mean.
        """
        if malicious == 0:
            return 0.0
        sent, chance = malicious * self.coordinates, float(np.min(self.sampling_probabilities(encoding)))
        mean = (users - malicious) * chance
        others = max(0.0, mean - 5 * math.sqrt(mean * (1 - chance)))
        return sent / (sent + others) / (1 - self.noise_probability)

    def attack(
        self, encoding: Levels, held: auditing.Held, guarantee: Guarantee, sample_table: Callable[[Any], CountTable]
    ) -> RandomizedResponseAttack:
        """The victim at one value or another in every coordinate, all others at a third."""
        return RandomizedResponseAttack.of(self, encoding, held, guarantee, sample_table)

    @dataclass(frozen=True, slots=True)
    class Options:
        """What a planner may be told: how many coordinates and levels there are, and how coordinates are sampled."""

        family: ClassVar[str] = "randomized-response"
        coordinates: int | None = None
        levels: int | None = None
        sampling: Sampling | None = None

    @classmethod
    def candidates(cls, encoding: Levels, search: Search, options: Options | None = None) -> Iterator[Candidate]:
        """The best coordinates and levels, and those with fewer coordinates that are as good."""
        for found in candidates(encoding, search, options or cls.Options()):
            yield Candidate(found, encoding)

    @classmethod
    def alternatives(cls, encoding: Levels, search: Search) -> Iterator[Candidate]:
        """All, half, a quarter, ... of the coordinates, each at its own levels."""
        for found in alternatives(encoding, search):
            yield Candidate(found, encoding)

    def options(self) -> Options | None:
        """Coordinates, levels and how they are sampled."""
        return RandomizedResponse.Options(self.coordinates, self.levels, self.sampling)

    def comparison_error(self, encoding: Levels, users: int, assumed_std: float | None = None) -> float:
        """Of labels, that of the one estimated worst, for each of them: frequent ones have most."""
        if encoding.scale is None:
            return self.values * decode.most_frequent_error(self.values, self.noise_probability, users)
        return self.expected_error(encoding, users, assumed_std).total

    def describe(self, encoding: Levels) -> str:
        """What a user sends."""
        if encoding.scale is None:
            return f"the label, replaced by a random one with probability {downwards(self.noise_probability, 5)}"
        return (
            f"{self.coordinates:,} of {encoding.dimension:,} coordinates ({self.sampling}), in {self.values} values, "
            f"each replaced by a random one with probability {downwards(self.noise_probability, 5)}"
        )


_AS_GOOD = 0.05  # so much more error than the least counts as good
_PRUNE_RATIO = 1.5  # a guessed error so many times that of a certified rival is not worth certifying


def candidates(encoding: Levels, search: Search, options: RandomizedResponse.Options) -> Iterator[RandomizedResponse]:
    """The best coordinates and levels, and fewer coordinates that are as good; none where rivals are better."""
    if encoding.scale is None:
        yield from _for_labels(encoding, search, options)
        return
    guarantee, coordinates, levels = search.guarantee, options.coordinates, options.levels
    if coordinates is not None:
        check_size("coordinates", coordinates, 1, encoding.dimension)
        if search.max_reports is not None and coordinates > search.max_reports:
            raise ParameterError(
                "conflicting-arguments",
                f"coordinates is {coordinates}, each of which is a report, above max_reports = {search.max_reports}; "
                "change one of them",
            )
    if levels is not None:
        check_size("levels", levels, 1, most_levels(encoding, certified=guarantee.accountant == "exact"))
    if options.sampling is not None:
        check_choice("sampling", options.sampling, ("stratified", "uniform"))
    if guarantee.accountant == "paper":
        yield published_choice(encoding, guarantee, coordinates or 1, levels, options.sampling)
        return
    near = _Neighbourhood(
        encoding,
        guarantee,
        [coordinates] if coordinates else coordinate_grid(encoding, guarantee, search.max_reports),
        [levels] if levels else None,
        options.sampling or "stratified",
        search.assumed_std,
    )
    if near.least_guess > _PRUNE_RATIO * search.rival:
        return
    try:
        best = near.climb()
    except PrivacyError:
        if math.isfinite(search.rival):
            return
        raise
    yield best
    fewest, least = best, min(search.rival, near.error(best))
    for fewer in near.coordinates:
        if fewer < fewest.coordinates:
            fewest = near.best_with(fewer)
            if not near.error(fewest) <= (1 + _AS_GOOD) * least:
                return
            yield fewest


def alternatives(encoding: Levels, search: Search) -> Iterator[RandomizedResponse]:
    """All, half, a quarter, ... of the coordinates, each at the levels that the guess prefers."""
    if encoding.scale is None:
        yield from _for_labels(encoding, replace(search, only=False), RandomizedResponse.Options())
        return
    near = _Neighbourhood(encoding, search.guarantee, coordinate_grid(encoding, search.guarantee))
    for coordinates in near.coordinates:
        yield near.best_with(coordinates)


def _for_labels(encoding: Levels, search: Search, options: RandomizedResponse.Options) -> Iterator[RandomizedResponse]:
    """Randomized response over all labels; nothing where it is out of reach and another mechanism may serve."""
    if options != RandomizedResponse.Options() or search.guarantee.accountant == "paper":
        raise ParameterError(
            "impossible-combination",
            "coordinates, levels, sampling and the published accountant are for arrays, not for labels; leave them out",
        )
    guarantee, levels = search.guarantee, encoding.levels
    assert levels is not None
    try:
        accountant = RandomizedResponseAccountant(
            guarantee.users, levels, rounds=guarantee.rounds, dimension=1, honest_fraction=guarantee.honest_fraction
        )
        gamma = accountant.smallest_noise_probability(guarantee.epsilon, guarantee.delta)
    except (ParameterError, PrivacyError):
        if search.only:
            raise
        return
    if gamma < 1:
        yield RandomizedResponse(1, levels, gamma)
    elif search.only:
        raise PrivacyError(
            "privacy-out-of-reach",
            f"a single report among {levels + 1} labels would have to be noise alone for {guarantee.users} users; "
            "raise users or epsilon, take fewer labels, or plan with mechanism 'noisy-counts'",
        )


@dataclass
class _Neighbourhood:
    """The neighbourhood over (coordinates, levels); each point is certified once, when it is first visited."""

    encoding: Levels
    guarantee: Guarantee
    coordinates: Sequence[int]
    levels: Sequence[int] | None = None
    sampling: Sampling = "stratified"
    assumed_std: float | None = None
    _certified: dict[tuple[int, int], RandomizedResponse] = field(default_factory=dict)

    @property
    def _width(self) -> Floats:
        assert self.encoding.scale is not None  # labels are not searched for
        return self.encoding.scale.width

    def starts(self) -> Iterator[RandomizedResponse]:
        """Where the guess would begin, and single-coordinate blocks with one level.

        The latter have a tighter bound of their own, which the guess does not know.
        """
        start = min(product(self.coordinates, self._grid), key=lambda point: self._guessed_error(*point))
        yield self.certified(*start)
        if 1 in self._grid:
            yield self.certified(self.coordinates[0], 1)

    @property
    def least_guess(self) -> float:
        """The least error that the guess promises, in the user's units, for all coordinates."""
        least = min(self._guessed_error(*point) for point in product(self.coordinates, self._grid))
        return least * float(np.sum(self._width**2))

    def neighbours(self, mechanism: RandomizedResponse) -> Iterator[RandomizedResponse]:
        """One step in coordinates, or a small or a large one in levels."""
        index = self.coordinates.index(mechanism.coordinates)
        for other in self.coordinates[max(0, index - 1) : index + 2]:
            if other != mechanism.coordinates:
                yield self.certified(other, mechanism.levels)
        if self.levels is None:
            step, most = max(1, mechanism.levels // 16), most_levels(self.encoding, certified=True)
            near = {mechanism.levels + move for move in (-step, -1, 1, step)}
            yield from (self.certified(mechanism.coordinates, k) for k in sorted(near) if 1 <= k <= most)

    def error(self, mechanism: RandomizedResponse) -> float:
        """The predicted error of a point."""
        return mechanism.expected_error(self.encoding, self.guarantee.users, self.assumed_std).total

    def climb(self) -> RandomizedResponse:
        """From the best start to the least predicted error that no single move improves."""
        best = min(self.starts(), key=self.error)
        improved = True
        while improved:
            improved = False
            for rival in self.neighbours(best):
                if self.error(rival) < self.error(best):
                    best, improved = rival, True
        if not math.isfinite(self.error(best)):
            guarantee = self.guarantee
            raise PrivacyError(
                "privacy-out-of-reach",
                f"no noise short of noise alone is certified for epsilon = {guarantee.epsilon}, "
                f"delta = {guarantee.delta} with {guarantee.honest_users} honest users, each of whom sends "
                f"{best.describe(self.encoding)}; raise users or epsilon, or lower coordinates",
            )
        return best

    def best_with(self, coordinates: int) -> RandomizedResponse:
        """The certified mechanism with so many coordinates, at the levels that the guess prefers."""
        return self.certified(coordinates, min(self._grid, key=lambda levels: self._guessed_error(coordinates, levels)))

    def certified(self, coordinates: int, levels: int) -> RandomizedResponse:
        """So many coordinates and levels, at the smallest noise probability that is certified for the guarantee."""
        if (coordinates, levels) not in self._certified:
            noiseless = RandomizedResponse(coordinates, levels, 0.0, self.sampling)
            accountant = noiseless.accountant(self.encoding, self.guarantee)
            gamma = accountant.smallest_noise_probability(self.guarantee.epsilon, self.guarantee.delta)
            self._certified[coordinates, levels] = RandomizedResponse(coordinates, levels, gamma, self.sampling)
        return self._certified[coordinates, levels]

    @property
    def _grid(self) -> Sequence[int]:
        if self.levels is not None:
            return self.levels
        most = most_levels(self.encoding, certified=True)
        return sorted({k for k in (round(1.25**i) for i in range(31)) if k <= most} | set(range(1, min(8, most) + 1)))

    def _guessed_error(self, coordinates: int, levels: int) -> float:
        guarantee = self.guarantee
        users_per_loss = guarantee.honest_users / ((levels + 1) * coordinates * guarantee.rounds)
        gamma = guess_noise_probability(users_per_loss, guarantee.epsilon, guarantee.delta)
        probability = min(1.0, coordinates / self.encoding.dimension)
        width = math.sqrt(float(np.mean(self._width**2)))
        apart = None if self.assumed_std is None else min(self.assumed_std / width, 0.5)
        return decode.coordinate_error(guarantee.users, probability, levels, gamma, apart).total


def most_levels(encoding: Levels, *, certified: bool) -> int:
    """The most levels that reports can carry and, if asked, that the accountant certifies."""
    return min(MOST_LEVELS if certified else MAX_LEVELS, MOST_CELLS // encoding.dimension - 1)


def published_choice(
    encoding: Levels, guarantee: Guarantee, coordinates: int, levels: int | None, sampling: Sampling | None
) -> RandomizedResponse:
    """The paper's own choice: levels by its formula, uniform sampling for several coordinates."""
    sampling = sampling or ("uniform" if coordinates > 1 else "stratified")
    levels = levels or published.published_levels(
        users=guarantee.honest_users,
        dimension=encoding.dimension,
        coordinates=coordinates,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
    )
    noiseless = RandomizedResponse(coordinates, levels, 0.0, sampling)
    accountant = noiseless.accountant(encoding, guarantee)
    gamma = accountant.published_noise_probability(guarantee.epsilon, guarantee.delta)
    if gamma == 1:
        raise PrivacyError(
            "privacy-out-of-reach",
            "the published noise probability is 1: reports would carry nothing; raise users or epsilon",
        )
    return RandomizedResponse(coordinates, levels, gamma, sampling)


def coordinate_grid(encoding: Levels, guarantee: Guarantee, most: int | None = None) -> list[int]:
    """cap, cap/2, cap/4, ..., 1 coordinates: the error is flat enough in their number."""
    composable = max(1, MOST_COMPOSITIONS // guarantee.rounds)
    counts = [min(most or encoding.dimension, encoding.dimension, composable)]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts
