"""Privacy figures for people are never rounded in our favour."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from shufflesum._rounding import downwards, upwards

FIGURES = st.floats(min_value=0, max_value=1e15, allow_nan=False)


@given(FIGURES, st.integers(1, 6))
def test_up_is_never_below_and_down_never_above(value: float, digits: int) -> None:
    assert float(downwards(value, digits)) <= value <= float(upwards(value, digits))


@given(st.floats(min_value=1e-12, max_value=1e12), st.integers(1, 6))
def test_rounding_is_no_coarser_than_asked(value: float, digits: int) -> None:
    width = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    assert float(upwards(value, digits)) - float(downwards(value, digits)) <= 1.01 * width


def test_what_was_asked_for_is_shown_as_asked() -> None:
    assert [upwards(value) for value in (1.0, 0.95, 1e-6, 0.1, math.inf)] == ["1.0", "0.95", "1e-6", "0.1", "inf"]
