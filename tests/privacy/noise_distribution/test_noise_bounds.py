"""The accountant of noise distributions against full enumeration, and how little noise the search finds."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import noise_distribution as oracle
from tests.refusals import refusal

from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy import NoiseDistribution, NoiseDistributionAccountant, least_noise, noise_distribution
from shufflesum.privacy.engine import composition

EPSILONS = (0.0, 0.1, 0.5, 1.0, 1.7, 3.0)
LAPLACE, BETWEEN, GAUSSIAN = (
    NoiseDistribution(1.0, 1.3, 2),
    NoiseDistribution(1.5, 1.7, 3),
    NoiseDistribution(2.0, 1.6, 3),
)
TINY = [LAPLACE, BETWEEN, GAUSSIAN, NoiseDistribution(1.0, 0.5, 1), NoiseDistribution(1.0, 50.0, 3)]


@cache
def exact(tables: tuple[tuple[int, ...], ...], moves: tuple[int, ...], epsilon: float, side: int) -> Fraction:
    """Delta at an e^epsilon that is a little smaller (side -1: more) or larger (side 1: less) than the true one."""
    return oracle.delta(tables, moves, Fraction(math.exp(epsilon)) * (1 + side * Fraction(1, 2**49)))


def enclosed(changed: tuple[tuple[NoiseDistribution, int], ...], moves: tuple[int, ...], closeness: float) -> None:
    """Assert that the accountant's bounds enclose what these moves show, closely."""
    accountant = NoiseDistributionAccountant(changed)
    tables = tuple(noise.weights for noise, cells in changed for _ in range(cells))
    for epsilon in EPSILONS:
        most, least = exact(tables, moves, epsilon, -1), exact(tables, moves, epsilon, 1)
        found = accountant.delta(epsilon)
        assert least <= Fraction(found.upper) <= (1 + Fraction(closeness)) * most + Fraction(1, 10**12), epsilon
        assert (1 - Fraction(closeness)) * least - Fraction(1, 10**12) <= Fraction(found.lower) <= most, epsilon


@pytest.mark.parametrize("cells", [1, 2, 3])
@pytest.mark.parametrize("noise", TINY, ids=str)
def test_bounds_enclose_the_enumerated_delta(noise: NoiseDistribution, cells: int) -> None:
    enclosed(((noise, cells),), (1,) * cells, 0.02)


@pytest.mark.parametrize("noise", [LAPLACE, BETWEEN], ids=str)
def test_bounds_hold_in_all_directions(noise: NoiseDistribution) -> None:
    for moves in oracle.directions(3):
        enclosed(((noise, 3),), moves, 0.02)


def test_bounds_hold_for_classes_of_cells_with_noise_of_their_own() -> None:
    for moves in oracle.directions(3):
        enclosed(((LAPLACE, 1), (GAUSSIAN, 2)), moves, 0.02)


LIGHT, HEAVY, FLAT = (
    NoiseDistribution(1.0, 0.1, 1),  # ends of 5e-5
    NoiseDistribution(1.0, 1.0, 1),
    NoiseDistribution(2.0, 1e9, 1),  # almost uniform
)


@pytest.mark.parametrize(
    "changed",
    [
        ((LIGHT, 120),),
        ((HEAVY, 64),),
        ((FLAT, 9),),
        ((LAPLACE, 12),),
        ((GAUSSIAN, 5),),
        ((LIGHT, 40), (HEAVY, 3)),
        ((LIGHT, 2), (FLAT, 4), (LAPLACE, 1)),
    ],
    ids=str,
)
def test_bounds_of_many_cells_enclose_the_exact_delta(changed: tuple[tuple[NoiseDistribution, int], ...]) -> None:
    accountant = NoiseDistributionAccountant(changed)
    true = oracle.Many(*((noise.weights, cells) for noise, cells in changed))
    # losses, and both sides of them, are where a slip shows: between them delta hardly changes with epsilon
    some = true.losses[:: len(true.losses) // 5 + 1]
    beside = [side for loss in some for side in (loss, math.nextafter(loss, 0.0), math.nextafter(loss, math.inf))]
    for epsilon in (0.0, 1e-300, 1e-12, 1e-6, *EPSILONS, *(side for side in beside if side < 700.0), 700.0):
        weight = Fraction(math.exp(epsilon))
        most, least = (true.delta(weight * (1 + side * Fraction(1, 2**49))) for side in (-1, 1))
        found = accountant.delta(epsilon)
        assert Fraction(found.lower) <= most, epsilon
        assert Fraction(found.upper) >= least, epsilon
    for delta in (1e-12, 1e-6, 1e-3, 0.3, float(true.delta(Fraction(20))) - 1e-9, 0.999):
        bounds = accountant.epsilon(delta)
        if bounds.upper < math.inf:
            assert true.delta(Fraction(math.exp(bounds.upper)) * (1 + Fraction(1, 2**49))) <= delta
        if bounds.lower > 0:
            assert true.delta(Fraction(math.exp(bounds.lower)) * (1 - Fraction(1, 2**49))) > delta


def test_both_oracles_say_the_same() -> None:
    for tables in ([LAPLACE.weights] * 2, [LAPLACE.weights, GAUSSIAN.weights]):
        many = oracle.Many(*((table, 1) for table in tables))
        for epsilon in EPSILONS:
            weight = Fraction(math.exp(epsilon))
            assert many.delta(weight) == oracle.delta(tables, (1, 1), weight)


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN], ids=str)
def test_directions_do_not_matter_and_fewer_cells_show_less(noise: NoiseDistribution) -> None:
    for epsilon in EPSILONS:
        weight = Fraction(math.exp(epsilon))
        rising = Fraction(0)
        for cells in (1, 2, 3):
            found = {oracle.delta([noise.weights] * cells, moves, weight) for moves in oracle.directions(cells)}
            assert len(found) == 1
            assert rising <= max(found)
            rising = max(found)


