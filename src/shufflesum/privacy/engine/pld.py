"""Privacy loss distributions (PLD) on a grid of losses: made from a privacy profile, composed, exported.

A pair of measures (P, Q) counts only through its privacy profile, the hockey-stick divergence H(w) = sup over events A
of P(A) - w Q(A), w = e^epsilon >= 0. If H <= H' everywhere then (P, Q) may be replaced by (P', Q') in any product, and
the product's profile can only grow (section "Composition" of docs/privacy.md): this holds for finite measures, not only
for probabilities. The PLD of (P', Q') then dominates that of (P, Q).

A node at loss x carries the mass r of the symmetrised pmf: P = r e^(x/2) and Q = r e^(-x/2). Products convolve it.

Relative errors are counted in `error`. Above, losses are exact and only symmetrised masses are rounded, so (1 + e) H(w)
is safe. Below, P and Q may be wrong each on its own, by a factor 1 +- e: (1 - e) H(w (1 + e)/(1 - e)) is safe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.errors import MissingExtraError, ParameterError, PrivacyError
from shufflesum.privacy.engine.laws import Floats, Integers, slack

if TYPE_CHECKING:
    from dp_accounting.pld import privacy_loss_distribution


ULP = 2.0**-52
MOST_ERROR = 1e-4  # relative, of all masses of a composition
BINS = 8  # per step of the grid, before atoms are gathered on it
_FAR = 8  # steps: merging over a longer way costs more than cutting
_VANISHED = 1e-180  # of P at losses below 600, where symmetrised masses are below the least double
_BALANCE = 1e-13  # a group whose P lacks no more than this part of e^y Q counts as balanced


@dataclass(frozen=True, slots=True)
class PrivacyLossDistribution:
    """The symmetrised pmf at the losses step*(lowest + position), and P's mass where Q has none."""

    step: float
    lowest: int
    symmetrised: Floats
    infinity_mass: float
    error: float

    def losses(self) -> Floats:
        """Return the loss of every node."""
        return self.step * np.arange(self.lowest, self.lowest + len(self.symmetrised), dtype=np.float64)

    def upper_masses(self) -> Floats:
        """Return P's mass at every node."""
        return self.symmetrised * np.exp(self.losses() / 2)

    def hockey_stick_divergence(self, epsilon: float) -> float:
        """Return the stored pair's own H(e^epsilon), without regard to `error`."""
        losses = self.losses()
        first = int(np.searchsorted(losses, epsilon, side="right"))
        above = losses[first:]
        weights = self.symmetrised[first:] * np.exp(above / 2)
        return self.infinity_mass + float(np.dot(weights, -np.expm1(epsilon - above)))

    def delta_upper(self, epsilon: float) -> float:
        """Bound the profile of every pair whose symmetrised pmf exceeds this one by `error` at most, from above."""
        return min(1.0, self.hockey_stick_divergence(epsilon - self._rounding(epsilon)) * (1.0 + self._relative()))

    def delta_lower(self, epsilon: float) -> float:
        """Bound the profile of every pair whose P and Q lie within `error` of these, from below."""
        shift = 2.1 * self.error + self._rounding(epsilon)
        return self.hockey_stick_divergence(epsilon + shift) * (1.0 - self._relative())

    def heights_above(self) -> tuple[Floats, Floats]:
        """Losses from 0 on, and upper bounds of the profile there, in the sense of `delta_upper`; by positive sums.

        The last height is that of all losses beyond. Masses that are too small for double precision are added to it.
        """
        losses = self.losses()[-self.lowest :]
        heights = heights_of(self.step, losses, self.symmetrised[-self.lowest :]) + (self.infinity_mass + _VANISHED)
        rounding = ULP * (4 * losses.size + 4 * float(losses[-1]) + 32)
        return losses, np.minimum(heights * (1.0 + self.error + rounding) * (1.0 + 4 * ULP), 1.0)

    def _relative(self) -> float:
        return self.error + ULP * (len(self.symmetrised) + 16)

    def _rounding(self, epsilon: float) -> float:
        # the product step*index moves a loss by an ulp of itself
        reach = self.step * max(abs(self.lowest), abs(self.lowest + len(self.symmetrised)))
        return 4 * ULP * (abs(epsilon) + reach + 1.0)


def heights_of(step: float, losses: Floats, symmetrised: Floats) -> Floats:
    """The profile of finite losses at rising nodes, by positive sums: it falls by Q's mass above, times that of w."""
    beyond = np.cumsum((symmetrised * np.exp(-losses / 2))[:0:-1])[::-1]
    falls = np.exp(losses[:-1]) * math.expm1(step) * beyond
    return np.append(np.cumsum(falls[::-1])[::-1], 0.0)


