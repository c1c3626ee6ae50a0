"""Bounds for a product of equal reports: the single profile from above, one concrete pair from below."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy import binary, blanket
from shufflesum.privacy._concrete import third_value_losses
from shufflesum.privacy._convolution import GridLosses, dominating, power_above, power_below
from shufflesum.privacy.local import local_epsilon

__all__ = [
    "MOST_COMPOSITIONS",
    "ComposedLower",
    "ComposedUpper",
    "check_compositions",
    "check_delta",
    "check_epsilon",
    "compose_profile",
    "composed_delta_lower",
    "composed_delta_upper",
    "composed_epsilon_lower",
    "composed_epsilon_upper",
    "composed_lower",
    "composed_upper",
    "deviation_of_loss",
    "single_profile",
]

Floats = npt.NDArray[np.float64]
Profile = Callable[[Floats], Floats]

_LEAST_DELTA = 1e-12
_CHARGE = 1e-15  # of delta, for all truncation together
MOST_COMPOSITIONS = 10**6
_NODES_ABOVE = 20  # grid nodes per deviation of one loss: they add 1/(6 * 20**2) to its variance
_NODES_BELOW = 40  # cheap, because one concrete pair is listed outcome by outcome
_MOST_NODES = 2000
_FLOOR = 1e-17
_PLAIN_LOSS = 100.0


@dataclass(frozen=True, slots=True)
class ComposedUpper:
    """Upper bounds for a product of protocols, computed once and read at any epsilon or delta."""

    losses: GridLosses

    def delta(self, epsilon: float) -> float:
        """Return a delta for which all reports together are certainly (epsilon, delta)-private."""
        return self.losses.profile_above(check_epsilon(epsilon))

    def epsilon(self, delta: float) -> float:
        """Return an epsilon for which all reports together are certainly (epsilon, delta)-private."""
        return _crossing(self.delta, check_delta(delta), _reach(self.losses))[1]


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
        return _crossing(self.delta, check_delta(delta), max(_reach(pair) for pair in self.pairs))[0]


def single_profile(
    honest_users: int, levels: int, noise_probability: float, *, single_coordinate_blocks: bool
) -> Profile:
    """Return the upper bound of delta of one report, to be read at ascending epsilons >= 0."""

    def general(epsilons: Floats) -> Floats:
        return blanket.profile_upper(honest_users, levels, noise_probability, epsilons)

    def direct(epsilons: Floats) -> Floats:
        return np.minimum(general(epsilons), binary.profile_upper(honest_users, noise_probability, epsilons))

    return direct if levels == 1 and single_coordinate_blocks and noise_probability < 1.0 else general


def composed_upper(
    honest_users: int,
    levels: int,
    noise_probability: float,
    compositions: int,
    *,
    single_coordinate_blocks: bool,
) -> ComposedUpper:
    """Bound `compositions` = reports x rounds copies of the protocol from above, for every data set.

    `single_coordinate_blocks` (reports = dimension) admits the tighter direct bound for levels = 1.
    """
    check_compositions(compositions)
    blanket.check_protocol(honest_users, levels, noise_probability)
    single = single_profile(honest_users, levels, noise_probability, single_coordinate_blocks=single_coordinate_blocks)
    deviation = deviation_of_loss(honest_users, levels, noise_probability)
    highest = local_epsilon(levels=levels, noise_probability=noise_probability)
    rough = single_profile(honest_users, levels, noise_probability, single_coordinate_blocks=False)
    return compose_profile(single, deviation, highest, compositions, rough=rough)


def compose_profile(
    profile: Profile,
    deviation: float,
    highest: float,
    compositions: int,
    *,
    interval: float | None = None,
    rough: Profile | None = None,
) -> ComposedUpper:
    """Compose any symmetric profile: upper bounds of delta at ascending epsilons >= 0, zero from `highest` on.

    `deviation` is roughly that of one loss and only sets the grid, whose step is `interval` times a power of two.
    `rough`, if given, is a cheaper bound that tells how far the grid must reach.
    """
    if highest == 0.0:
        return ComposedUpper(GridLosses(interval or 1.0, 0, np.ones(1), 0.0, 0.0))  # nothing but noise
    probes = np.concatenate([np.arange(2.0, 16.0), np.geomspace(16.0, 17.0 + highest / deviation, 12)]) * deviation
    probes = np.append(probes[probes < highest], highest)
    heights = (rough or profile)(probes)
    heights[-1] = 0.0
    # computed bounds do not fall below a floor of their own; there is no point in reaching further out
    floor = 1.5 * float(heights[-2]) if probes.size > 1 and heights[-2] < _FLOOR else 0.0
    target = max(_CHARGE / (2 * compositions), floor)
    reach = float(probes[np.argmax(heights <= target)])
    step = max(deviation / _NODES_ABOVE, reach / _MOST_NODES)
    if interval is not None:
        step = interval * 2.0 ** math.floor(math.log2(step / interval))
    count = math.ceil(reach / step)
    nodes = step * np.arange(count + 1, dtype=np.float64)
    values = profile(nodes * (1.0 - 2.0**-51))  # a node's own loss is rounded: charge the smaller side
    values[nodes > highest * (1.0 + 1e-12)] = 0.0
    return ComposedUpper(power_above(dominating(step, values, 0.0), compositions, _CHARGE / 2))


def composed_lower(
    honest_users: int,
    levels: int,
    noise_probability: float,
    compositions: int,
) -> ComposedLower:
    """Bound the worst case of `compositions` copies from below: by one pair of data sets, the same in all blocks.

    K >= 3: x against x' among users at a third value. K = 2: 0 against 1 among users at 0, either way round. With
    larger blocks all coordinates hold that value, and forgetting the coordinate leaves the same pairs.
    """
    check_compositions(compositions)
    blanket.check_protocol(honest_users, levels, noise_probability)
    if noise_probability == 1.0:
        return ComposedLower((GridLosses(1.0, 0, np.ones(1), 0.0, 0.0),))
    deviation = deviation_of_loss(honest_users, levels, noise_probability)
    # few outcomes are not smooth: a finer grid then keeps more of them apart
    step = deviation / (_NODES_BELOW * min(8.0, max(1.0, 64.0 / compositions)))
    singles: tuple[GridLosses, ...]
    if levels == 1:
        singles = binary.one_value_losses(honest_users, noise_probability, step)
    else:
        singles = (third_value_losses(honest_users, levels + 1, noise_probability, step),)
    # where the losses are plain to see, some of the blocks suffice
    return ComposedLower(tuple(power_below(one, min(compositions, _plain_after(one)), _CHARGE / 2) for one in singles))


def _plain_after(single: GridLosses) -> int:
    mean = float(np.dot(single.upper_masses(), single.losses()))
    return max(1, int(_PLAIN_LOSS / mean)) if mean > _PLAIN_LOSS / MOST_COMPOSITIONS else MOST_COMPOSITIONS


def deviation_of_loss(honest_users: float, levels: int, noise_probability: float) -> float:
    """Return roughly the standard deviation of one report's loss: it sets grids, never bounds."""
    blanket_reports = honest_users * noise_probability
    return min(1.0, (1.0 - noise_probability) * math.sqrt(2.0 * (levels + 1) / blanket_reports))


