"""Certified privacy of many reports: t reports per user in each of T rounds, t*T of them composed.

What composes with what. In the stratified scheme a block is one run of the t = 1 protocol with all n users, on
randomness of its own; so is every round. For neighbours that differ in one user (in all blocks and rounds) the
released tables are a product of t*T independent parts, and each part is dominated by the pair of `blanket` (for any
data of the other users), or, for K = 2 and blocks of one coordinate, by the maximum over all neighbours as well.
Where a part is dominated in this sense (its profile delta(epsilon) is below that of one convex profile, at every
epsilon and in both directions), the product is dominated by the product: the others' data may differ
from block to block, and the worst case may be another one at each epsilon. Rounds may be chosen adaptively.

Upper bounds sample the single profile on a grid, join the points, and convolve; lower bounds do the same
from below with one concrete pair of neighbouring data sets. Errors of truncation, grid and rounding all go against us.
"""

from __future__ import annotations

from shufflesum.privacy._calibration import (
    guess_noise_probability,
    noise_probability_lower_bound,
    smallest_noise_probability,
)
from shufflesum.privacy._composed import (
    MOST_COMPOSITIONS,
    ComposedLower,
    ComposedUpper,
    composed_delta_lower,
    composed_delta_upper,
    composed_epsilon_lower,
    composed_epsilon_upper,
    composed_lower,
    composed_upper,
)
from shufflesum.privacy._export import to_dp_accounting
from shufflesum.privacy._uniform import uniform_delta_upper

__all__ = [
    "MOST_COMPOSITIONS",
    "ComposedLower",
    "ComposedUpper",
    "composed_delta_lower",
    "composed_delta_upper",
    "composed_epsilon_lower",
    "composed_epsilon_upper",
    "composed_lower",
    "composed_upper",
    "guess_noise_probability",
    "noise_probability_lower_bound",
    "smallest_noise_probability",
    "to_dp_accounting",
    "uniform_delta_upper",
]
