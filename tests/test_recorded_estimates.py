"""Under a seeded source every estimate is, to the bit, what it was when reports were pairs (coordinate, value).

The numbers were recorded with the code before reports became cells. The noise that a search certifies may differ in its
last bits from processor to processor, because sums of products run through BLAS kernels of their own; so the recorded
noise is taken for what follows, and must itself be found again up to those bits.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow_params import slow_among

import shufflesum as ss
from shufflesum.aggregation import aggregate_batches
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.testing import SeededSource

RECORDED = json.loads((Path(__file__).parent / "vectors" / "seeded_estimates.json").read_text())


def uniform_rows(seed: int, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0) -> NDArray[Any]:
    return np.random.Generator(np.random.PCG64(seed)).uniform(low, high, shape)


SPAN = ss.Span(uniform_rows(99, (3, 5), -1, 1))
SQUARES = uniform_rows(7, (2000, 3, 3))
CASES: dict[str, tuple[NDArray[Any], dict[str, Any]]] = {
    "every coordinate": (uniform_rows(1, (2000, 8)), {"epsilon": 1.0, "delta": 1e-6}),
    "single precision": (
        uniform_rows(2, (2000, 8)).astype(np.float32),
        {"epsilon": 1.0, "delta": 1e-6, "mechanism": ss.RandomizedResponse.Options(levels=3)},
    ),
    "some coordinates, stratified": (
        uniform_rows(3, (3000, 10)),
        {"epsilon": 1.0, "delta": 1e-6, "mechanism": ss.RandomizedResponse.Options(coordinates=3)},
    ),
    "some coordinates, uniform": (
        uniform_rows(4, (3000, 10)),
        {
            "epsilon": 2.0,
            "delta": 1e-4,
            "mechanism": ss.RandomizedResponse.Options(coordinates=3, levels=2, sampling="uniform"),
        },
    ),
    "the paper's one": (
        uniform_rows(5, (20000, 4)),
        {
            "epsilon": 0.9,
            "delta": 0.01,
            "mechanism": ss.RandomizedResponse.Options(coordinates=1, levels=3),
            "accountant": "paper",
        },
    ),
    "bounds of each coordinate": (
        uniform_rows(6, (2500, 3), -1.0, 4.0),
        {
            "epsilon": 1.5,
            "delta": 1e-5,
            "bounds": (np.array([-1.0, -2.0, -1.5]), np.array([4.0, 5.0, 6.0])),
            "rounds": 3,
            "honest_fraction": 0.9,
        },
    ),
    "symmetric matrices": (
        (SQUARES + np.swapaxes(SQUARES, 1, 2)) / 2,
        {"epsilon": 1.0, "delta": 1e-6, "shape": ss.Symmetric(3)},
    ),
    "span of vectors": (
        uniform_rows(8, (2000, 3)) @ SPAN.vectors.reshape(3, -1),
        {"epsilon": 1.0, "delta": 1e-6, "shape": SPAN},
    ),
    "one number, many levels": (
        uniform_rows(9, (4000, 1)),
        {"epsilon": 1.0, "delta": 1e-6, "mechanism": ss.RandomizedResponse.Options(levels=200)},
    ),
}


def numbers(estimate: ss.Estimate) -> dict[str, Any]:
    lower, upper = estimate.confidence_interval(0.95)
    wide_lower, wide_upper = estimate.confidence_interval(0.999, simultaneous=True)
    arrays = {
        "mean": estimate.mean,
        "standard_error": estimate.standard_error,
        "lower": lower,
        "upper": upper,
        "simultaneous_lower": wide_lower,
        "simultaneous_upper": wide_upper,
    }
    return {"users": estimate.users} | {
        name: [value.hex() for value in np.ravel(array).tolist()] for name, array in arrays.items()
    }


@pytest.mark.parametrize(
    "name", slow_among(CASES, ["symmetric matrices", "single precision", "bounds of each coordinate"])
)
def test_a_seeded_estimate_is_what_it_was_before_reports_became_cells(name: str) -> None:
    rows, arguments = CASES[name]
    recorded = RECORDED[name]
    planned = ss.aggregate(rows, source=SeededSource(17), **{"mechanism": "randomized-response", **arguments}).plan
    assert isinstance(planned.mechanism, RandomizedResponse)
    noise_probability = float.fromhex(recorded["noise_probability"])
    assert planned.mechanism.noise_probability == pytest.approx(noise_probability, rel=1e-12)
    assert (planned.mechanism.levels, planned.mechanism.coordinates) == (recorded["levels"], recorded["coordinates"])
    plan = replace(planned, mechanism=replace(planned.mechanism, noise_probability=noise_probability))
    assert plan.expected_error.total.hex() == recorded["expected_error"]
    assert numbers(aggregate_batches([rows], plan, source=SeededSource(17))) == recorded["aggregate"]

    source = SeededSource(23)
    shuffled = ss.shuffle(ss.Randomizer(plan, source=source).randomize(rows), source=source)
    assert hashlib.sha256(shuffled.cells.astype("<u4").tobytes()).hexdigest() == recorded["shuffled_cells_sha256"]
    assert numbers(ss.Analyzer(plan).analyze(shuffled)) == recorded["three roles"]


def test_another_seed_gives_other_estimates() -> None:
    rows, arguments = CASES["every coordinate"]
    assert (
        numbers(ss.aggregate(rows, source=SeededSource(18), **{"mechanism": "randomized-response", **arguments}))
        != RECORDED["every coordinate"]["aggregate"]
    )
