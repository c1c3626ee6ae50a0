from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from shufflesum.errors import ParameterError
from shufflesum.privacy.accountant import local_epsilon


def test_one_report_has_the_largest_log_ratio_of_its_probability_table() -> None:
    levels, gamma = 3, 0.2
    table = np.full((4, 4), gamma / 4) + np.eye(4) * (1 - gamma)
    largest = np.log(table[:, None, :] / table[None, :, :]).max()
    assert local_epsilon(levels=levels, noise_probability=gamma) == pytest.approx(largest, rel=1e-14)


@given(st.integers(1, 999), st.integers(1, 2**53 - 1), st.integers(1, 50), st.integers(1, 50))
def test_the_total_is_rounded_up_and_adds_over_coordinates_and_rounds(
    levels: int, numerator: int, coordinates: int, rounds: int
) -> None:
    gamma = Fraction(numerator, 2**53)
    single = math.log1p((levels + 1) * (1 - gamma) / gamma)
    value = local_epsilon(levels=levels, noise_probability=float(gamma), coordinates=coordinates, rounds=rounds)
    assert coordinates * rounds * single <= value <= coordinates * rounds * single * (1 + 1e-14) + 1e-300


def test_no_noise_leaves_nothing_and_pure_noise_leaves_all() -> None:
    assert local_epsilon(levels=1, noise_probability=0.0) == math.inf
    assert local_epsilon(levels=1, noise_probability=5e-324) == math.inf
    assert local_epsilon(levels=1, noise_probability=1.0, coordinates=7) == 0.0


@pytest.mark.parametrize(
    ("changed", "knob"),
    [
        ({"levels": 0}, "levels"),
        ({"coordinates": 0}, "coordinates"),
        ({"rounds": 0}, "rounds"),
        ({"noise_probability": 1.5}, "noise_probability"),
        ({"noise_probability": math.nan}, "noise_probability"),
    ],
)
def test_refusals_name_the_knob(changed: dict[str, float], knob: str) -> None:
    arguments = {"levels": 3, "noise_probability": 0.5} | changed
    with refusal("out-of-range", knob, error=ParameterError):
        local_epsilon(**arguments)  # type: ignore[arg-type]
