"""The accountant of vectors in a Euclidean ball, sent as single random bits.

A user's vector, of norm C at most, is rotated, its D coordinates are clipped to C tau/sqrt(D) and divided by that: y
in [-1, 1]^D with |y|^2 <= D/tau^2. Of each coordinate r bits are sent, each a one with probability (1 + a y)/2, and
only the counts of ones are seen. The coin of this rounding is the privacy, so it must be exact and secret. Statement
and proof: docs/privacy-ball.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shufflesum._checks import check_number, check_size
from shufflesum._search import GRID, bisect, bracket
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.accountant import PrivacyAccountant, local_epsilon
from shufflesum.privacy.engine import composition, pld
from shufflesum.privacy.engine.gaussian import gaussian_noise, gaussian_profile_upper
from shufflesum.privacy.engine.laws import Floats
from shufflesum.privacy.engine.pld import PrivacyLossDistribution
from shufflesum.privacy.guarantees import MOST_USERS
from shufflesum.privacy.one_bit.domination import (
    gdp_mu_per_unit,
    law,
    law_window,
    renyi_epsilon_upper,
    renyi_profile_upper,
)

MOST_COPIES = 10**12  # coordinates x bits x rounds
_CHARGED = 2  # decades below delta: what delta0 may cost of it
_LEAST_CHARGE = 1e-18
_LEAST_DELTA0 = 1e-26
_EXPORT_CHARGES = tuple(10.0**-decade for decade in range(2, 15))  # each is best near a delta of its own
_EXPORT_NODES = 20_000
_LARGEST_LOSS = 300.0  # of an export: what is beyond counts as infinite
_ULP = 2.0**-52


@dataclass(frozen=True, slots=True)
class OneBitAccountant(PrivacyAccountant):
    """So many honest users, coordinates (after padding), bits of each and rounds, at an amplitude and a tau.

    At amplitude 1 bits carry no noise, as in plans for tests: nothing is certified then.
    """

    honest_users: int
    coordinates: int
    amplitude: float
    tau: float
    rounds: int = 1
    bits: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no such protocol."""
        check_size("honest_users", self.honest_users, 1, MOST_USERS)
        for name in ("coordinates", "rounds", "bits"):
            check_size(name, getattr(self, name), 1, MOST_COPIES)
        check_size("coordinates x bits x rounds", self.copies, 1, MOST_COPIES)
        check_number("amplitude", self.amplitude)
        check_number("tau", self.tau)
        if not (2.0**-40 <= self.amplitude <= 1.0 - 2.0**-40 or self._noiseless):
            raise ParameterError(
                "out-of-range",
                f"amplitude is {self.amplitude}; it must lie between 2**-40 and 1 - 2**-40, or be 1: no noise",
            )
        if not 1.0 <= self.tau < math.inf:
            raise ParameterError("out-of-range", f"tau is {self.tau}; it must be at least 1, and finite")

    @property
    def copies(self) -> int:
        """How many counts are seen in all rounds."""
        return self.coordinates * self.bits * self.rounds

    @property
    def local_epsilon(self) -> float:
        """What is left for a user if shuffler and analyzer collude, over all reports and rounds."""
        noise, reports = 1.0 - self.amplitude, self.coordinates * self.bits
        return local_epsilon(levels=1, noise_probability=noise, coordinates=reports, rounds=self.rounds)

    def delta_upper(self, epsilon: float) -> float:
        """Return a delta for which all rounds together are certainly (epsilon, delta)-private."""
        epsilon = composition.check_epsilon(epsilon)
        if self._noiseless:
            return 1.0
        rough = self._gaussian_delta(epsilon, _LEAST_CHARGE)
        charges = _charges_near(rough)
        return min(rough, self._renyi_delta(epsilon), *(self._gaussian_delta(epsilon, charge) for charge in charges))

    def delta_lower(self, epsilon: float) -> float:
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some adjacent data sets."""
        return self._lower.delta(composition.check_epsilon(epsilon))

    def epsilon_upper(self, delta: float) -> float:
        """Return an epsilon for which all rounds together are certainly (epsilon, delta)-private; may be infinite."""
        delta = composition.check_delta(delta)
        if self._noiseless:
            return math.inf
        charge = _charge_of(delta)
        mu = self.mu(charge)
        highest = min(1e6, mu * (0.5 * mu + 40.0))
        gaussian = bisect(lambda eps: self._gaussian_delta(eps, charge) <= delta, 0.0, highest, tolerance=1e-12)[1]
        return min(gaussian, renyi_epsilon_upper(*self._moments, delta))

    def epsilon_lower(self, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        return self._lower.epsilon(composition.check_delta(delta))

    def mu(self, charge: float) -> float:
        """Return a mu such that all rounds are dominated by N(mu, 1) against N(0, 1), with `charge` added to delta.

        Coordinate c is below the pair with mu_c = m v_c, v_c^2 = 2 a^2 (y_c^2 + y'_c^2), and the v_c^2 of a round add
        up to 4 a^2 D r/tau^2 at most. Infinite if no m was found.
        """
        m = gdp_mu_per_unit(self.honest_users, self.amplitude, self._delta0(charge))
        return m * 2.0 * self.amplitude * math.sqrt(self.copies) / self.tau * (1.0 + 16.0 * _ULP)

    def pld(self, interval: float) -> PrivacyLossDistribution:
        """A symmetric PLD, on a grid of `interval` x a power of two, that dominates all rounds."""
        if self._noiseless:
            raise PrivacyError("not-certified", "bits without noise have no privacy loss distribution")
        mu = self.mu(_EXPORT_CHARGES[-1])
        reach = min(_LARGEST_LOSS, mu * (0.5 * mu + 9.0) + interval)
        step = interval * 2.0 ** max(0, math.ceil(math.log2(reach / interval / _EXPORT_NODES)))
        nodes = step * np.arange(math.ceil(reach / step) + 1, dtype=np.float64)
        arguments = nodes * (1.0 - 2.0**-51)  # a node's own loss is rounded: charge the smaller side
        heights = renyi_profile_upper(*self._moments, arguments)
        for charge in _EXPORT_CHARGES:
            np.minimum(heights, self._gaussian_profile(arguments, charge), out=heights)
        return pld.dominating(step, heights, 0.0)

    def dominating_gaussian(self, delta: float) -> tuple[float, float] | None:
        """A mu and a chance: N(mu, 1) against N(0, 1) dominates up to that chance, for a plan of this delta."""
        charge = _charge_of(delta)
        mu = math.inf if self._noiseless else self.mu(charge)
        return (mu, self._charged(charge)) if math.isfinite(mu) else None

    @property
    def _noiseless(self) -> bool:
        return self.amplitude == 1.0

    @property
    def _lower(self) -> composition.ComposedLower:
        if self._noiseless:
            return composition.ComposedLower((composition.pure_noise(),))
        return adjacent_pairs_below(
            self.honest_users, self.coordinates, self.amplitude, self.tau, self.bits, self.rounds
        )

    @property
    def _moments(self) -> tuple[int, float, float, int]:
        squares = 4.0 * self.amplitude**2 / self.tau**2 * (1.0 + 8.0 * _ULP)
        return self.honest_users, self.amplitude, squares, self.copies

    def _renyi_delta(self, epsilon: float) -> float:
        return float(renyi_profile_upper(*self._moments, np.array([epsilon]))[0])

    def _gaussian_delta(self, epsilon: float, charge: float) -> float:
        return float(self._gaussian_profile(np.array([epsilon]), charge)[0])

    def _gaussian_profile(self, epsilons: Floats, charge: float) -> Floats:
        mu = self.mu(charge)
        if not math.isfinite(mu):
            return np.ones(epsilons.size)
        return np.minimum(gaussian_profile_upper(mu, epsilons) + self._charged(charge), 1.0)

    def _delta0(self, charge: float) -> float:
        return max(charge / self.copies, _LEAST_DELTA0)

    def _charged(self, charge: float) -> float:
        """(1 + delta0)^copies - 1, or somewhat more."""
        return math.expm1(self.copies * self._delta0(charge)) * (1.0 + 1e-12)


def largest_amplitude(
    *,
    honest_users: int,
    coordinates: int,
    tau: float,
    epsilon: float,
    delta: float,
    rounds: int = 1,
    bits: int = 1,
    tolerance: float = 1e-4,
) -> float:
    """Return an amplitude, nearly the largest, with which all rounds are certainly (epsilon, delta)-private.

    It is a multiple of 2**-53, so that the noise probability 1 - a is one, and it was seen to be enough.
    """
    epsilon, delta = composition.check_epsilon(epsilon), composition.check_delta(delta)
    charge = _charge_of(delta)

    def at(noise_odds: float) -> OneBitAccountant:
        return OneBitAccountant(honest_users, coordinates, _amplitude(noise_odds), tau, rounds, bits)

    def search(falling: Callable[[float], float]) -> float:
        # to first order mu^2 = 4 D r T a^2/(tau^2 n (1 - a^2)); noise_odds = (1 - a)/a
        curator = min(gaussian_noise(epsilon, delta), 1e6)
        squared = tau**2 * honest_users / (4.0 * coordinates * bits * rounds * curator**2)
        guess = min(math.sqrt((1.0 + squared) / squared) - 1.0, 2.0**39)
        found = bracket(falling, delta, guess=guess, highest=2.0**39, tolerance=tolerance, first_factor=1.05)[1]
        if not math.isfinite(found):
            raise PrivacyError(
                "privacy-out-of-reach",
                f"no amplitude down to 2**-40 makes {coordinates * bits * rounds} bits of {honest_users} users "
                f"({epsilon}, {delta})-private: raise epsilon or tau, or collect less",
            )
        return found

    found = search(lambda noise_odds: at(noise_odds)._gaussian_delta(epsilon, charge))
    # moments certify less and less as the amplitude grows: if not here, they do not help
    if at(found)._renyi_delta(epsilon) < delta:
        found = search(
            lambda noise_odds: min(
                at(noise_odds)._gaussian_delta(epsilon, charge), at(noise_odds)._renyi_delta(epsilon)
            )
        )
    return _amplitude(found)


def _amplitude(noise_odds: float) -> float:
    return min(math.floor(GRID / (1.0 + noise_odds)) / GRID, 1.0 - 2.0**-40)


def _charge_of(delta: float) -> float:
    return max(_LEAST_CHARGE, 10.0 ** (math.floor(math.log10(delta)) - _CHARGED))


def _charges_near(delta: float) -> Iterator[float]:
    """The charges that `_charge_of` takes for a delta near this one, so that what one finds the other confirms."""
    decade = math.floor(math.log10(max(delta, _LEAST_CHARGE)))
    for near in (decade - 1, decade, decade + 1):
        yield max(_LEAST_CHARGE, 10.0 ** (near - _CHARGED))


# ---------------------------------------------------------------------------------------------------------------------
# What concrete adjacent data sets show: a vector against its opposite, in some of the coordinates.
#
# In the rotated coordinates the victim holds y in so many of them, against -y, and 0 elsewhere; the others hold the one
# or the other as well, all the same or half of them each. Any rotation maps some vectors of the ball to these. Only how
# many ones there are in a coordinate is seen, among all its bits.


_PARTS_CHANGED = (1.0, 1 / 2, 1 / 5, 1 / 9)  # parts of the coordinates; and as few as the norm allows
_NODES = 40  # of the grid per deviation of one loss
_TELLING_LOSS = 20.0  # expected in all: worlds that differ by so much are told apart
_MOST_SUMMED = 10**11  # bits of one coordinate: the law of the ones among them is then listed over millions of counts
_KEPT_ERROR = 0.2 * pld.MOST_ERROR


@lru_cache(maxsize=64)
def adjacent_pairs_below(
    honest_users: int, coordinates: int, amplitude: float, tau: float, bits: int, rounds: int
) -> composition.ComposedLower:
    """Compose all of these pairs, each coordinate once in every round, from below."""
    half = (honest_users - 1) // 2
    alternatives: list[list[composition.Copies]] = []
    for changed, y in _changed_coordinates(coordinates, tau) if bits * honest_users <= _MOST_SUMMED else ():
        for high in sorted({0, half}):
            worlds = [(high + 1, honest_users - 1 - high), (high, honest_users - high)]
            for first, second in (worlds, worlds[::-1]) if 2 * high != honest_users - 1 else (worlds,):
                upper, lower, error = _shown(first, second, bits, amplitude * y)
                if not error < _KEPT_ERROR:
                    continue
                losses = np.log(upper / lower)
                # so many that rounding errors stay small; and, where few say it all and many lose it on the grid,
                # few: fewer coordinates are adjacent data sets as well
                most = min(changed * rounds, max(1, int(_KEPT_ERROR / error)))
                for copies in {most, min(most, math.ceil(_TELLING_LOSS / float(np.dot(upper, losses))))}:
                    finer = _NODES * min(8.0, max(1.0, 64.0 / copies))
                    step = float(np.sqrt(np.dot(upper, losses**2))) / finer
                    alternatives.append([(pld.grid_of_atoms(upper, lower, step, error), copies)])
    return (
        composition.compose_pairs(alternatives)
        if alternatives
        else composition.ComposedLower((composition.pure_noise(),))
    )


def _changed_coordinates(coordinates: int, tau: float) -> Iterator[tuple[int, float]]:
    """Numbers of coordinates, and the largest y that the norm allows there: changed y^2 <= coordinates/tau^2."""
    fewest = min(coordinates, math.ceil(coordinates / tau**2))
    for changed in sorted({max(fewest, math.ceil(part * coordinates)) for part in (*_PARTS_CHANGED, 0.0)}):
        yield changed, min(1.0, math.sqrt(coordinates / changed) / tau * (1.0 - 2.0**-50))


def _shown(first: tuple[int, int], second: tuple[int, int], bits: int, bias: float) -> tuple[Floats, Floats, float]:
    """The laws of the ones in a coordinate in two worlds, where both are known, and their relative error.

    In a world so many users are at y and so many at -y, and bits of theirs are ones with (1 + bias)/2, or (1 - bias)/2.
    The first law is rounded down, the second up, by what is outside of its window.
    """
    (one, below, above, error, start), (other, _, _, other_error, other_start) = (
        _ones(bits * high, bits * low, bias) for high, low in (first, second)
    )
    begin = max(start, other_start)
    end = min(start + one.size, other_start + other.size)
    upper = one[begin - start : end - start] / (1.0 + below + above)
    lower = other[begin - other_start : end - other_start]
    both = (upper > 1e-290) & (lower > 1e-290)  # an outcome may be left out
    return upper[both], lower[both], error + other_error + 1e-14


def _ones(high: int, low: int, bias: float) -> tuple[Floats, float, float, float, int]:
    """The law of the ones among so many bits; what is below and above it, its error, and its first count."""
    terms, _, below, above, widening, _ = law(high, low, bias)
    return terms, below, above, widening, law_window(high, low, bias)[2]
