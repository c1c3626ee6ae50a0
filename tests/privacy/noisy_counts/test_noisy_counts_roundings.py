"""What noisy counts are charged for roundings, place by place: made large enough to matter, or met where it matters."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.privacy.nodes import assert_read_below_each_node
from tests.uncompiled_kernels import uncompiled

from shufflesum.errors import ParameterError
from shufflesum.privacy import noisy_counts as accountant
from shufflesum.privacy import noisy_counts as counts
from shufflesum.privacy.engine import pld
from shufflesum.privacy.engine.laws import binomial_window
from shufflesum.privacy.engine.pld import PrivacyLossDistribution
from shufflesum.privacy.noisy_counts import ChangedCounts, OneWay, Outcomes, listed, overflow_upper

mpmath = pytest.importorskip("mpmath")

LARGE = 1e-6
PAIR = OneWay(0.5, -2, np.array([0.1, 0.2, 0.3, 0.2, 0.1]), 0.01, 0.02, 0.0)


@pytest.mark.parametrize("beyond", [4, 9])
def test_the_bound_of_a_tail_is_above_the_least_in_many_digits(beyond: int) -> None:
    """At the best tilt, where the bound is flat: what is returned exceeds it by the rounding that is charged."""
    noise = [(12, 0.125), (6, 0.25)]
    with mpmath.workdps(40):

        def exponent(tilt: Any) -> Any:
            return sum(n * mpmath.log1p(mpmath.mpf(p) * mpmath.expm1(tilt)) for n, p in noise)

        best = mpmath.findroot(lambda tilt: mpmath.diff(exponent, tilt) - beyond, 1.0)
        exact = mpmath.exp(exponent(best) - best * beyond)
        charged = mpmath.exp(mpmath.mpf("0.9e-9") * (exponent(best) + best * beyond))
        assert exact * charged < mpmath.mpf(overflow_upper(noise, beyond - 1)) < exact * charged**2


def test_the_rounding_of_a_tails_exponent_is_charged_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = [(12, 0.125), (6, 0.25)]
    before = overflow_upper(noise, 8)
    monkeypatch.setattr(accountant, "_ROUNDING", 0.01)
    assert overflow_upper(noise, 8) > 1.05 * before


def test_a_chance_too_small_for_double_precision_is_not_nothing() -> None:
    assert math.exp(10**5 * math.log(0.5)) == 0.0
    assert counts.infinity_mass(10**5, 0.5) > 0.0
    vanished = OneWay(0.5, -1, np.array([1e-320, 1e-320, 1e-320]), 0.0, 0.0, 0.0)
    assert (vanished.heights() >= 1e-300).all()


@pytest.mark.parametrize(("trials", "chance"), [(10, 0.3), (77, 0.1), (1000, 0.9)])
def test_the_chance_of_a_count_that_gives_itself_away_is_rounded_up(trials: int, chance: float) -> None:
    exact = max(Fraction(chance) ** trials, (1 - Fraction(chance)) ** trials)
    assert exact * (1 + Fraction(5, 10**13)) < Fraction(counts.infinity_mass(trials, chance))


def test_roundings_of_a_count_are_added_above_and_to_the_error_below(monkeypatch: pytest.MonkeyPatch) -> None:
    epsilons = np.array([0.0, 0.5])
    above = counts.profile_upper(20, 0.25, epsilons)
    for module in (counts, counts):
        monkeypatch.setattr(module, "slack", lambda steps: LARGE * steps)
    terms = binomial_window(20, 0.25, 1 / 3, counts._OUTSIDE)[1].size
    np.testing.assert_allclose(counts.profile_upper(20, 0.25, epsilons), above * (1 + 2 * LARGE * terms), rtol=1e-10)
    pair = counts.pld_below(20, 0.25, 0.05)
    assert pair.error >= LARGE * terms
    assert pair.infinity_mass <= 0.25**20 * (1 - 2 * LARGE * terms) * (1 + 1e-12)
    masses = np.sqrt([math.comb(20, y) * math.comb(20, y + 1) / 3.0 ** (2 * y + 1) for y in range(20)]) * 0.75**20
    widened = 1 + 2 * LARGE * terms
    np.testing.assert_allclose(listed(20, 0.25).symmetrised[::-1], masses[terms - 2 :: -1] * widened, rtol=1e-10)


def test_sums_of_scores_are_charged_for_the_window_and_for_the_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "slack", lambda steps: LARGE * steps)
    monkeypatch.setattr(pld, "MOST_ERROR", 1.0)
    law = [math.comb(3, y) * 0.4**y * 0.6 ** (3 - y) for y in range(4)]
    found = [math.floor(math.log(first / second) / 1e-3) for first, second in itertools.pairwise(law)]
    bins = max(found) - min(found) + 1
    for number in (1, 3):
        charged = number * LARGE * (len(law) + bins)
        assert charged <= counts.summed_pld_below(3, 0.4, number, 1e-3).error <= charged * (1 + 1e-6)


def test_a_vertex_moved_by_rounding_is_read_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """H(w) + 16 roundings w Q(above), on a polygon that is known: N of one trial, w_1 = (1 - p)/p."""
    uncompiled(monkeypatch, counts, ROUNDING=2.0**-10)
    odds, w = 1 / 3, np.array([1.5])
    found = counts._heights(1, odds, 0, np.array([0.75, 0.25]), 0.0, w)
    exact = 0.25 + (3.0 - 1.5) * 0.25  # from P's mass at y = 2, which Q never reaches, by Q's at y = 1
    assert found == pytest.approx([exact + 16 * 2.0**-10 * 1.5 * 0.25], rel=1e-12)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("step", [0.9, 0.05])
def test_losses_that_are_known_up_to_a_doubt_still_dominate(
    monkeypatch: pytest.MonkeyPatch, step: float, sign: int
) -> None:
    exact = listed(20, 0.25)
    monkeypatch.setattr(counts, "ROUNDING", 1e-4)
    moved = Outcomes(
        exact.losses + sign * 15e-4 * (1 + np.abs(exact.losses)), exact.symmetrised, exact.rising, exact.falling
    )
    p, q = exact.symmetrised * np.exp(exact.losses / 2), exact.symmetrised * np.exp(-exact.losses / 2)
    for pair, first, second, rest in (
        (moved.on_grid(step), p, q, exact.rising),
        (moved.on_grid(step).mirrored, q, p, exact.falling),
    ):
        for node, most in enumerate(pair.heights()):
            weight = math.exp(node * step)
            assert most >= (rest + math.fsum(np.maximum(first - weight * second, 0.0))) * (1 - 1e-12)


@pytest.mark.parametrize("sign", [1, 0, -1])
def test_every_node_has_at_least_what_losses_known_up_to_a_doubt_might_give_it(
    monkeypatch: pytest.MonkeyPatch, sign: int
) -> None:
    # so it dominates in both readings: steps put true losses, and those that are taken for them, on or beside nodes
    exact = listed(20, 0.25)
    monkeypatch.setattr(counts, "ROUNDING", 1e-4)
    losses = exact.losses + sign * 15e-4 * (1 + np.abs(exact.losses))
    for loss, part, off in itertools.product((*exact.losses, *losses), (1, 3, 10), (-1e-4, 0.0, 1e-4)):
        step = abs(loss) / part + off
        if step < 0.02:
            continue
        laid = Outcomes(losses, exact.symmetrised, exact.rising, exact.falling).on_grid(step)
        true = np.zeros(laid.symmetrised.size)
        for x, mass in zip(exact.losses, exact.symmetrised, strict=True):
            node = math.floor(x / step)
            for at, apart in ((node, (node + 1) * step - x), (node + 1, x - node * step)):
                share = mass * math.sinh(apart / 2) / math.sinh(step / 2)
                if share > 1e-12 * mass:
                    true[at - laid.lowest] += share
        assert (laid.symmetrised >= true * (1 - 1e-9)).all()


@pytest.mark.parametrize("loss", [math.nextafter(-1.0, -2.0), -1.0 - 2.0**-50, -1.0])
def test_a_loss_just_below_a_node_is_not_forgotten_by_the_mirror_image(loss: float) -> None:
    # Q has e^(1/2), P e^(-1/2): one outcome, of which N against N + 1 shows Q - w P at w = e
    read = Outcomes(np.array([loss]), np.array([1.0]), 0.0, 0.0).on_grid(0.5).mirrored.heights()[2]
    with mpmath.workdps(40):
        true = mpmath.exp(-mpmath.mpf(loss) / 2) - mpmath.exp(1 + mpmath.mpf(loss) / 2)
        assert mpmath.mpf(float(read)) >= true


def test_pairs_of_one_direction_count_their_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    before = PAIR.heights()
    monkeypatch.setattr(counts, "ULP", LARGE)
    assert listed(20, 0.25).on_grid(0.1).error >= 64 * LARGE
    assert PAIR.times(PAIR).error >= 5 * LARGE
    relative = LARGE * (5 + 4 * 0.5 * 3 + 64)
    assert PAIR.trimmed(0.05).error >= relative
    np.testing.assert_allclose(PAIR.heights(), before * (1 + 4 * relative), rtol=1e-9)


def test_a_charged_profile_is_read_below_each_node() -> None:
    asked: list[float] = []

    class Read(PrivacyLossDistribution):
        def delta_upper(self, epsilon: float) -> float:
            asked.append(epsilon)
            return 0.1

    accountant._with_charge(Read(0.1, -30, np.full(61, 0.01), 0.0, 0.0), 1e-3)
    assert_read_below_each_node(asked, 0.1, at_least=30)


def test_what_a_cap_costs_is_rounded_up() -> None:
    for epsilon in (0.1, 1 / 3, 2.7, 11.0):
        with mpmath.workdps(40):
            exact = mpmath.mpf(1e-9) * (1 + mpmath.exp(mpmath.mpf(epsilon)))
            found = mpmath.mpf(accountant._charge(epsilon, 1e-9))
            assert exact * (1 + mpmath.mpf("5e-13")) < found < exact * (1 + mpmath.mpf("2e-12"))


def test_more_trials_than_floating_point_numbers_can_count_are_refused() -> None:
    with pytest.raises(ParameterError):
        ChangedCounts(2**53, 2.0**-40, 1)
    assert ChangedCounts(2**53 - 1, 2.0**-40, 1).trials == 2**53 - 1
