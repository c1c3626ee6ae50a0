"""The accountant of a table of noisy counts: every cell changes by at most one.

Replacing a user's data changes each count by -1, 0 or 1, and the noise is independent from cell to cell and round to
round. A cell that does not change reveals nothing; one that does is N + 1 against N, or N against N + 1. Where
directions are free, as the data have it, each block of equal cells of a round is dominated by the largest profile over
how many go up, and the table by the product (docs/privacy.md); lower bounds let all cells go one way: a user whose
digits are all 0 against all 1. Where at most so many counts go up and as many down, the product of just these is the
worst case, above and below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from shufflesum._checks import check_choice
from shufflesum._search import bisect
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.accountant import PrivacyAccountant
from shufflesum.privacy.engine import composition
from shufflesum.privacy.engine.laws import Floats
from shufflesum.privacy.engine.pld import PrivacyLossDistribution, dominating
from shufflesum.privacy.noisy_counts import counts
from shufflesum.privacy.noisy_counts.counts import Paired, blocks_of, divided

Directions = Literal["free", "paired"]

MOST_TRIALS = 2**53 - 1  # counts are exact as floating-point numbers
_MOST_VARIANCE = 1e12  # of one cell: its law is then listed over tens of millions of counts
_LEANING = 1e-3  # below, both directions of a count show nearly the same: their larger profile does for each
_ANSWERS = 256  # composed bounds that are remembered
_SPARSE = 3e-3  # deviation of a loss, above which sums of several counts are looked at from below, too
_NODES = 40.0  # of the lower bounds' grid per deviation: cheap, because atoms are listed one by one


@dataclass(frozen=True, slots=True)
class ChangedCounts:
    """So many cells with Binomial(trials, probability) noise each, over all rounds; trials are of honest users.

    With `paired` directions `copies` counts pairs of cells: adjacent data sets raise at most so many counts and
    lower at most so many others. With `free` ones each of `copies` cells goes up or down, or neither; `at_once` of
    them are released in one round, that is with data that cannot depend on any of the others.
    """

    trials: int
    probability: float
    copies: int
    directions: Directions = "free"
    at_once: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no noise, and what cannot be composed."""
        check_choice("directions", self.directions, get_args(Directions))
        if not 1 <= self.trials <= MOST_TRIALS:
            raise ParameterError(
                "out-of-range", f"users x trials = {self.trials}: must lie in 1..2**53 - 1; change users or trials"
            )
        if not 0.0 < self.probability < 1.0:
            raise ParameterError(
                "out-of-range", f"probability is {self.probability}; it must lie strictly between 0 and 1"
            )
        if self.trials * self.probability * (1.0 - self.probability) > _MOST_VARIANCE:
            raise PrivacyError(
                "not-certified",
                f"a cell's noise has variance {self.trials * self.probability:.1e}; up to {_MOST_VARIANCE:.0e} can be "
                "certified: lower rounds or the dimension, or raise epsilon",
            )
        if not 1 <= self.copies <= composition.MOST_COMPOSITIONS:
            raise ParameterError(
                "out-of-range",
                f"coordinates x rounds = {self.copies}: must lie in 1..{composition.MOST_COMPOSITIONS}; change the "
                "shape or rounds",
            )
        if self.at_once < 1 or self.copies % self.at_once:
            raise ParameterError(
                "out-of-range", f"at_once is {self.at_once}; {self.copies} cells must be some rounds of so many"
            )

    @staticmethod
    def of_choices(
        *, trials: int, probability: float, labels: int, max_choices: int, rounds: int = 1
    ) -> tuple[ChangedCounts, ...]:
        """A table of `labels` equally noisy counts to which a user adds at most `max_choices` of them, one each.

        At most `max_choices` counts go up and as many down. Where there are fewer than twice as many labels, labels -
        max_choices of either are certain to be all, and the others' directions are free.
        """
        pairs = max(0, min(max_choices, labels - max_choices))
        free = min(labels, 2 * max_choices) - 2 * pairs
        paired = (ChangedCounts(trials, probability, pairs * rounds, "paired"),) if pairs else ()
        return (*paired, ChangedCounts(trials, probability, free * rounds, at_once=free)) if free else paired

    @property
    def factors(self) -> list[composition.Equal]:
        """These counts as factors of a composition from above."""
        trials, probability = self.trials, self.probability
        if self.directions == "paired":
            return [Paired(trials, probability, self.copies)]
        single = composition.Factor(
            profile=lambda epsilons: counts.profile_upper(trials, probability, epsilons),
            deviation=counts.loss_deviation(trials, probability),
            highest=counts.highest_loss(trials, probability),
            copies=self.copies,
            limit=counts.infinity_mass(trials, probability),
        )
        leaning = abs(1.0 - 2.0 * probability) * single.deviation  # roughly how skewed the loss of one count is
        if self.at_once == 1 or leaning < _LEANING:
            return [single]
        return [*blocks_of(trials, probability, self.at_once, single)]


