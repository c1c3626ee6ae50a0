"""Privacy figures for people are never rounded in our favour."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from shufflesum._format import between, counted, downwards, margin, percent, plain, plus_minus, upwards

FIGURES = st.floats(min_value=0, max_value=1e15, allow_nan=False)


def read(text: str) -> float:
    return float(text.replace(",", ""))


@given(FIGURES, st.integers(1, 6))
def test_up_is_never_below_and_down_never_above(value: float, digits: int) -> None:
    assert read(downwards(value, digits)) <= value <= read(upwards(value, digits))


@given(st.floats(min_value=1e-12, max_value=1e12), st.integers(1, 6))
def test_rounding_is_no_coarser_than_asked(value: float, digits: int) -> None:
    width = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    assert read(upwards(value, digits)) - read(downwards(value, digits)) <= 1.01 * width


def test_what_was_asked_for_is_shown_as_asked() -> None:
    assert [upwards(value) for value in (1.0, 0.95, 1e-6, 0.1, math.inf)] == ["1.0", "0.95", "1e-6", "0.1", "inf"]


def test_a_level_is_shown_with_all_its_digits() -> None:
    shown = [percent(level) for level in (0.95, 0.9, 0.57, 0.999, 0.99999, 0.99999999)]
    assert shown == ["95", "90", "57", "99.9", "99.999", "99.999999"]


def test_no_number_for_people_has_an_exponent_but_the_tiniest_and_largest() -> None:
    shown = [plain(value) for value in (0.0, 158.3, 42_188.7, 1_234_567.8, 0.000123456, 1e-7, math.inf)]
    assert shown == ["0", "158", "42,189", "1,234,568", "0.000123", "1e-7", "inf"]
    assert f"{plain(42_188.7)} ± {margin(80.0)}" == "42,189 ± 160"
    assert [margin(0.0158), margin(0.1, whole=True), margin(math.inf)] == ["0.031", "1", "inf"]


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_a_margin_is_never_rounded_down(error: float) -> None:
    assert float(margin(error).replace(",", "")) >= 1.959 * error


def test_one_is_singular_and_all_else_is_not() -> None:
    assert [counted(n, "report") for n in (0, 1, 2_000)] == ["0 reports", "1 report", "2,000 reports"]


def test_an_interval_without_an_end_says_inf() -> None:
    assert between(-math.inf, math.inf, math.inf) == "-inf to inf"


def test_ends_of_an_interval_without_any_error_are_not_rounded() -> None:
    assert between(1234567.0, 1234567.0, 0.0) == "1,234,567 to 1,234,567"


def test_a_value_and_its_margin_have_the_same_decimals() -> None:
    said = [plus_minus(value, wide) for value, wide in ((44.4, 0.195), (5.9671, 0.0799), (45553.2, 475.3), (3.0, 9.96))]
    assert said == ["44.40 ± 0.20", "5.967 ± 0.080", "45,553 ± 480", "3.0 ± 10.0"]
    assert plus_minus(42189.4, 2.3, whole=True) == "42,189 ± 3"


def test_large_numbers_have_separated_thousands_and_no_exponent() -> None:
    assert [upwards(41_150.0), downwards(1_234.5), upwards(1e9)] == ["41,200", "1,230", "1e9"]
