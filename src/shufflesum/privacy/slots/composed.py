"""Certified privacy of cells with noise in slots: one round without any grid, several as a product.

All neighbours look alike: the victim's cell against another one. So the upper and the lower bound are of the same sum,
and differ by rounding and cells of s alone; in several rounds by the grids, too. The pair is its own mirror image.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from shufflesum._checks import check_number, check_size
from shufflesum._search import GRID, bracket
from shufflesum.cells import MOST_CELLS
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.engine.composition import (
    MOST_COMPOSITIONS,
    ComposedLower,
    ComposedUpper,
    Factor,
    Profile,
    check_epsilon,
    check_single_delta,
    compose_pairs,
    compose_profiles,
)
from shufflesum.privacy.engine.export import check_interval, to_privacy_loss_distribution
from shufflesum.privacy.engine.losses import GridLosses
from shufflesum.privacy.engine.mixture import Mixture, evaluate_lower, evaluate_upper
from shufflesum.privacy.slots import law

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["MOST_CELLS", "MOST_HITS", "Slots"]

MOST_HITS = 1e12  # noise reports in two cells: their law is then listed over tens of millions of counts
_MOST_TRIALS = 2**53 - 1  # counts are exact as floating-point numbers
_ANSWERS = 256  # composed bounds that are remembered
_NODES = 40  # of the lower bounds' grid per deviation: cheap, because atoms are listed one by one


@dataclass(frozen=True, slots=True)
class Slots:
    """Honest users send one true cell out of `cells` each, and `trials` noise slots together in each round.

    A slot is a uniform cell with probability `chance`, else blank. With `cells` buckets of several public hash
    functions, of which a user draws one, the same bounds hold: the number of functions does not matter.
    """

    trials: int
    chance: float
    cells: int
    rounds: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no noise, and what cannot be certified."""
        check_size("honest users x slots", self.trials, 1, _MOST_TRIALS)
        check_size("cells", self.cells, 1, MOST_CELLS)
        check_size("rounds", self.rounds, 1, MOST_COMPOSITIONS)
        check_number("chance", self.chance)
        if not 1.0 / GRID <= self.chance <= 1.0:
            raise ParameterError(
                "out-of-range",
                f"chance is {self.chance}; it must lie in [2**-53, 1], the values a randomizer can draw: without noise "
                "nothing is private",
            )
        if 2.0 * self.trials * self.chance / self.cells > MOST_HITS:
            raise PrivacyError(
                "not-certified",
                f"a cell has {self.trials * self.chance / self.cells:.1e} noise reports; up to {MOST_HITS / 2:.0e} can "
                "be certified: lower the chance or the slots",
            )

    def delta_upper(self, epsilon: float) -> float:
        """Return a delta for which all rounds together are certainly (epsilon, delta)-private."""
        epsilon = check_epsilon(epsilon)
        return self._height(epsilon, upper=True) if self._needs_no_grid else _upper(self).delta(epsilon)

    def delta_lower(self, epsilon: float) -> float:
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some neighbouring data sets."""
        epsilon = check_epsilon(epsilon)
        return self._height(epsilon, upper=False) if self._needs_no_grid else _lower(self).delta(epsilon)

    def epsilon_upper(self, delta: float) -> float:
        """Return an epsilon for which all rounds together are certainly (epsilon, delta)-private; may be infinite."""
        return self._crossing(delta, upper=True)[1] if self._needs_no_grid else _upper(self).epsilon(delta)

    def epsilon_lower(self, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        return self._crossing(delta, upper=False)[0] if self._needs_no_grid else _lower(self).epsilon(delta)

    def upper(self, *, interval: float | None = None) -> ComposedUpper:
        """Bound all rounds together from above, on a grid of `interval` x a power of two."""
        return compose_profiles([self._factor] if self.cells > 1 else [], interval=interval)

    def to_dp_accounting(self, *, value_discretization_interval: float = 1e-4) -> PrivacyLossDistribution:
        """Return a pessimistic distribution of `dp_accounting` that dominates all rounds."""
        interval = check_interval(value_discretization_interval)
        return to_privacy_loss_distribution(self.losses(interval), interval)

    def losses(self, interval: float) -> GridLosses:
        """A symmetric pair on a grid of `interval` x a power of two that dominates all rounds."""
        return self.upper(interval=interval).losses

    @property
    def _needs_no_grid(self) -> bool:
        return self.rounds == 1 or self.cells == 1

    @property
    def _factor(self) -> Factor:
        return Factor(
            profile=_profile(self.trials, self.chance, self.cells, upper=True),
            deviation=law.deviation(self.trials, self.chance, self.cells),
            highest=law.highest_loss(self.trials),
            copies=self.rounds,
            limit=law.infinite_loss(self.trials, self.chance, self.cells),
        )

    def _height(self, epsilon: float, *, upper: bool) -> float:
        if self.cells == 1:
            return 0.0  # every report is the same
        return float(_profile(self.trials, self.chance, self.cells, upper=upper)(np.array([epsilon]))[0])

    def _crossing(self, delta: float, *, upper: bool) -> tuple[float, float]:
        """Return epsilons (low, high) with delta(low) > delta >= delta(high); (0, 0), or (.., infinity)."""
        check_single_delta(delta)
        if self._height(0.0, upper=upper) <= delta:
            return 0.0, 0.0
        return bracket(
            lambda epsilon: self._height(epsilon, upper=upper),
            delta,
            guess=1.0,
            highest=law.highest_loss(self.trials) + 1.0,
            tolerance=1e-11,
        )


def _profile(trials: int, chance: float, cells: int, *, upper: bool) -> Profile:
    laid_out = _mixture(trials, chance, cells, upper)
    if upper:
        return lambda epsilons: np.minimum(evaluate_upper(laid_out, epsilons), 1.0)
    return lambda epsilons: evaluate_lower(laid_out, epsilons)


@lru_cache(maxsize=8)
def _mixture(trials: int, chance: float, cells: int, upper: bool) -> Mixture:
    return law.mixture(trials, chance, cells, upper=upper)


@lru_cache(maxsize=_ANSWERS)
def _upper(slots: Slots) -> ComposedUpper:
    return slots.upper()


@lru_cache(maxsize=_ANSWERS)
def _lower(slots: Slots) -> ComposedLower:
    # few outcomes are not smooth: a finer grid then keeps more of them apart
    finer = _NODES * min(8.0, max(1.0, 64.0 / slots.rounds))
    step = law.deviation(slots.trials, slots.chance, slots.cells) / finer
    return compose_pairs([[(law.losses_below(slots.trials, slots.chance, slots.cells, step), slots.rounds)]])