@dataclass(frozen=True, slots=True)
class NoisyCountsAccountant(PrivacyAccountant):
    """The changed counts of a table, class by class; `overflow` bounds the chance that anybody's noise exceeds the cap,
    in all rounds.

    Noise above the cap is drawn again. That moves the law of all reports by at most `overflow` in either world, which
    costs (1 + e^epsilon) overflow of delta (docs/privacy.md).
    """

    groups: tuple[ChangedCounts, ...]
    overflow: float = 0.0

    def delta_upper(self, epsilon: float) -> float:
        """Return a delta for which everything together is certainly (epsilon, delta)-private."""
        epsilon = composition.check_epsilon(epsilon)
        if self._single is not None and self.overflow == 0.0:  # needs no grid
            only = self._single
            return float(counts.profile_upper(only.trials, only.probability, np.array([epsilon]))[0])
        charged = _charged(self)
        return charged.delta(epsilon)

    def delta_lower(self, epsilon: float) -> float:
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some adjacent data sets."""
        epsilon = composition.check_epsilon(epsilon)
        return max(0.0, _lower(self.groups).delta(epsilon) - _charge(epsilon, self.overflow))

    def epsilon_upper(self, delta: float) -> float:
        """Return an epsilon for which everything together is certainly (epsilon, delta)-private; may be infinite."""
        return _charged(self).epsilon(composition.check_delta(delta))

    def epsilon_lower(self, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        composition.check_delta(delta)
        return composition.crossing(self.delta_lower, delta, *_lower(self.groups).pairs)[0]

    def upper(self, *, interval: float | None = None) -> composition.ComposedUpper:
        """Bound the noise without a cap from above, for every data set."""
        return composition.compose_profiles(
            [factor for group in self.groups for factor in group.factors], interval=interval
        )

    def pld(self, interval: float) -> PrivacyLossDistribution:
        """A symmetric PLD, on a grid of `interval` x a power of two, that dominates the table, cap and all."""
        return _with_charge(self.upper(interval=interval).pld, self.overflow)

    @property
    def _single(self) -> ChangedCounts | None:
        only = self.groups[0]
        return only if len(self.groups) == 1 and only.copies == 1 and only.directions == "free" else None


@dataclass(frozen=True, slots=True)
class _Charged:
    """Upper bounds with the charge for the cap: H(e^eps) + (1 + e^eps) overflow, wherever that still falls.

    A true delta never rises with epsilon, so beyond `turn`, where the charge takes over, the bound there holds on.
    """

    composed: composition.ComposedUpper
    overflow: float
    turn: float

    def delta(self, epsilon: float) -> float:
        at = min(epsilon, self.turn)
        return min(1.0, self.composed.delta(at) + _charge(at, self.overflow))

    def epsilon(self, delta: float) -> float:
        if self.overflow == 0.0:
            return self.composed.epsilon(delta)
        return bisect(lambda epsilon: self.delta(epsilon) <= delta, 0.0, self.turn, tolerance=1e-12)[1]


def _charge(epsilon: float, overflow: float) -> float:
    return overflow * (1.0 + math.exp(min(epsilon, 700.0))) * (1.0 + 1e-12) if overflow else 0.0


@lru_cache(maxsize=_ANSWERS)
def _charged(accountant: NoisyCountsAccountant) -> _Charged:
    composed = accountant.upper()
    if accountant.overflow == 0.0:
        return _Charged(composed, 0.0, math.inf)
    nodes = _nodes(composed.pld)
    turn = nodes[np.argmin([composed.delta(node) + _charge(node, accountant.overflow) for node in nodes])]
    return _Charged(composed, accountant.overflow, float(turn))


def _nodes(pld: PrivacyLossDistribution) -> Floats:
    """The grid's losses from 0 on, up to where exponentials end."""
    nodes = pld.step * np.arange(0, pld.lowest + len(pld.symmetrised) + 1, dtype=np.float64)
    return nodes[nodes < 700.0]


