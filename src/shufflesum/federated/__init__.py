"""Federated learning: model updates with a bounded norm, randomized by each client, averaged by a server nobody trusts.

`parameters` (a model's arrays to a vector and back), `steps` (what a mean update does to the model), `training` (both
sides of a round in plain NumPy), `flower` (the same inside Flower, extra `flower`).
"""

from __future__ import annotations

from shufflesum.federated.training import (
    SGD,
    Adam,
    Momentum,
    OptimizerState,
    Step,
    Training,
    difference,
    l2_ball_of,
    like,
    randomize_update,
    vector_of,
)

__all__ = [
    "SGD",
    "Adam",
    "Momentum",
    "OptimizerState",
    "Step",
    "Training",
    "difference",
    "l2_ball_of",
    "like",
    "randomize_update",
    "vector_of",
]
