"""Median, variance and bounds of six laws, beside a trusted curator's: the table of docs/accuracy.md.

    python benchmarks/six_laws.py [RUNS]

Squared errors are means over runs with fresh data. The curator adds Laplace noise to the counts of the same bins, and
Laplace or Gaussian noise, whichever is better, to the sums of the same scaled values and squares, all at the same
epsilon and delta. `bins` is the error that the bins alone make, without any noise.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import shufflesum as ss
from shufflesum.aggregation import aggregate_batches
from shufflesum.bounds import plan_bounds
from shufflesum.domains import Arrays, Categories
from shufflesum.domains.counts import CountEstimate
from shufflesum.moments import Moments, Squares
from shufflesum.privacy.engine.gaussian import curator_error

USERS, EPSILON, DELTA, BINS = 20_000, 1.0, 1e-6, 50
Law = Callable[[np.random.Generator, int], NDArray[np.float64]]
LAWS: dict[str, tuple[Law, tuple[float, float]]] = {
    "skewed": (lambda rng, n: rng.lognormal(3, 1, n), (0.0, 500.0)),
    "heavy-tailed": (lambda rng, n: rng.standard_cauchy(n), (-50.0, 50.0)),
    "discrete": (lambda rng, n: rng.integers(0, 6, n).astype(float), (0.0, 5.0)),
    "bimodal": (
        lambda rng, n: np.where(rng.random(n) < 0.5, rng.normal(-3, 0.2, n), rng.normal(40, 2, n)),
        (-5.0, 50.0),
    ),
    "constant": (lambda rng, n: np.full(n, 42.0), (20.0, 50.0)),
    "with outliers": (
        lambda rng, n: np.where(rng.random(n) < 0.002, 1e9, rng.normal(170, 10, n)),
        (100.0, 200.0),
    ),
}


def median_of(counts: NDArray[np.float64], edges: NDArray[np.float64]) -> float:
    """In the bin where half of all counts is reached, evenly spread."""
    reached = np.append(0.0, np.cumsum(np.maximum(counts, 0)))
    at = int(np.searchsorted(reached, reached[-1] / 2))
    part = (reached[-1] / 2 - reached[at - 1]) / max(reached[at] - reached[at - 1], 1e-300)
    return float(edges[at - 1] + part * (edges[at] - edges[at - 1]))


def main(runs: int) -> None:
    warnings.simplefilter("ignore")
    print("| law | median: ours | curator | bins | variance: ours | curator | bounds found | users within |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    first = plan_bounds(users=USERS, shape=(), epsilon=EPSILON, delta=DELTA)
    for number, (name, (law, bounds)) in enumerate(LAWS.items()):
        edges = np.linspace(*bounds, BINS + 1)
        counting = ss.plan(users=USERS, domain=Categories(bins=edges.tolist()), epsilon=EPSILON, delta=DELTA)
        squares = Squares(Arrays((), bounds))
        box = squares.domain
        twice = ss.plan(
            users=USERS, shape=2, bounds=(box.lower, box.upper), epsilon=EPSILON, delta=DELTA, noise_by="curator"
        )
        noise = np.sqrt(curator_error(USERS, Arrays(2, (0, 1)).central_sensitivity, EPSILON, DELTA, 1) / 2) * np.array(
            [2.0, 1.0]
        )
        errors = []
        found = []
        for run in range(runs):
            rng = np.random.default_rng([number, run])
            raw = law(rng, USERS)
            values = np.clip(raw, *bounds)
            truth = float(np.quantile(values, 0.5, method="inverted_cdf"))
            estimate = aggregate_batches([values], counting)
            assert isinstance(estimate, CountEstimate)
            plain = np.histogram(values, edges)[0].astype(float)
            rows = squares.rows(values)
            ours = Moments.of(squares, aggregate_batches([rows], twice))
            noisy = rows.mean(axis=0) + rng.normal(0, noise)
            half = (bounds[1] - bounds[0]) / 2
            errors.append(
                [
                    estimate.median().value - truth,
                    median_of(plain + rng.laplace(0, 2 / EPSILON, BINS), edges) - truth,
                    median_of(plain, edges) - truth,
                    float(ours.variance) - values.var(),
                    half**2 * (noisy[1] - noisy[0] ** 2) - values.var(),
                ]
            )
            suggested = first.found(aggregate_batches([first.rows(raw)], first.first)).columns[0]
            found.append((suggested.lower, suggested.upper, suggested.within_lower))
        rms = np.sqrt(np.mean(np.square(errors), axis=0))
        often = max(set(found), key=lambda each: sum(other[:2] == each[:2] for other in found))
        least = np.median([each[2] for each in found])
        print(
            f"| {name} | {rms[0]:.3g} | {rms[1]:.3g} | {rms[2]:.3g} | {rms[3]:.3g} | {rms[4]:.3g} | "
            f"{often[0]:g} to {often[1]:g} | at least {100 * least:.0f} % |"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
