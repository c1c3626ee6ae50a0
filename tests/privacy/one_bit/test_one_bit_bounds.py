"""Certified bounds for the ball against enumeration, against random search, and against shortcuts that are false."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from tests.oracles.one_bit import delta_between, flips_delta, hill_climb, ones_law, worst_delta
from tests.refusals import refusal

from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy import Interval
from shufflesum.privacy.one_bit import OneBitAccountant

EPSILONS = [0.0, 0.3, 0.7, 1.0, 1.5, 2.5, 4.0]
ROUNDED = 1e-12  # of the oracles' sums


class Tiny(NamedTuple):
    users: int
    dimension: int
    tau: float
    amplitude: float
    steps: int  # of the grid from -1 to 1


TINY = [
    Tiny(1, 3, 1.2, 0.3, 4),
    Tiny(2, 1, 1.0, 0.5, 8),
    Tiny(6, 1, 1.0, 0.7, 4),
    Tiny(4, 1, 1.0, 0.2, 4),
    Tiny(3, 2, 1.2, 0.5, 4),
    Tiny(4, 2, 1.0, 0.3, 2),
    Tiny(6, 2, 1.4, 0.6, 2),
    Tiny(2, 2, 1.41, 0.5, 10),
    Tiny(2, 3, 1.2, 0.4, 4),
    Tiny(3, 3, 1.2, 0.5, 2),
    Tiny(4, 3, 1.7, 0.8, 2),
    Tiny(6, 3, 1.5, 0.3, 2),
    Tiny(6, 3, 1.7, 0.8, 2),
]


@cache
def enumerated(tiny: Tiny) -> tuple[float, ...]:
    return tuple(
        worst_delta(
            users=tiny.users,
            dimension=tiny.dimension,
            tau=tiny.tau,
            amplitude=tiny.amplitude,
            steps=tiny.steps,
            epsilons=EPSILONS,
        )
    )


def l2_ball_of(tiny: Tiny) -> OneBitAccountant:
    return OneBitAccountant(tiny.users, tiny.dimension, tiny.amplitude, tiny.tau)


def exceeded(upper: Callable[[float], float], truth: Sequence[float]) -> list[float]:
    """Where the truth lies above what claims to be an upper bound."""
    return [e for e, delta in zip(EPSILONS, truth, strict=True) if delta > upper(e) * (1 + 1e-9) + ROUNDED]


@pytest.mark.long
@pytest.mark.parametrize("tiny", TINY)
def test_no_neighbours_on_a_grid_are_above_the_certified_delta(tiny: Tiny) -> None:
    assert exceeded(l2_ball_of(tiny).delta_upper, enumerated(tiny)) == []


@pytest.mark.parametrize("tiny", TINY)
def test_the_lower_bound_stays_below_the_upper_one_and_in_one_coordinate_below_the_truth(tiny: Tiny) -> None:
    ball = l2_ball_of(tiny)
    limits = enumerated(tiny) if tiny.dimension == 1 else [ball.delta_upper(epsilon) for epsilon in EPSILONS]
    for epsilon, limit in zip(EPSILONS, limits, strict=True):
        assert ball.delta_lower(epsilon) <= limit + ROUNDED


def shown_within_the_norm(ball: OneBitAccountant, epsilon: float) -> float:
    """The most that y against -y shows in some coordinates, 0 in the others, where all hold the one or the other.

    Everybody's bits of a coordinate are counted together, as the analyzer's table has them.
    """
    worst = 0.0
    for spread in range(1, ball.coordinates + 1):
        y = min(1.0, math.sqrt(ball.coordinates / spread) / ball.tau)
        for high in range(ball.honest_users):
            up, down = (
                np.array(
                    ones_law(
                        [Fraction((1 + ball.amplitude * y) / 2)] * (ball.bits * ones)
                        + [Fraction((1 - ball.amplitude * y) / 2)] * (ball.bits * (ball.honest_users - ones))
                    ),
                    dtype=np.float64,
                )
                for ones in (high + 1, high)
            )
            for first, second in ((up, down), (down, up)):
                one, other = np.ones(1), np.ones(1)
                for _ in range(spread * ball.rounds):
                    one, other = np.outer(one, first).ravel(), np.outer(other, second).ravel()
                worst = max(worst, float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum()))
    return worst


@pytest.mark.parametrize(
    "ball",
    [
        OneBitAccountant(2, 4, 0.54, 2.0),
        OneBitAccountant(2, 2, 0.25, 1.25),
        OneBitAccountant(3, 2, 0.67, 1.23, bits=2),
        OneBitAccountant(3, 2, 0.5, 1.0, bits=2),
        OneBitAccountant(4, 2, 0.05, 1.41, bits=3),
        OneBitAccountant(3, 3, 0.4, 1.5),
        OneBitAccountant(3, 2, 0.6, 1.2, rounds=2),
    ],
)
def test_the_lower_bound_is_what_vectors_of_the_ball_show(ball: OneBitAccountant) -> None:
    """Others at an end of the box would be no honest users, and nobody sees which of a user's bits was which."""
    for epsilon in EPSILONS:
        shown = shown_within_the_norm(ball, epsilon)
        assert 0.7 * shown - 1e-3 <= ball.delta_lower(epsilon) <= shown + ROUNDED


