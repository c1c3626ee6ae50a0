"""The parameters of noisy sums, how little noise is enough, and what a noisy sum says.

A number with bounds becomes one of 0..k, a vector of a bounded norm an integer vector. Integers are summed exactly, and
U + step (N1 + stride N2) is added to each coordinate's sum: U uniform below `step`, N1 and N2 drawn from noise tables
(docs/privacy-sums.md). So far one process that holds all rows draws it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from shufflesum._checks import check_choice, check_size
from shufflesum.cells import MOST_CELLS
from shufflesum.encodings import Encoding, Positions, Residues
from shufflesum.errors import ParameterError, PlanError, PrivacyError
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.mechanism import (
    Candidate,
    Combined,
    CountTable,
    ExpectedError,
    Floats,
    Mechanism,
    NoiseBy,
    Search,
    Target,
)
from shufflesum.mechanisms.noisy_sums.attack import NoisySumsDraws
from shufflesum.mechanisms.noisy_sums.randomize import NoisySumsTally, drawn
from shufflesum.mechanisms.noisy_table.noise import Draws, weighted_reach
from shufflesum.privacy import (
    DiscreteGaussianAccountant,
    Guarantee,
    NoiseDistribution,
    NoiseDistributionAccountant,
    PrivacyAccountant,
    least_discrete_gaussian,
    least_noise,
)
from shufflesum.privacy.discrete_gaussian import check_noise
from shufflesum.privacy.engine.gaussian import gaussian_noise
from shufflesum.randomness import RandomSource

DrawnBy = Literal["curator"]
MOST_LEVELS = 1 << 32
_MOST_SUM = 1 << 62  # what a table of counts has room for
_MANY = 400  # coordinates of all rounds: from here on noise is discrete Gaussian, and nothing is composed
_STANDARD = 5.0  # by so many standard deviations the norm of a vector may grow when it is rounded


@dataclass(frozen=True, slots=True)
class NoisySums(Mechanism):
    """Integers up to `levels`, and noise U + step (N1 + stride N2) for the sum of each coordinate.

    `levels` is what the width of a number's bounds becomes, or a vector's clipping norm. `noise` is one or two
    distributions.
    """

    kind: ClassVar[str] = "noisy-sums"
    family: ClassVar[str] = "noisy-sums"
    accepts: ClassVar[type[Encoding]] = Residues
    noise_options: ClassVar[tuple[NoiseBy, ...]] = get_args(DrawnBy)

    noise_by: DrawnBy = field()
    levels: int
    step: int
    noise: tuple[NoiseDistribution, ...]
    stride: int

    def __post_init__(self) -> None:
        """Refuse what no encoding could make sense of, and keep Python's own numbers: others read otherwise in JSON."""
        check_choice("noise_by", self.noise_by, get_args(DrawnBy))
        check_size("levels", self.levels, 1, MOST_LEVELS)
        check_size("step", self.step, 1, self.levels)
        check_noise(self.noise, self.stride)
        if self.step & (self.step - 1) or self.levels % self.step:
            raise ParameterError(
                "out-of-range",
                f"step is {self.step}; it must be a power of two that divides levels, which are {self.levels}",
            )
        for name in ("levels", "step", "stride"):
            object.__setattr__(self, name, int(getattr(self, name)))

    @property
    def shift(self) -> int:
        """By how many steps a user can move the sum of a coordinate."""
        return self.levels // self.step

    @property
    def noise_mean(self) -> float:
        """Of a coordinate's sum, in levels."""
        return (self.step - 1) / 2 + self.step * sum(
            factor * table.half_length for factor, table in zip((1, self.stride), self.noise, strict=False)
        )

    @property
    def noise_variance(self) -> float:
        """Of a coordinate's sum, in squared levels."""
        tables = sum(factor**2 * table.variance for factor, table in zip((1, self.stride), self.noise, strict=False))
        return self.step**2 * tables + (self.step**2 - 1) / 12

    def squared_norm(self, encoding: Residues) -> int:
        """The squared norm that a vector of integers may have.

        Rounding adds up to a quarter for each coordinate to the square of the clipping norm, on average, and varies it
        by a deviation of at most levels + sqrt(d)/2: hardly a vector in a million is drawn again.
        """
        width = encoding.dimension
        return self.levels**2 + math.ceil(width / 4 + _STANDARD * (self.levels + math.sqrt(width) / 2))

    def largest(self, encoding: Residues) -> int:
        """What is added to a vector's integers, so that none is negative; a number's own are not."""
        return math.isqrt(self.squared_norm(encoding)) if encoding.scale is None else 0

    def most_of_user(self, encoding: Residues) -> int:
        """The largest that a user can bring to a coordinate's sum."""
        return self.levels if encoding.scale is not None else 2 * self.largest(encoding)

    def most_drawn(self, encoding: Residues) -> CountTable:
        """The largest that each coordinate's noise can be."""
        return np.full(encoding.dimension, round(2 * self.noise_mean), dtype=np.int64)

    def most_counted(self, encoding: Residues, users: int) -> CountTable:
        """The largest that so many users and the noise can make of each sum."""
        return self.most_drawn(encoding) + min(users, self.max_users(encoding)) * self.most_of_user(encoding)

    def max_users(self, encoding: Residues) -> int:
        """So many users' sums are exact, noise and all."""
        return int(_MOST_SUM - 2 * self.noise_mean) // self.most_of_user(encoding)

    def check(self, encoding: Residues) -> None:
        """Refuse noise that proves nothing here, and sums that have no room."""
        if encoding.dimension > MOST_CELLS:
            raise ParameterError("too-many-cells", f"{encoding.dimension} coordinates; fewer than 2**32 can be summed")
        if encoding.scale is None and self.step != 1:
            raise ParameterError("out-of-range", f"step is {self.step}; for vectors of a bounded norm it must be 1")
        if (encoding.scale is None or len(self.noise) == 2) and any(table.shape != 2.0 for table in self.noise):
            raise ParameterError("out-of-range", "noise has a shape other than 2, which is not certified here")
        if len(self.noise) == 1 and encoding.scale is not None and self.shift > self.noise[0].half_length:
            raise ParameterError("out-of-range", "noise is shorter than what a user can bring; take longer noise")
        if self.max_users(encoding) < 1:
            raise ParameterError("out-of-range", "sums of these levels with this noise do not fit 64 bits")

    def positions(self, encoding: Residues) -> Positions:
        """One for each coordinate."""
        return encoding.positions()

    def cells(self, encoding: Residues) -> int:
        """One sum for each coordinate."""
        return encoding.dimension

    def reports(self, encoding: Residues) -> int:
        """The vector."""
        return 1

    def blanks(self, encoding: Residues) -> float:
        """None."""
        return 0.0

    def encoder(self, encoding: Residues, source: RandomSource) -> Any:
        """Nothing can be sent."""
        raise PlanError(
            "one-process-only",
            "this plan is for one process, which holds all rows and draws the noise of their sums; nothing can be sent "
            "under it: use aggregate or shufflesum run, or make a plan without noise_by='curator'",
        )

    def tally(self, encoding: Residues, source: RandomSource) -> NoisySumsTally:
        """Exact sums, with each coordinate's noise drawn once."""
        return NoisySumsTally(self, encoding, source)

    def draw(self, encoding: Residues, source: RandomSource) -> CountTable:
        """One independent draw for each coordinate."""
        return drawn(self, encoding.dimension, source)

    def decode(self, encoding: Residues, table: CountTable, users: int) -> NoisySumsMeans | NoisyVectorMeans:
        """Sums less the mean of their noise, over the users."""
        sums = table.astype(np.float64) - (self.noise_mean + users * self.largest(encoding))
        if encoding.scale is None:
            return NoisyVectorMeans(self, encoding, sums, users)
        return NoisySumsMeans(self, sums, users, encoding.mixes)

    def expected_error(self, encoding: Residues, users: int, assumed_std: float | None = None) -> ExpectedError:
        """The noise is public and exact, and how users differ does not matter.

        Numbers are off by half a level at most; vectors by a quarter of a squared level for each coordinate and user,
        and by the bias of drawing them again.
        """
        noise = encoding.dimension * self.noise_variance / (self.levels * users) ** 2
        if encoding.scale is not None:
            width = float(np.mean(encoding.scale.width**2))
            return ExpectedError(0.0, encoding.dimension / (4 * self.levels**2), noise) * width
        assert encoding.clipping_norm is not None
        rounding = encoding.dimension / (4 * users * self.levels**2) + self.bias(encoding)
        return ExpectedError(0.0, rounding, noise) * encoding.clipping_norm**2

    def bias(self, encoding: Residues) -> float:
        """The squared bias of drawing again, in units of the clipping norm: no vector is off by more than 2 sqrt(d)."""
        chance = math.exp(-(_STANDARD**2) / 2)
        return 4 * encoding.dimension * (chance / (1 - chance) / self.levels) ** 2

    def accountant(self, encoding: Residues, guarantee: Guarantee) -> PrivacyAccountant:
        """Theorem S1 for numbers, or S2 where there are many or their norm is bounded."""
        size, rounds = encoding.dimension, guarantee.rounds
        if encoding.scale is None:
            return DiscreteGaussianAccountant(
                self.noise, self.stride, 4 * self.squared_norm(encoding), size, rounds, 2 * self.levels
            )
        if len(self.noise) == 1 and (size * rounds < _MANY or self.noise[0].shape != 2.0):
            return NoiseDistributionAccountant(((self.noise[0], size),), rounds, self.shift)
        return DiscreteGaussianAccountant(
            self.noise, self.stride, self.shift**2 * size, size, rounds, self.shift, shown_coordinates=size
        )

    def min_malicious(self, encoding: Residues, table: CountTable, blanks: int, rejected: int, users: int) -> int:
        """The guarantee counts on nobody's honesty, and a noisy sum accuses nobody."""
        return 0

    def max_shift(self, encoding: Residues, users: int, malicious: int) -> float:
        """A row counts for no more than the width of its bounds, a vector for no more than two clipping norms."""
        return malicious / users * self.most_of_user(encoding) / self.levels

    def attack(
        self, encoding: Residues, held: auditing.Held, guarantee: Guarantee, sample_table: Callable[[Any], CountTable]
    ) -> auditing.Attack:
        """Users send nothing."""
        raise ParameterError(
            "impossible-combination", "an audit looks at reports, but under noisy sums one process holds all rows"
        )

    def drawn_noise(self, encoding: Residues, held: auditing.Held) -> NoisySumsDraws:
        """Sums of users of whom all is known."""
        return NoisySumsDraws(self, encoding, held)

    @classmethod
    def candidates(cls, encoding: Residues, search: Search, options: Any = None) -> Iterator[Candidate]:
        """The least noise that is certified."""
        guarantee = search.guarantee
        try:
            found = _vectors(encoding, guarantee) if encoding.scale is None else _numbers(encoding, guarantee)
        except (ParameterError, PrivacyError):
            if search.only:
                raise
            return
        yield Candidate(found, encoding)

    def describe(self, encoding: Residues) -> str:
        """What a user brings."""
        if encoding.scale is None:
            return f"a vector of {encoding.dimension:,} integers, of which {self.levels:,} are the clipping norm"
        return "a number" if encoding.dimension == 1 else f"{encoding.dimension:,} numbers"


