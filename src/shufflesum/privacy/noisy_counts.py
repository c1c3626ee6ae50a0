"""The privacy of one noisy count: N + 1 against N, and N against N + 1, for N ~ Binomial(trials, probability).

Mirroring N to trials - N turns one direction into the other, with 1 - probability: one computation serves both. The
likelihood ratio at y, w_y = y (1 - p)/((M - y + 1) p), rises with y, so the profile H(w) of N + 1 against N is a
polygon with its vertices at the w_y and slope -P[N >= y + 1] between w_y and w_(y+1). Its heights are summed up from
the top, where all terms are positive:
    H(w_y) = H(w_(y+1)) + (w_(y+1) - w_y) P[N >= y + 1],     w_(y+1) - w_y = (1 - p)/p (M + 1)/((M - y)(M - y + 1)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, repeat
from typing import Literal, get_args

import numpy as np

from shufflesum._checks import check_choice
from shufflesum._compiled import kernel
from shufflesum._search import bisect
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.accountant import PrivacyAccountant
from shufflesum.privacy.engine import composition, pld
from shufflesum.privacy.engine.composition import Factor
from shufflesum.privacy.engine.laws import ROUNDING, Floats, binomial_window, slack
from shufflesum.privacy.engine.pld import ULP, PrivacyLossDistribution, dominating

_OUTSIDE = 1e-24  # probability that a window may leave out
_LARGEST_LOSS = 300.0  # beyond, the profile counts as it is there


def loss_deviation(trials: int, probability: float) -> float:
    """Return roughly the standard deviation of the loss: it sets grids, never bounds."""
    return 1.0 / math.sqrt(max(1.0, trials * probability * (1.0 - probability)))


def highest_loss(trials: int, probability: float) -> float:
    """Return a loss above every finite one of both directions: log w_M, at p or at 1 - p."""
    odds = probability / (1.0 - probability)
    return math.log(trials) + abs(math.log(odds)) + 1e-9


def infinity_mass(trials: int, probability: float) -> float:
    """Return an upper bound of the chance that a count gives itself away: all trials missed, or all hit."""
    missed, hit = trials * math.log1p(-probability), trials * math.log(probability)
    return math.exp(max(missed, hit)) * (1.0 + 1e-12) + 1e-300


def profile_upper(trials: int, probability: float, epsilons: Floats) -> Floats:
    """Bound, at ascending epsilons, the larger of the profiles of N + 1 against N and of N against N + 1."""
    up, down = (_profile(trials, chance, epsilons) for chance in (probability, 1.0 - probability))
    return np.minimum(np.maximum(up, down), 1.0)


def _profile(trials: int, probability: float, epsilons: Floats) -> Floats:
    """Bound the profile of N + 1 against N from above: every tail and rounding is added."""
    odds = probability / (1.0 - probability)
    lowest, terms, total, tail = binomial_window(trials, probability, odds, _OUTSIDE)
    weights = np.exp(np.minimum(epsilons, _LARGEST_LOSS))
    heights = _heights(trials, odds, lowest, terms, tail, weights)
    bounds: Floats = heights / total * (1.0 + slack(2 * terms.size)) + 1e-300
    return bounds


@kernel
def _heights(trials: int, odds: float, lowest: int, terms: Floats, tail: float, weights: Floats) -> Floats:
    """H at ascending weights, times the terms' total; `tail` bounds what lies outside the window.

    A polygon is the largest of the lines it is made of: where rounding picks a neighbouring one, the largest of
    three is still right.
    """
    size = terms.size
    last = size - 1
    above = np.empty(size)  # P[N >= y]
    height = np.empty(size)  # H(w_y)
    # Beyond the last vertex H falls no further than to P's mass there, all of which is counted.
    above[last] = terms[last] + tail
    height[last] = terms[last] + tail
    for i in range(last - 1, -1, -1):
        y = lowest + i
        rise = (trials + 1.0) / (float(trials - y) * float(trials - y + 1)) / odds
        height[i] = height[i + 1] + rise * above[i + 1]
        above[i] = above[i + 1] + terms[i]
    out = np.empty(weights.size)
    for e in range(weights.size):
        w = weights[e]
        position = w * odds * ((trials + 1.0) / (1.0 + w * odds)) - lowest
        near = int(min(max(position, 0.0), float(last)))
        best = height[last]
        for i in range(max(near - 1, 0), min(near + 3, size)):
            y = lowest + i
            vertex = float(y) / (float(trials - y + 1) * odds)
            best = max(best, height[i] + (vertex - w + 16.0 * ROUNDING * w) * above[i])
        out[e] = best
    return out


def pld_below(trials: int, probability: float, step: float) -> PrivacyLossDistribution:
    """Return a pair on the grid below that of N + 1 against N."""
    lowest, terms, total, tail = binomial_window(trials, probability, probability / (1.0 - probability), _OUTSIDE)
    law = terms / (total + tail)
    error = slack(terms.size)
    pair = pld.grid_of_atoms(law[:-1], law[1:], step, error)
    reaches_the_end = lowest + terms.size - 1 == trials
    return replace(pair, infinity_mass=float(law[-1]) * (1.0 - 2.0 * error)) if reaches_the_end else pair


# ---------------------------------------------------------------------------------------------------------------------
# Counts that all go the same way, as a pair of laws on a grid of losses: N + 1 against N, and powers of it.
#
# The pair of laws is kept, not only its profile: pairs of both directions can then be multiplied. Mirrored, it is N
# against N + 1. Every step dominates in both readings (docs/privacy.md).


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Losses of N + 1 against N, rising, with their symmetrised masses, and what P, and Q, have besides."""

    losses: Floats
    symmetrised: Floats
    rising: float
    falling: float

    def on_grid(self, step: float) -> OneWay:
        """Split each outcome between the grid's nodes below and above it, keeping P and Q: that dominates.

        A loss x between nodes x0 and x1 gives them sinh((x1 - x)/2) and sinh((x - x0)/2) of its symmetrised mass, over
        sinh(step/2). A loss that is known up to a relative error gives both of them as much as it might. One that may
        lie above a node, though it seems to lie below, counts as lying there; the node below gets what it might if x
        lies below all the same. No node has less than its share, so this dominates with P and Q swapped, too.
        """
        losses, symmetrised = self.losses, self.symmetrised
        relative_error_bound = 16.0 * ROUNDING * (1.0 + np.abs(losses))
        nodes = np.floor((losses + relative_error_bound) / step)
        beyond = np.clip(losses - nodes * step, 0.0, step)
        unit = np.sinh(step / 2)
        above = symmetrised * (np.sinh(beyond / 2) + 2.0 * relative_error_bound) / unit
        below = symmetrised * (np.sinh((step - beyond) / 2) + 2.0 * relative_error_bound) / unit
        further_below = symmetrised * 2.0 * relative_error_bound / unit
        lowest = int(nodes.min()) - 1 if nodes.size else 0
        indices = (nodes - lowest).astype(np.int64)
        size = int(indices.max()) + 2 if nodes.size else 1
        masses = np.bincount(indices, weights=below, minlength=size)
        masses += np.bincount(indices + 1, weights=above, minlength=size)
        masses += np.bincount(indices - 1, weights=further_below, minlength=size)
        return OneWay(step, lowest, masses.astype(np.float64), self.rising, self.falling, ULP * 64)


