"""What the ball's certificates charge for roundings, place by place: made large enough, or met where it matters."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.oracles.one_bit import call, ones_law
from tests.privacy.nodes import assert_read_below_each_node
from tests.uncompiled_kernels import uncompiled

from shufflesum.errors import ParameterError
from shufflesum.privacy import one_bit as accountant
from shufflesum.privacy import one_bit as domination
from shufflesum.privacy.engine import gaussian
from shufflesum.privacy.one_bit import OneBitAccountant, Thresholds, thresholds

mpmath = pytest.importorskip("mpmath")

ULP = 2.0**-52
LARGE = 1e-4


# Laws of the others


@pytest.mark.parametrize("start", [0, 3])
def test_ratios_are_enclosed_with_every_rounding_of_a_step(monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    """One step from the ends that are known, and the next from that, each rounded outwards wherever it is rounded."""
    uncompiled(monkeypatch, domination, ROUNDING=LARGE)
    high, low, odds = 12, 20, 3.0
    found = np.empty((2, 2))
    assert domination._ratios(high, low, odds, start, start + 2, found) == start + 2
    small = large = math.inf
    if start:
        small, large = (32 - start + 1) / start / odds * (1 - 1e-9), (32 - start + 1) / start * odds * (1 + 1e-9)
    for k, ends in enumerate(found, start):
        first, second = odds * (high - k), (low - k) / odds
        room, relative_error_bound = 32 - k + 1, 8 * LARGE * (first + second)
        small, large = (
            (first + second - relative_error_bound + room / large * (1 - 4 * LARGE)) / (k + 1) * (1 - 4 * LARGE),
            (first + second + relative_error_bound + room / small * (1 + 4 * LARGE)) / (k + 1) * (1 + 4 * LARGE),
        )
        assert ends == pytest.approx([small, large], rel=1e-13)


@pytest.mark.parametrize("from_below", [0, 10, 30])
def test_a_law_counts_the_roundings_of_its_ratios_and_of_its_terms(
    monkeypatch: pytest.MonkeyPatch, from_below: int
) -> None:
    """With ratios that have no error of their own: all others at the upper end, some steps known only from below."""
    calls = []

    def exact(high: int, low: int, odds: float, start: int, stop: int, ratios: Any) -> int:
        for k in range(start, stop):
            ratios[k - start] = (high + low - k) / (k + 1.0) / odds ** (1 if low else -1)
        calls.append(start)
        return stop if len(calls) > 1 else max(start, stop - from_below)

    uncompiled(monkeypatch, domination, ROUNDING=1e-7)
    monkeypatch.setattr(domination, "_ratios", exact)
    terms, _, _, _, widening, error = domination.law(30, 0, 0.5)
    steps, mode = terms.size - 1, int(np.argmax(terms))
    drift = 4e-7 * max(mode, steps - mode)
    assert error == pytest.approx(4e-7, rel=1e-6)
    assert widening == pytest.approx(2 * drift * (1 + drift) + 32e-7 * (steps + 64), rel=1e-12)


def test_calls_are_read_below_by_the_error_of_z_and_never_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    shifts: list[float] = []
    monkeypatch.setattr(domination, "ROUNDING", LARGE)
    monkeypatch.setattr(domination, "law", lambda *_: (np.ones(2) / 2, np.zeros(1), 0.0, 0.0, 0.0, 1e-3))
    with monkeypatch.context() as calls:
        calls.setattr(domination, "_raise_calls", lambda *a: shifts.append(a[4]))
        domination.worst_calls(9, 0.5, np.array([0.0, 0.5]))
    assert shifts
    assert all(shift >= 1e-3 + 8 * LARGE * (1 - 1e-12) for shift in shifts)
    out = np.zeros(1)
    domination._raise_calls(np.zeros(3), np.zeros(2), 0.0, 0.0, 0.0, np.array([0.5]), out)
    assert out[0] > 0.0


def test_worlds_of_exact_laws_have_an_error_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accountant, "law", lambda *_: (np.ones(3) / 3, np.zeros(2), 0.0, 0.0, 0.0, 0.0))
    assert accountant._shown((1, 1), (2, 0), 1, 0.25)[2] >= 8 * ULP


# Moments


def test_terms_that_vanished_count_where_they_weigh_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A half term of nothing at z = 1, e^500 times as likely in one world: 1e-300 of it is something."""
    amplitude = 0.99
    order = np.array([1 + 500 / math.log((1 + amplitude) / (1 - amplitude))])
    found = []
    for vanished in (0.0, 1e-300, 1e-250):
        uncompiled(monkeypatch, domination, _VANISHED=vanished)
        out = np.zeros(1)
        domination._raise_curvatures(np.array([0.0, 1.0, 0.0]), np.zeros(2), 0.0, 0.0, 0.0, amplitude, order, out)
        found.append(out[0])
    assert found[2] > 1e-250 * math.exp(490)
    monkeypatch.undo()
    out = np.zeros(1)
    domination._raise_curvatures(np.array([0.0, 1.0, 0.0]), np.zeros(2), 0.0, 0.0, 0.0, amplitude, order, out)
    assert out[0] > 1e-300 * math.exp(490) > found[0]