# ---- How little noise is enough.

_FINEST_BITS, _COARSEST_BITS = 32, 28  # of levels
_ROOM_BITS = 55  # sums of as many users as are planned for fit so many bits, and of a hundred times more the table
_DEVIATION = 8.0  # of noise in steps: then it costs nothing that it comes in steps
_FINE = 0.002  # what rounding vectors may add to the squared error
_MOST_VECTOR_BITS = 15


def _numbers(encoding: Residues, guarantee: Guarantee) -> NoisySums:
    """The number of steps in a width that brings the least noise, and levels so fine that they do not matter."""
    shift, noise, stride = _least(guarantee.epsilon, guarantee.delta, encoding.dimension, guarantee.rounds)
    spread = shift * sum(factor * table.half_length for factor, table in zip((1, stride), noise, strict=False))
    room = _ROOM_BITS - max(guarantee.users, 2 * spread // shift**2).bit_length()
    levels = max(1 << min(_FINEST_BITS, max(_COARSEST_BITS, room)), shift)
    return NoisySums("curator", levels, levels // shift, noise, stride)


@lru_cache(maxsize=256)
def _least(
    epsilon: float, delta: float, coordinates: int, rounds: int
) -> tuple[int, tuple[NoiseDistribution, ...], int]:
    """The shift in steps, the noise and its stride: of the least variance in widths, uniform numbers and all."""
    copies = coordinates * rounds
    gaussian = copies * gaussian_noise(epsilon, delta) ** 2
    curator = min(gaussian, 2.0 * (copies / epsilon) ** 2)
    finest = math.ceil(math.log2(max(1.0, _DEVIATION / math.sqrt(curator))))
    found: list[tuple[float, int, NoiseDistribution]] = []
    if copies < _MANY:
        for shift in (2**power for power in range(finest + 1)):
            try:
                noise = least_noise(epsilon, delta, changed_cells=coordinates, rounds=rounds, shift=shift)
            except PrivacyError:
                continue
            found.append(((noise.variance + 1 / 12) / shift**2, shift, noise))
    if found:
        _, shift, noise = min(found, key=lambda one: one[:2])
        return shift, (noise,), 1
    shift = 2**finest
    chosen = least_discrete_gaussian(
        epsilon,
        delta,
        squared_shift=shift**2 * coordinates,
        coordinates=coordinates,
        rounds=rounds,
        shown_shift=shift,
        shown_coordinates=coordinates,
    )
    return shift, chosen.noise, chosen.stride


def _vectors(encoding: Residues, guarantee: Guarantee) -> NoisySums:
    """The coarsest integers at which rounding hardly matters, beside the noise and in the norm."""
    multiplier = gaussian_noise(guarantee.epsilon, guarantee.delta) * math.sqrt(guarantee.rounds)
    for bits in range(_MOST_VECTOR_BITS + 1):
        levels = 1 << bits
        norm = NoisySums("curator", levels, 1, (NoiseDistribution(2.0, 1.0, 1),), 1).squared_norm(encoding)
        added = norm / levels**2 - 1 + guarantee.users / (16 * norm * multiplier**2)
        if added <= _FINE:
            break
    found = _least_vectors(
        guarantee.epsilon, guarantee.delta, 4 * norm, encoding.dimension, guarantee.rounds, 2 * levels
    )
    return NoisySums("curator", levels, 1, found.noise, found.stride)


@lru_cache(maxsize=64)
def _least_vectors(
    epsilon: float, delta: float, squared: int, coordinates: int, rounds: int, shown: int
) -> DiscreteGaussianAccountant:
    return least_discrete_gaussian(
        epsilon, delta, squared_shift=squared, coordinates=coordinates, rounds=rounds, shown_shift=shown
    )


# ---- Sums to means with error bars (docs/accuracy.md).


def _reach(mechanism: NoisySums, weights: Floats, further_variance: float, tail: float) -> float:
    """How far a weighted sum of coordinates' noise, and what else varies, lies from its mean with this chance at most.

    In levels. Tables are taken as they are, and the uniform numbers below a step as if they were normal: their tails
    are shorter.
    """
    step = mechanism.step
    uniform = float(weights @ weights) * (step**2 - 1) / 12
    parts = [
        Draws(table, 1, weights * step * factor)
        for factor, table in zip((1, mechanism.stride), mechanism.noise, strict=False)
    ]
    return weighted_reach(parts, uniform + further_variance, tail)


@dataclass(frozen=True, eq=False)
class NoisySumsMeans:
    """The mean of each coordinate, in the unit interval; `mixes` says that errors of coordinates must add up."""

    mechanism: NoisySums
    sums: Floats
    users: int
    mixes: bool

    @cached_property
    def mean(self) -> Floats:
        """Sums over users and levels."""
        mean: Floats = self.sums / (float(self.users) * self.mechanism.levels)
        return mean

    @property
    def report_counts(self) -> CountTable:
        """Everybody is in every sum."""
        return np.full(len(self.sums), self.users, dtype=np.int64)

    @property
    def _unit(self) -> float:
        return float(self.users) * self.mechanism.levels

    @property
    def _off(self) -> float:
        """By how much rounding to the nearest level may move a mean."""
        return 1 / (2 * self.mechanism.levels)

    def variance(self, target: Target) -> Floats:
        """The squared standard error: noise as it is; of a population, its own variance at its worst."""
        noise = self.mechanism.noise_variance / self._unit**2 + self._off**2
        return noise + self._sampling(target)

    def interval(self, tail: float, target: Target) -> tuple[Floats, Floats]:
        """Quantiles of the noise; of a population, of the noise and users who are drawn from it."""
        sampling = self._sampling(target) * self._unit**2
        one = np.ones(1)
        if target == "users":
            off = np.full(len(self.sums), _reach(self.mechanism, one, 0.0, tail))
        else:  # between a few of them it is nearly linear in the deviation
            deviations = np.sqrt(sampling)
            points = np.unique(np.linspace(deviations.min(), deviations.max(), _POINTS))
            off = np.interp(deviations, points, [_reach(self.mechanism, one, float(x) ** 2, tail) for x in points])
        reach = off / self._unit + self._off
        return self.mean - reach, self.mean + reach

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """Noise is independent from coordinate to coordinate.

        How a population's coordinates vary together no sum shows: as if they did so fully, at the worst.
        """
        sizes = np.abs(weights)
        sampled = 0.0 if target == "users" else float(sizes @ np.sqrt(self._sampling(target, mixed=False))) ** 2
        variance = float(weights @ weights) * self.mechanism.noise_variance / self._unit**2 + sampled
        value, rounded = float(weights @ self.mean), float(sizes.sum()) * self._off
        off = _reach(self.mechanism, weights, sampled * self._unit**2, tail) / self._unit + rounded
        return Combined(value, variance + rounded**2, value - off, value + off)

    def _sampling(self, target: Target, *, mixed: bool = True) -> Floats:
        """Of a population the variance m (1 - m)/users at most for a mean m, the worst of those within reach."""
        check_choice("target", target, ("users", "population"))
        if target == "users":
            return np.zeros(len(self.sums))
        if self.mixes and mixed:
            raise ParameterError(
                "impossible-combination",
                "target='population' is not possible for a Span under 'noisy-sums': its coefficients vary together "
                "from user to user, which sums do not show; use target='users', or plan with coordinates=1",
            )
        near = 2 * math.sqrt(self.mechanism.noise_variance / self._unit**2 + 1 / (4 * self.users))
        nearest = np.clip(0.5, self.mean - near, self.mean + near)
        found: Floats = np.maximum(nearest * (1 - nearest), 0) / self.users
        return found


_POINTS = 17


@dataclass(frozen=True, eq=False)
class NoisyVectorMeans:
    """Means of vectors of a bounded norm, in units of the clipping norm; errors are alike in all directions."""

    mechanism: NoisySums
    encoding: Residues
    sums: Floats
    users: int

    @cached_property
    def mean(self) -> Floats:
        """One for each entry, unbiased but for vectors that are drawn again; it can leave the ball."""
        mean: Floats = self.sums / self._unit
        return mean

    @property
    def report_counts(self) -> CountTable:
        """Everybody is in every sum."""
        return np.full(len(self.sums), self.users, dtype=np.int64)

    @property
    def _unit(self) -> float:
        return float(self.users) * self.mechanism.levels

    @property
    def noise(self) -> float:
        """The variance of an entry: noise, and rounding at its worst."""
        return (self.mechanism.noise_variance + self.users / 4) / self._unit**2

    @property
    def bias(self) -> float:
        """What drawing again adds to the squared error of all entries together, at most."""
        return self.mechanism.bias(self.encoding)

    def deviation(self, target: Target) -> float:
        """The standard error in any direction of length 1; users of a population may differ as the ball allows."""
        check_choice("target", target, ("users", "population"))
        sampling = 0.0 if target == "users" else 1.0 / self.users
        return math.sqrt(self.noise + self.bias / len(self.sums) + sampling)

    def variance(self, target: Target) -> Floats:
        """The squared standard errors, the same for all entries."""
        return np.full(len(self.sums), self.deviation(target) ** 2)

    def reach(self, tail: float, target: Target) -> float:
        """How far an entry is off with probability `tail` at most, on either side."""
        return self._reach(np.ones(1), tail, target)

    def interval(self, tail: float, target: Target) -> tuple[Floats, Floats]:
        """Quantiles of the noise, as if all else were normal."""
        off = self.reach(tail, target)
        return self.mean - off, self.mean + off

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """Noise is independent from entry to entry, and so are the coins that round."""
        length, value = float(np.linalg.norm(weights)), float(weights @ self.mean)
        off = self._reach(weights, tail, target)
        return Combined(value, length**2 * self.deviation(target) ** 2, value - off, value + off)

    def _reach(self, weights: Floats, tail: float, target: Target) -> float:
        length = float(np.linalg.norm(weights))
        others = self.deviation(target) ** 2 * self._unit**2 - self.mechanism.noise_variance
        return _reach(self.mechanism, weights, length**2 * others, tail) / self._unit
