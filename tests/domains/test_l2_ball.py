"""Vectors with a bounded norm: layers and back, what is refused, and the signs of the rotation."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.domains import L2Ball, domain_from_json
from shufflesum.encodings import ChangedCells, Sensitivity
from shufflesum.errors import DataError, ParameterError, PlanError

SEED = bytes(range(16))
NAMED = {"weight": (3, 2), "bias": (2,)}
SHAPES: list[Any] = [5, (2, 3), [(3, 2), (2,)], NAMED, (), [(1,), (1, 1)]]
sizes = st.lists(st.integers(1, 4), min_size=0, max_size=3).map(tuple)


class Tensor:
    """What a tensor of PyTorch answers."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> Any:
        return self._values


def update_of(shape: Any, start: float = 0.0) -> Any:
    """Numbers in order, as the shape says."""
    ball = L2Ball(shape, clipping_norm=1.0)
    return ball.unflatten(start + np.arange(ball.dimension, dtype=np.float64))


# Layers ---------------------------------------------------------------------------------------------------------------


@given(
    st.one_of(sizes, st.lists(sizes, min_size=1, max_size=4), st.dictionaries(st.text(min_size=1), sizes, min_size=1))
)
def test_any_update_is_flattened_in_order_and_comes_back(shape: Any) -> None:
    ball = L2Ball(shape, clipping_norm=1.0)
    vector = np.arange(ball.dimension, dtype=np.float64)
    update = ball.unflatten(vector)
    np.testing.assert_array_equal(ball.flatten(update), vector)
    shapes = list(shape.values()) if isinstance(shape, dict) else shape if isinstance(shape, list) else [shape]
    assert ball.dimension == sum(math.prod(each) for each in shapes)
    assert type(update) is (type(shape) if isinstance(shape, dict | list) else np.ndarray)


def test_layers_follow_each_other_each_with_its_last_index_fastest() -> None:
    update = {"weight": np.array([[1, 2], [3, 4], [5, 6]]), "bias": np.array([7, 8])}
    np.testing.assert_array_equal(L2Ball(NAMED, clipping_norm=1.0).flatten(update), [1, 2, 3, 4, 5, 6, 7, 8])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_ball_comes_back_from_json_and_is_equal_by_value(shape: Any) -> None:
    center = update_of(shape, 0.1)
    for ball in (L2Ball(shape, clipping_norm=0.1), L2Ball(shape, clipping_norm=2, center=center, seed=SEED)):
        back = domain_from_json(json.loads(json.dumps(ball.to_json())))
        assert back == ball
        assert hash(back) == hash(ball)
        assert isinstance(back, L2Ball)
        assert back.layers == ball.layers
    assert L2Ball(shape, clipping_norm=2, center=center) != L2Ball(shape, clipping_norm=2)
    assert L2Ball(shape, clipping_norm=2) != L2Ball(shape, clipping_norm=2.5)
    assert L2Ball(shape, clipping_norm=2, seed=SEED) != L2Ball(shape, clipping_norm=2, seed=bytes(16))


