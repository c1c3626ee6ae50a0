"""Where profiles are read that are laid on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["assert_read_below_each_node"]


def assert_read_below_each_node(asked: Sequence[float] | NDArray[Any], step: float, at_least: int) -> None:
    """So many nodes, each read where it is or a rounding below, never above: a profile falls."""
    assert len(asked) > at_least
    assert all(Fraction(float(at)) <= Fraction(step) * node for node, at in enumerate(asked))
    np.testing.assert_allclose(asked, step * np.arange(len(asked)), rtol=1e-15)
