"""Products of pairs on a grid of losses, by direct convolution of positive numbers.

Products convolve balanced masses. All steps add and multiply positive numbers, so relative precision survives down to
any delta, and no transform, wrap-around or exponential tilting is needed: grids are coarsened instead, always to the
safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shufflesum.privacy.engine.laws import Floats
from shufflesum.privacy.engine.losses import MOST_ERROR, ULP, GridLosses, checked_error, gather, merging_error

__all__ = ["coarsen_above", "power_above", "power_below", "product_above", "product_below", "trim_above"]

_MOST_NODES = 1600  # longer arrays are coarsened; a composed law then keeps about 40 nodes per standard deviation
_LARGEST_LOSS = 300.0  # above, P counts as infinite loss before exponentials overflow


def power_above(single: GridLosses, copies: int, charge: float) -> GridLosses:
    """Return a pair that dominates the product of `copies` copies; truncation costs at most `charge` of delta.

    `single` must be symmetric, as `dominating` makes it.
    """
    return _power(single, copies, charge, _ABOVE)


def power_below(single: GridLosses, copies: int, charge: float) -> GridLosses:
    """Return a pair dominated by the product of `copies` copies; truncation costs at most `charge` of delta."""
    return _power(single, copies, charge, _BELOW)


def product_above(pairs: Sequence[GridLosses], charge: float) -> GridLosses:
    """Return a pair that dominates the product of symmetric ones, whose steps differ by powers of two."""
    return _products(pairs, charge, _ABOVE)


def product_below(pairs: Sequence[GridLosses], charge: float) -> GridLosses:
    """Return a pair dominated by the product of several, whose steps differ by powers of two."""
    return _products(pairs, charge, _BELOW)


@dataclass(frozen=True, slots=True)
class _Side:
    """How arrays are kept short: to which side cuts (at so much of delta) and coarser grids err."""

    trim: Callable[[GridLosses, float], GridLosses]
    coarsen: Callable[[GridLosses], GridLosses]


def _power(single: GridLosses, copies: int, charge: float, side: _Side) -> GridLosses:
    most_nodes = max(_MOST_NODES, len(single.balanced) * 3 // 2)

    def product(a: GridLosses, b: GridLosses, count: int) -> GridLosses:
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


def _products(pairs: Sequence[GridLosses], charge: float, side: _Side) -> GridLosses:
    joint, *others = sorted(pairs, key=lambda pair: pair.step)
    for other in others:
        joint = _product(joint, other, charge / len(others), _MOST_NODES, side)
    return joint


def _product(a: GridLosses, b: GridLosses, charge: float, most_nodes: int, side: _Side) -> GridLosses:
    """Multiply two pairs, on the coarser of their grids, whose steps differ by a power of two."""
    while a.step < b.step:
        a = side.coarsen(a)
    while b.step < a.step:
        b = side.coarsen(b)
    terms = min(len(a.balanced), len(b.balanced))
    error = (a.error + b.error) * (1 + MOST_ERROR) + ULP * (terms + 8)
    balanced = np.convolve(a.balanced, b.balanced)
    infinite = a.infinite + b.infinite * (1.0 - a.infinite)  # totals are 1 up to `error`
    joint = side.trim(GridLosses(a.step, a.lowest + b.lowest, balanced, infinite, checked_error(error)), charge)
    while len(joint.balanced) > most_nodes:
        joint = side.coarsen(joint)
    return joint


def trim_above(losses: GridLosses, charge: float) -> GridLosses:
    """Fold both ends of a symmetric pair inwards: above, Q stays and the rest of P counts as infinite loss."""
    middle = -losses.lowest
    x = losses.step * np.arange(middle + 1, dtype=np.float64)
    r = losses.balanced[middle:]
    beyond = np.append(np.cumsum((r * np.exp(-x / 2))[:0:-1])[::-1], 0.0)  # Q's mass above each node
    # what P loses to infinity if node i is the last: sum over j > i of P_j - e^(x_i) Q_j, or somewhat more far out
    near = int(np.searchsorted(x, _LARGEST_LOSS))
    costs = np.append(np.cumsum((np.diff(np.expm1(x[:near])) * beyond[: near - 1])[::-1])[::-1], 0.0)
    costs += float(np.sum(r[near:] * np.exp(x[near:] / 2)))
    top = min(max(1, int(np.searchsorted(-costs, -charge))), near - 1)
    if top >= middle:
        return losses
    balanced = losses.balanced[middle - top : middle + top + 1].copy()
    balanced[-1] += beyond[top] * math.exp(x[top] / 2)
    balanced[0] = balanced[-1]
    # exact here, so that P's total stays 1 and `_product` may rely on it
    cut = float(np.sum(r[top + 1 :] * np.exp(x[top + 1 :] / 2) * -np.expm1(x[top] - x[top + 1 :])))
    infinite = min(1.0, losses.infinite + cut)
    return GridLosses(losses.step, -top, balanced, infinite, losses.error + ULP * (2 * middle + 8))


def _trim_below(losses: GridLosses, charge: float) -> GridLosses:
    """Drop nodes at both ends: whatever is dropped can only lower the profile, by at most P's mass there."""
    p = losses.upper_masses()
    first = int(np.searchsorted(np.cumsum(p), charge / 2))
    last = len(p) - int(np.searchsorted(np.cumsum(p[::-1]), charge / 2))
    if first >= last:
        return losses
    return GridLosses(losses.step, losses.lowest + first, losses.balanced[first:last], losses.infinite, losses.error)


def _evened(losses: GridLosses) -> tuple[int, Floats]:
    """Pad with empty nodes so that the ends lie on the grid of twice the step."""
    front = losses.lowest % 2
    back = (losses.lowest + len(losses.balanced) - 1) % 2
    return losses.lowest - front, np.pad(losses.balanced, (front, back))


def coarsen_above(losses: GridLosses) -> GridLosses:
    """Split each odd node between its neighbours, keeping P and Q: spreading losses raises the profile.

    In balanced masses both neighbours get the same share 1/(2 cosh(step/2)).
    """
    lowest, balanced = _evened(losses)
    halves = balanced[1::2] / (2.0 * math.cosh(losses.step / 2))
    even = balanced[::2].copy()
    even[1:] += halves
    even[:-1] += halves
    return GridLosses(2 * losses.step, lowest // 2, even, losses.infinite, losses.error + 8 * ULP)


def _coarsen_below(losses: GridLosses) -> GridLosses:
    """Merge neighbours into the nodes of the grid of twice the step."""
    step = 2 * losses.step
    lowest = losses.lowest // 2 - 1
    highest = (losses.lowest + len(losses.balanced)) // 2 + 1
    x = losses.losses()
    balanced = gather(x, losses.balanced, step, lowest, highest)
    return GridLosses(step, lowest, balanced, losses.infinite, losses.error + merging_error(x))


_ABOVE, _BELOW = _Side(trim_above, coarsen_above), _Side(_trim_below, _coarsen_below)