def listed(trials: int, probability: float) -> Outcomes:
    """List the outcomes of one count with Binomial(trials, probability) noise."""
    lowest, terms, total, tail = binomial_window(trials, probability, probability / (1.0 - probability), _OUTSIDE)
    counts = lowest + np.arange(1, terms.size, dtype=np.float64)
    losses = np.log(counts * (1.0 - probability) / ((trials - counts + 1.0) * probability))
    more = 1.0 + slack(2 * terms.size)
    symmetrised = np.sqrt(terms[:-1] * terms[1:]) / total * more
    rising, falling = (min(1.0, float(end + tail) / total * more) for end in (terms[-1], terms[0]))
    return Outcomes(losses, symmetrised, rising, falling)


@dataclass(frozen=True, slots=True)
class OneWay:
    """Balanced masses at the losses step*(lowest + position); `rising` is what P has besides, `falling` what Q has.

    Masses may be too small by the relative `error`.
    """

    step: float
    lowest: int
    symmetrised: Floats
    rising: float
    falling: float
    error: float

    @property
    def mirrored(self) -> OneWay:
        """The same counts going the other way: P and Q are swapped."""
        lowest = 1 - self.lowest - self.symmetrised.size
        return OneWay(self.step, lowest, self.symmetrised[::-1], self.falling, self.rising, self.error)

    def times(self, other: OneWay) -> OneWay:
        """Multiply with a pair on the same grid."""
        terms = min(self.symmetrised.size, other.symmetrised.size)
        return OneWay(
            self.step,
            self.lowest + other.lowest,
            np.convolve(self.symmetrised, other.symmetrised),
            self.rising + other.rising * (1.0 - self.rising),  # totals are 1, or more by rounding
            self.falling + other.falling * (1.0 - self.falling),
            (self.error + other.error) * (1.0 + pld.MOST_ERROR) + ULP * (terms + 8),
        )

    def trimmed(self, charge: float) -> OneWay:
        """Fold both ends inwards, at a cost of at most `charge` of delta for either: the excess counts as infinite.

        What lies above a node keeps its Q there, what lies below one keeps its P.
        """
        top = self._last(charge)
        bottom = self.symmetrised.size - 1 - self.mirrored._last(charge)
        if bottom >= top:
            return self
        losses = self._losses()
        above, below = self.symmetrised[top + 1 :], self.symmetrised[:bottom]
        up, down = losses[top + 1 :] - losses[top], losses[bottom] - losses[:bottom]
        symmetrised = self.symmetrised[bottom : top + 1].copy()
        symmetrised[-1] += float(np.sum(above * np.exp(-up / 2)))
        symmetrised[0] += float(np.sum(below * np.exp(-down / 2)))
        rest = float(np.sum(above * np.exp(losses[top + 1 :] / 2) * -np.expm1(-up)))
        left = float(np.sum(below * np.exp(-losses[:bottom] / 2) * -np.expm1(-down)))
        rising, falling = min(1.0, self.rising + rest), min(1.0, self.falling + left)
        return OneWay(self.step, self.lowest + bottom, symmetrised, rising, falling, self.error + self._rounding())

    def heights(self) -> Floats:
        """Bound H(e^epsilon) from above at the losses 0, step, 2 step, ... of the grid; after the last one it stays."""
        top = max(0, self.lowest + self.symmetrised.size - 1)
        losses = self.step * np.arange(top + 1, dtype=np.float64)
        masses = np.zeros(top + 1)
        kept = self.symmetrised[max(0, -self.lowest) :][: top + 1]
        masses[top + 1 - kept.size :] = kept
        heights = pld.heights_of(self.step, losses, masses) + self.rising
        bounds: Floats = heights * (1.0 + self.error + 4.0 * self._rounding()) + 1e-300
        return bounds

    def _last(self, charge: float) -> int:
        """The lowest position above which P has no more than `charge`."""
        beyond = np.cumsum((self.symmetrised * np.exp(self._losses() / 2))[::-1])
        last = int(np.count_nonzero(beyond > charge)) - 1
        return min(last, int(_LARGEST_LOSS / self.step) - self.lowest)

    def _losses(self) -> Floats:
        return self.step * np.arange(self.lowest, self.lowest + self.symmetrised.size, dtype=np.float64)

    def _rounding(self) -> float:
        """Relative: of sums over all nodes, and of exponentials of losses, which are rounded themselves."""
        size = self.symmetrised.size
        return ULP * (size + 4.0 * self.step * max(abs(self.lowest), abs(self.lowest + size)) + 64.0)


