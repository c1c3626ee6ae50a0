"""A small crowd for fast tests, and the real heartbeats where the environment says they are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from experiments.data import Heartbeats, load
from shufflesum.synthetic import heartbeats


@pytest.fixture(scope="session")
def crowd() -> Heartbeats:
    """5,000 made-up beats of 150 samples, in two classes."""
    beats = heartbeats(5000, 150, seed=3)
    beats.setflags(write=False)
    return Heartbeats(beats, np.arange(5000, dtype=np.int64) % 2, "a crowd", "SYNTHETIC crowd of a test")


@pytest.fixture(scope="session")
def real() -> Heartbeats:
    """The MIT-BIH heartbeats; they are not part of the project."""
    path = os.environ.get("SHUFFLESUM_HEARTBEATS")
    if not path:
        pytest.skip("SHUFFLESUM_HEARTBEATS does not name the .npz archive (or Kaggle folder) of the heartbeats")
    return load(Path(path))
