"""What a user holds, and how neighbours differ.

So far arrays in a box: any shape and structure, public bounds, and the way to coordinates in [0, 1] and back.
"""

from __future__ import annotations

from typing import TypeAlias

from shufflesum.domain._arrays import real_array
from shufflesum.domain.bounds import Bounds
from shufflesum.domain.box import Box, Missing
from shufflesum.domain.neighbours import EveryCoordinate, Neighbours
from shufflesum.domain.structure import (
    Dense,
    Span,
    Structure,
    Symmetric,
    structure_from_json,
    structure_of,
)

__all__ = [
    "Bounds",
    "Box",
    "Dense",
    "Domain",
    "EveryCoordinate",
    "Missing",
    "Neighbours",
    "Span",
    "Structure",
    "Symmetric",
    "domain_from_json",
    "real_array",
    "structure_from_json",
    "structure_of",
]

Domain: TypeAlias = Box


def domain_from_json(value: object) -> Domain:
    """The domain that wrote this with `to_json`; raises `PlanError` for anything else."""
    return Box.from_json(value)
