"""Least squares over noisy marginals as a textbook has it: one unknown for each cell of the full cross table.

The unknowns are restricted to add up to the number of users, and the covariance is that of weighted least squares. It
shares no code with what it judges, and is far too slow for more than a few questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def indicator(sizes: Sequence[int], attributes: Sequence[int]) -> Floats:
    """(cells of the marginal, cells of the full table): 1 where a full cell is counted in a marginal's."""
    full = list(product(*map(range, sizes)))
    cells = list(product(*(range(sizes[attribute]) for attribute in attributes)))
    place = {cell: row for row, cell in enumerate(cells)}
    out = np.zeros((len(cells), len(full)))
    for column, values in enumerate(full):
        out[place[tuple(values[attribute] for attribute in attributes)], column] = 1.0
    return out


def fit(
    sizes: Sequence[int],
    tables: Sequence[tuple[Sequence[int], Floats, float]],
    users: int,
    wanted: Sequence[int],
) -> tuple[Floats, Floats]:
    """Estimates of a marginal's cells and their covariance.

    Each table has attributes, noisy counts and the variance of their noise; of one attribute with two values the counts
    are those of the second value alone.
    """
    designs, seen, weights = [], [], []
    for attributes, counts, variance in tables:
        design = indicator(sizes, attributes)
        if len(attributes) == 1 and sizes[attributes[0]] == 2:
            design = design[1:]
        designs.append(design)
        seen.append(np.reshape(counts, -1))
        weights.append(np.full(len(design), 1.0 / variance))
    design, observed, precision = np.vstack(designs), np.concatenate(seen), np.concatenate(weights)
    cells = design.shape[1]
    # every solution is the uniform table plus something that adds up to 0
    centre = np.full(cells, users / cells)
    basis = np.linalg.svd(np.eye(cells) - 1.0 / cells)[0][:, : cells - 1]
    reduced = design @ basis
    normal = np.linalg.pinv(reduced.T @ (precision[:, None] * reduced), rcond=1e-10)
    solution = centre + basis @ (normal @ (reduced.T @ (precision * (observed - design @ centre))))
    asked = indicator(sizes, wanted)
    spread = asked @ basis
    return asked @ solution, spread @ normal @ spread.T
