"""Plans that audits are tried on, small enough that many of their users are looked at in time."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import shufflesum as ss
from shufflesum.cautions import BoxIsBetterWarning

__all__ = ["SETTINGS", "planned"]

SETTINGS: dict[str, dict[str, Any]] = {
    "replace": {"users": 1_000, "shape": 6, "levels": 3, "coordinates": 6},
    "replace, wide": {"users": 1_000, "shape": 400, "levels": 1, "coordinates": 400},
    "replace, blocks": {"users": 1_000, "shape": 6, "levels": 4, "coordinates": 2},
    "replace, subsets": {"users": 2_000, "shape": 6, "levels": 2, "coordinates": 3, "sampling": "uniform"},
    "replace, labels": {"users": 3_000, "shape": ss.Categories(5), "mechanism": "replace"},
    "add": {"users": 1_000, "shape": 4, "mechanism": "add"},
    "choices": {"users": 3_000, "shape": ss.Choices(6, most=2), "mechanism": "add"},
    "groups": {"users": 3_000, "shape": ss.Groups(["a", "b", "c"], 2), "mechanism": "add"},
    "labels": {"users": 3_000, "shape": ss.Categories(40), "mechanism": "add"},
    "words": {"users": 3_000, "shape": ss.Hashed(200, 8, bytes(range(16))), "mechanism": "add"},
    "ball, narrow": {"users": 500, "shape": ss.Ball(2, radius=2.0)},
    "ball": {"users": 500, "shape": ss.Ball(60, radius=2.0)},
    "ball, wide": {"users": 500, "shape": ss.Ball(1000, radius=2.0)},
}


@cache
def planned(name: str) -> ss.Plan:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoxIsBetterWarning)
        return ss.plan(**{"epsilon": 1.0, "delta": 1e-6, **SETTINGS[name]})