def _reach(losses: GridLosses) -> float:
    return losses.step * (losses.lowest + len(losses.balanced) + 1) + 1.0


def _crossing(function: Callable[[float], float], delta: float, highest: float) -> tuple[float, float]:
    """Return epsilons (low, high) with function(low) > delta >= function(high); (0, 0), or (.., inf)."""
    if function(0.0) <= delta:
        return 0.0, 0.0
    if function(highest) > delta:
        return highest, math.inf
    low, high = 0.0, highest
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if function(middle) > delta:
            low = middle
        else:
            high = middle
    return low, high


def composed_delta_upper(
    honest_users: int,
    levels: int,
    noise_probability: float,
    epsilon: float,
    compositions: int,
    *,
    single_coordinate_blocks: bool,
) -> float:
    """Return a delta for which all reports together are certainly (epsilon, delta)-private."""
    blocks = single_coordinate_blocks
    if compositions == 1:  # needs no grid
        profile = single_profile(honest_users, levels, noise_probability, single_coordinate_blocks=blocks)
        return float(profile(np.array([check_epsilon(epsilon)]))[0])
    return composed_upper(honest_users, levels, noise_probability, compositions, single_coordinate_blocks=blocks).delta(
        epsilon
    )


def composed_delta_lower(
    honest_users: int,
    levels: int,
    noise_probability: float,
    epsilon: float,
    compositions: int,
) -> float:
    """Return a delta below which (epsilon, delta)-privacy certainly fails for some neighbouring data sets."""
    if compositions == 1:
        return blanket.delta_lower(honest_users, levels, noise_probability, check_epsilon(epsilon))
    return composed_lower(honest_users, levels, noise_probability, compositions).delta(epsilon)


def composed_epsilon_upper(
    honest_users: int,
    levels: int,
    noise_probability: float,
    delta: float,
    compositions: int,
    *,
    single_coordinate_blocks: bool,
) -> float:
    """Return an epsilon for which all reports together are certainly (epsilon, delta)-private."""
    blocks = single_coordinate_blocks
    if compositions == 1 and not (levels == 1 and blocks):
        return blanket.epsilon_upper(honest_users, levels, noise_probability, delta)
    return composed_upper(
        honest_users, levels, noise_probability, compositions, single_coordinate_blocks=blocks
    ).epsilon(delta)


def composed_epsilon_lower(
    honest_users: int,
    levels: int,
    noise_probability: float,
    delta: float,
    compositions: int,
) -> float:
    """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
    if compositions == 1:
        return blanket.epsilon_lower(honest_users, levels, noise_probability, delta)
    return composed_lower(honest_users, levels, noise_probability, compositions).epsilon(delta)


def check_epsilon(epsilon: float) -> float:
    """Refuse a negative or infinite epsilon."""
    if not 0.0 <= epsilon < math.inf:
        raise PrivacyError(f"epsilon = {epsilon}: must be finite and at least 0; change epsilon")
    return float(epsilon)


def check_delta(delta: float) -> float:
    """Refuse a delta that no composition is certified for."""
    if not _LEAST_DELTA <= delta < 1.0:
        raise PrivacyError(
            f"delta = {delta}: a composition is certified for delta from {_LEAST_DELTA} to below 1; raise delta "
            "(one report in one round goes down to 1e-15: reports = 1)"
        )
    return float(delta)


def check_compositions(compositions: int) -> None:
    """Refuse fewer than one or too many reports x rounds."""
    if not 1 <= compositions <= MOST_COMPOSITIONS:
        raise ParameterError(
            f"reports x rounds = {compositions}: must lie in 1..{MOST_COMPOSITIONS}; change reports or rounds"
        )
