"""The accountant of noise in slots: a user sends its true cell, and slots that are a uniform cell or blank.

One round needs no grid, several are a product. All adjacent data sets look alike: the victim's cell against another
one. So the upper and the lower bound are of the same sum, and differ by rounding and cells of s alone; in several
rounds by the grids, too. The pair is its own mirror image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shufflesum._checks import check_number, check_size
from shufflesum._compiled import kernel
from shufflesum._search import GRID, bracket
from shufflesum.cells import MOST_CELLS
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.accountant import MOST_USERS, PrivacyAccountant
from shufflesum.privacy.engine import composition
from shufflesum.privacy.engine.gaussian import gaussian_noise
from shufflesum.privacy.engine.laws import (
    Floats,
    Integers,
    Mixture,
    binomial_window,
    cell_edges,
    evaluate_lower,
    evaluate_upper,
    slack,
)
from shufflesum.privacy.engine.pld import BINS, PrivacyLossDistribution, grid_of_bins

MOST_HITS = 1e12  # dummy reports in two cells: their law is then listed over tens of millions of counts
_MOST_TRIALS = 2**53 - 1  # counts are exact as floating-point numbers
_ANSWERS = 256  # composed bounds that are remembered
_NODES = 40  # of the lower bounds' grid per deviation: cheap, because atoms are listed one by one


@dataclass(frozen=True, slots=True)
class NoisySlotsAccountant(PrivacyAccountant):
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
        check_size("rounds", self.rounds, 1, composition.MOST_COMPOSITIONS)
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
                f"a cell has {self.trials * self.chance / self.cells:.1e} dummy reports; up to {MOST_HITS / 2:.0e} can "
                "be certified: lower the chance or the slots",
            )

    def delta_upper(self, epsilon: float) -> float:
        """Return a delta for which all rounds together are certainly (epsilon, delta)-private."""
        epsilon = composition.check_epsilon(epsilon)
        return self._height(epsilon, upper=True) if self._needs_no_grid else _upper(self).delta(epsilon)

    def delta_lower(self, epsilon: float) -> float:
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some adjacent data sets."""
        epsilon = composition.check_epsilon(epsilon)
        return self._height(epsilon, upper=False) if self._needs_no_grid else _lower(self).delta(epsilon)

    def epsilon_upper(self, delta: float) -> float:
        """Return an epsilon for which all rounds together are certainly (epsilon, delta)-private; may be infinite."""
        return self._crossing(delta, upper=True)[1] if self._needs_no_grid else _upper(self).epsilon(delta)

    def epsilon_lower(self, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        return self._crossing(delta, upper=False)[0] if self._needs_no_grid else _lower(self).epsilon(delta)

    def upper(self, *, interval: float | None = None) -> composition.ComposedUpper:
        """Bound all rounds together from above, on a grid of `interval` x a power of two."""
        return composition.compose_profiles([self._factor] if self.cells > 1 else [], interval=interval)

    def pld(self, interval: float) -> PrivacyLossDistribution:
        """A symmetric PLD, on a grid of `interval` x a power of two, that dominates all rounds."""
        return self.upper(interval=interval).pld

    @property
    def _needs_no_grid(self) -> bool:
        return self.rounds == 1 or self.cells == 1

    @property
    def _factor(self) -> composition.Factor:
        return composition.Factor(
            profile=_profile(self.trials, self.chance, self.cells, upper=True),
            deviation=loss_deviation(self.trials, self.chance, self.cells),
            highest=highest_loss(self.trials),
            copies=self.rounds,
            limit=infinity_mass(self.trials, self.chance, self.cells),
        )

    def _height(self, epsilon: float, *, upper: bool) -> float:
        if self.cells == 1:
            return 0.0  # every report is the same
        return float(_profile(self.trials, self.chance, self.cells, upper=upper)(np.array([epsilon]))[0])

    def _crossing(self, delta: float, *, upper: bool) -> tuple[float, float]:
        """Return epsilons (low, high) with delta(low) > delta >= delta(high); (0, 0), or (.., infinity)."""
        composition.check_single_delta(delta)
        if self._height(0.0, upper=upper) <= delta:
            return 0.0, 0.0
        return bracket(
            lambda epsilon: self._height(epsilon, upper=upper),
            delta,
            guess=1.0,
            highest=highest_loss(self.trials) + 1.0,
            tolerance=1e-11,
        )


def _profile(trials: int, chance: float, cells: int, *, upper: bool) -> composition.PrivacyProfile:
    mixture = _mixture(trials, chance, cells, upper)
    if upper:
        return lambda epsilons: np.minimum(evaluate_upper(mixture, epsilons), 1.0)
    return lambda epsilons: evaluate_lower(mixture, epsilons)


@lru_cache(maxsize=8)
def _mixture(trials: int, chance: float, cells: int, upper: bool) -> Mixture:
    return _slots_mixture(trials, chance, cells, upper=upper)


@lru_cache(maxsize=_ANSWERS)
def _upper(accountant: NoisySlotsAccountant) -> composition.ComposedUpper:
    return accountant.upper()


@lru_cache(maxsize=_ANSWERS)
def _lower(accountant: NoisySlotsAccountant) -> composition.ComposedLower:
    # few outcomes are not smooth: a finer grid then keeps more of them apart
    finer = _NODES * min(8.0, max(1.0, 64.0 / accountant.rounds))
    step = loss_deviation(accountant.trials, accountant.chance, accountant.cells) / finer
    return composition.compose_pairs(
        [[(pld_below(accountant.trials, accountant.chance, accountant.cells, step), accountant.rounds)]]
    )


# ---------------------------------------------------------------------------------------------------------------------
# The two counts in which adjacent data sets differ, when noise falls into cells from slots.
#
# Of T slots S ~ Binomial(T, 2 chance/K) hit one of the two cells, evenly split; the victim adds one. With s = S + 1
# reports in both cells, a of them in its own and b in the other, the worlds weigh (2/s) a and (2/s) b relative to a
# fair split of s, so that with w = e^eps
#     delta(eps) = sum over s >= 1 of P[S = s - 1] (2/s) E(a - w b)+,   a ~ Binomial(s, 1/2).
# Nothing else tells the worlds apart (docs/privacy.md), so this is exact, for every data set. It falls in T and in the
# chance. For K = 1 there is nothing to tell apart.


_OUTSIDE = 1e-24  # probability that a window may leave out
_CELL = 5e-5  # width of a cell of s relative to s; about that much is lost in noise
_COARSE_CELL = 5e-4  # the same in compositions from below; half of it is lost in noise
_MOST_BINS = 1 << 18  # on either side; atoms beyond share the last one


def loss_deviation(trials: int, chance: float, cells: int) -> float:
    """Return roughly the standard deviation of the loss: it sets grids, never bounds."""
    return min(1.0, math.sqrt(2.0 * cells / (trials * chance)))


def highest_loss(trials: int) -> float:
    """Return a loss above every finite one: log(a/b) with a <= T and b >= 1."""
    return math.log(trials) + 1e-9


def infinity_mass(trials: int, chance: float, cells: int) -> float:
    """Return an upper bound of the chance that a cell has no noise, (1 - chance/K)^T: the loss is infinite then."""
    return math.exp(trials * math.log1p(-chance / cells)) * (1.0 + 1e-12) + 1e-300


def _hits(trials: int, chance: float, cells: int, *, upper: bool) -> tuple[int, Floats, float, float]:
    """The law of S as a window; the odds of a hit are rounded to the safe side: down for an upper bound."""
    hit = 2.0 * chance
    if hit == cells:
        return trials, np.ones(1), 1.0, 0.0
    # K - 2 chance and the quotient are rounded once each
    odds = hit / (cells - hit) * (1.0 - 2.0**-50 if upper else 1.0 + 2.0**-50)
    return binomial_window(trials, hit / cells, odds, _OUTSIDE)


def _slots_mixture(trials: int, chance: float, cells: int, *, upper: bool) -> Mixture:
    """Lay out the sum for K >= 2 cells, above or below; a world outside the window counts 1 at most."""
    lowest, terms, total, tail = _hits(trials, chance, cells, upper=upper)
    edges = cell_edges(lowest + 1, terms.size, _CELL)
    sizes = lowest + 1 + np.arange(terms.size, dtype=np.int64)
    weights = 2.0 * terms / (total if upper else total + tail) / sizes
    least, greatest = sizes[edges[:-1]], sizes[edges[1:] - 1]
    return Mixture(
        factor=1.0,
        sizes=greatest if upper else least,
        drifts=least if upper else greatest,
        first_nodes=np.arange(edges.size, dtype=np.int64),
        shifts=np.zeros(edges.size - 1),
        weights=np.add.reduceat(weights, edges[:-1]),
        outside=tail / total,
        steps=terms.size,
    )


def pld_below(trials: int, chance: float, cells: int, step: float) -> PrivacyLossDistribution:
    """Return a pair on the grid below that of the two worlds.

    Where s is large the adversary keeps a random s0 of the s reports, s0 being the least of a cell of s, and forgets
    the rest and s: then a' ~ Binomial(s0, 1/2), and a becomes its mean a' + (s - s0)/2. That is post-processing.
    """
    lowest, terms, total, tail = _hits(trials, chance, cells, upper=False)
    edges = cell_edges(lowest + 1, terms.size, _COARSE_CELL)
    fine = step / BINS
    reach = min(math.ceil(highest_loss(trials) / fine) + 2, _MOST_BINS)
    upper, lower, infinite, longest = _bins(lowest + 1, terms / (total + tail), edges, fine, reach)
    error = slack(terms.size + longest)
    pair = grid_of_bins(upper, lower, step, error)
    return PrivacyLossDistribution(pair.step, pair.lowest, pair.symmetrised, infinite * (1.0 - 2.0 * error), pair.error)


@kernel
def _bins(first: int, masses: Floats, edges: Integers, fine: float, reach: int) -> tuple[Floats, Floats, float, int]:
    upper = np.zeros(2 * reach + 1)
    lower = np.zeros(2 * reach + 1)
    infinite = 0.0
    longest = 0
    for cell in range(edges.size - 1):
        kept = first + edges[cell]
        slope = 0.0
        base = 0.0
        mass = 0.0
        for i in range(edges[cell], edges[cell + 1]):
            mass += masses[i]
            slope += 2.0 * masses[i] / (first + i)
            base += masses[i] * (first + i - kept) / (first + i)
        if mass < 1e-290:
            continue
        lowest, terms, total, tail = binomial_window(kept, 0.5, 1.0, min(1e-3, _OUTSIDE / mass))
        longest = max(longest, terms.size)
        for j in range(terms.size):
            a = lowest + j
            share = terms[j] / (total + tail)
            p = share * (slope * a + base)
            q = share * (slope * (kept - a) + base)
            if q <= 0.0:
                infinite += p
            elif p > 0.0:
                index = min(max(int(np.floor(np.log(p / q) / fine)) + reach, 0), 2 * reach)
                upper[index] += p
                lower[index] += q
    return upper, lower, infinite, longest


# ---------------------------------------------------------------------------------------------------------------------
# How little noise in slots is enough.


_FINE_NOISE = 10_000.0  # per cell; from about twice that on cells of s are coarser than one
_MANY_TRIALS = 2**20  # for each noise report of a cell: its law is then as good as Poisson's


def smallest_chance(honest_users: int, slots: int, cells: int, epsilon: float, delta: float, rounds: int = 1) -> float:
    """Return the least chance of a slot that is certainly enough, a multiple of 2**-53; infinity if 1 is too little.

    `delta_upper` at the returned value is at most delta. It is within 1e-9 of the least one (1e-6 where cells hold more
    than 10,000 dummy reports, 1e-4 in several rounds).
    """
    check_size("honest_users", honest_users, 1, MOST_USERS)
    check_size("slots", slots, 1, MOST_USERS)
    _check_target(epsilon, delta, rounds)
    trials = int(honest_users) * int(slots)
    NoisySlotsAccountant(trials, 1.0 / GRID, cells, rounds)  # refuses what no chance can make right
    if cells == 1:
        return 1.0 / GRID
    guess = noise_per_cell_guess(epsilon, delta, rounds)
    return _least_chance(trials, cells, epsilon, delta, rounds, guess) if math.isfinite(guess) else math.inf


def rough_noise_per_cell(epsilon: float, delta: float, rounds: int = 1) -> float:
    """The same as `noise_per_cell_guess` at once, and the closer the more it is: what Gaussian noise would take."""
    _check_target(epsilon, delta, rounds)
    # two counts move by one, each with its own noise; and an empty cell gives itself away
    return max(2.0 * rounds * gaussian_noise(epsilon, delta) ** 2, math.log(rounds / delta))


@lru_cache(maxsize=1024)
def noise_per_cell_guess(epsilon: float, delta: float, rounds: int = 1) -> float:
    """Guess the dummy reports per cell that (epsilon, delta) takes: it depends on nothing else when slots are many.

    So many slots with a small chance each need this much, and fewer with a larger chance hardly less. Only a guess, for
    planning: `smallest_chance` certifies. Infinity where it is more than can be certified.
    """
    guess = rough_noise_per_cell(epsilon, delta, rounds)
    if guess > MOST_HITS / 2:  # more than can be certified, and to find that out would list tens of millions of counts
        return math.inf
    trials = min(2**52, math.ceil(guess) * _MANY_TRIALS)
    return _least_chance(trials, 2, epsilon, delta, rounds, guess) * (trials / 2)


def _least_chance(trials: int, cells: int, epsilon: float, delta: float, rounds: int, guess: float) -> float:
    """The same, given a guess of the noise per cell."""
    _, high = bracket(
        lambda chance: NoisySlotsAccountant(trials, chance, cells, rounds).delta_upper(epsilon),
        delta,
        guess=min(1.0, guess * cells / trials),
        highest=min(1.0, 0.49 * MOST_HITS * cells / trials),  # what can be certified
        tolerance=1e-4 if rounds > 1 else 1e-9 if guess < _FINE_NOISE else 1e-6,
        first_factor=1.01,
    )
    return high


def _check_target(epsilon: float, delta: float, rounds: int) -> None:
    if composition.check_epsilon(epsilon) == 0.0:
        raise PrivacyError("out-of-range", "epsilon = 0: a target must be positive; raise epsilon")
    (composition.check_single_delta if rounds == 1 else composition.check_delta)(delta)