def test_moments_count_roundings_of_every_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two atoms: raised - linear, and 16 roundings of both and of the exponent."""
    a, order, rounding = 0.5, 2.0, 1e-3
    uncompiled(monkeypatch, domination, ROUNDING=rounding, _VANISHED=0.0)
    out = np.zeros(1)
    domination._raise_curvatures(np.array([1.0]), np.zeros(0), 0.0, 0.0, 0.0, a, np.array([order]), out)
    total = 0.0
    for z in (-1.0, 1.0):
        exponent = math.log((1 + a * z) / (1 - a * z))
        raised, linear = math.expm1(exponent), 2 * a * z / (1 + a * z)
        relative_error_bound = 16 * rounding * ((1 + abs(exponent)) * (abs(raised) + abs(exponent)) + abs(linear))
        total += 0.5 * (1 + a * z) * (raised - linear + relative_error_bound)
    assert out == pytest.approx([total / (4 * a * a)], rel=1e-12)


def test_the_error_of_z_is_passed_on_with_a_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    shifts: list[float] = []
    monkeypatch.setattr(domination, "ROUNDING", LARGE)
    monkeypatch.setattr(domination, "law", lambda *_: (np.ones(2) / 2, np.zeros(1), 0.0, 0.0, 0.0, 1e-3))
    monkeypatch.setattr(domination, "_raise_curvatures", lambda *a: shifts.append(a[4]))
    domination._curvatures.__wrapped__(9, 0.5)
    assert shifts
    assert all(shift >= 1e-3 + 8 * LARGE * (1 - 1e-12) for shift in shifts)


def test_log_moments_and_what_is_read_off_them_are_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    order, epsilon, moment = 3.0, 2.0, math.log1p(0.5)
    monkeypatch.setattr(domination, "ORDERS", np.array([order]))
    monkeypatch.setattr(domination, "ROUNDING", LARGE)
    monkeypatch.setattr(domination, "_curvatures", lambda *_: np.array([5.0]))
    assert domination._log_moments.__wrapped__(9, 0.5, 0.1, 7) == pytest.approx(
        [7 * moment * (1 + 64 * LARGE)], rel=1e-13
    )
    monkeypatch.setattr(domination, "_log_moments", lambda *_: np.array([moment]))
    powers = 2 * math.log(2), 3 * math.log(3)
    relative_error_bound = 16 * LARGE * (moment + sum(powers) + 1)
    exponent = moment + powers[0] - powers[1] + relative_error_bound - 2 * epsilon * (1 - 16 * LARGE)
    found = domination.renyi_profile_upper(9, 0.5, 0.1, 7, np.array([epsilon, 1e6]))
    assert found[0] == pytest.approx(math.exp(exponent), rel=1e-12)
    assert found[1] > 0.0  # too small for double precision, and not nothing


# The Gaussian pair


def test_gaussian_tails_are_widened_by_what_erfc_and_its_argument_err(monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled(monkeypatch, gaussian, _ULP=1e-6)
    mu, epsilon = 1.0, 0.5
    near, far = 0.5 * math.erfc(0.0), 0.5 * math.erfc(1.0 * math.sqrt(0.5)) * math.exp(epsilon)
    doubts = [(4 * x * x + 32) * 1e-6 for x in (1.0, 1.0)]
    expected = near * (1 + doubts[0]) - far * (1 - doubts[1] - 2 * epsilon * 1e-6)
    assert gaussian.gaussian_profile_upper(mu, np.array([epsilon])) == pytest.approx([expected], rel=1e-13)
    monkeypatch.undo()
    assert gaussian.gaussian_profile_upper(0.01, np.array([1.0]))[0] > 0.0  # erfc(70) has no double


def test_what_delta0_pays_for_is_rounded_down() -> None:
    """At the first point it would just do; the next one is out of reach, and so it certainly holds nowhere."""
    delta0 = 1e-6
    laid = Thresholds(0.5, np.array([0.0, 1.0]), np.array([delta0, 0.0]), np.array([0.0, 0.5]), np.array([0.0, 1.0]))
    assert not laid.holds(1e-9, delta0)
    assert laid.holds(1e-9, delta0 * (1 + 16 * ULP))


def test_the_condition_is_laid_out_above_in_many_digits() -> None:
    laid = thresholds.__wrapped__(50, 0.3)
    inner = slice(1, -1)
    for x, y, exponent in zip(
        laid.grid[inner][::97], laid.steepest[inner][::97], laid.exponents[inner][::97], strict=True
    ):
        exact = Fraction(float(x)) * Fraction(0.3)
        assert exact * (1 + 2 * Fraction(ULP)) < Fraction(float(y)) < exact * (1 + 8 * Fraction(ULP))
        with mpmath.workdps(50):
            steep, a = mpmath.mpf(float(y)), mpmath.mpf(0.3)
            first = mpmath.log1p(2 * steep / (1 - steep)) - steep / (1 + steep)
            e = mpmath.sqrt(((first / a) ** 2 + (steep / a / (1 + steep)) ** 2) / 2)
            assert e * (1 + 16 * ULP) < mpmath.mpf(float(exponent)) < e * (1 + 64 * ULP)


# Certificates


@pytest.mark.parametrize("amplitude", [2.0**-41, 1 - 2.0**-41])
def test_amplitudes_that_hide_nothing_or_say_nothing_are_refused(amplitude: float) -> None:
    with pytest.raises(ParameterError):
        OneBitAccountant(100, 8, amplitude, 2.0)
    assert 2.0**-40 <= accountant._amplitude(0.0) <= 1 - 2.0**-40


def test_the_pair_of_a_ball_is_read_below_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def profile(*arguments: Any) -> Any:
        asked.append(arguments[-1].copy())
        return np.full(arguments[-1].size, 0.1)

    monkeypatch.setattr(accountant, "renyi_profile_upper", profile)
    found = OneBitAccountant(1000, 64, 0.3, 2.0).pld(0.1)
    (read,) = asked
    assert_read_below_each_node(read, found.step, at_least=5)


def test_moments_certify_small_epsilons_too() -> None:
    """From 0 on; where they are looked for must not be what is found."""
    amplitude = 0.05
    squares = 4 * amplitude**2 / 9
    found = domination.renyi_epsilon_upper(1000, amplitude, squares, 1, 1e-6)
    assert 0.0 < found < 0.01
    (delta,) = domination.renyi_profile_upper(1000, amplitude, squares, 1, np.array([found]))
    assert delta <= 1e-6


@pytest.mark.parametrize("users", [1, 2, 3])
def test_calls_of_the_smallest_crowds_are_exact_but_for_rounding(users: int) -> None:
    """Of one other there is a single step: the first and the last."""
    grid = np.array([0.0, 0.2, 0.5, 0.9])
    for x, most in zip(grid, domination.worst_calls(users, 0.5, grid), strict=True):
        exact = max(
            call(ones_law([Fraction(3, 4)] * high + [Fraction(1, 4)] * (users - 1 - high)), Fraction(float(x)), sign)
            for high in range(users)
            for sign in (1, -1)
        )
        assert exact <= Fraction(float(most)) <= exact + Fraction(1, 10**9)


def test_a_ratio_that_seems_to_rise_counts_as_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The true ratios fall, and with them z rises; errors of one step must not turn that round."""

    def bent(high: int, low: int, odds: float, start: int, stop: int, ratios: Any) -> int:
        for k in range(start, stop):
            ratios[k - start] = (high + low - k) / (k + 1.0) * odds * (0.7 if k == 15 else 1.0)
        return stop

    uncompiled(monkeypatch, domination, _ratios=bent)
    _, z, *_ = domination.law(30, 0, 0.5)
    assert np.all(np.diff(z) >= 0.0)
    assert np.count_nonzero(np.diff(z) == 0.0) == 1


def test_a_law_that_errs_too_much_certifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    law = domination.law
    monkeypatch.setattr(domination, "law", lambda *given: (*law(*given)[:4], domination.MOST_WIDENING, 0.0))
    grid = np.array([0.0, 0.5])
    calls = domination.worst_calls(20, 0.5, grid)
    assert np.all(np.isinf(calls))
    assert np.all(np.isinf(domination._curvatures.__wrapped__(20, 0.5)))
    laid = domination.Thresholds(0.5, grid, calls, 0.5 * grid, grid)
    assert not laid.holds(10.0, 0.5)
