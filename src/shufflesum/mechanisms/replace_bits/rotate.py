"""Vectors of a ball to whole numbers: signs, Hadamard's transform, clipping, and the norm enforced in integers.

A coordinate y in [-1, 1] is a whole number Y of 2^-15. The certificate asks for sum of Y^2 <= 2^30 D/tau^2, exactly:
what floating point did before then does not matter to privacy.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel

__all__ = ["LEVEL_BITS", "hadamard", "rotated", "squares_allowed"]

LEVEL_BITS = 15
_ONE = 1 << LEVEL_BITS
_IN_CACHE = 1 << 11  # numbers that a core's first cache holds well: these are transformed before others
_SHRINKS = 10


def squares_allowed(coordinates: int, tau: float) -> int:
    """The largest whole sum of squares that is not above 2^30 D/tau^2."""
    return math.floor(Fraction(coordinates << (2 * LEVEL_BITS)) / Fraction(tau) ** 2)


@kernel
def _eights(x: NDArray[Any]) -> None:
    """The three smallest strides at once, eight numbers at a time."""
    for i in range(0, x.size, 8):
        a, b, c, d = x[i] + x[i + 1], x[i] - x[i + 1], x[i + 2] + x[i + 3], x[i + 2] - x[i + 3]
        e, f, g, h = x[i + 4] + x[i + 5], x[i + 4] - x[i + 5], x[i + 6] + x[i + 7], x[i + 6] - x[i + 7]
        a, b, c, d = a + c, b + d, a - c, b - d
        e, f, g, h = e + g, f + h, e - g, f - h
        x[i], x[i + 1], x[i + 2], x[i + 3] = a + e, b + f, c + g, d + h
        x[i + 4], x[i + 5], x[i + 6], x[i + 7] = a - e, b - f, c - g, d - h


@kernel
def _sixty_fours(x: NDArray[Any]) -> None:
    """The next three, 64 numbers at a time: eight side by side, so that the inner loop is one vector wide."""
    for i in range(0, x.size, 64):
        y = x[i : i + 64]
        for j in range(8):
            a, b, c, d = y[j] + y[j + 8], y[j] - y[j + 8], y[j + 16] + y[j + 24], y[j + 16] - y[j + 24]
            e, f, g, h = y[j + 32] + y[j + 40], y[j + 32] - y[j + 40], y[j + 48] + y[j + 56], y[j + 48] - y[j + 56]
            a, b, c, d = a + c, b + d, a - c, b - d
            e, f, g, h = e + g, f + h, e - g, f - h
            y[j], y[j + 8], y[j + 16], y[j + 24] = a + e, b + f, c + g, d + h
            y[j + 32], y[j + 40], y[j + 48], y[j + 56] = a - e, b - f, c - g, d - h


@kernel
def _two(p: NDArray[Any], q: NDArray[Any]) -> None:
    for j in range(p.size):
        a, b = p[j], q[j]
        p[j], q[j] = a + b, a - b


@kernel
def _four(p: NDArray[Any], q: NDArray[Any], r: NDArray[Any], s: NDArray[Any]) -> None:
    for j in range(p.size):
        a, b, c, d = p[j] + q[j], p[j] - q[j], r[j] + s[j], r[j] - s[j]
        p[j], q[j], r[j], s[j] = a + c, b + d, a - c, b - d


@kernel
def _strides(x: NDArray[Any], stride: int) -> None:
    """All strides from this one on, two at a time, so that numbers are read and written half as often."""
    while 4 * stride <= x.size:
        for i in range(0, x.size, 4 * stride):
            j, k, m = i + stride, i + 2 * stride, i + 3 * stride
            _four(x[i:j], x[j:k], x[k:m], x[m : m + stride])
        stride *= 4
    if 2 * stride <= x.size:
        for i in range(0, x.size, 2 * stride):
            _two(x[i : i + stride], x[i + stride : i + 2 * stride])


@kernel
def hadamard(x: NDArray[Any]) -> None:
    """Multiply by Hadamard's matrix of entries (-1)^(ones of i & j), in place; the size is a power of two."""
    if x.size < 64:
        _strides(x, 1)
        return
    part = min(x.size, _IN_CACHE)
    for i in range(0, x.size, part):
        _eights(x[i : i + part])
        _sixty_fours(x[i : i + part])
        _strides(x[i : i + part], 64)
    _strides(x, part)


@kernel
def _levels(x: NDArray[Any], factor: float, out: NDArray[np.int32]) -> np.int64:
    """factor x, clipped to [-1, 1], in whole numbers of 2^-15; returns the sum of their squares.

    What is no number becomes -1: nothing but the caller's checks keeps it away, and the norm must hold all the same.
    """
    one, half = x.dtype.type(_ONE), x.dtype.type(_ONE + 0.5)
    scale = x.dtype.type(factor * _ONE)
    total = np.int64(0)
    for j in range(x.size):
        value = x[j] * scale
        value = value if value > -one else -one
        value = value if value < one else one
        level = np.int32(np.int32(value + half) - np.int32(_ONE))
        out[j] = level
        total += np.int64(np.int64(level) * np.int64(level))
    return total


@kernel
def rotated(
    rows: NDArray[Any], signed: NDArray[np.float64], most_squares: int, scratch: NDArray[Any], out: NDArray[np.int32]
) -> None:
    """Every row's coordinates after the rotation, in whole numbers of 2^-15 whose squares add up to the most or less.

    `signed` is each entry's sign over (radius x tau), `scratch` has room for one padded row in the rows' precision.
    """
    for i in range(rows.shape[0]):
        row, levels = rows[i], out[i]
        for j in range(row.size):
            scratch[j] = np.float64(row[j]) * signed[j]
        scratch[row.size :] = 0.0
        hadamard(scratch)
        total = _levels(scratch, 1.0, levels)
        factor, less = 1.0, 2.0**-20
        for _ in range(_SHRINKS):
            if total <= most_squares:
                break
            factor *= math.sqrt(most_squares / total) * (1.0 - less)
            less *= 4.0 if less < 0.1 else 1.0
            total = _levels(scratch, factor, levels)
        while total > most_squares:  # never seen; but it ends
            total = np.int64(0)
            for j in range(levels.size):
                levels[j] = np.int32(levels[j] / 2)
                total += np.int64(levels[j]) * np.int64(levels[j])
