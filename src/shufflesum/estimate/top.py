"""The most frequent labels, and how sure their places are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shufflesum._checks import check_size
from shufflesum._rounding import percent
from shufflesum.domain import Label
from shufflesum.estimate.base import Floats

__all__ = ["Top", "TopRow", "top_of"]


@dataclass(frozen=True, slots=True)
class TopRow:
    """One of the most frequent labels by estimated count, with an interval that holds together with all others'.

    `certain`: it is among the k most frequent wherever all intervals hold. `place_certain`: it has exactly this place.
    """

    place: int
    label: Label
    count: float
    lower: float
    upper: float
    certain: bool
    place_certain: bool


@dataclass(frozen=True, slots=True)
class Top:
    """The k labels with the largest estimated counts, largest first, and a sentence on which places are certain."""

    rows: tuple[TopRow, ...]
    level: float
    statement: str

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels alone, most frequent first."""
        return tuple(row.label for row in self.rows)


def top_of(
    labels: Sequence[Label],
    names: Sequence[str],
    counts: Floats,
    ends: tuple[Floats, Floats],
    k: int,
    level: float,
) -> Top:
    """Places from intervals that hold together with probability `level`.

    A label surely belongs to the k most frequent if fewer than k others can be as frequent: their upper ends reach its
    lower end. It surely has place p if p - 1 others are surely more frequent and all the rest surely less.
    """
    check_size("k", k, 1, len(counts))
    lower, upper = ends
    order = np.argsort(-counts, kind="stable")[:k]
    lows, highs = lower[order], upper[order]
    reach = len(counts) - np.searchsorted(np.sort(upper), lows, side="left") - 1  # itself reaches, too
    above = len(counts) - np.searchsorted(np.sort(lower), highs, side="right")
    places = np.arange(k)
    rows = tuple(
        TopRow(*row)
        for row in zip(
            (places + 1).tolist(),
            (labels[index] for index in order.tolist()),
            counts[order].tolist(),
            lows.tolist(),
            highs.tolist(),
            (reach < k).tolist(),
            ((above == places) & (reach == places)).tolist(),
            strict=True,
        )
    )
    return Top(rows, level, _statement(rows, [names[index] for index in order.tolist()], level, whole=k == len(counts)))


def _statement(rows: Sequence[TopRow], names: Sequence[str], level: float, *, whole: bool) -> str:
    places = [row.place for row in rows if row.place_certain]
    members = [name for row, name in zip(rows, names, strict=True) if row.certain and not row.place_certain]
    open_ones = sum(not row.certain for row in rows)
    k = len(rows)
    said = []
    if places:
        said.append(f"{'place' if len(places) == 1 else 'places'} {_runs(places)} of {k} {_is(len(places))} certain")
    else:
        said.append(f"no place of {k} is certain")
    if members:
        named = ", ".join(f'"{label}"' for label in members[:10])
        more = f" and {len(members) - 10} more" if len(members) > 10 else ""
        among = f"{_is(len(members))} certainly among the {k} most frequent, in an order not certain"
        said.append(f"the order of {named}{more} is not certain" if whole else f"{named}{more} {among}")
    if open_ones:
        said.append(f"{open_ones} of the {k} may have to give way to labels not listed")
    return f"With a confidence of {percent(level)} %, all together: {'; '.join(said)}."


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _runs(places: Sequence[int]) -> str:
    """1, 2, 3, 5 as "1 to 3, 5"."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs)