def test_an_asymmetric_table_breaks_the_bound() -> None:
    # the sabotaged twin: half of the lower end's mass is moved next to it; the upper half stays as it is
    first, second, *others = LAPLACE.weights
    skewed = (first - first // 2, second + first // 2, *others)
    assert sum(skewed) == 2**128
    up, down = (oracle.delta([skewed], [move], Fraction(math.e)) for move in (1, -1))
    bound = Fraction(NoiseDistributionAccountant(((LAPLACE, 1),)).delta_upper(1.0))
    assert up <= bound
    assert down > Fraction(3, 2) * bound


@pytest.mark.parametrize("cells", [1, 2])
def test_noise_of_a_longer_table_is_another_guarantee(cells: int) -> None:
    # the sabotaged twin: a scale that suits a longer table, certified as if its ends were light
    certified, drawn = NoiseDistribution(1.0, 1.0, 15), NoiseDistribution(1.0, 0.9, 17)
    bound = NoiseDistributionAccountant(((certified, cells),)).delta_upper(float(cells))
    assert oracle.delta([drawn.weights] * cells, (1,) * cells, Fraction(math.exp(cells))) > 100 * Fraction(bound)


def test_more_noise_in_a_table_of_the_same_length_can_be_worse() -> None:
    little, much = (NoiseDistributionAccountant(((NoiseDistribution(1.0, s, 15), 1),)).delta_upper(1.0) for s in (1, 2))
    assert little == pytest.approx(1.4e-7, rel=0.02)
    assert much == pytest.approx(1.4e-4, rel=0.05)


def test_the_ends_of_a_table_give_themselves_away_at_every_epsilon() -> None:
    last = Fraction(LAPLACE.weights[-1], 2**128)
    for cells in (1, 2, 40):
        shown = float(1 - (1 - last) ** cells)
        found = NoiseDistributionAccountant(((LAPLACE, cells),)).delta(200.0)
        assert found.lower <= shown * (1 + 1e-12)
        assert found.upper >= shown * (1 - 1e-12)
        assert found.lower == pytest.approx(found.upper, rel=1e-6)
    assert NoiseDistributionAccountant(((LAPLACE, 1),)).epsilon_upper(1e-6) == math.inf


def test_rounds_are_further_cells() -> None:
    for epsilon in EPSILONS:
        together = NoiseDistributionAccountant(((BETWEEN, 6),)).delta(epsilon)
        assert NoiseDistributionAccountant(((BETWEEN, 2),), rounds=3).delta(epsilon) == together


@pytest.mark.parametrize("form", [list, iter, lambda pairs: dict(pairs).items()], ids=["list", "iterator", "items"])
def test_classes_are_counted_in_whatever_form_they_come(form: Any) -> None:
    # an iterator that is read twice is empty the second time: nothing would seem to change
    accountant = NoiseDistributionAccountant(form([(LAPLACE, 1), (GAUSSIAN, 2)]))
    assert accountant == NoiseDistributionAccountant(((LAPLACE, 1), (GAUSSIAN, 2)))
    assert accountant.delta_upper(1.0) > 0.1


def test_numbers_of_numpy_do_not_wrap_around() -> None:
    # 19 x 27 = 513 is 1 in 8 bits; an equal accountant must not remember that, either
    cells, rounds, noise = np.uint8(19), np.uint8(27), NoiseDistribution(1.0, 20.0, 200)
    wrapped = NoiseDistributionAccountant(((noise, cells),), rounds).delta_upper(1.0)  # type: ignore[arg-type]
    assert wrapped == NoiseDistributionAccountant(((noise, 513),)).delta_upper(1.0) > 0.1
    found = least_noise(1.0, 1e-6, changed_cells=cells, rounds=rounds)  # type: ignore[arg-type]
    assert NoiseDistributionAccountant(((found, 513),)).delta_upper(1.0) <= 1e-6


@pytest.mark.parametrize("half", [(2, 5, 3), (1, 7, 1, 20), (4, 4, 4), (1, 2**40, 3)], ids=str)
def test_a_symmetric_table_is_bounded_whatever_its_form(half: tuple[int, ...]) -> None:
    table = (*half[:0:-1], *half)
    cells = noise_distribution._ShiftedCells(np.array(half) / sum(table), 2)
    bound = composition.compose_profiles([cells])
    for epsilon, moves in itertools.product(EPSILONS, oracle.directions(2)):
        assert exact((table, table), moves, epsilon, 1) <= Fraction(bound.delta(epsilon)), epsilon


def test_epsilon_and_delta_are_inverse_to_each_other() -> None:
    accountant = NoiseDistributionAccountant(((NoiseDistribution(1.7, 23.9, 140), 20),))
    found = accountant.epsilon(1e-6)
    assert found.lower < found.upper
    assert found.lower == pytest.approx(found.upper, rel=1e-3)
    assert accountant.delta_upper(found.upper) <= 1e-6
    assert accountant.delta_lower(found.lower) > 1e-6


def _split(half: np.ndarray, step: float, size: int) -> np.ndarray:
    """The symmetrised masses at the nodes -size..size, losses split between their neighbours and P and Q kept."""
    masses = np.zeros(2 * size + 1)
    for p, q in itertools.pairwise(half):
        x = math.log(p / q)
        node = math.floor(x / step)
        for at, apart in ((node, (node + 1) * step - x), (node + 1, x - node * step)):
            share = math.sqrt(p * q) * math.sinh(apart / 2) / math.sinh(step / 2)
            masses[size + at] += share
            masses[size - at] += share
    return masses


def test_a_node_has_what_losses_might_give_it_that_are_not_known_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    # made large enough to matter: losses are off by up to 16e-4, beside nodes and on either side of them
    monkeypatch.setattr(noise_distribution, "ROUNDING", 1e-4)
    half = np.array(GAUSSIAN.half_weights, dtype=float) / 2**128
    losses = np.log(half[:-1] / half[1:])
    beside = [loss / part + off for loss in losses for part in (1, 2) for off in (-7e-4, -1e-5, 1e-5, 7e-4)]
    for wrong in (half * (1 + 8e-4 * np.array(signs)) for signs in itertools.product((-1, 1), repeat=half.size)):
        for step in (0.05, 1.0, *beside):
            pair = noise_distribution._ShiftedCells(wrong, 1).pld(step, 9.0)
            true = _split(half, step, -pair.lowest)
            assert (pair.symmetrised * (1 + 9e-4) >= true).all()  # masses are off by 8e-4, which is charged apart
            assert (pair.symmetrised == pair.symmetrised[::-1]).all()  # so it dominates with P and Q swapped, too


def test_rounding_errors_of_masses_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_distribution, "ULP", 1e-3)
    half = np.array(GAUSSIAN.half_weights, dtype=float) / 2**128
    pair = noise_distribution._ShiftedCells(half * (1 - 1e-3), 1).pld(0.05, 9.0)
    for epsilon in EPSILONS:
        shown = exact((GAUSSIAN.weights,), (1,), epsilon, 1)
        assert Fraction(pair.hockey_stick_divergence(epsilon) * (1 + pair.error)) >= shown
    assert pair.infinity_mass >= half[-1]


