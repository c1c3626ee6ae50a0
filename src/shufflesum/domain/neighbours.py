"""How two neighbouring data sets can differ: what a domain states and a mechanism's accountant needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["EveryCoordinate", "InBall", "Neighbours", "OneCell", "SomeCells", "TwoGroups"]


@dataclass(frozen=True, slots=True)
class EveryCoordinate:
    """One user's array is replaced: all coordinates may change, each from one end of its bounds to the other."""

    dimension: int


@dataclass(frozen=True, slots=True)
class InBall:
    """One user's vector is replaced by any other one of a Euclidean ball; it has so many coordinates once rotated."""

    coordinates: int


@dataclass(frozen=True, slots=True)
class OneCell:
    """One user's label is replaced: one true report moves from one of `cells` cells to another."""

    cells: int


@dataclass(frozen=True, slots=True)
class SomeCells:
    """One user's labels are replaced: of all cells at most `most` lose a true report, and as many others gain one."""

    cells: int
    most: int


@dataclass(frozen=True, slots=True)
class TwoGroups:
    """One user's group and array are replaced: everything may change in two of the groups.

    The `dimension` coordinates and the count of the one go down, as many of the other go up.
    """

    groups: int
    dimension: int


Neighbours: TypeAlias = EveryCoordinate | InBall | OneCell | SomeCells | TwoGroups