def dominating(step: float, profile: Floats, error: float) -> PrivacyLossDistribution:
    """Return a symmetric pair whose profile is above any symmetric one that is below `profile` at 0, h, 2h, ...

    Let H be the convex falling profile, symmetric in the sense H(1/w) = 1 - (1 - H(w))/w, of which upper bounds
    are given. The lower convex hull of the bounds (and of their mirror images) is still above H at the nodes,
    and its polygon is above H between them because H is convex. After the last node it stays constant: that
    height is mass at infinite loss. The slope of the polygon changes by Q's mass at each node.
    """
    top = len(profile) - 1
    losses = step * np.arange(top + 1, dtype=np.float64)
    heights = np.minimum.accumulate(np.minimum(profile, 1.0))
    # the hull's edge across w = 1, if there is one, runs between mirror images, hence passes here:
    across = 2.0 * heights / (1.0 + np.exp(losses)) + np.tanh(losses / 2)
    heights[0] = min(heights[0], float(np.min(across)))
    odds = np.expm1(losses)  # w - 1
    vertices = _lower_hull(odds, heights)
    slopes = np.append(np.diff(heights[vertices]) / np.diff(odds[vertices]), 0.0)
    masses = np.zeros(top + 1)
    masses[vertices[1:]] = np.maximum(np.diff(slopes), 0.0)  # Q's
    symmetrised = masses * np.exp(losses / 2)
    infinite = float(heights[-1])
    # Both totals must reach 1. What the middle node takes is privacy-neutral.
    rest = infinite + float(np.sum(symmetrised * 2.0 * np.cosh(losses / 2)))
    symmetrised[0] = max(0.0, 1.0 - rest) + 4 * ULP
    # certify the rounded polygon instead of trusting it: rebuild its heights from the masses, by positive sums
    beyond = np.cumsum(masses[:0:-1])[::-1]
    rebuilt = np.append(np.cumsum((np.diff(odds) * beyond)[::-1])[::-1] + infinite, infinite)
    short = np.max((heights[vertices] - rebuilt[vertices]) / np.maximum(rebuilt[vertices], 1e-300))
    rounding = max(0.0, float(short)) + ULP * (8 * top + 4 * float(losses[-1]) + 16)
    both = np.concatenate([symmetrised[:0:-1], symmetrised])
    return PrivacyLossDistribution(step, -top, both, infinite, checked_error(error + rounding))


@kernel
def _lower_hull(x: Floats, y: Floats) -> Integers:
    """Return the indices of the lower convex hull's vertices; x rises."""
    stack = np.empty(len(x), dtype=np.int64)
    size = 0
    for i in range(len(x)):
        while size >= 2:
            a, b = stack[size - 2], stack[size - 1]
            if (y[b] - y[a]) * (x[i] - x[b]) < (y[i] - y[b]) * (x[b] - x[a]):
                break
            size -= 1
        stack[size] = i
        size += 1
    return stack[:size]


def dominated(step: float, upper: Floats, lower: Floats, error: float) -> PrivacyLossDistribution:
    """Return a pair on the grid whose profile is below that of the atoms (P, Q) = (upper, lower), P/Q rising.

    Merging atoms is post-processing, so it lowers the profile; so does lowering P. Atoms (or fractions of them)
    are merged into groups whose common loss is a grid point exactly, and P is cut only where that fails.
    """
    ratio = np.log(upper / lower)
    lowest = math.floor(float(ratio[0]) / step) - 1
    highest = math.ceil(float(ratio[-1]) / step) + 1
    symmetrised = gather(ratio, np.sqrt(upper * lower), step, lowest, highest)
    return PrivacyLossDistribution(step, lowest, symmetrised, 0.0, checked_error(error + merging_error(ratio)))


def grid_of_atoms(upper: Floats, lower: Floats, step: float, error: float) -> PrivacyLossDistribution:
    """Return a pair on the grid below that of the atoms (P, Q) = (upper, lower), both positive."""
    index = np.floor(np.log(upper / lower) / (step / BINS)).astype(np.int64)
    index -= index.min()
    above, below = (np.bincount(index, weights=masses).astype(np.float64) for masses in (upper, lower))
    return grid_of_bins(above, below, step, error + slack(upper.size))