@pytest.mark.parametrize("step", [0.05, 0.7, 3.0])
def test_splitting_losses_between_nodes_keeps_both_totals(step: float) -> None:
    half = np.array(GAUSSIAN.half_weights, dtype=float) / 2**128
    pair = noise_distribution._ShiftedCells(half, 1).pld(step, 9.0)
    assert float(pair.upper_masses().sum()) + pair.infinity_mass == pytest.approx(1.0, abs=1e-12)


def test_a_node_with_many_outcomes_is_charged_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_distribution, "ULP", 1e-6)
    half = np.array([2.0 ** -(4 + j) for j in range(101)])  # all of its 100 losses are log 2, on one node
    pair = noise_distribution._ShiftedCells(half, 1).pld(math.log(2.0) / 4, 1.0)
    assert pair.error >= 100 * 1e-6


@pytest.mark.parametrize("sign", [1, -1])
def test_rounding_errors_of_masses_are_charged_to_lower_bounds(monkeypatch: pytest.MonkeyPatch, sign: int) -> None:
    # all losses of this table lie on nodes, where nothing else separates the bound from the truth
    ulp = 4e-6
    monkeypatch.setattr(noise_distribution, "ULP", ulp)
    noise = NoiseDistribution(1.0, 1.0, 3)
    half = np.array(noise.half_weights, dtype=float) / 2**128
    wrong = noise_distribution._ShiftedCells(half * (1 + ulp * sign * np.array([-1, 1, -1, 1])), 1)
    pair = wrong.pld_below(0.25)
    for epsilon in EPSILONS:
        assert Fraction(pair.delta_lower(epsilon)) <= exact((noise.weights,), (1,), epsilon, -1)
    assert pair.infinity_mass <= half[-1]
    assert pair.infinity_mass >= half[-1] * (1 - 8 * ulp)


