"""Sums of integer vectors with discrete Gaussian noise in every coordinate: the accountant, and how little is enough.

Replacing a user shifts the sum by an integer vector of bounded Euclidean norm, in every round. Discrete Gaussian noise,
shifted by a whole number, is within a factor e^(+-kappa) of what can be made of a shifted continuous Gaussian, whatever
the shift is, with nearly the same variance (docs/privacy-sums.md, Theorem S2). So nothing is composed: what counts is
the profile of one Gaussian pair, and small charges for tails that are cut off and weights that are rounded.

Noise of a large deviation is drawn from two short tables: N1 + stride N2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from shufflesum._checks import check_number, check_size
from shufflesum._search import bisect
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.accountant import PrivacyAccountant
from shufflesum.privacy.engine import composition
from shufflesum.privacy.engine.gaussian import gaussian_noise, gaussian_profile_upper
from shufflesum.privacy.engine.laws import Floats
from shufflesum.privacy.engine.pld import ULP, PrivacyLossDistribution, grid_of_atoms
from shufflesum.privacy.noise_distribution import (
    MAX_HALF_LENGTH,
    WEIGHT_BITS,
    NoiseDistribution,
    half_law,
    rounded_apart,
)

MOST_COORDINATES = 10**12  # of all rounds
MOST_SHIFT = 2.0**40
_ROUNDED_UP = 1.0 + 1e-12  # covers the roundings of a few operations
_SPARE_VARIANCES = (0.5, 0.75, 1.0, 1.5)  # what the continuous Gaussian may be narrower by; the best counts
_TERMS = 6  # of series whose terms fall faster than 1/1000 each
_NODES = 40  # of the lower bounds' grids, per deviation of one loss
_LEAST_SPREAD = 2.0**-20
_NEXT_TO_IMPOSSIBLE = 1e-17
_FAR = 16.0  # root mean squares of losses


@dataclass(frozen=True, slots=True)
class DiscreteGaussianAccountant(PrivacyAccountant):
    """Integer vectors of so many `coordinates`, summed, with independent noise N1 + stride N2 in each coordinate.

    A user can shift the sum of a round by a vector of squared norm `squared_shift` at most. `noise` is one or two
    distributions of shape 2. For lower bounds, some neighbours differ by `shown_shift` in each of `shown_coordinates`.
    """

    noise: tuple[NoiseDistribution, ...]
    stride: int
    squared_shift: int
    coordinates: int
    rounds: int = 1
    shown_shift: int = 1
    shown_coordinates: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no discrete Gaussian noise, and what cannot be certified."""
        check_noise(self.noise, self.stride)
        if any(table.shape != 2.0 for table in self.noise):
            raise ParameterError("out-of-range", "noise has a shape other than 2; this is for discrete Gaussian noise")
        check_size("squared_shift", self.squared_shift, 1, int(MOST_SHIFT**2))
        check_size("rounds", self.rounds, 1, composition.MOST_COMPOSITIONS)
        check_size("coordinates", self.coordinates, 1, MOST_COORDINATES // self.rounds)
        check_size("shown_coordinates", self.shown_coordinates, 1, self.coordinates)
        if self.shown_shift**2 * self.shown_coordinates > self.squared_shift:
            raise ParameterError("conflicting-arguments", "what is shown is more than the largest shift")

    @property
    def variance(self) -> float:
        """sigma^2 of the discrete Gaussian whose place N1 + stride N2 takes."""
        first, *second = (0.5 * table.scale**2 for table in self.noise)
        return first + sum(self.stride**2 * square for square in second)

    def delta_upper(self, epsilon: float) -> float:
        """Return a delta for which all rounds together are certainly (epsilon, delta)-private."""
        return float(_profile(self, np.array([min(composition.check_epsilon(epsilon), _least(self)[0])]))[0])

    def delta_lower(self, epsilon: float) -> float:
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some adjacent data sets."""
        return _lower(self).delta(epsilon)

    def epsilon_upper(self, delta: float) -> float:
        """Return an epsilon for which all rounds together are certainly (epsilon, delta)-private; may be infinite."""
        delta, highest = composition.check_delta(delta), _least(self)[0]
        return bisect(lambda epsilon: self.delta_upper(epsilon) <= delta, 0.0, highest, tolerance=1e-12)[1]

    def epsilon_lower(self, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        return _lower(self).epsilon(delta)

    def pld(self, interval: float) -> PrivacyLossDistribution:
        """A symmetric PLD, on a grid of `interval` x a power of two, that dominates all rounds."""
        return composition.compose_profiles([_factor(self)], interval=interval).pld


def check_noise(noise: tuple[NoiseDistribution, ...], stride: int) -> None:
    """Refuse anything but one distribution, or two and how far outcomes of the second lie apart."""
    if not isinstance(noise, tuple) or len(noise) not in (1, 2):
        raise ParameterError("wrong-type", "noise must be one or two noise distributions, in a tuple")
    if not all(isinstance(table, NoiseDistribution) for table in noise):
        raise ParameterError("wrong-type", "noise names something else than noise distributions")
    check_size("stride", stride, 1, 1 << 31)
    if len(noise) == 1 and stride != 1:
        raise ParameterError("conflicting-arguments", f"stride is {stride}, but there is one noise distribution; use 1")


# ---------------------------------------------------------------------------------------------------------------------
# From above (Theorem S2). With m = coordinates x rounds, sigma^2 = s1^2 + s2^2, w = e^epsilon and mu = shift
# sqrt(rounds)/s1:
#
#     delta <= e^K G_mu(w e^(-2K)) + (1 + w) m apart,    K = m (kappa + kappa of two tables),
#
# with `apart` the distance of tables from their formulas without ends.


def _series(squared_deviation: float) -> float:
    """2 sum over k >= 1 of exp(-2 pi^2 s^2 k^2), rounded up."""
    exponent = 2.0 * math.pi**2 * squared_deviation * (1.0 - 1e-12)
    terms = [math.exp(-exponent * k * k) for k in range(1, _TERMS + 1)]
    return (2.0 * sum(terms) + 4.0 * terms[-1]) * _ROUNDED_UP + 1e-300


def domination(variance: float, spare: float) -> float:
    """The kappa of the lemma of domination: discrete noise of this variance, a Gaussian of `variance - spare`."""
    narrower = (variance - spare) * spare / variance
    each, whole = _series(spare), _series(variance)
    if each >= 0.5 or whole >= 0.5:
        return math.inf
    off = (_series(spare + narrower) + each**2 / (1.0 - each)) * _ROUNDED_UP
    return -(math.log1p(-off) + math.log1p(-whole)) * _ROUNDED_UP if off < 0.5 else math.inf


def strided(first: float, second: float, stride: int) -> float:
    """The kappa of two tables: N1 + stride N2 is within e^(+-kappa) of one discrete Gaussian of their variance."""
    off = _series(first * second / (first + stride**2 * second))
    return 2.0 * math.atanh(off) * _ROUNDED_UP if off < 0.5 else math.inf


def _apart(table: NoiseDistribution) -> float:
    """The total variation between a table and the discrete Gaussian on all integers: both tails, and rounding."""
    doubled, beyond = table.scale**2, table.half_length + 1
    falls = -math.expm1(-(2.0 * beyond + 1.0) / doubled)
    height = math.exp(-(beyond**2) / doubled * (1.0 - 1e-14)) / math.sqrt(math.pi * doubled)
    return (2.0 * height / falls + rounded_apart(table)) * _ROUNDED_UP


def _profile(accountant: DiscreteGaussianAccountant, epsilons: Floats) -> Floats:
    """Upper bounds of delta at each epsilon, the least over how the variance is split."""
    variance, coordinates = accountant.variance, accountant.coordinates * accountant.rounds
    kappa = 0.0
    if len(accountant.noise) == 2:
        first, second = (0.5 * table.scale**2 for table in accountant.noise)
        kappa = strided(first, second, accountant.stride)
    with np.errstate(over="ignore"):
        charged = (1.0 + np.exp(epsilons)) * (coordinates * sum(map(_apart, accountant.noise)) * _ROUNDED_UP)
    best = np.ones(len(epsilons))
    for spare in _SPARE_VARIANCES:
        if spare >= variance / 2.0:
            break
        factor = coordinates * (kappa + domination(variance, spare)) * _ROUNDED_UP
        if not factor < 1.0:
            continue
        mu = math.sqrt(accountant.squared_shift * accountant.rounds / (variance - spare)) * _ROUNDED_UP
        shifted = (epsilons - 2.0 * factor) * (1.0 - 4.0 * ULP)
        below = -np.expm1(np.minimum(shifted, 0.0))  # a profile falls by 1 for each unit of w, at most
        gaussian = gaussian_profile_upper(mu, np.maximum(shifted, 0.0)) + below
        best = np.minimum(best, (math.exp(factor) * gaussian + charged) * _ROUNDED_UP)
    return best


@lru_cache(maxsize=256)
def _least(accountant: DiscreteGaussianAccountant) -> tuple[float, float]:
    """Where the bound is least, nearly, and what it is there: charges grow with epsilon, the profile falls.

    Beyond, the profile is at most what it is there.
    """
    mu = math.sqrt(accountant.squared_shift * accountant.rounds / accountant.variance)
    epsilons = np.linspace(0.0, min(690.0, mu * (mu / 2.0 + 40.0)), 4001)
    bounds = _profile(accountant, epsilons)
    where = int(np.argmin(bounds))
    return float(epsilons[where]), float(bounds[where])


def _factor(accountant: DiscreteGaussianAccountant) -> composition.Factor:
    """All rounds, as one profile."""
    highest, limit = _least(accountant)
    mu = math.sqrt(accountant.squared_shift * accountant.rounds / accountant.variance)

    def profile(epsilons: Floats) -> Floats:
        return np.maximum(_profile(accountant, np.minimum(epsilons, highest)), limit)

    return composition.Factor(profile, mu, highest, 1, limit)


# ---------------------------------------------------------------------------------------------------------------------
# From below: neighbours that differ by as much in some coordinates. Of two tables the adversary looks at the quotient
# by the stride only, which is post-processing.


@lru_cache(maxsize=256)
def _lower(accountant: DiscreteGaussianAccountant) -> composition.ComposedLower:
    shift, copies = accountant.shown_shift, accountant.shown_coordinates * accountant.rounds
    shifted, still, given_away = _shown(accountant.noise, accountant.stride, shift)
    if not shifted.size:
        return composition.ComposedLower(
            (replace(composition.pure_noise(), symmetrised=np.zeros(1), infinity_mass=1.0),)
        )
    losses = np.log(shifted / still)
    spread = max(math.sqrt(float(np.dot(losses**2, shifted + still)) / 2.0), _LEAST_SPREAD)
    near = losses < _FAR * spread  # at the ends of tables are a few that would only make the grid long
    finer = _NODES * min(8.0, max(1.0, 64.0 / copies))
    pair = grid_of_atoms(shifted[near], still[near], spread / finer, 128.0 * ULP)
    pair = replace(pair, infinity_mass=given_away * (1.0 - 1e-9))
    return composition.compose_pairs([[(pair, min(copies, composition.MOST_COMPOSITIONS))]])


def _shown(noise: tuple[NoiseDistribution, ...], stride: int, shift: int) -> tuple[Floats, Floats, float]:
    """The chances of outcomes that both worlds can have, and those of one world that the other can not have.

    What is next to impossible is left out: the adversary pays no attention to it.
    """
    laws = [np.concatenate([half[:0:-1], half]) for half in map(half_law, noise)]
    places = np.arange(len(laws[0]))
    size = (int(places[-1]) + shift) // stride + 1
    shifted, still = (
        np.bincount((places + moved) // stride, weights=laws[0], minlength=size).astype(np.float64)
        for moved in (shift, 0)
    )
    if len(laws) == 2:
        shifted, still = np.convolve(shifted, laws[1]), np.convolve(still, laws[1])
    likely = shifted > _NEXT_TO_IMPOSSIBLE
    both = likely & (still > 1e-280)
    return shifted[both], still[both], float(shifted[likely & (still == 0)].sum())


# ---------------------------------------------------------------------------------------------------------------------
# How little noise is enough: nearly the analytic Gaussian, verified in the end.

_CHARGED = 1e-3  # of delta, for the ends of all tables
_SHORT = 1 << 12  # half the length of a table that is drawn from alone
_BETWEEN = 2.0  # deviations of the first of two tables in strides: so much hides what lies between two strides
_TOLERANCE = 1e-5
_MOST_TRIES = 64


def least_discrete_gaussian(
    epsilon: float,
    delta: float,
    *,
    squared_shift: int,
    coordinates: int,
    rounds: int = 1,
    shown_shift: int = 1,
    shown_coordinates: int = 1,
) -> DiscreteGaussianAccountant:
    """Find about the least discrete Gaussian noise with which all rounds are (epsilon, delta)-private.

    It comes in its accountant, whose `delta_upper(epsilon)` was seen to be at most delta.
    """
    check_number("epsilon", epsilon)
    if composition.check_epsilon(epsilon) == 0.0:
        raise PrivacyError("out-of-range", "epsilon = 0: a target must be positive; raise epsilon")
    check_number("delta", delta)
    composition.check_delta(delta)
    wide = math.sqrt(squared_shift * rounds)
    sigma = gaussian_noise(epsilon, delta * (1.0 - _CHARGED)) * wide
    sigma = math.sqrt(sigma**2 + _SPARE_VARIANCES[0])
    chance = _CHARGED * delta / (4.0 * (1.0 + math.exp(min(epsilon, 690.0))) * coordinates * rounds)
    for _ in range(_MOST_TRIES):
        noise, stride = _tables(sigma, chance)
        found = DiscreteGaussianAccountant(
            noise, stride, squared_shift, coordinates, rounds, shown_shift, shown_coordinates
        )
        if found.delta_upper(epsilon) <= delta:
            return found
        sigma = math.sqrt(sigma**2 * (1.0 + _TOLERANCE) + 0.1)
    raise PrivacyError(
        "not-certified",
        f"no noise for {coordinates:,} coordinates in {rounds:,} rounds was certified at epsilon = {epsilon}, "
        f"delta = {delta}; raise either of them",
    )


def _tables(sigma: float, chance: float) -> tuple[tuple[NoiseDistribution, ...], int]:
    """One table of this deviation, or two short ones; each ends where so little is beyond."""
    if sigma * math.sqrt(2.0 * math.log(2.0 / chance)) <= _SHORT:
        return (_table(sigma, chance),), 1
    stride = math.ceil(math.sqrt(sigma / _BETWEEN))
    first = _BETWEEN * stride
    return (_table(first, chance), _table(math.sqrt(sigma**2 - first**2) / stride, chance)), stride


def _table(sigma: float, chance: float) -> NoiseDistribution:
    weight = math.ldexp(4.0 * (sigma + 1.0), -WEIGHT_BITS)  # nothing is listed that has no weight
    half_length = math.ceil(sigma * math.sqrt(2.0 * math.log(2.0 / max(chance, weight))))
    if half_length > MAX_HALF_LENGTH:
        raise PrivacyError(
            "privacy-out-of-reach",
            f"the target would take noise of a deviation of {sigma:.3g}; raise epsilon or delta, or lower the number "
            "of coordinates or rounds",
        )
    return NoiseDistribution(2.0, sigma * math.sqrt(2.0), max(1, half_length))