# ---------------------------------------------------------------------------------------------------------------------
# Counts that change in pairs, one up and one down, as factors of a composition from above.
#
# Where neighbours move as many counts up as down, with equal noise in both, one factor is the product of N + 1 against
# N
# with N against N + 1: a pair of laws, not the larger of two profiles (docs/privacy.md).


@dataclass(frozen=True, slots=True)
class Paired:
    """So many pairs of counts with Binomial(trials, probability) noise each, in place of a `Factor`."""

    trials: int
    probability: float
    copies: int

    @property
    def deviation(self) -> float:
        """Roughly the deviation of the loss of one count, or less: it sets the grid."""
        # few outcomes are not smooth: a finer grid then keeps more of them apart
        return loss_deviation(self.trials, self.probability) / min(8.0, max(1.0, 64.0 / self.copies))

    @property
    def highest(self) -> float:
        """No finite loss of a pair is larger."""
        return 2.0 * highest_loss(self.trials, self.probability)

    @property
    def reach(self) -> float:
        """How far out losses are listed."""
        losses = listed(self.trials, self.probability).losses
        return float(losses[-1] - losses[0]) if losses.size else self.deviation

    def pld(self, step: float, reach: float) -> PrivacyLossDistribution:
        """A pair on the grid that dominates one factor, and is its own mirror image."""
        rising = listed(self.trials, self.probability).on_grid(step)
        both = rising.times(rising.mirrored)
        symmetrised = np.maximum(both.symmetrised, both.symmetrised[::-1])  # equal, but for rounding
        return PrivacyLossDistribution(step, both.lowest, symmetrised, max(both.rising, both.falling), both.error)