def test_it_exports_to_dp_accounting() -> None:
    pytest.importorskip("dp_accounting")
    noise = NoiseDistribution(1.7, 23.9, 140)
    theirs = NoiseDistributionAccountant(((noise, 4),)).to_dp_accounting(value_discretization_interval=1e-3)
    found = theirs.self_compose(5).get_delta_for_epsilon(1.0)
    ours = NoiseDistributionAccountant(((noise, 4),), rounds=5).delta(1.0)
    assert ours.lower <= found
    assert found == pytest.approx(ours.upper, rel=0.02)


# ---- how little noise is enough

VARIANCES = {
    0.5: {1: 7.835, 2: 31.83, 4: 127.8, 10: 590.5, 20: 1265, 40: 2578, 100: 6486, 400: 25980, 2000: 129900},
    1.0: {1: 1.841, 2: 7.835, 4: 31.83, 10: 159.0, 20: 345.8, 40: 707.6, 100: 1782, 400: 7141, 2000: 35710},
    2.0: {1: 0.362, 2: 1.841, 4: 7.835, 10: 42.93, 20: 95.70, 40: 196.8, 100: 496.6, 400: 1990, 2000: 9953},
    4.0: {1: 0.038, 2: 0.362, 4: 1.841, 10: 11.54, 20: 27.09, 40: 56.16, 100: 142.1, 400: 569.8, 2000: 2850},
}
"""The least variance per cell at delta = 1e-6, by epsilon and changed cells."""


@pytest.mark.parametrize(
    ("epsilon", "cells"),
    [
        pytest.param(epsilon, cells, marks=pytest.mark.long if cells > 400 else ())
        for epsilon, row in VARIANCES.items()
        for cells in row
    ],
)
def test_the_search_finds_the_least_variance(epsilon: float, cells: int) -> None:
    found = least_noise(epsilon, 1e-6, changed_cells=cells)
    assert found.variance == pytest.approx(VARIANCES[epsilon][cells], rel=0.005)
    bounds = NoiseDistributionAccountant(((found, cells),)).delta(epsilon)
    assert bounds.lower <= bounds.upper <= 1e-6
    assert bounds.lower >= 0.9 * bounds.upper


@pytest.mark.parametrize(("epsilon", "error"), [(1.0, 2.80), (4.0, 0.60)])
def test_the_standard_error_of_a_labels_count(epsilon: float, error: float) -> None:
    assert math.sqrt(least_noise(epsilon, 1e-6, changed_cells=2).variance) == pytest.approx(error, abs=0.005)


@pytest.mark.parametrize("cells", [2, 10, 100])
def test_noise_with_less_variance_fails(cells: int) -> None:
    found = least_noise(1.0, 1e-6, changed_cells=cells)
    less = NoiseDistribution(found.shape, found.scale * 0.99, found.half_length)
    assert NoiseDistributionAccountant(((less, cells),)).delta_lower(1.0) > 1e-6


def test_long_tables_are_found_too() -> None:
    found = least_noise(0.002, 1e-6, changed_cells=2)
    assert found.half_length > 10_000
    assert found.variance == pytest.approx(2 * 1000**2, rel=0.05)  # that of discrete Laplace noise of scale c/epsilon


