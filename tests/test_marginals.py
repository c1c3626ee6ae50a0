"""Least squares over noisy marginals, against a textbook's, and against the factors that DESIGN's formulas give."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles import noisy_marginals as oracle

from shufflesum.marginals import LeastSquares, Marginal, Residuals, closure, maximal

SIZES = (2, 3, 4, 2)
WORKLOADS: dict[str, tuple[Marginal, ...]] = {
    "one-way": ((0,), (1,), (2,), (3,)),
    "one- and two-way": tuple(closure([(0, 1), (0, 2), (1, 2), (2, 3)])[1:]),
    "two-way": ((0, 1), (0, 2), (1, 3), (2, 3)),
    "with a three-way table": ((0, 1, 2), (0,), (3,), (2, 3), (1, 2)),
    "all together": ((0, 1, 2, 3),),
}


def noisy(layout: LeastSquares, seed: int) -> list[NDArray[np.float64]]:
    random = np.random.default_rng(seed)
    truth = random.integers(0, 40, SIZES).astype(np.float64)
    found = []
    for table, variance in zip(layout.tables, layout.variances, strict=True):
        counts = truth.sum(axis=tuple(axis for axis in range(len(SIZES)) if axis not in table))
        counts = counts[1:] if layout.single(table) else counts
        found.append(counts + random.normal(0, np.sqrt(variance), counts.shape))
    return found


@pytest.mark.parametrize("workload", WORKLOADS)
def test_estimates_and_their_covariance_are_those_of_least_squares_over_the_full_table(workload: str) -> None:
    tables = WORKLOADS[workload]
    layout = LeastSquares(SIZES, tables, tuple(2.0 + number for number in range(len(tables))))
    counts, users = noisy(layout, 7), 900
    residuals = layout.fit(counts, users)
    given = list(zip(tables, counts, layout.variances, strict=True))
    for marginal in layout.subsets[1:]:
        expected, covariance = oracle.fit(SIZES, given, users, marginal)
        found = layout.marginal(residuals, marginal)
        np.testing.assert_allclose(found.reshape(-1), expected, rtol=0, atol=1e-8)
        np.testing.assert_allclose(np.diag(covariance), layout.cell_variance(marginal), rtol=1e-9)
        # any two weighted sums, by their coefficients
        random = np.random.default_rng(3)
        one, other = (layout.coefficients(random.normal(size=found.shape), marginal) for _ in range(2))
        first, second = (_weights(layout, each, marginal) for each in (one, other))
        assert layout.covariance(one, other) == pytest.approx(first @ covariance @ second, abs=1e-9)
        assert layout.value(one, residuals) == pytest.approx(first @ expected, abs=1e-7)


def _weights(layout: LeastSquares, coefficients: Residuals, marginal: Marginal) -> NDArray[np.float64]:
    """Weights of a marginal's cells that have these coefficients: coefficients of each unit vector, turned around."""
    cells = layout.cells(marginal)
    columns = []
    for cell in np.eye(cells):
        unit = layout.coefficients(cell.reshape(layout.shape(marginal)), marginal)
        columns.append(np.concatenate([unit[subset].reshape(-1) for subset in closure([marginal])]))
    wanted = np.concatenate([coefficients[subset].reshape(-1) for subset in closure([marginal])])
    found: NDArray[np.float64] = np.linalg.lstsq(np.array(columns).T, wanted, rcond=None)[0]
    return found


@pytest.mark.parametrize("workload", WORKLOADS)
def test_table_weights_say_what_each_collected_cell_adds(workload: str) -> None:
    tables = WORKLOADS[workload]
    layout = LeastSquares(SIZES, tables, (1.0,) * len(tables))
    counts = noisy(layout, 11)
    marginal = layout.subsets[-1]
    weights = np.random.default_rng(5).normal(size=layout.shape(marginal))
    coefficients = layout.coefficients(weights, marginal)
    spread = layout.table_weights(coefficients)
    before = layout.value(coefficients, layout.fit(counts, 900))
    for number, each in spread.items():
        for place in np.ndindex(*counts[number].shape):
            moved = [table.copy() for table in counts]
            moved[number][place] += 1.0
            after = layout.value(coefficients, layout.fit(moved, 900))
            assert after - before == pytest.approx(each[place], abs=1e-9)
    total = sum(float(np.sum(each**2)) for each in spread.values())
    assert total == pytest.approx(layout.covariance(coefficients, coefficients), rel=1e-9)


@pytest.mark.parametrize(("questions", "labels"), [(5, 2), (5, 5), (10, 2), (10, 10), (20, 10)])
def test_factors_of_equal_questions_are_those_of_the_closed_form(questions: int, labels: int) -> None:
    single = tuple((number,) for number in range(questions))
    pairs = tuple(combinations(range(questions), 2))
    layout = LeastSquares((labels,) * questions, single + pairs, (1.0,) * (questions + len(pairs)))
    factor = (1 - 1 / labels) / (1 + (questions - 1) / labels)
    if labels > 2:  # tables of one cell have all that two cells of twice the variance have
        assert layout.cell_variance((0,)) == pytest.approx(factor, rel=1e-9)
        assert 0.05 <= factor <= 0.64
    assert 0.25 <= layout.cell_variance((0, 1)) <= 0.83
    # two-way tables alone are never worse for two-way cells: a user changes fewer cells
    alone = LeastSquares((labels,) * questions, pairs, (1.0,) * len(pairs))
    changed = 2 * len(pairs), 2 * len(pairs) + questions * (1 if labels == 2 else 2)
    assert changed[0] * alone.cell_variance((0, 1)) <= changed[1] * layout.cell_variance((0, 1)) * (1 + 1e-12)


def test_twenty_questions_of_ten_labels_take_less_than_two_seconds() -> None:
    pairs = tuple(combinations(range(20), 2))
    layout = LeastSquares((10,) * 20, pairs, (7500.0,) * len(pairs))
    random = np.random.default_rng(1)
    counts = [random.normal(500, 80, (10, 10)) for _ in pairs]
    start = time.process_time()
    residuals = layout.fit(counts, 50_000)
    for marginal in layout.subsets[1:]:
        layout.marginal(residuals, marginal)
        layout.cell_variance(marginal)
    assert time.process_time() - start < 2.0


def test_every_margin_agrees_with_every_other() -> None:
    layout = LeastSquares(SIZES, WORKLOADS["one- and two-way"], (3.0,) * len(WORKLOADS["one- and two-way"]))
    residuals = layout.fit(noisy(layout, 2), 900)
    one = layout.marginal(residuals, (2,))
    for pair in ((0, 2), (1, 2)):
        np.testing.assert_allclose(layout.marginal(residuals, pair).sum(axis=0), one, atol=1e-9)
    np.testing.assert_allclose(layout.marginal(residuals, (2, 3)).sum(axis=1), one, atol=1e-9)
    assert layout.marginal(residuals, ()) == 900


def test_maximal_marginals_are_those_that_no_other_holds() -> None:
    assert maximal([(0,), (0, 1), (2,), (1,), (1, 2)]) == [(0, 1), (1, 2)]
    assert closure([(0, 2)]) == [(), (0,), (2,), (0, 2)]
