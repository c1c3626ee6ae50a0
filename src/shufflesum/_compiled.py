"""The one way compiled kernels are declared, so that they stay typed for the reader and the type checker."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

__all__ = ["kernel"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile on first call, keep the machine code on disk, release the interpreter lock while running."""
    return cast("Callable[_P, _R]", numba.njit(cache=True, nogil=True, error_model="numpy")(function))
