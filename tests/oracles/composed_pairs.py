"""One label in noisy slots and one noisy count, together: every outcome listed, no code shared with the accountant."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom


def delta_of_binomial_and_slots(
    *, trials: int, p: float, slots: int, chance: float, cells: int, epsilon: float
) -> float:
    """sup over both directions of the count of sum (P - e^eps Q)+, for the victim's label 0 against 1.

    Slots: the number of hits in the two cells is Binomial(slots, 2 chance/cells), split evenly; the victim adds one to
    either. Count: N ~ Binomial(trials, p), with the victim's one added in one of the worlds.
    """
    hits = binom.pmf(np.arange(slots + 1), slots, 2 * chance / cells)
    sizes = [size for size in range(slots + 1) if hits[size] > 1e-18]
    top, low = [], []
    for size in sizes:
        split = binom.pmf(np.arange(size + 1), size, 0.5) * hits[size]
        zero = np.zeros(1)
        top.append(np.concatenate([zero, split]))  # the victim's in the first cell: a from 1 to size + 1
        low.append(np.concatenate([split, zero]))
    first = np.concatenate(top), np.concatenate(low)
    law = binom.pmf(np.arange(trials + 1), trials, p)
    more, less = np.concatenate([[0.0], law]), np.concatenate([law, [0.0]])
    kept = (more > 1e-18) | (less > 1e-18)
    best = 0.0
    for second in ((more[kept], less[kept]), (less[kept], more[kept])):
        above = np.outer(first[0], second[0]) - np.exp(epsilon) * np.outer(first[1], second[1])
        best = max(best, float(np.maximum(above, 0).sum()))
    return best
