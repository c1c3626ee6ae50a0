"""Blocks of counts whose directions are free: against full enumeration, and against the larger profile of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import accumulate, repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.noisy_counts import Law, Table, divergence, independent_noise, worst_delta
from tests.privacy.noisy_counts.tiny import MIXED, Mixed, Setting, setting
from tests.refusals import refusal

from shufflesum.errors import ParameterError
from shufflesum.privacy import noisy_counts as counts
from shufflesum.privacy.engine.composition import ComposedUpper, Factor, compose_profiles
from shufflesum.privacy.noisy_counts import ChangedCounts, NoisyCountsAccountant, OneWay, divided, every_way, listed

STEP = 0.05
NODES = [0, 1, 4, 10, 20, 35, 60]  # of the grid with that step
WEIGHTS = [Fraction(math.exp(STEP * node)) * (1 + Fraction(1, 2**48)) for node in NODES]  # certainly not below


@cache
def exact(trials: int, probability: Fraction, move: Table) -> list[Fraction]:
    """The profile, at the weights, of counts that move so, against counts that do not."""
    noise = independent_noise(1, len(move), (trials,), (probability,))
    moved: Law = {tuple(y + by for y, by in zip(table, move, strict=True)): share for table, share in noise.items()}
    return divergence(moved, noise, WEIGHTS)


def powers(trials: int, probability: Fraction, size: int, charge: float = 0.0) -> list[OneWay]:
    count = listed(trials, float(probability)).on_grid(STEP).trimmed(charge)
    return list(accumulate(repeat(count, size), lambda power, one: power.times(one).trimmed(charge)))


def heights_at_nodes(pair: OneWay) -> list[float]:
    heights = pair.heights()
    return [float(heights[min(node, heights.size - 1)]) for node in NODES]


def too_low(pair: OneWay, truth: Sequence[Fraction]) -> bool:
    return any(Fraction(height) < delta for height, delta in zip(heights_at_nodes(pair), truth, strict=True))


COUNTS = [(4, Fraction(1, 4), 3), (12, Fraction(1, 16), 2), (3, Fraction(7, 16), 4), (1, Fraction(1, 2), 3)]


@pytest.mark.parametrize(("trials", "probability", "size"), COUNTS)
def test_each_product_of_a_block_lies_above_the_counts_that_move_so(
    trials: int, probability: Fraction, size: int
) -> None:
    ways = every_way(powers(trials, probability, size))
    assert len(ways) == size + 1
    for ups, pair in enumerate(ways):
        truth = exact(trials, probability, (1,) * ups + (-1,) * (size - ups))
        assert not too_low(pair, truth)
        for height, delta in zip(heights_at_nodes(pair), truth, strict=True):
            assert height <= 1.03 * float(delta) + 1e-3


@pytest.mark.long
@pytest.mark.parametrize(
    ("trials", "probability", "size"), [(40, Fraction(1, 4), 2), (60, Fraction(7, 16), 2), (20, Fraction(3, 8), 3)]
)
@pytest.mark.parametrize("charge", [1e-3, 0.02])
def test_folded_ends_only_raise_a_profile_in_both_directions(
    trials: int, probability: Fraction, size: int, charge: float
) -> None:
    whole, folded = powers(trials, probability, size)[-1], powers(trials, probability, size, charge)[-1]
    assert folded.symmetrised.size < whole.symmetrised.size
    for pair, full, move in ((folded, whole, 1), (folded.mirrored, whole.mirrored, -1)):
        assert not too_low(pair, exact(trials, probability, (move,) * size))
        assert too_low(replace(pair, rising=full.rising), exact(trials, probability, (move,) * size))
        assert max(np.subtract(heights_at_nodes(pair), heights_at_nodes(full))) <= 2 * size * charge


def free(trials: int, probability: float, copies: int, rounds: int = 1) -> ChangedCounts:
    return ChangedCounts(trials, probability, copies * rounds, at_once=copies)


def worst(numbers: Setting, epsilons: Sequence[float]) -> list[Fraction]:
    weights = [Fraction(math.nextafter(math.exp(epsilon), math.inf)) for epsilon in epsilons]
    return worst_delta(**numbers, weights=weights)


def cells_of(numbers: Setting) -> NoisyCountsAccountant:
    trials, chances = numbers["trials"], numbers["probabilities"]
    noise = zip(trials, chances, strict=True)
    return NoisyCountsAccountant(tuple(free(numbers["users"] * q, float(p), numbers["dimension"]) for q, p in noise))


@pytest.mark.parametrize("case", [case for case in MIXED if case.setting["dimension"] > 1])
def test_a_block_without_mixed_directions_would_be_caught(case: Mixed, monkeypatch: pytest.MonkeyPatch) -> None:
    epsilon = math.log(float(case.weight))
    truth = worst(case.setting, [epsilon])[0]
    bounds = cells_of(case.setting)
    assert truth <= Fraction(bounds.upper().delta(epsilon)) <= truth * Fraction(1.001)
    monkeypatch.setattr(counts, "every_way", lambda powers: [powers[-1], powers[-1].mirrored])
    assert Fraction(bounds.upper().delta(epsilon)) < truth * Fraction(0.998)


@pytest.mark.long
@pytest.mark.parametrize(
    "numbers",
    [
        setting(1, 4, (2,), "1/4"),
        setting(1, 4, (2,), "7/16"),
        setting(1, 5, (1,), "3/8"),
        setting(1, 2, (3, 2), "1/4", "3/8"),
        setting(1, 2, (1, 1, 1), "1/4", "3/8", "7/16"),
    ],
)
def test_blocks_lie_above_every_change_of_a_table_with_more_cells(numbers: Setting) -> None:
    epsilons = [0.0, 0.4, 1.0, 2.0, 3.5]
    bounds = cells_of(numbers)
    for epsilon, delta in zip(epsilons, worst(numbers, epsilons), strict=True):
        assert delta <= Fraction(bounds.upper().delta(epsilon)) <= min(Fraction(1), delta * Fraction(1.1))


# Rounds


def adaptive_delta(trials: int, p: Fraction, weight: Fraction) -> Fraction:
    """One count in each of two rounds; the second goes up or down as is worse given what the first one showed."""
    noise = independent_noise(1, 1, (trials,), (p,))
    raised: Law = {(y + 1,): share for (y,), share in noise.items()}
    worst = Fraction(0)
    for first, second in ((raised, noise), (noise, raised)):
        total = Fraction(0)
        for outcome, share in first.items():
            odds = [weight * second.get(outcome, Fraction(0)) / share]
            total += share * max(divergence(raised, noise, odds)[0], divergence(noise, raised, odds)[0])
        worst = max(worst, total)
    return worst


@pytest.mark.parametrize(("trials", "chance", "weight"), [(8, "1/4", "7/4"), (6, "1/4", "3/2"), (2, "7/16", "2")])
def test_a_block_across_rounds_would_be_caught(trials: int, chance: str, weight: str) -> None:
    p, w = Fraction(chance), Fraction(weight)
    truth = adaptive_delta(trials, p, w)
    epsilon = math.log(float(w))
    across, within = (
        NoisyCountsAccountant((free(trials, float(p), 2),)),
        NoisyCountsAccountant((free(trials, float(p), 1, rounds=2),)),
    )
    assert Fraction(across.upper().delta(epsilon)) < truth * Fraction(0.998)
    assert truth <= Fraction(within.upper().delta(epsilon)) <= truth * Fraction(1.04)


# Against the larger profile of both directions in every count


def larger_profiles(cells: NoisyCountsAccountant) -> ComposedUpper:
    def factor(group: ChangedCounts) -> Factor:
        return Factor(
            profile=lambda epsilons: counts.profile_upper(group.trials, group.probability, epsilons),
            deviation=counts.loss_deviation(group.trials, group.probability),
            highest=counts.highest_loss(group.trials, group.probability),
            copies=group.copies,
            limit=counts.infinity_mass(group.trials, group.probability),
        )

    return compose_profiles([factor(group) for group in cells.groups])


groups = st.builds(
    lambda variance, p, copies: free(max(1, round(variance / (p * (1 - p)))), p, copies),
    st.floats(-1.0, 12.0).map(math.exp),
    st.sampled_from([1 / 64, 1 / 16, 0.25, 0.4, 0.5, 0.6, 15 / 16]),
    st.integers(2, 400),
)


@pytest.mark.long
@settings(max_examples=60)
@given(st.lists(groups, min_size=1, max_size=3), st.floats(0.0, 6.0))
def test_blocks_never_ask_for_more_than_the_larger_profile_of_each_count(
    drawn: list[ChangedCounts], deviations: float
) -> None:
    cells = NoisyCountsAccountant(tuple(drawn))
    variance = sum(g.copies / max(1.0, g.trials * g.probability * (1 - g.probability)) for g in drawn)
    epsilon = variance / 2 + deviations * math.sqrt(variance)
    assert cells.upper().delta(epsilon) <= larger_profiles(cells).delta(epsilon) * (1 + 1e-6) + 1e-14


@pytest.mark.parametrize(("trials", "copies", "epsilon"), [(2654, 30, 2.0), (17_488, 300, 2.0), (794, 31, 4.0)])
def test_blocks_ask_for_less_where_counts_hold_little_noise(trials: int, copies: int, epsilon: float) -> None:
    cells = NoisyCountsAccountant((free(trials, 1 / 16, copies),))
    assert cells.delta_lower(epsilon) <= cells.upper().delta(epsilon) <= 0.95 * larger_profiles(cells).delta(epsilon)


def test_blocks_hold_all_counts_and_no_more() -> None:
    for number in (*range(1, 200), 999_983, 10**6):
        parts = divided(number)
        assert sum(size * copies for size, copies in parts) == number
        assert len(parts) <= 2
        assert max(size for size, _ in parts) <= 16
        assert min(size for size, _ in parts) >= min(number, 8)


@pytest.mark.long
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("cells", "epsilon"),
    [
        (NoisyCountsAccountant(tuple(free(2**20 >> j, 1 / 16, 100) for j in range(16))), 40.0),
        (NoisyCountsAccountant((free(2**21, 1 / 16, 10**6),)), 15.0),
        (NoisyCountsAccountant((free(2**21, 1 / 16, 999_983), free(2**20, 1 / 16, 17))), 15.0),
        (NoisyCountsAccountant((free(1, 2.0**-53, 40),)), 1.0),
        (NoisyCountsAccountant((free(2, 1 - 2.0**-53, 40),)), 1.0),
        (NoisyCountsAccountant((free(2**53 - 1, 2.0**-53, 40),)), 1.0),
    ],
)
def test_many_digits_many_cells_and_next_to_no_noise_have_bounds(cells: NoisyCountsAccountant, epsilon: float) -> None:
    low, high = cells.delta_lower(epsilon), cells.delta_upper(epsilon)
    assert 1e-9 <= low <= high <= 1.0
    assert high <= larger_profiles(cells).delta(epsilon) * (1 + 1e-6) + 1e-14


def test_cells_of_a_round_must_be_a_part_of_all() -> None:
    for at_once in (0, 4, 11):
        with refusal("out-of-range", f"at_once is {at_once}", error=ParameterError):
            ChangedCounts(10, 0.25, 10, at_once=at_once)


# Sums of scores, from below


@pytest.mark.parametrize(("trials", "probability", "size"), COUNTS[:3])
@pytest.mark.parametrize("step", [0.01, 0.05, 0.3])
def test_sums_of_scores_show_no_more_than_the_counts(
    trials: int, probability: Fraction, size: int, step: float
) -> None:
    for move, chance in ((1, probability), (-1, 1 - probability)):
        truth = exact(trials, probability, (move,) * size)
        shown, more = (counts.summed_pld_below(trials, float(chance), number, step) for number in (size, size + 1))
        pairs = list(zip(NODES, truth, strict=True))
        assert all(Fraction(shown.delta_lower(STEP * node)) <= delta for node, delta in pairs)
        assert any(Fraction(more.delta_lower(STEP * node)) > delta for node, delta in pairs)


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_sums_of_scores_lose_little_of_what_sparse_counts_show(epsilon: float) -> None:
    """Noise of 24 reports a cell: outcomes lie far apart, and one by one they would be merged at a loss."""
    trials, size = 377, 16
    step = counts.loss_deviation(trials, 1 / 16) / 20
    shown = counts.summed_pld_below(trials, 15 / 16, size, step).delta_lower(epsilon)
    above = counts.Block(trials, 1 / 16, size, 1, Factor(lambda _: np.ones(1), 1.0, 1.0, 1)).pld(step, 1.0)
    assert 0.99 * above.hockey_stick_divergence(epsilon) <= shown <= above.delta_upper(epsilon)
