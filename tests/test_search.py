from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shufflesum._search import GRID, bisect, bracket, geometric_mean, times_odds


class Watched:
    """A function that remembers where it was evaluated."""

    def __init__(self, function: Callable[[float], float]) -> None:
        self.function = function
        self.seen: dict[float, float] = {}

    def __call__(self, point: float) -> float:
        self.seen[point] = self.function(point)
        return self.seen[point]


positive = st.floats(1e-6, 1e6)


@given(root=positive, tolerance=st.sampled_from([0.0, 1e-12, 1e-3]), geometric=st.booleans())
def test_bisection_ends_close_together_with_both_ends_evaluated(root: float, tolerance: float, geometric: bool) -> None:
    watched = Watched(lambda point: float(point >= root))
    bounds = (1e-7, 1e7)
    if geometric:
        low, high = bisect(lambda x: bool(watched(x)), *bounds, tolerance=tolerance, middle=geometric_mean)
    else:
        low, high = bisect(lambda x: bool(watched(x)), *bounds, tolerance=tolerance)
    assert (watched.seen[low], watched.seen[high]) == (0, 1)
    assert low < root <= high
    assert high - low <= tolerance * high or high == math.nextafter(low, math.inf)


def test_bisection_says_where_a_condition_always_or_never_holds() -> None:
    assert bisect(lambda x: True, 0.5, 2.0) == (0.5, 0.5)
    assert bisect(lambda x: False, 0.5, 2.0) == (2.0, math.inf)


def test_bisection_stops_after_its_steps() -> None:
    assert bisect(lambda x: x > 0, 0.0, 1.0, steps=60) == (0.0, 2.0**-60)
    assert bisect(lambda x: x > 0, 0.0, 1.0) == (0.0, 5e-324)


falling: dict[str, Callable[[float], Callable[[float], float]]] = {
    "power": lambda root: lambda x: (root / x) ** 3,
    "normal tail": lambda root: lambda x: math.exp(-((x / root) ** 2) + 1),
    "step": lambda root: lambda x: 2.0 if x < root else 1e-300,
    "to zero": lambda root: lambda x: max(0.0, 2 * root - x) / root,
}


@pytest.mark.parametrize("shape", falling)
@given(
    root=positive, guess=positive, first_factor=st.floats(1.0001, 2.0), tolerance=st.sampled_from([1e-11, 1e-9, 1e-4])
)
def test_a_bracket_is_narrow_and_both_ends_are_evaluated_multiples_of_the_grid(
    shape: str, root: float, guess: float, first_factor: float, tolerance: float
) -> None:
    watched = Watched(falling[shape](root))
    low, high = bracket(watched, 1.0, guess=guess, highest=1e7, tolerance=tolerance, first_factor=first_factor)
    assert watched.seen[low] > 1.0 >= watched.seen[high]
    assert low < high <= low * (1 + 2 * tolerance) + 1 / GRID
    assert low * GRID == int(low * GRID)
    assert high * GRID == int(high * GRID)
    assert len(watched.seen) <= (160 if shape == "step" else 30)  # a jump gives no slope to follow


@given(root=st.floats(1e-12, 1 - 1e-12), guess=st.floats(0, 1), first_factor=st.floats(1.0001, 2.0))
def test_a_bracket_of_probabilities_stays_within_them(root: float, guess: float, first_factor: float) -> None:
    watched = Watched(lambda x: (root / x) ** 2)
    low, high = bracket(
        watched, 1.0, guess=guess, highest=1.0, tolerance=1e-9, first_factor=first_factor, times=times_odds
    )
    assert all(0 < point <= 1 for point in watched.seen)
    assert watched.seen[low] > 1.0 >= watched.seen[high]


def test_a_bracket_says_where_a_target_is_always_or_never_reached() -> None:
    always = Watched(lambda x: 0.5)
    assert bracket(always, 1.0, guess=0.3, highest=1.0, tolerance=1e-4) == (0.0, 1 / GRID)
    assert 1 / GRID in always.seen
    never = Watched(lambda x: 2.0)
    assert bracket(never, 1.0, guess=0.3, highest=1.0, tolerance=1e-4) == (1.0, math.inf)
    assert 1.0 in never.seen


def test_the_highest_end_is_evaluated_before_it_is_returned() -> None:
    watched = Watched(lambda x: 2.0 if x < 1.0 else 0.0)
    low, high = bracket(watched, 1.0, guess=1 - 1 / GRID, highest=1.0, tolerance=1e-4)
    assert (low, high) == (1 - 1 / GRID, 1.0)
    assert watched.seen[high] == 0.0


def test_what_is_no_number_never_counts_as_enough() -> None:
    nowhere = bracket(lambda x: math.nan if x > 0.5 else 2.0, 1.0, guess=0.3, highest=1.0, tolerance=1e-4)
    assert nowhere == (1.0, math.inf)
    with pytest.raises(ValueError, match="NaN"):
        bracket(lambda x: math.nan if x < 0.5 else 0.0, 1.0, guess=0.3, highest=1.0, tolerance=1e-4)
