"""Rows of many users who all hold the same, but for one."""

from __future__ import annotations

from typing import Any

import numpy as np

from shufflesum.domain import Ball, Box, Domain, Groups

__all__ = ["alike"]


def alike(domain: Domain, row: Any, size: int, first: Any = None) -> Any:
    """What a domain takes for so many users: `row` for each, but `first`, if given, for the very first."""
    first = row if first is None else first
    if isinstance(domain, Ball | Box):
        rows = np.repeat(np.asarray(row)[None], size, axis=0)
        rows[0] = first
        return rows
    if isinstance(domain, Groups):
        (label, array), (first_label, first_array) = row, first
        return [first_label, *[label] * (size - 1)], alike(domain.box, array, size, first_array)
    return [first, *[row] * (size - 1)]
