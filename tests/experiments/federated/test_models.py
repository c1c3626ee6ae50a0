from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.federated.models import Classifier, Network, Softmax

PIXELS = 6


def loss(model: Classifier, parameters: NDArray[np.float64], images: NDArray[np.float64], labels: NDArray[np.uint8]):  # type: ignore[no-untyped-def]
    """Mean cross-entropy of one client, in double precision."""
    scores = np.asarray(model.scores(parameters, images), dtype=np.float64)  # type: ignore[arg-type]
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return -logs[np.arange(len(labels)), labels].mean()


@pytest.mark.parametrize("model", [Softmax(PIXELS), Network(PIXELS, hidden=4)])
def test_an_update_is_minus_the_gradient_of_a_clients_own_loss(model: Classifier) -> None:
    random = np.random.default_rng(5)
    parameters = random.normal(0, 0.5, model.dimension)
    images, labels = random.uniform(0, 1, (3, 4, PIXELS)), random.integers(0, 10, (3, 4)).astype(np.uint8)
    found = model.updates(parameters.astype(np.float32), images.astype(np.float32), labels).rows()
    step = 1e-5
    for client in range(3):
        for entry in range(model.dimension):
            moved = [parameters.copy() for _ in range(2)]
            moved[0][entry] += step
            moved[1][entry] -= step
            up, down = (loss(model, each, images[client], labels[client]) for each in moved)
            assert abs(found[client, entry] + (up - down) / (2 * step)) < 1e-5


@pytest.mark.parametrize(("model", "dimension"), [(Softmax(784), 7_850), (Network(784), 25_450)])
def test_the_models_on_mnist_have_as_many_parameters_as_is_said(model: Classifier, dimension: int) -> None:
    assert model.dimension == dimension == sum(int(np.prod(shape)) for shape in model.layers.values())
    assert model.start(np.random.default_rng(0)).shape == (dimension,)


@pytest.mark.parametrize("model", [Softmax(PIXELS), Network(PIXELS, hidden=4)])
def test_norms_and_clipped_sums_are_those_of_the_updates_themselves(model: Classifier) -> None:
    random = np.random.default_rng(6)
    images = random.uniform(0, 1, (50, 3, PIXELS)).astype(np.float32)
    labels = random.integers(0, 10, (50, 3)).astype(np.uint8)
    updates = model.updates(random.normal(0, 0.5, model.dimension).astype(np.float32), images, labels)
    rows = updates.rows().astype(np.float64)
    norms = np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(updates.norms(), norms, rtol=1e-4)
    clipping_norm = float(np.median(norms))
    clipped = rows * np.minimum(1, clipping_norm / norms)[:, np.newaxis]
    np.testing.assert_allclose(updates.clipped_sum(clipping_norm), clipped.sum(axis=0), rtol=1e-3, atol=1e-5)
