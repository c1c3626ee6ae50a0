"""Bounds of a composition: profiles laid on a grid and multiplied, then read at any epsilon or delta.

Above, any profile that bounds each factor; below, concrete pairs of neighbouring data sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from shufflesum._search import bisect
from shufflesum.errors import PrivacyError
from shufflesum.privacy.engine.convolution import power_above, power_below
from shufflesum.privacy.engine.laws import Floats
from shufflesum.privacy.engine.losses import GridLosses, dominating

__all__ = [
    "MOST_COMPOSITIONS",
    "ComposedLower",
    "ComposedUpper",
    "Profile",
    "check_delta",
    "check_epsilon",
    "compose_pairs",
    "compose_profile",
    "pure_noise",
]

Profile = Callable[[Floats], Floats]  # delta at ascending epsilons >= 0

MOST_COMPOSITIONS = 10**6
_LEAST_DELTA = 1e-12
_CHARGE = 1e-15  # of delta, for all truncation together
_NODES = 20  # of the grid per deviation of one loss: they add 1/(6 * 20**2) to its variance
_MOST_NODES = 2000
_FLOOR = 1e-17
_PLAIN_LOSS = 100.0


@dataclass(frozen=True, slots=True)
class ComposedUpper:
    """Upper bounds for a product, computed once and read at any epsilon or delta."""

    losses: GridLosses

    def delta(self, epsilon: float) -> float:
        """Return a delta for which everything together is certainly (epsilon, delta)-private."""
        return self.losses.profile_above(check_epsilon(epsilon))

    def epsilon(self, delta: float) -> float:
        """Return an epsilon for which everything together is certainly (epsilon, delta)-private."""
        return _crossing(self.delta, check_delta(delta), self.losses)[1]


@dataclass(frozen=True, slots=True)
class ComposedLower:
    """Lower bounds: what concrete neighbouring data sets show, the larger of them at each epsilon."""

    pairs: tuple[GridLosses, ...]

    def delta(self, epsilon: float) -> float:
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some neighbours."""
        epsilon = check_epsilon(epsilon)
        return max(0.0, *(pair.profile_below(epsilon) for pair in self.pairs))

    def epsilon(self, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        return _crossing(self.delta, check_delta(delta), *self.pairs)[0]


def _crossing(profile: Callable[[float], float], delta: float, *pairs: GridLosses) -> tuple[float, float]:
    """Return epsilons (low, high) with profile(low) > delta >= profile(high); (0, 0), or (.., inf)."""
    highest = max(pair.step * (pair.lowest + len(pair.balanced) + 1) + 1.0 for pair in pairs)
    return bisect(lambda epsilon: profile(epsilon) <= delta, 0.0, highest, tolerance=1e-12)


def pure_noise(step: float = 1.0) -> GridLosses:
    """The pair of worlds that nothing tells apart."""
    return GridLosses(step, 0, np.ones(1), 0.0, 0.0)


def compose_profile(
    profile: Profile,
    deviation: float,
    highest: float,
    copies: int,
    *,
    interval: float | None = None,
    rough: Profile | None = None,
) -> ComposedUpper:
    """Compose `copies` factors below one symmetric profile: upper bounds of delta, zero from epsilon = `highest` on.

    `deviation` is roughly that of one loss and only sets the grid, whose step is `interval` times a power of two.
    `rough`, if given, is a cheaper bound that tells how far the grid must reach.
    """
    if highest == 0.0:
        return ComposedUpper(pure_noise(interval or 1.0))
    reach = _reach(rough or profile, deviation, highest, copies)
    step = max(deviation / _NODES, reach / _MOST_NODES)
    if interval is not None:
        step = interval * 2.0 ** math.floor(math.log2(step / interval))
    nodes = step * np.arange(math.ceil(reach / step) + 1, dtype=np.float64)
    values = profile(nodes * (1.0 - 2.0**-51))  # a node's own loss is rounded: charge the smaller side
    values[nodes > highest * (1.0 + 1e-12)] = 0.0
    return ComposedUpper(power_above(dominating(step, values, 0.0), copies, _CHARGE / 2))


def _reach(profile: Profile, deviation: float, highest: float, copies: int) -> float:
    """How far out losses matter in a product of so many factors."""
    probes = np.concatenate([np.arange(2.0, 16.0), np.geomspace(16.0, 17.0 + highest / deviation, 12)]) * deviation
    probes = np.append(probes[probes < highest], highest)
    heights = profile(probes)
    heights[-1] = 0.0
    # computed bounds do not fall below a floor of their own; there is no point in reaching further out
    floor = 1.5 * float(heights[-2]) if probes.size > 1 and heights[-2] < _FLOOR else 0.0
    target = max(_CHARGE / (2 * copies), floor)
    return float(probes[np.argmax(heights <= target)])


def compose_pairs(singles: Iterable[GridLosses], copies: int) -> ComposedLower:
    """Compose `copies` times each of some concrete pairs, which lie below the worst case of one factor."""
    # where the losses are plain to see, some of the factors suffice
    return ComposedLower(tuple(power_below(one, min(copies, _plain_after(one)), _CHARGE / 2) for one in singles))


def _plain_after(single: GridLosses) -> int:
    mean = float(np.dot(single.upper_masses(), single.losses()))
    return max(1, int(_PLAIN_LOSS / mean)) if mean > _PLAIN_LOSS / MOST_COMPOSITIONS else MOST_COMPOSITIONS


def check_epsilon(epsilon: float) -> float:
    """Refuse a negative or infinite epsilon."""
    if not 0.0 <= epsilon < math.inf:
        raise PrivacyError("out-of-range", f"epsilon = {epsilon}: must be finite and at least 0; change epsilon")
    return float(epsilon)


def check_delta(delta: float) -> float:
    """Refuse a delta that no composition is certified for."""
    if not _LEAST_DELTA <= delta < 1.0:
        raise PrivacyError(
            "not-certified",
            f"delta = {delta}: a composition is certified for delta from {_LEAST_DELTA} to below 1; raise delta, "
            "or collect a single report in a single round",
        )
    return float(delta)
