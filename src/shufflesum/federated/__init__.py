"""Federated learning: model updates with a bounded norm, randomized by each client, averaged by a server nobody trusts.

`parameters` (a model's arrays to a vector and back), `steps` (what a mean update does to the model), `training` (both
sides of a round in plain NumPy), `flower` (the same inside Flower, extra `flower`).
"""

from __future__ import annotations

from shufflesum.federated.parameters import ball_of, difference, like, vector_of
from shufflesum.federated.steps import Adam, Memory, Momentum, Plain, Step
from shufflesum.federated.training import Training, randomize_update

__all__ = [
    "Adam",
    "Memory",
    "Momentum",
    "Plain",
    "Step",
    "Training",
    "ball_of",
    "difference",
    "like",
    "randomize_update",
    "vector_of",
]
