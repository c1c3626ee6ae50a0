"""Cells that change by more than one: the accountant against full enumeration of all shifts up to the largest."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from tests.oracles import noise_distribution as counts
from tests.oracles import noisy_sums as oracle
from tests.refusals import refusal

from shufflesum.privacy import NoiseDistribution, NoiseDistributionAccountant, least_noise, noise_distribution
from shufflesum.privacy.engine.gaussian import gaussian_noise

EPSILONS = (0.0, 0.1, 0.5, 1.0, 1.7, 3.0)
LAPLACE, BETWEEN, GAUSSIAN = (
    NoiseDistribution(1.0, 1.3, 4),
    NoiseDistribution(1.5, 1.7, 5),
    NoiseDistribution(2.0, 1.6, 4),
)
TABLES = [LAPLACE, BETWEEN, GAUSSIAN, NoiseDistribution(1.0, 50.0, 3)]


def weight(epsilon: float, side: int) -> Fraction:
    """An e^epsilon that is a little smaller (-1: more delta) or larger (1: less) than the true one."""
    return Fraction(math.exp(epsilon)) * (1 + side * Fraction(1, 2**49))


@pytest.mark.parametrize("shift", [2, 3])
@pytest.mark.parametrize("noise", TABLES, ids=str)
def test_bounds_enclose_the_enumerated_delta_of_all_shifts(noise: NoiseDistribution, shift: int) -> None:
    law = oracle.noise([noise.weights])
    found = NoiseDistributionAccountant(((noise, 1),), shift=shift)
    for epsilon in EPSILONS:
        bounds = found.delta(epsilon)
        for move in range(-shift, shift + 1):
            assert oracle.delta(law, (move,), weight(epsilon, 1)) <= Fraction(bounds.upper), (epsilon, move)
        most = oracle.delta(law, (shift,), weight(epsilon, -1))
        assert Fraction(bounds.lower) <= most
        assert bounds.upper <= 1.02 * float(most) + 1e-12  # so nothing much is given away
        assert bounds.lower >= 0.98 * float(most) - 1e-12


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN], ids=str)
def test_bounds_hold_for_all_shifts_of_two_cells_in_two_classes(noise: NoiseDistribution) -> None:
    law, other = oracle.noise([noise.weights]), oracle.noise([BETWEEN.weights])
    found = NoiseDistributionAccountant(((noise, 1), (BETWEEN, 1)), shift=2)
    joint = {(a, b): p * q for a, p in law.items() for b, q in other.items()}
    for epsilon, moves in itertools.product((0.1, 1.0), itertools.product(range(-2, 3), repeat=2)):
        w = weight(epsilon, 1)
        shown = sum(
            max(Fraction(0), p - w * joint.get((a + moves[0], b + moves[1]), Fraction(0)))
            for (a, b), p in joint.items()
        )
        assert shown <= Fraction(found.delta_upper(epsilon)), (epsilon, moves)


@pytest.mark.parametrize(("step", "shift"), [(3, 1), (2, 2), (5, 1)])
def test_a_uniform_number_below_the_step_hides_what_lies_between_steps(step: int, shift: int) -> None:
    law = oracle.noise([BETWEEN.weights], step=step)
    found = NoiseDistributionAccountant(((BETWEEN, 1),), shift=shift)
    for epsilon in EPSILONS:
        upper = Fraction(found.delta_upper(epsilon))
        for move in range(-step * shift, step * shift + 1):
            assert oracle.delta(law, (move,), weight(epsilon, 1)) <= upper, (epsilon, move)
        # a shift that is larger by one is not covered
        assert oracle.delta(law, (step * shift + 1,), weight(epsilon, 1)) > upper


def test_the_largest_shift_is_the_worst_of_a_log_concave_law() -> None:
    for table in ([1, 3, 5, 6, 5, 3, 1], [1, 2, 4, 8, 16, 8, 4, 2, 1], [1, 1, 1, 1, 1]):
        law = oracle.noise([table])
        for epsilon in EPSILONS:
            found = [oracle.delta(law, (move,), weight(epsilon, 1)) for move in range(6)]
            assert found == sorted(found), (table, epsilon)


def test_of_other_laws_it_is_not() -> None:
    law = oracle.noise([[8, 1, 8, 1, 8, 1, 8]])  # a comb
    w = weight(1.0, 1)
    assert oracle.delta(law, (1,), w) > oracle.delta(law, (2,), w)


@pytest.mark.parametrize("table", [[8, 1, 8, 1, 8, 1, 8], [9, 2, 9, 2, 9, 2, 9]], ids=str)
def test_tables_near_a_log_concave_law_show_no_more_than_what_is_charged(table: list[int]) -> None:
    """Far enough from it that smaller shifts do show more, which weights of 128 bits would not let anybody see."""
    half = [Fraction(1, 7)] * 4
    law, apart, more = oracle.noise([table]), oracle.distance(table, half), 0
    for epsilon in EPSILONS:
        w = weight(epsilon, 1)
        largest = oracle.delta(law, (2,), w)
        shown = oracle.delta(law, (1,), w)
        assert shown <= largest + 2 * (1 + w) * apart
        more += shown > largest
    assert more


def test_tables_of_few_bits_are_near_their_formula() -> None:
    for scale, bits in itertools.product((Fraction(3, 2), Fraction(3)), (6, 8)):
        half = counts.bell(Fraction(1), scale, 5)
        table = oracle.rounded(half, bits)
        law, apart = oracle.noise([table]), oracle.distance(table, half)
        assert apart <= Fraction(11, 2**bits)
        for epsilon in (0.3, 0.6, 1.2):
            w = weight(epsilon, 1)
            largest = oracle.delta(law, (3,), w)
            assert all(oracle.delta(law, (move,), w) <= largest + 2 * (1 + w) * apart for move in (1, 2))


@pytest.mark.parametrize("cells", [1, 7])
def test_the_charge_is_that_of_all_cells_at_every_epsilon(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    plain = NoiseDistributionAccountant(((GAUSSIAN, cells),), rounds=3, shift=2)
    before = [plain.delta_upper(epsilon) for epsilon in EPSILONS]
    monkeypatch.setattr(noise_distribution, "rounded_apart", lambda distribution: 1e-6)
    monkeypatch.setattr(noise_distribution, "_LARGEST_CHARGED", 3.0)
    noise_distribution._upper.cache_clear()
    try:
        for epsilon, least in zip(EPSILONS, before, strict=True):
            charge = 2 * (1 + math.exp(epsilon)) * cells * 3 * 1e-6
            assert plain.delta_upper(epsilon) >= min(1.0, least + charge) * (1 - 1e-9)
        # beyond the largest epsilon that is charged for, no bound is below what it is there
        assert plain.delta_upper(10.0) >= before[-1]
        assert NoiseDistributionAccountant(((GAUSSIAN, 1),)).delta_upper(10.0) < 1e-3  # counts are not charged
    finally:
        noise_distribution._upper.cache_clear()


def test_how_far_a_table_is_from_its_formula_is_known() -> None:
    for noise, shape, scale in ((NoiseDistribution(1.0, 2.0, 6), 1, 2), (NoiseDistribution(1.5, 3.0, 5), 1.5, 3)):
        half = counts.bell(Fraction(shape), Fraction(scale), noise.half_length)
        apart = oracle.distance(noise.weights, half)
        assert 0 < apart <= Fraction(noise_distribution.rounded_apart(noise))


@pytest.mark.parametrize(
    "wrong",
    [
        NoiseDistribution(1.5, 1.65, 5),  # less noise
        NoiseDistribution(1.5, 1.7, 4),  # ends cut off
        NoiseDistribution(2.0, 1.7, 5),  # another shape
    ],
    ids=str,
)
def test_noise_other_than_the_certified_one_is_noticed(wrong: NoiseDistribution) -> None:
    found = NoiseDistributionAccountant(((BETWEEN, 1),), shift=2)
    law = oracle.noise([wrong.weights])
    assert any(oracle.delta(law, (2,), weight(e, 1)) > Fraction(found.delta_upper(e)) for e in EPSILONS)


@pytest.mark.parametrize(("cells", "shift", "epsilon"), [(1, 8, 1.0), (1, 64, 8.0), (10, 4, 1.0), (3, 8, 2.0)])
def test_the_least_noise_for_larger_shifts_is_that_of_a_curator_or_less(cells: int, shift: int, epsilon: float) -> None:
    noise = least_noise(epsilon, 1e-6, changed_cells=cells, shift=shift)
    accountant = NoiseDistributionAccountant(((noise, cells),), shift=shift)
    assert accountant.delta_upper(epsilon) <= 1e-6
    less = NoiseDistribution(noise.shape, noise.scale * 0.99, noise.half_length)
    assert NoiseDistributionAccountant(((less, cells),), shift=shift).delta_lower(epsilon) > 1e-6
    curator = min(2 * (cells / epsilon) ** 2, cells * gaussian_noise(epsilon, 1e-6) ** 2)
    assert noise.variance <= 1.001 * shift**2 * curator


@pytest.mark.parametrize("shift", [0, -1, 5, 1.0, True])
def test_impossible_shifts_are_refused(shift: int) -> None:
    with refusal(("out-of-range", "wrong-type")):
        NoiseDistributionAccountant(((LAPLACE, 1),), shift=shift)
