"""The heartbeats all examples use: made up, unless the path of an .npz file is given."""

import os
import sys

import numpy as np
from numpy.typing import NDArray

from shufflesum.synthetic import heartbeats


def load() -> NDArray[np.float64]:
    """One beat of 100 samples in [0, 1] per row: made up, or num / den of an .npz file."""
    path = real_file()
    if not path:
        return heartbeats(50_000).astype(np.float64)
    with np.load(path) as file:
        return np.asarray(file["num"][:, :100] / file["den"][:, None], dtype=np.float64)


def real_file() -> str | None:
    """The first argument, or what the environment variable SHUFFLESUM_HEARTBEATS says."""
    return sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SHUFFLESUM_HEARTBEATS")