def grid_of_bins(upper: Floats, lower: Floats, step: float, error: float) -> PrivacyLossDistribution:
    """The same for atoms that were added up in bins of losses, in rising order, some of them empty."""
    kept = (upper > 1e-290) & (lower > 1e-290)
    upper, lower = upper[kept], lower[kept]
    if not upper.size:  # nothing of finite loss
        return PrivacyLossDistribution(step, 0, np.zeros(1), 0.0, error)
    order = np.argsort(upper / lower, kind="stable")  # rounding at the edges of bins may swap neighbours
    return dominated(step, upper[order], lower[order], error)


@kernel
def gather(losses: Floats, masses: Floats, step: float, lowest: int, highest: int) -> Floats:
    """Merge atoms (rising losses, symmetrised masses) into grid nodes so that the profile only falls.

    From the top down to the middle, each node forms a group with its own loss; if no atom is near enough for that,
    P is cut. From the bottom up the same, except that an unbalanced group goes to the node below, with P cut.
    With many atoms nothing is cut, and groups are one step wide: the loss is of second order in the step.
    """
    out = np.zeros(highest - lowest + 1)
    left = masses.copy()
    middle = int(np.round(losses[np.argmax(masses)] / step))
    high = len(losses) - 1
    for node in range(highest, middle, -1):
        high, lower, excess = _group(losses, left, high, -1, 1, node * step, _FAR * step)
        out[node - lowest] += lower
    low = 0
    for node in range(lowest, middle):
        low, lower, excess = _group(losses, left, low, high + 1, -1, node * step, _FAR * step)
        if excess <= 0:
            out[node - lowest] += lower
        else:
            out[node - 1 - lowest] += lower * np.exp(-step / 2)
    # What is left lies around the middle; it borrows from a neighbouring node what it needs for its balance.
    apart = losses[low : high + 1] - middle * step
    lower = np.sum(left[low : high + 1] * np.exp(-apart / 2))
    excess = np.sum(left[low : high + 1] * 2 * np.sinh(apart / 2))
    at = middle - lowest
    lender = at - 1 if excess > 0 else at + 1
    borrowed = min(out[lender], abs(excess) / (2 * np.sinh(step / 2)))
    out[lender] -= borrowed
    lower += borrowed * np.exp((at - lender) * step / 2)
    excess += borrowed * 2 * np.sinh((lender - at) * step / 2)
    if excess >= -_BALANCE * lower:
        out[at] += lower
    else:
        out[at - 1] += lower * np.exp(-step / 2)
    return out


@kernel
def _group(
    losses: Floats, left: Floats, at: int, end: int, sign: int, y: float, far: float
) -> tuple[int, float, float]:
    """Take all atoms from `at` on that lie beyond y, then nearer ones (the last in part) until P = e^y Q.

    `sign` is 1 for beyond = above. Returns where it stopped, the group's Q as a symmetrised mass at y, and
    the imbalance that is left because no more atoms lay within `far`.
    """
    lower = 0.0
    excess = 0.0
    while at != end and sign * (losses[at] - y) >= -_BALANCE:
        lower += left[at] * np.exp((y - losses[at]) / 2)
        excess += left[at] * 2 * np.sinh(sign * (losses[at] - y) / 2)
        left[at] = 0.0
        at -= sign
    while excess > 0 and at != end and abs(losses[at] - y) < far:
        weight = 2 * np.sinh(abs(losses[at] - y) / 2)
        take = min(left[at], excess / weight)
        lower += take * np.exp((y - losses[at]) / 2)
        if take < left[at]:
            left[at] -= take
            return at, lower, 0.0
        excess -= take * weight
        left[at] = 0.0
        at -= sign
    return at, lower, excess


def merging_error(losses: Floats) -> float:
    """Bound the relative error that `gather` adds, given the losses it starts from."""
    # exponentials of differences of losses, short sums, and what the middle group may lack
    return ULP * (64 + 4 * max(abs(float(losses[0])), abs(float(losses[-1])))) + _BALANCE


def checked_error(error: float) -> float:
    """Refuse a relative error that would matter."""
    if not error < MOST_ERROR:
        raise PrivacyError(
            "not-certified",
            f"rounding errors add up to {error:.1e} of delta, more than {MOST_ERROR}: double precision cannot certify "
            "this composition; collect fewer reports or rounds, or add more noise",
        )
    return error


# ---------------------------------------------------------------------------------------------------------------------
# Products, by direct convolution of symmetrised pmfs. All steps add and multiply positive numbers, so relative
# precision survives down to any delta, and no transform, wrap-around or exponential tilting is needed: grids are
# coarsened instead, always to the safe side.