@pytest.mark.parametrize("cells", [200, 20_000])
def test_a_search_takes_few_compositions_and_few_tables(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    # a table of weights costs milliseconds to seconds, a composition milliseconds: plans are made from dozens of them
    calls: Counter[str] = Counter()

    def count(module: Any, name: str, counted: Any) -> None:
        def call(*arguments: Any) -> Any:
            calls[name] += 1
            return counted(*arguments)

        monkeypatch.setattr(module, name, cache(call) if name == "_half_weights" else call)

    count(noise_distribution, "_half_weights", noise_distribution._half_weights.__wrapped__)
    count(composition, "compose_profiles", composition.compose_profiles)
    least_noise(1.0, 1e-6, changed_cells=cells)
    assert 1 <= calls["_half_weights"] <= 3
    assert calls["compose_profiles"] <= 120


def test_rounds_of_the_search_are_further_cells() -> None:
    assert least_noise(1.0, 1e-6, changed_cells=2, rounds=5) == least_noise(1.0, 1e-6, changed_cells=10)


@settings(deadline=None, max_examples=12)
@given(epsilon=st.floats(0.05, 200.0), delta=st.floats(1e-12, 0.5), cells=st.integers(1, 60), rounds=st.integers(1, 20))
def test_whatever_is_found_is_verified(epsilon: float, delta: float, cells: int, rounds: int) -> None:
    found = least_noise(epsilon, delta, changed_cells=cells, rounds=rounds)
    assert NoiseDistributionAccountant(((found, cells),), rounds).delta_upper(epsilon) <= delta


def _mislead(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Let the search believe that so much of the least scale would do."""
    honest = noise_distribution._Search.best_of_shape

    def less(self: Any, number: int) -> Any:
        found = honest(self, number)
        return noise_distribution._Found(found.shape, found.scale * factor, found.variance * factor**2)

    monkeypatch.setattr(noise_distribution._Search, "best_of_shape", less)


def test_a_table_that_fails_in_the_end_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    _mislead(monkeypatch, 0.5)
    with refusal("not-certified", error=PrivacyError):
        least_noise(1.0, 1e-6, changed_cells=10)


def test_where_the_search_was_a_little_wrong_more_noise_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    _mislead(monkeypatch, 1 - 3e-4)
    found = least_noise(1.0, 1e-6, changed_cells=10)
    assert NoiseDistributionAccountant(((found, 10),)).delta_upper(1.0) <= 1e-6
    assert found.variance == pytest.approx(159.0, rel=0.005)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"epsilon": 0.0}, "out-of-range"),
        ({"epsilon": -1.0}, "out-of-range"),
        ({"epsilon": math.inf}, "out-of-range"),
        ({"epsilon": 10**400}, "out-of-range"),
        ({"epsilon": 1e-200}, "privacy-out-of-reach"),
        ({"epsilon": "1"}, "wrong-type"),
        ({"delta": 1e-13}, "not-certified"),
        ({"delta": 1.0}, "not-certified"),
        ({"changed_cells": 0}, "out-of-range"),
        ({"changed_cells": composition.MOST_COMPOSITIONS, "rounds": 2}, "out-of-range"),
        ({"rounds": 0}, "out-of-range"),
        ({"epsilon": 1e-6, "changed_cells": 100}, "privacy-out-of-reach"),
    ],
)
def test_targets_that_cannot_be_met_are_refused(arguments: dict[str, Any], problem: str) -> None:
    with refusal(problem, error=(ParameterError, PrivacyError)):
        least_noise(**{"epsilon": 1.0, "delta": 1e-6, "changed_cells": 2, **arguments})


@pytest.mark.parametrize(
    ("changed", "rounds"),
    [
        ((), 1),
        (((LAPLACE, 0),), 1),
        (((LAPLACE, 1),), 0),
        (((LAPLACE, 10**6),), 2),
        (((LAPLACE, np.int32(10**6)),), np.int32(10**6)),
        (((LAPLACE, 1.0),), 1),
        (((LAPLACE, True),), 1),
        (((LAPLACE.weights, 1),), 1),
        (iter(()), 1),
        (None, 1),
        (LAPLACE, 1),
        ((LAPLACE, 1), 1),
        (((LAPLACE, 1, 1),), 1),
        ({LAPLACE: 1}, 1),
    ],
)
def test_what_changes_nothing_or_too_much_is_refused(changed: Any, rounds: int) -> None:
    with refusal(("out-of-range", "not-certified", "wrong-type"), error=(ParameterError, PrivacyError)):
        NoiseDistributionAccountant(changed, rounds)
