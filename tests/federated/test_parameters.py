from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refusal

from shufflesum.errors import DataError
from shufflesum.federated import difference, l2_ball_of, like, vector_of


class Tensor:
    """What is used of a PyTorch tensor: it can be detached, moved and copied, and makes others like itself."""

    def __init__(self, values: Any, *, detached: bool = False, device: str = "gpu") -> None:
        self.values = np.asarray(values)
        self._detached, self._device = detached, device

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def detach(self) -> Tensor:
        return Tensor(self.values, detached=True, device=self._device)

    def cpu(self) -> Tensor:
        return Tensor(self.values, detached=self._detached, device="cpu")

    def numpy(self) -> NDArray[Any]:
        assert self._detached
        assert self._device == "cpu"
        return self.values

    def new_tensor(self, values: NDArray[Any]) -> Tensor:
        return Tensor(values.astype(self.values.dtype), device=self._device)


def layers() -> dict[str, NDArray[np.float32]]:
    return {
        "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "bias": np.array([7.0, 8.0], dtype=np.float32),
    }


@pytest.mark.parametrize("form", [dict, lambda given: list(given.values()), lambda given: given["weight"]])
def test_parameters_become_a_vector_and_come_back_as_they_were(form: Any) -> None:
    given = form(layers())
    vector = vector_of(given)
    back = like(given, vector)
    assert type(back) is type(given)
    np.testing.assert_array_equal(vector_of(back), vector)
    first = back if isinstance(back, np.ndarray) else next(iter(back.values() if isinstance(back, dict) else back))
    assert (first.shape, first.dtype) == ((2, 3), np.float32)


def test_layers_follow_one_another_in_their_order() -> None:
    np.testing.assert_array_equal(vector_of(layers()), [0, 1, 2, 3, 4, 5, 7, 8])


def test_a_state_dictionary_of_tensors_goes_in_and_comes_out_on_its_device() -> None:
    state = {name: Tensor(values) for name, values in layers().items()}
    back = like(state, vector_of(state) + 1)
    assert list(back) == ["weight", "bias"]
    assert isinstance(back["weight"], Tensor)
    assert back["weight"]._device == "gpu"
    assert back["weight"].values.dtype == np.float32
    np.testing.assert_array_equal(back["weight"].values, layers()["weight"] + 1)


def test_the_ball_of_a_model_has_its_layers_in_order() -> None:
    ball = l2_ball_of({name: Tensor(values) for name, values in layers().items()}, clipping_norm=2.0)
    assert (ball.layers, ball.clipping_norm, ball.dimension) == ({"weight": (2, 3), "bias": (2,)}, 2.0, 8)
    assert l2_ball_of(list(layers().values()), clipping_norm=1.0).layers == [(2, 3), (2,)]
    assert l2_ball_of(layers()["weight"], clipping_norm=1.0).shape == (2, 3)


def test_an_update_is_after_minus_before() -> None:
    after = {name: values + 2 for name, values in layers().items()}
    np.testing.assert_array_equal(vector_of(difference(after, layers())), np.full(8, 2.0))


def test_what_is_not_the_same_model_is_refused() -> None:
    turned = dict(reversed(layers().items()))
    with refusal("layers-mismatch", error=DataError):
        difference(turned, layers())
    with refusal("wrong-shape", error=DataError):
        difference([np.zeros(3)], [np.zeros(2)])
    with refusal("wrong-shape", error=DataError):
        like(layers(), np.zeros(9))
    with refusal("not-numbers", error=DataError):
        vector_of({"weight": np.zeros(3), "batches seen": np.array([3])})


def test_neither_pytorch_nor_flower_is_imported() -> None:
    check = "import shufflesum.federated, sys; print(sorted({'torch', 'flwr', 'httpx'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