def _with_charge(pld: PrivacyLossDistribution, overflow: float) -> PrivacyLossDistribution:
    """A symmetric PLD above H(w) + (1 + w) overflow, as far as that falls."""
    if overflow == 0.0:
        return pld
    nodes = _nodes(pld)
    heights = np.array([pld.delta_upper(node * (1.0 - 2.0**-51)) + _charge(node, overflow) for node in nodes])
    return dominating(pld.step, heights, 0.0)


@lru_cache(maxsize=_ANSWERS)
def _lower(groups: tuple[ChangedCounts, ...]) -> composition.ComposedLower:
    """What a user shows whose counts all go up, or all down; of paired ones as many up as down."""
    deviations = [counts.loss_deviation(group.trials, group.probability) for group in groups]

    def moved(
        up: bool, nodes: float, below: Callable[[ChangedCounts, float, float], list[composition.Copies]]
    ) -> list[composition.Copies]:
        unit = min(deviations) / nodes
        steps = [unit * 2.0 ** math.floor(math.log2(deviation / nodes / unit)) for deviation in deviations]
        return [
            copies
            for group, step in zip(groups, steps, strict=True)
            for rises, chance in ((True, group.probability), (False, 1.0 - group.probability))
            if rises is up or group.directions == "paired"
            for copies in below(group, chance, step)
        ]

    # few outcomes are not smooth: a finer grid then keeps more of them apart, but often merges worse; sums of several
    # are smoother, but rounded first; the best counts
    finer = _NODES * min(8.0, 64.0 / sum(group.copies for group in groups))
    looks = [(_NODES, _one_by_one)]
    looks += [(finer, _one_by_one)] if finer > _NODES else []
    looks += [(_NODES / 2, _summed)] if max(deviations) > _SPARSE else []
    mirrored = all(group.directions == "paired" for group in groups)
    return composition.compose_pairs(
        [moved(up, *look) for up in ((True,) if mirrored else (True, False)) for look in looks]
    )


def _one_by_one(group: ChangedCounts, chance: float, step: float) -> list[composition.Copies]:
    return [(counts.pld_below(group.trials, chance, step), group.copies)]


def _summed(group: ChangedCounts, chance: float, step: float) -> list[composition.Copies]:
    sizes = divided(group.copies)
    return [(counts.summed_pld_below(group.trials, chance, size, step), copies) for size, copies in sizes]


# ---------------------------------------------------------------------------------------------------------------------
# How rarely a user draws more dummy reports than there is room for.


Trials = tuple[int, float]  # so many, each with this chance

_ROUNDING = 1e-9  # relative, of an exponent below a few thousand


def overflow_upper(noise: Sequence[Trials], cap: int) -> float:
    """Bound P[K > cap] for K a sum of binomials, from above (Chernoff).

    P[K >= m] <= exp(sum trials log(1 + p (e^t - 1)) - t m) for every t >= 0; the best t is looked for, any is right.
    """
    beyond = cap + 1
    if beyond > sum(trials for trials, _ in noise):
        return 0.0
    if beyond <= sum(trials * chance for trials, chance in noise):
        return 1.0

    def tilted_mean(tilt: float) -> float:
        return sum(n * p * math.exp(tilt) / (1.0 + p * math.expm1(tilt)) for n, p in noise)

    tilt = bisect(lambda t: tilted_mean(t) >= beyond, 0.0, 60.0, tolerance=1e-6)[0]
    exponent = sum(n * math.log1p(p * math.expm1(tilt)) for n, p in noise)
    return min(1.0, math.exp(exponent - tilt * beyond + _ROUNDING * (exponent + tilt * beyond)))


def smallest_cap(noise: Sequence[Trials], most_overflow: float) -> int:
    """The least cap that is exceeded with at most this chance, by the bound of `overflow_upper`."""
    low, high = -1, sum(trials for trials, _ in noise)  # exceeded too often, and never
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if overflow_upper(noise, middle) <= most_overflow else (middle, high)
    return high
