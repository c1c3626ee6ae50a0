"""The rotation and the norm: whatever floats go in, the squares of the whole numbers that come out are few enough."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import hadamard as hadamard_matrix
from tests.plan_builders import encoding_for
from tests.slow_params import slow_among

from shufflesum.domains import L2Ball
from shufflesum.mechanisms import OneBit
from shufflesum.mechanisms.one_bit.randomize import Rotation, hadamard, squares_allowed

ONE = 1 << 15
DIMENSIONS = [1, 2, 3, 5, 8, 64, 100, 1000, 8192, 10_000]


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32, 64, 1024])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_fast_transform_is_a_product_with_the_matrix(size: int, dtype: Any) -> None:
    x = np.random.default_rng(size).normal(size=size).astype(dtype)
    fast = x.copy()
    hadamard(fast)
    np.testing.assert_allclose(fast, hadamard_matrix(size) @ x.astype(np.float64), rtol=0, atol=1e-4)


@pytest.mark.parametrize("size", [1 << 13, 1 << 14, 1 << 15, 1 << 16])
def test_long_transforms_are_their_own_inverse_and_begin_with_the_sum(size: int) -> None:
    x = np.random.default_rng(size).normal(size=size)
    twice = x.copy()
    hadamard(twice)
    assert twice[0] == pytest.approx(x.sum())
    alternating = x[::2].sum() - x[1::2].sum()
    assert twice[1] == pytest.approx(alternating)
    assert twice[size // 2] == pytest.approx(x[: size // 2].sum() - x[size // 2 :].sum())
    hadamard(twice)
    np.testing.assert_allclose(twice / size, x, atol=1e-9)


@given(tau=st.floats(1.0, 1e4), power=st.integers(1, 30))
def test_the_allowance_is_the_exact_floor(tau: float, power: int) -> None:
    allowed, exact = squares_allowed(1 << power, tau), Fraction(2 ** (30 + power)) / Fraction(tau) ** 2
    assert allowed <= exact < allowed + 1


def levels_of(rows: NDArray[Any], tau: float, clipping_norm: float = 1.0, *, clip: bool = True) -> NDArray[np.int64]:
    ball = L2Ball(rows.shape[1], clipping_norm=clipping_norm, seed=bytes(16))
    values = ball.block(rows, clip=clip).values
    return Rotation(encoding_for(ball, OneBit), tau).of(values).astype(np.int64)


def squares(levels: NDArray[np.int64]) -> list[int]:
    """In Python's whole numbers, which do not overflow."""
    return [sum(int(level) ** 2 for level in row) for row in levels]


def adversarial(dimension: int, clipping_norm: float, dtype: Any) -> NDArray[Any]:
    """Vectors at the clipping norm, an ulp above or below it, and such as floating point is worst at."""
    rng = np.random.default_rng(dimension)
    one = np.zeros(dimension)
    one[-1] = 1.0
    gauss = rng.normal(size=dimension)
    alike = np.ones(dimension)
    ratios = np.geomspace(1e-30, 1.0, dimension)
    two = one.copy()
    two[0] = 1.0
    rows = []
    for direction in (
        one,
        -one,
        gauss,
        alike,
        ratios,
        two,
        rng.choice([-1.0, 1.0], dimension),
        rng.standard_cauchy(dimension),
    ):
        row = (direction / np.linalg.norm(direction) * clipping_norm).astype(dtype)
        rows += [
            row,
            np.nextafter(row, dtype(np.inf)),
            np.nextafter(row, dtype(0.0)),
            np.sign(row) * np.nextafter(np.abs(row), dtype(np.inf)),
        ]
        rows.append((row.astype(np.float64) * (1 + 9e-7)).astype(dtype))  # what still passes as rounding
    tiny = np.full(dimension, np.finfo(dtype).smallest_subnormal, dtype=dtype)
    huge = np.full(dimension, np.finfo(dtype).max, dtype=dtype)
    mixed = np.where(np.arange(dimension) % 2, tiny, huge).astype(dtype)
    return np.array([*rows, tiny, huge, mixed, np.zeros(dimension, dtype=dtype)])


