"""Arrays of any shape, their public bounds and structure, and the way to coordinates in [0, 1] and back."""

from __future__ import annotations

from shufflesum.domain._arrays import real_array
from shufflesum.domain.bounds import Bounds
from shufflesum.domain.domain import Domain, Missing
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
    "Dense",
    "Domain",
    "Missing",
    "Span",
    "Structure",
    "Symmetric",
    "real_array",
    "structure_from_json",
    "structure_of",
]