_MOST_NODES = 1600  # longer arrays are coarsened; a composed law then keeps about 40 nodes per standard deviation
_LARGEST_LOSS = 300.0  # above, P counts as infinite loss before exponentials overflow


def power_above(single: PrivacyLossDistribution, copies: int, charge: float) -> PrivacyLossDistribution:
    """Return a pair that dominates the product of `copies` copies; truncation costs at most `charge` of delta.

    `single` must be symmetric, as `dominating` makes it.
    """
    return _power(single, copies, charge, _ABOVE)


def power_below(single: PrivacyLossDistribution, copies: int, charge: float) -> PrivacyLossDistribution:
    """Return a pair dominated by the product of `copies` copies; truncation costs at most `charge` of delta."""
    return _power(single, copies, charge, _BELOW)


def product_above(pairs: Sequence[PrivacyLossDistribution], charge: float) -> PrivacyLossDistribution:
    """Return a pair that dominates the product of symmetric ones, whose steps differ by powers of two."""
    return _products(pairs, charge, _ABOVE)


def product_below(pairs: Sequence[PrivacyLossDistribution], charge: float) -> PrivacyLossDistribution:
    """Return a pair dominated by the product of several, whose steps differ by powers of two."""
    return _products(pairs, charge, _BELOW)


@dataclass(frozen=True, slots=True)
class _Side:
    """How arrays are kept short: to which side cuts (at so much of delta) and coarser grids err."""

    trim: Callable[[PrivacyLossDistribution, float], PrivacyLossDistribution]
    coarsen: Callable[[PrivacyLossDistribution], PrivacyLossDistribution]


