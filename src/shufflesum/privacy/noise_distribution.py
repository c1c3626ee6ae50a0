"""Noise that is drawn once for each cell of a table: its distribution, its accountant, and how little is enough.

A `NoiseDistribution` is a table of integer weights, symmetric around its middle. Adjacent data sets shift some cells by
one, up or down. Because the table is symmetric, N + 1 against N and N against N + 1 are mirror images of one another,
so only the number of shifted cells counts, neither their directions nor the data of others nor the number of users
(docs/privacy-noise.md, Theorem N1). What is accounted is the table of integers itself, not the formula it comes from;
that formula is log-concave, so that of several shifts the largest is the worst (docs/privacy-sums.md, Theorem S1).
"""

from __future__ import annotations

import decimal
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_number, check_size, shown
from shufflesum._search import bracket
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.accountant import PrivacyAccountant
from shufflesum.privacy.engine import composition
from shufflesum.privacy.engine.gaussian import gaussian_noise
from shufflesum.privacy.engine.laws import ROUNDING, Floats
from shufflesum.privacy.engine.pld import ULP, PrivacyLossDistribution, grid_of_atoms

WEIGHT_BITS = 128  # all weights of a distribution add up to 2**128
MAX_HALF_LENGTH = 1 << 17  # tables are listed outcome by outcome
# Every operation below is correctly rounded by the standard of decimal arithmetic: the same digits on every machine.
_DECIMAL = decimal.Context(
    prec=60, rounding=decimal.ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999, capitals=1, clamp=0, flags=[], traps=[]
)