def test_what_a_plan_asks_a_domain() -> None:
    ball = L2Ball(NAMED, clipping_norm=3.0)
    assert (ball.shape, ball.dimension, ball.entries, ball.padded) == ((8,), 8, 8, 8)
    assert L2Ball((3, 3), clipping_norm=1.0).padded == 16
    assert L2Ball((), clipping_norm=1.0).padded == 2
    bits, integers = ball.encodings()
    assert bits.sensitivity == Sensitivity((ChangedCells(8, 8, paired=False),), l2_bounded=True)
    assert integers.sensitivity == bits.sensitivity
    assert ball.trivial_mse == 9.0
    assert ball.central_sensitivity == (8 * 36.0, 8 * 36.0 * 8)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"clipping_norm": 0}, "out-of-range"),
        ({"clipping_norm": -1.0}, "out-of-range"),
        ({"clipping_norm": math.inf}, "out-of-range"),
        ({"clipping_norm": math.nan}, "out-of-range"),
        ({"clipping_norm": "1"}, "wrong-type"),
        ({"shape": 0}, "out-of-range"),
        ({"shape": 2.5}, "wrong-type"),
        ({"shape": {}}, "wrong-type"),
        ({"shape": {1: (2,)}}, "wrong-type"),
        ({"shape": 2**31}, "too-many-cells"),
        ({"seed": b"short"}, "malformed-key"),
        ({"seed": "0" * 32}, "malformed-key"),
        ({"center": [1.0, 2.0]}, "wrong-shape"),
        ({"center": [1.0, math.nan, 0.0]}, "bad-bounds"),
        ({"center": ["a", "b", "c"]}, "not-numbers"),
        ({"round_number": 0}, "out-of-range"),
    ],
    ids=str,
)
def test_what_is_no_ball_is_refused(arguments: dict[str, Any], problem: str) -> None:
    with refusal(problem, error=ParameterError):
        L2Ball(**{"shape": 3, "clipping_norm": 1.0, **arguments})


@pytest.mark.parametrize(
    "change",
    [
        {"clipping_norm": None},
        {"clipping_norm": 0.0},
        {"center": [1.0]},
        {"center": 3},
        {"seed": "AA" * 16},
        {"seed": "00"},
        {"seed": 5},
        {"shape": None},
        {"shape": [0]},
        {"colour": 1},
        {"layers": [{"shape": [3]}]},
    ],
    ids=str,
)
def test_json_of_no_ball_is_refused(change: dict[str, Any]) -> None:
    whole = L2Ball(3, clipping_norm=1.0, seed=SEED).to_json()
    with pytest.raises(PlanError):
        domain_from_json(whole | change)


@pytest.mark.parametrize(
    "layers",
    [
        [],
        [3],
        [{"name": "a"}],
        [{"shape": [2], "name": "a"}, {"shape": [2]}],
        [{"shape": [2], "name": 1}],
        [{"shape": [2], "name": "a"}] * 2,
    ],
    ids=str,
)
def test_json_of_odd_layers_is_refused(layers: Any) -> None:
    whole = L2Ball(3, clipping_norm=1.0).to_json()
    del whole["shape"]
    with pytest.raises(PlanError):
        domain_from_json({**whole, "layers": layers})


# Rows -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lists_of_updates_are_the_rows_of_an_array(shape: Any) -> None:
    ball = L2Ball(shape, clipping_norm=1e3)
    updates = [update_of(shape, 0.5 + number) for number in range(3)]
    prepared = ball.block(ball.rows(updates)[1:], 1).values
    np.testing.assert_array_equal(prepared, [0.5 + number + np.arange(ball.dimension) for number in (1, 2)])


def test_tensors_pass_for_arrays_and_keep_single_precision() -> None:
    ball = L2Ball(NAMED, clipping_norm=100.0)
    update = {name: Tensor(array.astype(np.float32)) for name, array in update_of(NAMED).items()}
    prepared = ball.block(ball.rows([update, update])).values
    assert prepared.dtype == np.float32
    np.testing.assert_array_equal(prepared, [np.arange(8)] * 2)
    flat = L2Ball(3, clipping_norm=10.0)
    np.testing.assert_array_equal(flat.block(flat.rows(Tensor(np.ones((2, 3))))).values, np.ones((2, 3)))
    np.testing.assert_array_equal(
        flat.block(flat.rows([Tensor(np.ones(3)), Tensor(np.ones(3))])).values, np.ones((2, 3))
    )


def test_a_table_has_one_vector_in_each_row() -> None:
    table = pa.table({"a": [0.5, 0.25], "b": [0.0, -0.5]})
    ball = L2Ball(2, clipping_norm=1.0)
    np.testing.assert_array_equal(ball.block(ball.rows(table)).values, [[0.5, 0.0], [0.25, -0.5]])