def _power(single: PrivacyLossDistribution, copies: int, charge: float, side: _Side) -> PrivacyLossDistribution:
    most_nodes = max(_MOST_NODES, len(single.symmetrised) * 3 // 2)

    def product(a: PrivacyLossDistribution, b: PrivacyLossDistribution, count: int) -> PrivacyLossDistribution:
        # a cut in a product of `count` copies is repeated copies/count times, on each of the levels
        return _product(a, b, charge * count / (copies * 2 * copies.bit_length()), most_nodes, side)

    base, base_count, result, result_count = single, 1, None, 0
    while True:
        if copies & base_count:
            result_count += base_count
            result = base if result is None else product(result, base, result_count)
            if result_count == copies:
                return result
        base_count *= 2
        base = product(base, base, base_count)


def _products(pairs: Sequence[PrivacyLossDistribution], charge: float, side: _Side) -> PrivacyLossDistribution:
    joint, *others = sorted(pairs, key=lambda pair: pair.step)
    for other in others:
        joint = _product(joint, other, charge / len(others), _MOST_NODES, side)
    return joint


def _product(
    a: PrivacyLossDistribution, b: PrivacyLossDistribution, charge: float, most_nodes: int, side: _Side
) -> PrivacyLossDistribution:
    """Multiply two pairs, on the coarser of their grids, whose steps differ by a power of two."""
    while a.step < b.step:
        a = side.coarsen(a)
    while b.step < a.step:
        b = side.coarsen(b)
    terms = min(len(a.symmetrised), len(b.symmetrised))
    error = (a.error + b.error) * (1 + MOST_ERROR) + ULP * (terms + 8)
    symmetrised = np.convolve(a.symmetrised, b.symmetrised)
    infinite = a.infinity_mass + b.infinity_mass * (1.0 - a.infinity_mass)  # totals are 1 up to `error`
    product = PrivacyLossDistribution(a.step, a.lowest + b.lowest, symmetrised, infinite, checked_error(error))
    joint = side.trim(product, charge)
    while len(joint.symmetrised) > most_nodes:
        joint = side.coarsen(joint)
    return joint


def trim_above(pld: PrivacyLossDistribution, charge: float) -> PrivacyLossDistribution:
    """Fold both ends of a symmetric pair inwards: above, Q stays and the rest of P counts as infinite loss."""
    middle = -pld.lowest
    x = pld.step * np.arange(middle + 1, dtype=np.float64)
    r = pld.symmetrised[middle:]
    beyond = np.append(np.cumsum((r * np.exp(-x / 2))[:0:-1])[::-1], 0.0)  # Q's mass above each node
    # what P loses to infinity if node i is the last: sum over j > i of P_j - e^(x_i) Q_j, or somewhat more far out
    near = int(np.searchsorted(x, _LARGEST_LOSS))
    costs = np.append(np.cumsum((np.diff(np.expm1(x[:near])) * beyond[: near - 1])[::-1])[::-1], 0.0)
    costs += float(np.sum(r[near:] * np.exp(x[near:] / 2)))
    top = min(max(1, int(np.searchsorted(-costs, -charge))), near - 1)
    if top >= middle:
        return pld
    symmetrised = pld.symmetrised[middle - top : middle + top + 1].copy()
    symmetrised[-1] += beyond[top] * math.exp(x[top] / 2)
    symmetrised[0] = symmetrised[-1]
    # exact here, so that P's total stays 1 and `_product` may rely on it
    cut = float(np.sum(r[top + 1 :] * np.exp(x[top + 1 :] / 2) * -np.expm1(x[top] - x[top + 1 :])))
    infinite = min(1.0, pld.infinity_mass + cut)
    return PrivacyLossDistribution(pld.step, -top, symmetrised, infinite, pld.error + ULP * (2 * middle + 8))


def _trim_below(pld: PrivacyLossDistribution, charge: float) -> PrivacyLossDistribution:
    """Drop nodes at both ends: whatever is dropped can only lower the profile, by at most P's mass there."""
    p = pld.upper_masses()
    first = int(np.searchsorted(np.cumsum(p), charge / 2))
    last = len(p) - int(np.searchsorted(np.cumsum(p[::-1]), charge / 2))
    if first >= last:
        return pld
    return PrivacyLossDistribution(
        pld.step, pld.lowest + first, pld.symmetrised[first:last], pld.infinity_mass, pld.error
    )


def _evened(pld: PrivacyLossDistribution) -> tuple[int, Floats]:
    """Pad with empty nodes so that the ends lie on the grid of twice the step."""
    front = pld.lowest % 2
    back = (pld.lowest + len(pld.symmetrised) - 1) % 2
    return pld.lowest - front, np.pad(pld.symmetrised, (front, back))


def coarsen_above(pld: PrivacyLossDistribution) -> PrivacyLossDistribution:
    """Split each odd node between its neighbours, keeping P and Q: spreading losses raises the profile.

    In symmetrised masses both neighbours get the same share 1/(2 cosh(step/2)).
    """
    lowest, symmetrised = _evened(pld)
    halves = symmetrised[1::2] / (2.0 * math.cosh(pld.step / 2))
    even = symmetrised[::2].copy()
    even[1:] += halves
    even[:-1] += halves
    return PrivacyLossDistribution(2 * pld.step, lowest // 2, even, pld.infinity_mass, pld.error + 8 * ULP)


def _coarsen_below(pld: PrivacyLossDistribution) -> PrivacyLossDistribution:
    """Merge neighbours into the nodes of the grid of twice the step."""
    step = 2 * pld.step
    lowest = pld.lowest // 2 - 1
    highest = (pld.lowest + len(pld.symmetrised)) // 2 + 1
    x = pld.losses()
    symmetrised = gather(x, pld.symmetrised, step, lowest, highest)
    return PrivacyLossDistribution(step, lowest, symmetrised, pld.infinity_mass, pld.error + merging_error(x))


_ABOVE, _BELOW = _Side(trim_above, coarsen_above), _Side(_trim_below, _coarsen_below)


# ---------------------------------------------------------------------------------------------------------------------
# Export to Google's `dp_accounting`, to compose with anything else.


def check_interval(value_discretization_interval: float) -> float:
    """Refuse what is no step of a grid."""
    if not 0.0 < value_discretization_interval < math.inf:
        raise ParameterError(
            "out-of-range",
            f"value_discretization_interval = {value_discretization_interval}: must be positive and finite; change it",
        )
    return value_discretization_interval


def to_dp_accounting(
    pld: PrivacyLossDistribution, interval: float
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Return the pessimistic PLD of `dp_accounting` for a symmetric one whose step is `interval` x a power of two."""
    try:
        from dp_accounting.pld import privacy_loss_distribution
        from dp_accounting.pld.pld_pmf import DensePLDPmf
    except ImportError as error:
        raise MissingExtraError(
            "missing-extra",
            "dp_accounting is not installed: install the extra `accounting` (pip install 'shufflesum[accounting]')",
        ) from error
    while pld.step < interval:
        pld = coarsen_above(pld)
    stride = round(pld.step / interval)
    masses = np.zeros((len(pld.symmetrised) - 1) * stride + 1)
    masses[::stride] = pld.upper_masses() * (1.0 + pld.error)
    infinite = pld.infinity_mass * (1.0 + pld.error)
    pmf = DensePLDPmf(interval, pld.lowest * stride, masses, infinite, True)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)