@dataclass(frozen=True, slots=True)
class NoiseDistribution:
    """Noise on 0..2L, symmetric around L: p(k) is as good as proportional to exp(-|(k - L)/scale|**shape).

    L is `half_length`. A shape of 1 is discrete Laplace, 2 is discrete Gaussian noise, cut off at both ends. The
    weights are whole numbers that add up to 2**128; draws and the accountant use exactly these.
    """

    shape: float
    scale: float
    half_length: int

    def __post_init__(self) -> None:
        """Refuse what is no such table, or one whose last weight is below 2**-128."""
        check_number("shape", self.shape)
        check_number("scale", self.scale)
        check_size("half_length", self.half_length, 1, MAX_HALF_LENGTH)
        if not 1.0 <= self.shape <= 2.0:
            raise ParameterError("out-of-range", f"shape is {self.shape}; it must lie between 1 and 2")
        if not 0.0 < self.scale <= sys.float_info.max:
            raise ParameterError("out-of-range", f"scale is {self.scale}; it must be positive and finite")
        for name, number in (("shape", float), ("scale", float), ("half_length", int)):  # Python's own, for JSON
            object.__setattr__(self, name, number(getattr(self, name)))
        if self.half_weights[-1] < 1:
            raise ParameterError(
                "out-of-range",
                f"half_length is {self.half_length}, where noise of scale {self.scale} has a probability below "
                f"2**-{WEIGHT_BITS}; lower half_length or raise scale",
            )

    @property
    def half_weights(self) -> tuple[int, ...]:
        """The weights of L, L + 1, ..., 2L; those of L - 1, ..., 0 are the same."""
        return _half_weights(self.shape, self.scale, self.half_length)

    @property
    def weights(self) -> tuple[int, ...]:
        """The weights of 0..2L, which add up to 2**128."""
        return (*self.half_weights[:0:-1], *self.half_weights)

    @property
    def exact_variance(self) -> Fraction:
        """The variance of one draw."""
        squares = sum(distance**2 * weight for distance, weight in enumerate(self.half_weights))
        return Fraction(2 * squares, 1 << WEIGHT_BITS)

    @property
    def variance(self) -> float:
        """The variance of one draw, rounded once."""
        return float(self.exact_variance)

    @property
    def thresholds(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Upper and lower 64 bits of the weights of 0, of 0..1, ..., of 0..2L-1 together.

        A uniform number of 128 bits is the outcome that says how many thresholds it reaches.
        """
        return _thresholds(self)


@lru_cache(maxsize=32)
def _half_weights(shape: float, scale: float, half_length: int) -> tuple[int, ...]:
    """Weights rounded down, all but the middle one, which gets the rest: an exact total, an exact symmetry.

    Logarithms, products, sums, quotients and exponentials are correctly rounded to 60 digits each, so the weights are
    the same wherever they are computed.
    """
    exact = _DECIMAL
    unit = exact.exp(exact.minus(exact.multiply(decimal.Decimal(shape), exact.ln(decimal.Decimal(scale)))))
    densities = [exact.exp(exact.minus(exact.multiply(unit, power))) for power in _powers(shape, half_length)]
    total = decimal.Decimal(0)
    for density in reversed(densities):
        total = exact.add(total, density)
    total = exact.add(exact.multiply(decimal.Decimal(2), total), decimal.Decimal(1))
    unit = exact.divide(decimal.Decimal(1 << WEIGHT_BITS), total)
    weights = [int(exact.multiply(unit, density)) for density in densities]
    return ((1 << WEIGHT_BITS) - 2 * sum(weights), *weights)


def _powers(shape: float, last: int) -> list[decimal.Decimal]:
    """The distances 1..last to the power of `shape`; only those of primes take logarithms, which cost most."""
    if shape.is_integer():
        return [decimal.Decimal(distance ** int(shape)) for distance in range(1, last + 1)]
    factors = np.arange(last + 1)  # the least prime factor of each number
    for factor in range(2, math.isqrt(last) + 1):
        np.minimum(factors[factor**2 :: factor], factor, out=factors[factor**2 :: factor])
    powers = [decimal.Decimal(0), decimal.Decimal(1)]
    for distance, factor in enumerate(factors[2:].tolist(), start=2):
        if factor == distance:
            logarithm = _DECIMAL.ln(decimal.Decimal(distance))
            powers.append(_DECIMAL.exp(_DECIMAL.multiply(decimal.Decimal(shape), logarithm)))
        else:
            powers.append(_DECIMAL.multiply(powers[factor], powers[distance // factor]))
    return powers[1:]


@lru_cache(maxsize=8)
def _thresholds(distribution: NoiseDistribution) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    sums = list(accumulate(distribution.weights[:-1]))
    halves = (np.array(part, dtype=np.uint64) for part in zip(*(divmod(t, 1 << 64) for t in sums), strict=True))
    upper, lower = (np.frombuffer(half.tobytes(), dtype=np.uint64) for half in halves)  # nobody can make it writeable
    return upper, lower


# ---------------------------------------------------------------------------------------------------------------------
# One cell that is shifted by h, as a factor of a composition: N + h against N. For counts h is 1.
#
# The outcome L + j has the loss log(p_(j-h)/p_j), for p_j the probability of a draw at distance |j|. It is at least 0
# for j >= h/2, and those below h/2 are mirror images; j = h/2 is its own. Outcomes from 2L + 1 on give themselves away:
# p_(L-h+1) + ... + p_L is mass at infinite loss. The outcomes below h are their mirror images.

_NODES = 20  # of `composition`, per deviation that a factor states
_BELOW_NODES = 40  # of the lower bounds' grids per deviation: cheap, because outcomes are listed
_LEAST_SPREAD = 2.0**-20  # of losses, for grids: on finer ones rounding errors would weigh more than losses
_FINER = 8.0  # times as many where copies are few: sums of few losses are not smooth


@dataclass(frozen=True, slots=True, eq=False)
class _ShiftedCells:
    """So many cells with noise of the probabilities p_0, ..., p_L, each correct to a rounding, shifted by `shift`."""

    half: Floats
    copies: int
    shift: int = 1

    @property
    def _outcomes(self) -> tuple[Floats, Floats]:
        """The probabilities of the outcomes from the middle up, shifted and not; of the middle itself half of them."""
        at = np.arange((self.shift + 1) // 2, len(self.half))
        shifted, still = self.half[np.abs(at - self.shift)], self.half[at]
        if self.shift % 2 == 0:
            shifted[0], still[0] = shifted[0] / 2, still[0] / 2
        return shifted, still

    @property
    def _given_away(self) -> float:
        """The mass at infinite loss; relative errors are below `shift` + 2 units in the last place."""
        return float(np.sum(self.half[len(self.half) - self.shift :]))

    @property
    def losses(self) -> Floats:
        """The losses of the outcomes from the middle up; absolute errors are below 8 roundings of 1 + loss.

        If one were negative its mirror image below the middle would not be, and is taken instead.
        """
        shifted, still = self._outcomes
        losses: Floats = np.abs(np.log(shifted / still))
        return losses

    @property
    def deviation(self) -> float:
        """About that of one loss, or less, and `_NODES` times a step of which the least loss is a multiple.

        Losses of discrete Laplace noise beyond the shift are all the same, those of discrete Gaussian noise odd
        multiples of the least where cells are shifted by one. On nodes of the grid they stay what they are.
        """
        losses = self.losses
        wanted = self._spread(losses) / _NODES / min(_FINER, max(1.0, 64.0 / self.copies))
        least = float(losses[0] if self.shift == 1 else losses[-1])
        if least < _LEAST_SPREAD / 2.0**20:
            return wanted * _NODES
        return _NODES * least * 2.0 ** math.floor(math.log2(wanted / least))

    @property
    def highest(self) -> float:
        """No finite loss is larger."""
        return float(self.losses.max()) * (1.0 + 1e-12) + 1e-12

    @property
    def reach(self) -> float:
        """How far out losses are listed."""
        return self.highest

    def pld(self, step: float, reach: float) -> PrivacyLossDistribution:
        """A symmetric pair on the grid that dominates one cell.

        An outcome of loss x between nodes x0 and x1 gives them sinh((x1 - x)/2) and sinh((x - x0)/2) of its symmetrised
        mass, over sinh(step/2): P and Q stay, and merging undoes it. x is known up to an error: every node that the
        true x might be next to gets as much as it might get, so this dominates with P and Q swapped too.
        """
        losses = self.losses
        shifted, still = self._outcomes
        masses = np.sqrt(shifted * still)
        doubt = 16.0 * ROUNDING * (1.0 + losses) / math.tanh(min(step, 1.0) / 2)
        nodes = np.floor(losses / step)
        beyond = np.clip(losses - nodes * step, 0.0, step)
        # sinh(a)/sinh(b) for a <= b, without large exponentials
        above, below = (
            np.exp((part - step) / 2) * np.expm1(-part) / math.expm1(-step) for part in (beyond, step - beyond)
        )
        shares = {-1: doubt, 0: below + doubt, 1: above + doubt, 2: doubt}
        middle = int(nodes.max()) + 3  # the lowest node may be -1
        positions = nodes.astype(np.int64) + middle
        one_side = np.zeros(2 * middle + 1)
        for offset, share in shares.items():
            one_side += np.bincount(positions + offset, weights=masses * share, minlength=one_side.size)
        error = ULP * (64 + 4 * int(np.bincount(positions).max()))  # a node is a sum of so many
        return PrivacyLossDistribution(
            step,
            -middle,
            one_side + one_side[::-1],
            min(1.0, self._given_away * (1.0 + (3.0 + self.shift) * ULP)),
            error,
        )

    def pld_below(self, step: float) -> PrivacyLossDistribution:
        """A pair on the grid that one cell dominates."""
        p = np.concatenate([self.half[:0:-1], self.half])
        pair = grid_of_atoms(p[: -self.shift], p[self.shift :], step, 16.0 * ULP)
        return replace(pair, infinity_mass=self._given_away * (1.0 - (3.0 + self.shift) * ULP))

    def step_below(self, nodes: float) -> float:
        """A step of the lower bounds' grid with about so many nodes per deviation."""
        aligned = self.deviation / _NODES
        return aligned * 2.0 ** round(math.log2(self._spread(self.losses) / nodes / aligned))

    def _spread(self, losses: Floats) -> float:
        """The root mean square of the finite losses."""
        return max(math.sqrt(float(np.dot(losses**2, np.add(*self._outcomes)))), _LEAST_SPREAD)


def half_law(distribution: NoiseDistribution) -> Floats:
    """The probabilities p_0, ..., p_L, each rounded once."""
    return np.array([math.ldexp(float(weight), -WEIGHT_BITS) for weight in distribution.half_weights])


@dataclass(frozen=True, slots=True)
class NoiseDistributionAccountant(PrivacyAccountant):
    """Cells of a table that get independent noise each, some of which a user can change by up to `shift`, up or down.

    `changed` says, for each class of cells, their noise and how many of them a user can change at most, in one round.
    It holds for one user among any others: neither their data nor their number matters.
    """

    changed: tuple[tuple[NoiseDistribution, int], ...]
    rounds: int = 1
    shift: int = 1

    def __post_init__(self) -> None:
        """Refuse what changes nothing, and what cannot be certified."""
        check_size("rounds", self.rounds, 1, composition.MOST_COMPOSITIONS)
        try:  # once: an iterator would be empty when it is read again
            changed = [(distribution, cells) for distribution, cells in self.changed]
        except (TypeError, ValueError):
            raise ParameterError(
                "wrong-type", f"changed is {shown(self.changed)}; it must hold pairs: a NoiseDistribution, and how many"
            ) from None
        if not changed:
            raise ParameterError("out-of-range", "changed is empty; name at least one class of cells")
        for distribution, cells in changed:
            if not isinstance(distribution, NoiseDistribution):
                raise ParameterError(
                    "wrong-type", f"changed names {shown(distribution)}; it must be a NoiseDistribution"
                )
            check_size("changed cells", cells, 1, composition.MOST_COMPOSITIONS)
            check_size("shift", self.shift, 1, distribution.half_length)
        # Python's own numbers: products of NumPy's wrap around
        object.__setattr__(self, "rounds", int(self.rounds))
        object.__setattr__(self, "shift", int(self.shift))
        object.__setattr__(self, "changed", tuple((noise, int(cells)) for noise, cells in changed))
        copies = self.rounds * sum(cells for _, cells in self.changed)
        if copies > composition.MOST_COMPOSITIONS:
            raise PrivacyError(
                "not-certified",
                f"changed cells x rounds = {copies}: up to {composition.MOST_COMPOSITIONS} can be certified; lower the "
                "number of cells that a user can change, or rounds",
            )

    def delta_upper(self, epsilon: float) -> float:
        """Return a delta for which all rounds together are certainly (epsilon, delta)-private."""
        return _upper(self).delta(epsilon)

    def delta_lower(self, epsilon: float) -> float:
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some adjacent data sets."""
        return _lower(self).delta(epsilon)

    def epsilon_upper(self, delta: float) -> float:
        """Return an epsilon for which all rounds together are certainly (epsilon, delta)-private; may be infinite."""
        return _upper(self).epsilon(delta)

    def epsilon_lower(self, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        return _lower(self).epsilon(delta)

    def pld(self, interval: float) -> PrivacyLossDistribution:
        """A symmetric PLD, on a grid of `interval` x a power of two, that dominates all rounds."""
        return self._charged(composition.compose_profiles(self._cells(), interval=interval).pld)

    def _cells(self) -> list[_ShiftedCells]:
        return [
            _ShiftedCells(half_law(distribution), cells * self.rounds, self.shift)
            for distribution, cells in self.changed
        ]

    def _charged(self, pld: PrivacyLossDistribution) -> PrivacyLossDistribution:
        """With what shifts below the largest may show beyond it, because weights are rounded (Theorem S1).

        That is 2 (1 + w) times the distance of all cells from the exact formula; above `_LARGEST_CHARGED` the profile
        is taken as it is there. Counts, shifted by one, are charged nothing.
        """
        if self.shift == 1:
            return pld
        apart = sum(rounded_apart(distribution) * cells * self.rounds for distribution, cells in self.changed)
        charge = 2.0 * (1.0 + math.exp(_LARGEST_CHARGED)) * apart
        beyond = pld.delta_upper(_LARGEST_CHARGED) - pld.infinity_mass
        return replace(pld, infinity_mass=min(1.0, pld.infinity_mass + (charge + max(0.0, beyond)) * (1.0 + 8.0 * ULP)))


_LARGEST_CHARGED = 40.0


def rounded_apart(distribution: NoiseDistribution) -> float:
    """How far, in total variation, a table is from its formula at most: weights are rounded down to whole ones.

    All but the middle one lose less than 1 (and 60 digits are more than enough), the middle one gains what they lose:
    less than 2L in all, of 2**128. It is doubled for the digits.
    """
    return math.ldexp(2.0 * distribution.half_length + 1.0, 1 - WEIGHT_BITS)


@lru_cache(maxsize=256)
def _upper(accountant: NoiseDistributionAccountant) -> composition.ComposedUpper:
    composed = composition.compose_profiles(accountant._cells())
    return composition.ComposedUpper(accountant._charged(composed.pld))


@lru_cache(maxsize=256)
def _lower(accountant: NoiseDistributionAccountant) -> composition.ComposedLower:
    """What a user shows who changes as many cells as possible, all of them up."""
    classes = accountant._cells()

    def seen(nodes: float) -> list[composition.Copies]:
        wanted = [cells.step_below(nodes) for cells in classes]
        steps = [min(wanted) * 2.0 ** math.floor(math.log2(step / min(wanted))) for step in wanted]
        return [(cells.pld_below(step), cells.copies) for cells, step in zip(classes, steps, strict=True)]

    # a finer grid keeps more outcomes apart, but often merges worse; the best counts
    return composition.compose_pairs([seen(_BELOW_NODES), seen(_BELOW_NODES * _FINER)])


# ---------------------------------------------------------------------------------------------------------------------
# How little noise is enough: a search over shape, scale and length, verified in the end.
#
# At a fixed length more noise can be worse, because the ends get heavier. So the length follows from the scale: ends
# that give themselves away get a fixed share of delta. Then delta falls with the scale.

_SHAPES = 40  # steps between shapes 1 and 2 that are looked at
_END_SHARE = 1.0 / 400.0  # of delta, for the ends of all changed cells together: it costs 0.03 % of the variance
_LAPLACE_END_SHARE = 0.25  # all other losses lie at epsilon or below it, and need nothing of delta
_STEEPEST = 60.0  # the least loss is no larger, so that weights stay far above 2**-128
_TOLERANCE = 1e-5  # of the scale
_MOST_TRIES = 64
_FEW = 50  # changed cells: with more, shape 1 is never the best
_MANY = 4000  # changed cells: with more, shape 2 is the best


def least_noise(
    epsilon: float, delta: float, *, changed_cells: int, rounds: int = 1, shift: int = 1
) -> NoiseDistribution:
    """Find noise of about the least variance such that changing so many cells, in all rounds, is (epsilon, delta)-DP.

    Each of them changes by up to `shift`. The distribution is verified as it stands: its accountant's
    `delta_upper(epsilon)` is at most delta. Its variance is within a few hundredths of a percent of the least in this
    family.
    """
    (found,) = least_noises(epsilon, delta, changed=((changed_cells, 1.0),), rounds=rounds, shift=shift)
    return found


def least_noises(
    epsilon: float, delta: float, *, changed: Sequence[tuple[int, float]], rounds: int = 1, shift: int = 1
) -> tuple[NoiseDistribution, ...]:
    """The same for classes of cells: how many of each can change, and the ratios that variances are to have.

    All have one shape. Variances keep the ratios but for what is rounded to whole numbers where noise is small.
    """
    check_size("rounds", rounds, 1, composition.MOST_COMPOSITIONS)
    check_number("epsilon", epsilon)
    check_number("delta", delta)
    copies = 0
    for cells, ratio in changed:
        check_size("changed_cells", cells, 1, composition.MOST_COMPOSITIONS)
        check_number("ratio of variances", ratio, above=0, below=math.inf)
        copies += int(cells) * int(rounds)
    check_size("changed_cells x rounds", copies, 1, composition.MOST_COMPOSITIONS)
    if composition.check_epsilon(epsilon) == 0.0:
        raise PrivacyError("out-of-range", "epsilon = 0: a target must be positive; raise epsilon")
    composition.check_delta(delta)
    check_size("shift", shift, 1, MAX_HALF_LENGTH)
    classes = tuple(_Class(int(cells) * int(rounds), math.sqrt(ratio)) for cells, ratio in changed)
    search = _Search(float(epsilon), float(delta), classes, int(shift))
    if search.guess * max(each.size for each in classes) ** 2 > (4.0 * MAX_HALF_LENGTH) ** 2:
        raise _too_long(epsilon)  # far too much: there is nothing to look for
    best = min(map(search.best_of_shape, search.shapes()), key=lambda found: found.variance)
    if not math.isfinite(best.variance):
        raise _too_long(epsilon)
    scale = best.scale
    for _ in range(_MOST_TRIES):
        found = search.distributions(best.shape, scale)
        pairs = tuple((noise, cells) for noise, (cells, _) in zip(found, changed, strict=True))
        if NoiseDistributionAccountant(pairs, rounds, shift).delta_upper(epsilon) <= delta:
            return found
        scale *= 1.0 + _TOLERANCE
    raise PrivacyError(
        "not-certified",
        f"no noise for {copies // rounds} changed cells was certified at epsilon = {epsilon}, delta = {delta}; raise "
        "either of them",
    )


def _too_long(epsilon: float) -> PrivacyError:
    return PrivacyError(
        "privacy-out-of-reach",
        f"epsilon = {epsilon} would take noise of more than {MAX_HALF_LENGTH:,} either way; raise epsilon or delta, or "
        "lower the number of cells that a user can change, or rounds",
    )


@dataclass(frozen=True, slots=True)
class _Found:
    shape: float
    scale: float
    variance: float


class _Class(NamedTuple):
    """So many cells, in all rounds, whose noise has `size` times the scale that is looked for."""

    copies: int
    size: float


class _Search:
    """The least scale of each shape, with probabilities in floating point: nothing here is certified."""

    def __init__(self, epsilon: float, delta: float, classes: tuple[_Class, ...], shift: int) -> None:
        self._epsilon, self._delta, self._classes, self._shift = epsilon, delta, classes, shift
        laplace = sum(each.copies / each.size for each in classes) / epsilon
        normal = sum(each.copies / each.size**2 for each in classes) * gaussian_noise(epsilon, delta) ** 2
        self.guess = shift**2 * min(normal, 2.0 * laplace * laplace)  # of the variance at size 1; may be infinite
        self._found: dict[int, _Found] = {}

    def best_of_shape(self, number: int) -> _Found:
        """The least scale of the shape 1 + number/_SHAPES; an infinite variance where none is short enough."""
        if number not in self._found:
            self._found[number] = self._least(1.0 + number / _SHAPES)
        return self._found[number]

    def shapes(self) -> Iterator[int]:
        """Those among which the best is looked for: discrete Laplace noise where few cells change, and another one.

        The other one is the best for as many equal cells as reveal as much, which is quicker to find.
        """
        shares = [each.copies / each.size**2 for each in self._classes]
        squares = [each.copies / each.size**4 for each in self._classes]
        alike = round(sum(shares) ** 2 / sum(squares))
        if alike > _MANY:
            yield _SHAPES
            return
        if alike <= _FEW:
            yield 0
        like = (
            self if len(self._classes) == 1 else _Search(self._epsilon, self._delta, (_Class(alike, 1.0),), self._shift)
        )
        yield _best_shape(like)

    def distributions(self, shape: float, scale: float) -> tuple[NoiseDistribution, ...]:
        """Those of all classes, as they are drawn."""
        sized = ((self._scale(shape, scale, each), each) for each in self._classes)
        return tuple(NoiseDistribution(shape, own, self._length(shape, own, each)) for own, each in sized)

    def _scale(self, shape: float, scale: float, one: _Class) -> float:
        return float(max(scale * one.size, _STEEPEST ** (-1.0 / shape)))

    def _length(self, shape: float, scale: float, one: _Class) -> int:
        """The least half-length at which the ends of all copies surely have their share of delta: `shift` on a side."""
        share = (_LAPLACE_END_SHARE if shape == 1.0 else _END_SHARE) / len(self._classes)
        total = float(_density(shape, scale, math.ceil(scale * 60.0 ** (1.0 / shape)) + 1).sum() * 2.0 - 1.0)
        height = math.log(one.copies * self._shift / (share * self._delta * total))
        return max(self._shift, self._shift - 1 + math.ceil(scale * math.pow(max(height, 0.0), 1.0 / shape)))

    def _least(self, shape: float) -> _Found:
        sizes = [each.size for each in self._classes]
        lowest = _STEEPEST ** (-1.0 / shape) / max(sizes)
        # a generalised normal distribution has the variance scale**2 Gamma(3/shape)/Gamma(1/shape)
        unit = math.gamma(3.0 / shape) / math.gamma(1.0 / shape)
        _, scale = bracket(
            lambda scale: self._delta_at(shape, max(scale, lowest)),
            self._delta,
            guess=max(math.sqrt(self.guess / unit), lowest),
            highest=MAX_HALF_LENGTH / 2.0 / max(sizes),
            tolerance=_TOLERANCE,
            first_factor=1.01,
        )
        if not math.isfinite(scale):
            return _Found(shape, scale, math.inf)
        scale = max(scale, lowest)
        halves = self._halves(shape, scale)
        if max(half.size for half in halves) > MAX_HALF_LENGTH + 1:
            return _Found(shape, scale, math.inf)
        variances = [2.0 * float(np.dot(np.arange(half.size, dtype=np.float64) ** 2, half)) for half in halves]
        variance = sum(found / size**2 for found, size in zip(variances, sizes, strict=True)) / len(sizes)
        self.guess = variance
        return _Found(shape, scale, variance)

    def _halves(self, shape: float, scale: float) -> list[Floats]:
        found = []
        for each in self._classes:
            own = self._scale(shape, scale, each)
            density = _density(shape, own, self._length(shape, own, each))
            found.append(density / (2.0 * float(density.sum()) - 1.0))
        return found

    def _delta_at(self, shape: float, scale: float) -> float:
        if any(
            self._length(shape, self._scale(shape, scale, each), each) > 2 * MAX_HALF_LENGTH for each in self._classes
        ):
            return 0.0  # longer than any table: enclosed, and refused afterwards
        halves = self._halves(shape, scale)
        cells = [
            _ShiftedCells(half, each.copies, self._shift) for half, each in zip(halves, self._classes, strict=True)
        ]
        return composition.compose_profiles(cells).delta(self._epsilon)


def _density(shape: float, scale: float, half_length: int) -> Floats:
    density: Floats = np.exp(-((np.arange(half_length + 1, dtype=np.float64) / scale) ** shape))
    return density


def _best_shape(search: _Search) -> int:
    """The best shape among all but the first, by a ternary search over whole numbers, as if variance had one minimum.

    Discrete Laplace noise, the first, is a minimum of its own where few cells change.
    """
    low, high = 1, _SHAPES
    while high - low > 2:
        third = max(1, (high - low) // 3)
        left, right = low + third, high - third
        if search.best_of_shape(left).variance <= search.best_of_shape(right).variance:
            high = right
        else:
            low = left
    return min(range(low, high + 1), key=lambda number: search.best_of_shape(number).variance)