@pytest.mark.parametrize("dimension", slow_among(DIMENSIONS, [1000, 8192]))
@pytest.mark.parametrize("tau", [1.0, 2.6337890625, pytest.param(3.7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clipping_norm", [1.0, 0.1, 1e-30, 12345.678])
def test_no_vector_breaks_the_norm(dimension: int, tau: float, dtype: Any, clipping_norm: float) -> None:
    levels = levels_of(adversarial(dimension, clipping_norm, dtype), tau, clipping_norm)
    padded = levels.shape[1]
    assert np.abs(levels).max() <= ONE
    for total in squares(levels):
        assert Fraction(total, ONE**2) <= Fraction(padded) / Fraction(tau) ** 2


@given(st.lists(st.floats(-1.0, 1.0, width=32), min_size=1, max_size=40), st.floats(1.0, 6.0), st.floats(0.01, 100.0))
def test_no_vector_of_hypothesis_breaks_the_norm_either(values: list[float], tau: float, length: float) -> None:
    row = np.array([values], dtype=np.float32)
    norm = float(np.linalg.norm(row.astype(np.float64)))
    row = (row * np.float32(length / norm)) if norm > 1e-30 else row
    levels = levels_of(row, tau)
    assert Fraction(squares(levels)[0], ONE**2) <= Fraction(levels.shape[1]) / Fraction(tau) ** 2


def test_what_is_prepared_by_nobody_keeps_the_norm_as_well() -> None:
    """Whoever forgets to check gets nonsense, but nonsense within the norm."""
    ball = L2Ball(16, clipping_norm=1.0, seed=bytes(16))
    rows = np.array([[np.nan] * 16, [np.inf] * 16, [1e30] * 16, [-np.inf] + [np.nan] * 15], dtype=np.float32)
    assert max(squares(Rotation(encoding_for(ball, OneBit), 2.0).of(rows).astype(np.int64))) <= squares_allowed(16, 2.0)


def test_without_the_last_step_the_norm_would_break() -> None:
    """Rounding to the nearest level alone: the same vectors are above the allowance by a few units."""
    tau, broken = 2.6337890625, 0
    for dimension in (2, 8, 64):
        for row in adversarial(dimension, 1.0, np.float64)[:40]:
            signed = row * L2Ball(dimension, clipping_norm=1.0, seed=bytes(16)).signs() / tau
            nearest = np.rint(ONE * (hadamard_matrix(dimension) @ signed)).astype(np.int64)
            broken += squares(nearest[None])[0] > squares_allowed(dimension, tau)
    assert broken > 10


@pytest.mark.parametrize("dimension", [2, 100, 1000, 8192])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_levels_are_the_rotated_coordinates(dimension: int, dtype: Any) -> None:
    """Within a level of what exact arithmetic gives, for vectors at the clipping norm; shrinking costs no more."""
    tau, rng = 3.25, np.random.default_rng(1)
    rows = rng.normal(size=(5, dimension))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(dtype)
    levels = levels_of(rows, tau)
    ball = L2Ball(dimension, clipping_norm=1.0, seed=bytes(16))
    padded = np.zeros((5, ball.padded))
    padded[:, :dimension] = rows * ball.signs()
    for row in padded:
        hadamard(row)
    exact = np.clip(padded / tau, -1, 1) * ONE
    np.testing.assert_allclose(levels, exact, atol=1.01 + 2e-5 * np.abs(exact).max())


def test_rows_are_rotated_one_by_one_without_a_copy_of_all() -> None:
    """The same levels whether users come alone or together, and for whatever came before."""
    rows = np.random.default_rng(3).normal(size=(7, 100)) / 20
    together = levels_of(rows, 2.5).copy()
    for row, levels in zip(rows, together, strict=True):
        np.testing.assert_array_equal(levels_of(row[None], 2.5)[0], levels)


# The fixed example for other implementations: from a vector to the cells that it is sent as


GOLDEN = json.loads((Path(__file__).parents[2] / "vectors" / "golden_l2_ball.json").read_text())


class Draws:
    """Uniform numbers of 47 bits, as words of 16 bits and, on a tie, the other 31 highest of 64."""

    def __init__(self, draws: list[int], thresholds: list[int]) -> None:
        self._coins = [draw >> 31 for draw in draws]
        ties = [draw >> 31 == threshold >> 31 for draw, threshold in zip(draws, thresholds, strict=True)]
        self._spare = [(draw & (2**31 - 1)) << 33 for draw, tie in zip(draws, ties, strict=True) if tie]

    def fill(self, out: NDArray[Any]) -> None:
        out.reshape(-1)[:] = self._coins if out.dtype == np.uint16 else self._spare


@pytest.mark.parametrize("golden", GOLDEN["rounds"], ids=lambda golden: f"round {golden['round']}")
def test_the_golden_vector_becomes_the_golden_cells(golden: dict[str, Any]) -> None:
    shape, seed = tuple(GOLDEN["shape"]), bytes.fromhex(GOLDEN["seed"])
    ball = L2Ball(shape, GOLDEN["clipping_norm"], seed=seed).of_round(golden["round"])
    mechanism, encoding = OneBit(1, GOLDEN["amplitude"], GOLDEN["tau"]), encoding_for(ball, OneBit)
    assert ball.signs().tolist() == golden["signs"]
    assert squares_allowed(ball.padded, mechanism.tau) == GOLDEN["squares_allowed"]
    for dtype in (np.float32, np.float64):
        row = np.array([GOLDEN["update"]], dtype=dtype)
        levels = Rotation(encoding, mechanism.tau).of(ball.block(row).values)[0].tolist()
        assert levels == golden["levels"]
        assert [2**46 + mechanism.numerator * level for level in levels] == golden["ones_of_2_47"]
        for which in (0, 1):
            draws = [pair[which] for pair in golden["draws"]]
            encoder = mechanism.encoder(encoding, Draws(draws, golden["ones_of_2_47"]))
            cells = encoder.encode(ball.block(row)).tolist()
            assert cells == [pair[which] for pair in golden["cells"]]
