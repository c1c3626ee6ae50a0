"""Which labels are listed, and their noisy counts, where nobody listed them before: partition selection.

Every label gets the noise of a `NoiseDistribution` on its count, and is listed where the noisy count exceeds all that
noise alone can be. A label that nobody holds is then never listed, so its noise need not be drawn: what is released is
a function of a noisy table of all labels there could be, with the guarantee of such a table. How many users hold
something that is not listed is one more noisy count (docs/privacy-discovery.md, Theorem D1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from shufflesum._checks import check_number, check_size
from shufflesum.errors import PrivacyError
from shufflesum.privacy.accountant import PrivacyAccountant
from shufflesum.privacy.engine.composition import MOST_COMPOSITIONS
from shufflesum.privacy.engine.pld import PrivacyLossDistribution
from shufflesum.privacy.noise_distribution import NoiseDistribution, NoiseDistributionAccountant, least_noise

MOST_ITEMS = MOST_COMPOSITIONS // 4
"""A user who is counted for more labels cannot be certified."""

_REST_EPSILON, _REST_DELTA = 0.1, 0.05  # of the whole, for the number of users who hold something not listed
_LEAST_FACTOR, _MOST_FACTOR = 0.7, 1.05  # of the noise that plain sums of epsilon and delta allow for
_STEPS = 7  # of the searches in between
_LARGER = (1.0, 1.02)  # of the least scale: with more noise it may be shorter


@dataclass(frozen=True, slots=True)
class PartitionSelectionAccountant(PrivacyAccountant):
    """Labels listed with noisy counts, where a user is counted for `max_items` of them, and the count of the rest.

    It holds for one user among any others: neither their data nor their number matters. Lower bounds are those of data
    with so many others that the labels that change are listed whatever the noise.
    """

    label_noise: NoiseDistribution
    rest_noise: NoiseDistribution
    max_items: int
    rounds: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be certified."""
        check_size("max_items", self.max_items, 1, MOST_ITEMS)
        self._upper()  # refuses all else

    def delta_upper(self, epsilon: float) -> float:
        """Return a delta for which all rounds together are certainly (epsilon, delta)-private."""
        return self._upper().delta_upper(epsilon)

    def delta_lower(self, epsilon: float) -> float:
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some adjacent data sets."""
        return max(each.delta_lower(epsilon) for each in self._lower())

    def epsilon_upper(self, delta: float) -> float:
        """Return an epsilon for which all rounds together are certainly (epsilon, delta)-private; may be infinite."""
        return self._upper().epsilon_upper(delta)

    def epsilon_lower(self, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        return max(each.epsilon_lower(delta) for each in self._lower())

    def pld(self, interval: float) -> PrivacyLossDistribution:
        """A symmetric PLD, on a grid of `interval` x a power of two, that dominates all rounds."""
        return self._upper().pld(interval)

    def _upper(self) -> NoiseDistributionAccountant:
        """As many labels lose the user as gain one, and the rest changes by one."""
        cells = (self.label_noise, 2 * self.max_items), (self.rest_noise, 1)
        return NoiseDistributionAccountant(cells, self.rounds)

    def _lower(self) -> tuple[NoiseDistributionAccountant, ...]:
        """Twice as many labels change that are listed in any case; or one less, and the rest."""
        labels = ((self.label_noise, 2 * self.max_items),)
        fewer = (self.label_noise, 2 * self.max_items - 1), (self.rest_noise, 1)
        return NoiseDistributionAccountant(labels, self.rounds), NoiseDistributionAccountant(fewer, self.rounds)


def selection_noise(
    epsilon: float, delta: float, *, max_items: int, rounds: int = 1
) -> tuple[NoiseDistribution, NoiseDistribution]:
    """Find noise for the counts of labels, and for that of the rest, that together are (epsilon, delta)-DP.

    They are verified as they stand. The rest gets a tenth of epsilon. The noise of labels has about the least variance
    that leaves, or up to 4 % more where shorter noise, under which labels of fewer users are listed, needs that.
    """
    check_number("epsilon", epsilon)
    check_number("delta", delta)
    check_size("max_items", max_items, 1, MOST_ITEMS)
    check_size("rounds", rounds, 1, MOST_COMPOSITIONS)
    return _searched(float(epsilon), float(delta), int(max_items), int(rounds))


@lru_cache(maxsize=64)
def _searched(epsilon: float, delta: float, max_items: int, rounds: int) -> tuple[NoiseDistribution, NoiseDistribution]:
    rest = least_noise(_REST_EPSILON * epsilon, _REST_DELTA * delta, changed_cells=1, rounds=rounds)
    left = (1.0 - _REST_EPSILON) * epsilon, (1.0 - _REST_DELTA) * delta
    first = least_noise(*left, changed_cells=2 * max_items, rounds=rounds)

    def noise(scale: float, length: float) -> NoiseDistribution:
        half_length = max(1, round(first.half_length * length))
        return replace(first, scale=first.scale * scale, half_length=half_length)

    def private(found: NoiseDistribution) -> bool:
        accountant = PartitionSelectionAccountant(found, rest, max_items, rounds)
        return accountant.delta_upper(epsilon) <= delta

    # sums of epsilon and delta are enough, but for roundings
    enough = next((factor for factor in (1.0, _MOST_FACTOR) if private(noise(factor, factor))), None)
    if enough is None:
        raise PrivacyError(
            "not-certified",
            f"no noise for max_items = {max_items} was certified at epsilon = {epsilon}, delta = {delta}; raise either "
            "of them",
        )
    least = _least(enough, lambda factor: private(noise(factor, factor)))

    def shortest(scale: float) -> NoiseDistribution:
        return noise(scale, _least(least, lambda length: private(noise(scale, length))))

    # with too much noise for its length nothing is private
    found = [shortest(scale) for scale in (least * more for more in _LARGER) if private(noise(scale, least))]
    return min(found, key=_often_listed), rest


def _often_listed(noise: NoiseDistribution) -> float:
    """About how many users a label takes to be listed mostly."""
    return noise.half_length + math.sqrt(noise.variance)


def _least(factor: float, holds: Callable[[float], bool]) -> float:
    """About the least factor for which it holds, as it does for the one that is given."""
    low, high = _LEAST_FACTOR * factor, factor
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
