"""What a user holds: a folder or a module for each domain, and the one registry.

Arrays with public bounds or with a bounded norm, one label out of a public list, several labels, a label and an array,
or any text at all, counted where it is asked for or found where many hold it.
"""

from __future__ import annotations

from shufflesum.domains.arrays import Arrays
from shufflesum.domains.base import ColumnLayout, Domain, InputCoercion, Missing, MissingOrDrop, Prepared, Rows
from shufflesum.domains.bounds import Bounds, BoundsLike
from shufflesum.domains.categories import Categories
from shufflesum.domains.group_by import GroupBy
from shufflesum.domains.l2_ball import L2Ball
from shufflesum.domains.labels import Label, Labels
from shufflesum.domains.multi_choice import MultiChoice
from shufflesum.domains.open_vocabulary import OpenVocabulary
from shufflesum.domains.structure import Dense, Span, Structure, Symmetric, real_array, structure_of, users_rows
from shufflesum.domains.survey import Question, Survey
from shufflesum.domains.unlisted_labels import UnlistedLabels
from shufflesum.errors import PlanError

__all__ = [
    "DOMAINS",
    "Arrays",
    "Bounds",
    "BoundsLike",
    "Categories",
    "ColumnLayout",
    "Dense",
    "Domain",
    "GroupBy",
    "InputCoercion",
    "L2Ball",
    "Label",
    "Labels",
    "Missing",
    "MissingOrDrop",
    "MultiChoice",
    "OpenVocabulary",
    "Prepared",
    "Question",
    "Rows",
    "Span",
    "Structure",
    "Survey",
    "Symmetric",
    "UnlistedLabels",
    "domain_from_json",
    "real_array",
    "register",
    "structure_of",
    "users_rows",
]

DOMAINS: dict[str, type[Domain]] = {}
"""Every domain, by its tag in plan files."""


def register(domain: type[Domain]) -> type[Domain]:
    """Add a domain: plans, files, servers, audits and pages then take it like any other."""
    DOMAINS[domain.kind] = domain
    return domain


for _domain in (Arrays, L2Ball, Categories, MultiChoice, GroupBy, OpenVocabulary, Survey, UnlistedLabels):
    register(_domain)


def domain_from_json(value: object) -> Domain:
    """The domain that wrote this with `to_json`; raises `PlanError` for anything else."""
    match value:
        case {"kind": str(kind)} if kind in DOMAINS:
            return DOMAINS[kind].from_json(value)
    raise PlanError("malformed", f"a domain must be of kind {', '.join(DOMAINS)}, not {str(value)[:80]}")