def test_bounds_that_are_wrong_on_purpose_are_caught_by_the_enumeration() -> None:
    """Each forgets something that matters, in a setting where enough of it does."""
    tiny = Tiny(2, 3, 1.2, 0.4, 4)
    fewer_coordinates = OneBitAccountant(2, 1, 0.4, 1.2)
    more_users = OneBitAccountant(6, 3, 0.4, 1.2)
    less_amplitude = OneBitAccountant(2, 3, 0.25, 1.2)
    larger_tau = OneBitAccountant(2, 3, 0.4, 2.4)
    for wrong in (fewer_coordinates, more_users, less_amplitude, larger_tau):
        assert exceeded(wrong.delta_upper, enumerated(tiny))


@pytest.mark.parametrize("tiny", [TINY[4], TINY[7]])
def test_as_many_full_flips_as_the_norm_pays_for_are_no_bound(tiny: Tiny) -> None:
    """D/tau^2 coordinates that flip fully, the first false shortcut: spread-out vectors show more."""
    flips = flips_delta(
        users=tiny.users, flips=round(tiny.dimension / tiny.tau**2), amplitude=tiny.amplitude, epsilons=EPSILONS
    )
    known = dict(zip(EPSILONS, flips, strict=True))
    assert exceeded(lambda epsilon: float(known[epsilon]), enumerated(tiny))
    assert exceeded(l2_ball_of(tiny).delta_upper, enumerated(tiny)) == []


CLIMBS = [
    (12, 1, 1.0, 0.5, 0.6),
    (25, 2, 1.2, 0.4, 0.4),
    (40, 2, 1.4, 0.8, 0.7),
    (40, 1, 1.0, 0.95, 1.2),
    (9, 3, 1.5, 0.3, 0.3),
    (60, 2, 1.0, 0.2, 0.2),
]


def climbed(setting: tuple[int, int, float, float, float], starts: int, moves: int) -> float:
    users, dimension, tau, amplitude, epsilon = setting
    return max(
        hill_climb(
            np.random.default_rng(seed),
            users=users,
            dimension=dimension,
            tau=tau,
            amplitude=amplitude,
            epsilon=epsilon,
            moves=moves,
        )
        for seed in range(starts)
    )