# ---------------------------------------------------------------------------------------------------------------------
# Counts that each go up or down as the data have it, several of them as one factor of a composition from above.
#
# Of b equal counts some number u goes up and b - u down. All these products are put on a grid, and the largest of
# their
# profiles dominates them all (docs/privacy.md). The larger the block, the less is given away: no neighbours have both
# directions at once, and a product leans less to one side than a count does. But u must be fixed before any outcome of
# the block is seen.


_MOST_COUNTS = 16  # of a block: its cost grows with them, and what is left to gain falls
_CHARGE = 1e-16  # of delta, for all truncation before blocks are multiplied


@dataclass(frozen=True, slots=True)
class Block:
    """So many blocks of `size` counts with Binomial(trials, probability) noise each, in place of a `Factor`."""

    trials: int
    probability: float
    size: int
    copies: int
    single: Factor

    @property
    def deviation(self) -> float:
        """That of one count: a block has the grid of its counts, so that nothing is lost against theirs."""
        return self.single.deviation

    @property
    def highest(self) -> float:
        """No finite loss of a block is larger."""
        return self.size * self.single.highest

    @property
    def reach(self) -> float:
        """How far out losses of one count matter."""
        return self.single.reach

    def pld(self, step: float, reach: float) -> PrivacyLossDistribution:
        """A pair on the grid that dominates one block, and is its own mirror image."""
        charge = _CHARGE / (self.size * self.copies)
        count = listed(self.trials, self.probability).on_grid(step).trimmed(charge)
        powers = list(accumulate(repeat(count, self.size), lambda power, one: power.times(one).trimmed(charge)))
        profiles = [pair.heights() for pair in every_way(powers)]
        top = max(heights.size for heights in profiles)
        largest = np.max([np.pad(heights, (0, top - heights.size), mode="edge") for heights in profiles], axis=0)
        last = int(np.count_nonzero(largest > largest[-1] + charge))  # from there on as if the loss were infinite
        return pld.dominating(step, largest[: last + 1], 0.0)


def every_way(powers: Sequence[OneWay]) -> list[OneWay]:
    """The products of u counts up and b - u down, u = 0..b, given the pairs of 1..b counts up."""
    *fewer, all_up = powers
    mixed = [up.times(down.mirrored) for up, down in zip(fewer, reversed(fewer), strict=True)]
    return [all_up.mirrored, *mixed, all_up]


def blocks_of(trials: int, probability: float, at_once: int, single: Factor) -> list[Block]:
    """Divide the copies of a count into blocks, each within one round: in later ones data may depend on outcomes."""
    rounds = single.copies // at_once
    return [Block(trials, probability, size, number * rounds, single) for size, number in divided(at_once)]


