"""Anything of the right kind, moved into a task's domain: nobody's data must keep them from taking part.

Numbers are moved to the nearest bound, arrays into their structure, vectors into their ball, labels into `other` where
the plan has it. A label that has no place in the plan is refused, before anything is sent.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain import Ball, Box, Categories, Choices, Domain, Groups, Missing, Rows, Span, Symmetric, real_array
from shufflesum.domain.choices import ListRows
from shufflesum.domain.frames import entry_names
from shufflesum.domain.groups import GroupRows
from shufflesum.domain.label_columns import value_at
from shufflesum.domain.layers import as_numpy
from shufflesum.errors import DataError

__all__ = ["Fitting"]

_CHECKED = 64  # updates that are looked at together
_FAR = 1e100  # stands for infinity where coordinates are mixtures of entries


@dataclass(frozen=True, slots=True)
class Fitting:
    """How one user's data are moved into a domain; `clip` and `missing` are for the randomizer."""

    clip: bool
    missing: Missing
    only: Callable[[Any], Any]
    """What `domain.rows` takes for one user, from what that user holds."""
    move: Callable[[Any], Any]
    """One row of `domain.rows`, as a slice, into the domain."""
    check: Callable[[Any], object]
    """Refuses rows of `domain.rows` that cannot be moved there, for all users at once."""

    @staticmethod
    def of(domain: Domain) -> Fitting:
        """The way into this domain."""
        match domain:
            case Box():
                structured = _into_structure(domain)
                return Fitting(
                    True, _missing(domain), _one_row(domain), lambda rows: structured(rows)[np.newaxis], _nothing
                )
            case Ball():  # a vector that is too long is scaled down where it is randomized
                return Fitting(True, "refuse", _one_update(domain), _same, _each_prepared(domain))
            case Groups():
                return _of_groups(domain)
            case Categories() | Choices():
                return _of_labels(domain)
            case _:
                return Fitting(False, "refuse", _one, _same, domain.prepare)


def _of_labels(domain: Categories | Choices) -> Fitting:
    if isinstance(domain, Choices):
        return Fitting(False, "refuse", _one, lambda rows: _at_most(domain, rows), lambda rows: _codes(domain, rows))
    if domain.bins is None:
        return Fitting(False, "refuse", _one, _same, lambda rows: domain.check_codes(domain.prepare(rows)))
    clip = not domain.other  # which takes in what is in no bin
    return Fitting(clip, "refuse", _one_number, _same, lambda rows: domain.prepare(rows, clip=clip))


def _of_groups(domain: Groups) -> Fitting:
    structured, array = _into_structure(domain.box), _one_row(domain.box)

    def only(held: Any) -> Any:
        if not isinstance(held, tuple | list) or len(held) != 2:
            raise DataError(
                "wrong-type",
                f"{type(held).__name__} is not a pair (group, array), which this task asks for",
                value=str(held)[:60],
            )
        return [held[0]], array(held[1])

    def move(rows: GroupRows) -> GroupRows:
        return GroupRows(rows.labels, structured(rows.arrays)[np.newaxis])

    def check(rows: GroupRows) -> object:
        return domain.labels.known(rows.labels, what="groups")

    return Fitting(True, _missing(domain.box), only, move, check)


def _one_update(domain: Ball) -> Callable[[Any], NDArray[Any]]:
    """An array of the shape; of layers a list or dictionary of them, or all in one vector."""

    def only(held: Any) -> NDArray[Any]:
        held = as_numpy(held)
        if not domain.structure.single and isinstance(held, np.ndarray) and held.shape == domain.shape:
            return real_array(held, DataError, "the update")[np.newaxis]
        return domain.flatten(held).reshape(1, *domain.shape)

    return only


def _each_prepared(domain: Ball) -> Callable[[Any], None]:
    """Refuses what is not finite, or has other layers, in whichever row it is; without a copy of all rows."""

    def check(rows: Any) -> None:
        for start in range(0, len(rows), _CHECKED):
            domain.prepare(rows[start : start + _CHECKED], start, clip=True)

    return check


def _nothing(_: Rows) -> None:
    """Whatever an array holds, there is a nearest one in the box."""


def _same(rows: Rows) -> Rows:
    return rows


def _one(held: Any) -> list[Any]:
    return [held]


def _one_number(held: Any) -> Any:
    return _one_array(np.nan if held is None else held)


def _one_row(box: Box) -> Callable[[Any], NDArray[Any]]:
    """An array; a row of a table must have the names that the plan has."""

    def only(held: Any) -> NDArray[Any]:
        box.check_names(entry_names(held))
        return _one_array(held)

    return only


def _one_array(held: Any) -> NDArray[Any]:
    return real_array(held, DataError, "vector")[np.newaxis]


def _missing(box: Box) -> Missing:
    return "refuse" if box.structure.mixes else "midpoint"


def _codes(domain: Choices, rows: Any) -> NDArray[Any]:
    """All labels of these users, row after row; refuses the first that is not in the plan."""
    if not isinstance(rows, ListRows):
        return np.nonzero(rows)[1]
    first, last = int(rows.starts[0]), int(rows.starts[-1])
    if first == last:
        return np.empty(0, dtype=np.int64)
    labels = rows.labels[first:last]
    codes = domain.labels.codes(labels, what="choices")
    if (codes < 0).any():
        place = int(np.flatnonzero(codes < 0)[0])
        row = int(np.searchsorted(rows.starts, first + place, side="right")) - 1
        domain.labels.refuse(value_at(labels, place), row)
    return codes


def _at_most(domain: Choices, rows: Any) -> NDArray[np.bool_]:
    """Of too many labels as many as the plan allows, at random; of a list that is missing none."""
    chosen = np.unique(_codes(domain, rows)).tolist()
    if len(chosen) > domain.most:
        chosen = secrets.SystemRandom().sample(chosen, domain.most)
    ticked = np.zeros((1, domain.cells), dtype=np.bool_)
    ticked[0, chosen] = True
    return ticked


def _into_structure(box: Box) -> Callable[[Any], NDArray[np.float64]]:
    """From the only row of a slice to the nearest, or about the nearest, array of the structure."""
    structure = box.structure

    def array(rows: Any) -> NDArray[np.float64]:
        return np.asarray(real_array(rows, DataError, "arrays")[0], dtype=np.float64)

    if isinstance(structure, Symmetric):

        def mirrored(rows: Any) -> NDArray[np.float64]:
            row = array(rows)
            filled = np.where(np.isnan(row), row.T, row)
            with np.errstate(invalid="ignore"):
                return filled / 2 + filled.T / 2

        return mirrored
    if isinstance(structure, Span):
        inverse = np.linalg.pinv(structure.vectors.reshape(structure.dimension, -1))

        def projected(rows: Any) -> NDArray[np.float64]:
            entries = np.clip(np.nan_to_num(array(rows), nan=0.0), -_FAR, _FAR).reshape(-1)
            return structure.restore(np.clip(entries @ inverse, box.lower, box.lower + box.width))

        return projected
    return array