@pytest.mark.parametrize("setting", CLIMBS)
def test_random_search_finds_no_neighbours_above_the_certified_delta(
    setting: tuple[int, int, float, float, float],
) -> None:
    users, dimension, tau, amplitude, epsilon = setting
    ball = OneBitAccountant(users, dimension, amplitude, tau)
    found = climbed(setting, 3, 150)
    assert found <= ball.delta_upper(epsilon) + ROUNDED
    # it does find what there is to find, and would catch a certificate for less than what is shown
    assert found >= 0.6 * ball.delta_lower(epsilon)
    assert found > OneBitAccountant(3 * users, dimension, amplitude, tau).delta_upper(epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("setting", CLIMBS)
def test_long_random_search_finds_nothing_above_either(setting: tuple[int, int, float, float, float]) -> None:
    users, dimension, tau, amplitude, epsilon = setting
    assert (
        climbed(setting, 60, 600) <= OneBitAccountant(users, dimension, amplitude, tau).delta_upper(epsilon) + ROUNDED
    )


def test_bits_and_rounds_are_further_coordinates() -> None:
    amplitude, users = 0.4, 5
    others = np.array([[1.0, 1.0]] * (users - 1))
    ones = np.array([1.0, 1.0])
    for twice in (
        OneBitAccountant(users, 1, amplitude, 1.0, bits=2),
        OneBitAccountant(users, 1, amplitude, 1.0, rounds=2),
    ):
        for epsilon in EPSILONS:
            shown = delta_between(others, ones, -ones, amplitude, epsilon)
            assert shown <= twice.delta_upper(epsilon) + ROUNDED
    once = OneBitAccountant(users, 1, amplitude, 1.0)
    assert exceeded(once.delta_upper, [delta_between(others, ones, -ones, amplitude, e) for e in EPSILONS])
    assert OneBitAccountant(1000, 64, 0.2, 2.0, bits=4).epsilon_upper(1e-6) == OneBitAccountant(
        1000, 256, 0.2, 2.0
    ).epsilon_upper(1e-6)
    assert OneBitAccountant(1000, 64, 0.2, 2.0, rounds=4).epsilon_upper(1e-6) == OneBitAccountant(
        1000, 256, 0.2, 2.0
    ).epsilon_upper(1e-6)


@pytest.mark.long
@pytest.mark.parametrize(
    "ball",
    [
        OneBitAccountant(1000, 1024, 0.3, 3.0),
        OneBitAccountant(1000, 8192, 0.1, 2.6),
        OneBitAccountant(10_000, 16_384, 0.35, 3.2),
        OneBitAccountant(10_000, 1024, 0.05, 3.2, rounds=100),
        OneBitAccountant(100_000, 4096, 0.6, 3.8, bits=2),
    ],
)
def test_explicit_neighbours_come_near_the_certificate(ball: OneBitAccountant) -> None:
    """And so a certificate for a fifth more users than there are would be refuted."""
    upper, lower = ball.epsilon_upper(1e-6), ball.epsilon_lower(1e-6)
    assert lower <= upper <= 1.06 * lower
    assert ball.delta_upper(upper) <= 1e-6
    assert ball.delta_lower(lower) >= 1e-6 * (1 - 1e-6)
    sabotaged = OneBitAccountant(
        ball.honest_users * 6 // 5, ball.coordinates, ball.amplitude, ball.tau, rounds=ball.rounds, bits=ball.bits
    )
    assert sabotaged.epsilon_upper(1e-6) < lower


@pytest.mark.long
def test_more_of_what_hides_never_costs_privacy() -> None:
    base = OneBitAccountant(500, 256, 0.3, 2.5)
    better = [
        OneBitAccountant(700, 256, 0.3, 2.5),
        OneBitAccountant(500, 200, 0.3, 2.5),
        OneBitAccountant(500, 256, 0.25, 2.5),
        OneBitAccountant(500, 256, 0.3, 3.0),
    ]
    for ball in better:
        assert ball.epsilon_upper(1e-6) < base.epsilon_upper(1e-6)
        assert ball.delta_upper(0.7) < base.delta_upper(0.7)


@pytest.mark.long
def test_moments_take_over_where_no_gaussian_pair_is_near() -> None:
    """Few users with hardly noisy bits: tails are not Gaussian, and the second certificate is the smaller one."""
    few = OneBitAccountant(1000, 16, 0.97, 2.0)
    charge = 1e-9
    assert few.epsilon_lower(1e-6) < few.epsilon_upper(1e-6) < 5.0
    assert few.mu(charge) > 1.5  # of which N(mu, 1) against N(0, 1) shows 1e-6 at epsilon 8 and more
    many = OneBitAccountant(10_000, 10_000, 0.35, 3.2)
    assert many.mu(charge) == pytest.approx(2 * 0.35 * 100 / 3.2 / math.sqrt(10_000 * (1 - 0.35**2)), rel=0.03)


def test_nothing_is_certified_for_bits_that_give_themselves_away() -> None:
    assert OneBitAccountant(100, 6400, 0.999, 2.0).epsilon_upper(1e-6) == math.inf
    assert OneBitAccountant(100, 6400, 0.999, 2.0).delta_upper(1.0) == 1.0
    assert OneBitAccountant(100, 6400, 0.999, 2.0).delta_lower(1.0) > 0.9


def test_nothing_is_certified_of_bits_without_noise() -> None:
    bare = OneBitAccountant(10, 8, 1.0, 2.0)
    assert (bare.delta(1.0), bare.epsilon(1e-6)) == (Interval(1.0, 0.0), Interval(math.inf, 0.0))
    assert bare.local_epsilon == math.inf
    assert bare.dominating_gaussian(1e-6) is None
    with refusal("not-certified", error=PrivacyError):
        bare.pld(1e-3)


def test_what_is_no_such_protocol_is_refused() -> None:
    for arguments in (
        (0, 8, 0.5, 2.0),
        (10, 0, 0.5, 2.0),
        (10, 8, 0.0, 2.0),
        (10, 8, 1.0 - 2.0**-41, 2.0),
        (10, 8, math.nan, 2.0),
        (10, 8, 0.5, 0.9),
        (10, 8, 0.5, math.inf),
        (10, 8, 0.5, math.nan),
        (10, 10**7, 0.5, 2.0, 10**6),
    ):
        with refusal("out-of-range", error=ParameterError):
            OneBitAccountant(*arguments)
    with refusal("wrong-type", "honest_users", error=ParameterError):
        OneBitAccountant(10.5, 8, 0.5, 2.0)  # type: ignore[arg-type]
    ball = OneBitAccountant(10, 8, 0.5, 2.0)
    with refusal("out-of-range", error=PrivacyError):
        ball.delta_upper(-1.0)
    with refusal("not-certified", error=PrivacyError):
        ball.epsilon_upper(1e-13)