def divided(counts: int) -> list[tuple[int, int]]:
    """Sizes of blocks, and how many of each: equal ones if possible, else of two sizes."""
    most = next((size for size in range(_MOST_COUNTS, _MOST_COUNTS // 2, -1) if counts % size == 0), _MOST_COUNTS)
    size, larger = divmod(counts, blocks := -(-counts // most))
    return [(counts, copies) for counts, copies in ((size + 1, larger), (size, blocks - larger)) if copies]


# ---------------------------------------------------------------------------------------------------------------------
# What several counts that all go up show at least: the sum of their scores, which are losses rounded to a grid.
#
# Whoever looks at that sum alone sees less than the counts, so its profile is a lower bound; its laws in both worlds
# are convolved apart. Single outcomes of a count with little noise lie far apart, and merging them costs much; sums lie
# close to each other.


_DROPPED = 1e-20  # scores at the ends with no more of P than this are not looked at


def summed_pld_below(trials: int, probability: float, counts: int, step: float) -> PrivacyLossDistribution:
    """Return a pair on the grid below that of N + 1 against N in so many counts."""
    lowest, terms, total, tail = binomial_window(trials, probability, probability / (1.0 - probability), _OUTSIDE)
    law = terms / (total + tail)
    error = slack(terms.size)
    scores = np.floor(np.log(law[:-1] / law[1:]) / step).astype(np.int64)
    scores -= scores.min()
    single = [np.bincount(scores, weights=masses).astype(np.float64) for masses in (law[:-1], law[1:])]
    full = float(law[-1]) if lowest + terms.size - 1 == trials else 0.0  # a count that gives itself away
    upper, lower, infinite = single[0], single[1], full
    for _ in range(counts - 1):
        upper, lower = _without_ends(np.convolve(upper, single[0]), np.convolve(lower, single[1]))
        infinite += full * (1.0 - infinite)
    error = counts * (error + slack(single[0].size))
    pair = pld.grid_of_bins(upper, lower, step, error)
    return PrivacyLossDistribution(step, pair.lowest, pair.symmetrised, infinite * (1.0 - 2.0 * error), pair.error)


def _without_ends(upper: Floats, lower: Floats) -> tuple[Floats, Floats]:
    """Forget outcomes: that lowers any profile, by no more than P's mass there."""
    kept = np.flatnonzero(upper > _DROPPED)
    ends = slice(kept[0], kept[-1] + 1) if kept.size else slice(None)
    return upper[ends], lower[ends]


# ---------------------------------------------------------------------------------------------------------------------
# The accountant of a table of noisy counts: every cell changes by at most one.
#
# Replacing a user's data changes each count by -1, 0 or 1, and the noise is independent from cell to cell and round to
# round. A cell that does not change reveals nothing; one that does is N + 1 against N, or N against N + 1. Where
# directions are free, as the data have it, each block of equal cells of a round is dominated by the largest profile
# over how many go up, and the table by the product (docs/privacy.md); lower bounds let all cells go one way: a user
# whose digits are all 0 against all 1. Where at most so many counts go up and as many down, the product of just these
# is the worst case, above and below.

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
        variance = self.trials * self.probability * (1.0 - self.probability)
        if variance > _MOST_VARIANCE:
            raise PrivacyError(
                "not-certified",
                f"a cell's noise has variance {variance:.1e}; up to {_MOST_VARIANCE:.0e} can be "
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
            profile=lambda epsilons: profile_upper(trials, probability, epsilons),
            deviation=loss_deviation(trials, probability),
            highest=highest_loss(trials, probability),
            copies=self.copies,
            limit=infinity_mass(trials, probability),
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
            return float(profile_upper(only.trials, only.probability, np.array([epsilon]))[0])
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
    deviations = [loss_deviation(group.trials, group.probability) for group in groups]

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
    return [(pld_below(group.trials, chance, step), group.copies)]


def _summed(group: ChangedCounts, chance: float, step: float) -> list[composition.Copies]:
    sizes = divided(group.copies)
    return [(summed_pld_below(group.trials, chance, size, step), copies) for size, copies in sizes]


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
