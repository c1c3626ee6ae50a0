"""Plans that audits are tried on, small enough that many of their users are looked at in time."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import shufflesum as ss
from shufflesum.cautions import ArraysAreBetterWarning

__all__ = ["SETTINGS", "planned"]

SETTINGS: dict[str, dict[str, Any]] = {
    "randomized-response": {
        "users": 1_000,
        "shape": 6,
        "mechanism": ss.RandomizedResponse.Options(coordinates=6, levels=3),
    },
    "randomized response, wide": {
        "users": 1_000,
        "shape": 400,
        "mechanism": ss.RandomizedResponse.Options(coordinates=400, levels=1),
    },
    "randomized response, blocks": {
        "users": 1_000,
        "shape": 6,
        "mechanism": ss.RandomizedResponse.Options(coordinates=2, levels=4),
    },
    "randomized response, subsets": {
        "users": 2_000,
        "shape": 6,
        "mechanism": ss.RandomizedResponse.Options(coordinates=3, levels=2, sampling="uniform"),
    },
    "randomized response, labels": {"users": 3_000, "domain": ss.Categories(5), "mechanism": "randomized-response"},
    "noisy-counts": {"users": 1_000, "shape": 4, "mechanism": "noisy-counts"},
    "multi-choice": {"users": 3_000, "domain": ss.MultiChoice(6, max_choices=2), "mechanism": "noisy-counts"},
    "groups": {"users": 3_000, "domain": ss.GroupBy(["a", "b", "c"], 2), "mechanism": "noisy-counts"},
    "labels": {"users": 3_000, "domain": ss.Categories(40), "mechanism": "noisy-counts"},
    "words": {"users": 3_000, "domain": ss.OpenVocabulary(200, 8, bytes(range(16))), "mechanism": "noisy-counts"},
    "ball, narrow": {"users": 500, "domain": ss.L2Ball(2, clipping_norm=2.0)},
    "ball": {"users": 500, "domain": ss.L2Ball(60, clipping_norm=2.0)},
    "ball, wide": {"users": 500, "domain": ss.L2Ball(1000, clipping_norm=2.0)},
}


@cache
def planned(name: str) -> ss.Plan:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ArraysAreBetterWarning)
        return ss.plan(**{"epsilon": 1.0, "delta": 1e-6, **SETTINGS[name]})
