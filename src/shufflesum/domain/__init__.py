"""What a user holds, and how neighbours differ.

Arrays in a box (any shape and structure, public bounds) or in a ball (a bounded norm), one label out of a public list,
several labels, a label and an array, or any text at all. Each domain takes what users hold to what a mechanism encodes.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray

from shufflesum.domain._arrays import real_array, users_rows
from shufflesum.domain.ball import Ball, UpdateRows
from shufflesum.domain.bounds import Bounds, BoundsLike
from shufflesum.domain.box import Box, Missing
from shufflesum.domain.categories import Categories
from shufflesum.domain.choices import Choices, ListRows
from shufflesum.domain.frames import FrameRows
from shufflesum.domain.groups import Grouped, GroupRows, Groups
from shufflesum.domain.hashed import Hashed
from shufflesum.domain.label_columns import Words
from shufflesum.domain.labels import Label, Labels
from shufflesum.domain.neighbours import EveryCoordinate, InBall, Neighbours, OneCell, SomeCells, TwoGroups
from shufflesum.domain.structure import (
    Dense,
    Span,
    Structure,
    Symmetric,
    structure_from_json,
    structure_of,
)
from shufflesum.errors import ParameterError, PlanError

__all__ = [
    "Ball",
    "Bounds",
    "BoundsLike",
    "Box",
    "Categories",
    "Choices",
    "Dense",
    "Domain",
    "EveryCoordinate",
    "Grouped",
    "Groups",
    "Hashed",
    "InBall",
    "Label",
    "Labels",
    "Missing",
    "Neighbours",
    "OneCell",
    "Rows",
    "SomeCells",
    "Span",
    "Structure",
    "Symmetric",
    "TwoGroups",
    "UpdateRows",
    "as_box",
    "domain_from_json",
    "numbers_of",
    "real_array",
    "structure_from_json",
    "structure_of",
    "users_rows",
]

Domain: TypeAlias = Ball | Box | Categories | Choices | Groups | Hashed

Rows: TypeAlias = NDArray[Any] | FrameRows | Words | ListRows | GroupRows | UpdateRows
"""What `domain.rows` gives: one row for each user, with a length and slices of rows."""


def numbers_of(domain: Domain) -> Domain:
    """Where a user's numbers are: the box of groups, else the domain itself."""
    return domain.box if isinstance(domain, Groups) else domain


def as_box(domain: Domain) -> Box:
    """The domain where it must be a box; anything else is refused."""
    if not isinstance(domain, Box):
        raise ParameterError(
            "impossible-combination", f"this is for arrays in a box, not for {type(domain).__name__}; plan with a shape"
        )
    return domain


def domain_from_json(value: object) -> Domain:
    """The domain that wrote this with `to_json`; raises `PlanError` for anything else."""
    match value:
        case {"kind": "ball"}:
            return Ball.from_json(value)
        case {"kind": "box"}:
            return Box.from_json(value)
        case {"kind": "categories"}:
            return Categories.from_json(value)
        case {"kind": "choices"}:
            return Choices.from_json(value)
        case {"kind": "groups"}:
            return Groups.from_json(value)
        case {"kind": "hashed"}:
            return Hashed.from_json(value)
    raise PlanError(
        "malformed",
        f"a domain must be of kind ball, box, categories, choices, groups or hashed, not {str(value)[:80]}",
    )
