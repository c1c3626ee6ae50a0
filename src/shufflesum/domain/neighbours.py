"""How two neighbouring data sets can differ: what a domain states and a mechanism's accountant needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["EveryCoordinate", "Neighbours"]


@dataclass(frozen=True, slots=True)
class EveryCoordinate:
    """One user's array is replaced: all coordinates may change, each from one end of its bounds to the other."""

    dimension: int


Neighbours: TypeAlias = EveryCoordinate