@pytest.mark.parametrize(
    ("values", "problem", "fact"),
    [
        ([{"bias": np.ones(2), "weight": np.ones((3, 2))}], "layers-mismatch", "bias"),
        ([{"weight": np.ones((3, 2))}], "layers-mismatch", "row 0"),
        ([update_of(NAMED), {"weight": np.ones((2, 3)), "bias": np.ones(2)}], "wrong-shape", "row 1"),
        ([[np.ones((3, 2)), np.ones(2)]], "layers-mismatch", "list"),
        ([{"weight": [["a", "b"]] * 3, "bias": np.ones(2)}], "not-numbers", "weight"),
        ([], "no-rows", ""),
        (update_of(NAMED), "wrong-type", "list"),
        (np.ones((2, 7)), "wrong-shape", "(2, 7)"),
    ],
    ids=["order", "missing", "shape", "list", "text", "none", "one", "array"],
)
def test_other_layers_shapes_and_orders_are_refused(values: Any, problem: str, fact: str) -> None:
    ball = L2Ball(NAMED, clipping_norm=100.0)
    with refusal(problem, fact, error=DataError):
        ball.block(ball.rows(values))


def test_a_list_of_layers_needs_as_many_arrays() -> None:
    ball = L2Ball([(3, 2), (2,)], clipping_norm=100.0)
    with refusal("layers-mismatch", "row 0", "2 layers", error=DataError):
        ball.block(ball.rows([[np.ones((3, 2))]]))
    with refusal("wrong-shape", "layer 0", error=DataError):
        ball.block(ball.rows([[np.ones(2), np.ones((3, 2))]]))


# Norms ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_refused_with_row_and_entry_clipped_or_not(bad: float, clip: bool) -> None:
    ball = L2Ball(NAMED, clipping_norm=10.0)
    rows = np.ones((4, 8), dtype=np.float32)
    rows[2, 6] = bad
    with refusal("missing-value" if math.isnan(bad) else "out-of-bounds", "row 12", "'bias'", "coordinate 0"):
        ball.block(rows, 10, clip=clip)


def test_a_long_vector_is_refused_with_its_norm_or_clipped_to_the_clipping_norm() -> None:
    ball, rows = (
        L2Ball(4, clipping_norm=1.0),
        np.array([[0.5, 0.5, 0.5, 0.5], [3.0, 0.0, 4.0, 0.0], [0.1, 0.0, 0.0, 0.0]]),
    )
    with refusal("out-of-bounds", "row 8", "5", "clipping norm 1", error=DataError):
        ball.block(rows, 7)
    before = rows.copy()
    clipped = ball.block(rows, 7, clip=True).values
    np.testing.assert_allclose(clipped, [[0.5] * 4, [0.6, 0, 0.8, 0], [0.1, 0, 0, 0]], rtol=1e-15)
    np.testing.assert_array_equal(rows, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_good_rows_are_passed_on_uncopied_in_their_precision(dtype: Any) -> None:
    ball = L2Ball((2, 4), clipping_norm=3.0)
    rows = np.ones((5, 2, 4), dtype=dtype)
    prepared = ball.block(ball.rows(rows), clip=True).values
    assert prepared.dtype == dtype
    assert np.shares_memory(prepared, rows)


def test_a_norm_that_is_above_by_rounding_only_passes() -> None:
    row = np.array([[0.6, 0.8]]) * (1 + 1e-7)
    np.testing.assert_array_equal(L2Ball(2, clipping_norm=1.0).block(row).values, row)
    with refusal("out-of-bounds"):
        L2Ball(2, clipping_norm=1.0).block(row * (1 + 1e-5))


@pytest.mark.parametrize("largest", [1e38, 1e-44], ids=str)
def test_the_largest_and_smallest_single_precision_numbers_are_clipped_and_kept(largest: float) -> None:
    rows = np.full((1, 9), largest, dtype=np.float32)
    clipped = L2Ball(9, clipping_norm=1.0).block(rows, clip=True).values
    assert np.linalg.norm(clipped.astype(np.float64)) == pytest.approx(1.0 if largest > 1 else 3 * rows[0, 0], rel=1e-6)


def test_squares_that_overflow_are_clipped_and_refused_like_others() -> None:
    ball, rows = L2Ball(2, clipping_norm=1.0), np.array([[3e200, 4e200]])
    np.testing.assert_allclose(ball.block(rows, clip=True).values, [[0.6, 0.8]], rtol=1e-12)
    with refusal("out-of-bounds"):
        ball.block(rows)


def test_the_centre_is_subtracted_first() -> None:
    center = np.array([[10.0, 0.0], [0.0, -5.0]])
    ball = L2Ball((2, 2), clipping_norm=1.0, center=center)
    rows = center + np.array([[[0.5, 0.0], [0.0, 0.5]]])
    np.testing.assert_allclose(ball.block(rows).values, [[0.5, 0, 0, 0.5]])
    assert ball.block(rows.astype(np.float32)).values.dtype == np.float32
    with refusal("out-of-bounds", "centre"):
        ball.block(np.zeros((1, 2, 2)))
    assert ball.center is not None
    assert not ball.center.flags.writeable


def test_missing_values_have_no_middle() -> None:
    for missing, problem in (("midpoint", "impossible-combination"), ("other", "unknown-choice")):
        with refusal(problem, error=ParameterError):
            L2Ball(2, clipping_norm=1.0).block(np.zeros((1, 2)), missing=missing)  # type: ignore[arg-type]


# Signs ----------------------------------------------------------------------------------------------------------------


def mac(key: bytes, message: bytes) -> bytes:
    """HMAC as RFC 2104 writes it."""
    padded = key.ljust(128, b"\0")
    inner = hashlib.sha512(bytes(b ^ 0x36 for b in padded) + message).digest()
    return hashlib.sha512(bytes(b ^ 0x5C for b in padded) + inner).digest()


@pytest.mark.parametrize(("round_number", "dimension"), [(1, 1), (1, 512), (2, 1030), (70_000, 513)])
def test_signs_are_bits_of_a_keyed_hash_of_round_and_block(round_number: int, dimension: int) -> None:
    ball = L2Ball(dimension, clipping_norm=1.0, seed=SEED).of_round(round_number)
    head = round_number.to_bytes(4, "big")
    stream = b"".join(mac(SEED, head + block.to_bytes(4, "big")) for block in range(3))
    bits = [(stream[i // 8] >> (7 - i % 8)) & 1 for i in range(dimension)]
    np.testing.assert_array_equal(ball.signs(), [1 - 2 * bit for bit in bits])


def test_every_round_has_signs_of_its_own_and_all_else_is_the_same() -> None:
    ball = L2Ball(600, clipping_norm=1.0, seed=SEED)
    other = ball.of_round(2)
    assert not np.array_equal(ball.signs(), other.signs())
    assert ball.of_round(1) is ball
    assert other.of_round(1) == ball
    assert other.to_json() == ball.to_json()


def test_without_a_seed_there_are_no_signs() -> None:
    with refusal("missing-argument", error=ParameterError):
        L2Ball(2, clipping_norm=1.0).signs()


@pytest.mark.parametrize(
    "domain",
    [
        ss.plan(
            users=500, shape=2, epsilon=1, delta=1e-6, mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=1)
        ).domain,
        ss.Categories(3),
        ss.MultiChoice(3, max_choices=2),
        ss.GroupBy(2, 2),
    ],
    ids=lambda domain: type(domain).__name__,
)
def test_domains_of_numbers_and_listed_labels_are_the_same_in_every_round(domain: Any) -> None:
    assert domain.of_round(5) is domain
