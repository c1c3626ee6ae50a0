"""Counts of labels: possible counts nearest to unbiased ones, and the most frequent labels with sure places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shufflesum._checks import check_size
from shufflesum._format import percent
from shufflesum.estimate.base import Floats

if TYPE_CHECKING:
    from shufflesum.domains import Label


@dataclass(frozen=True, slots=True)
class TopRow:
    """One of the most frequent labels by estimated count, with an interval that holds together with all others'.

    `certain`: it is among the k most frequent wherever all intervals hold. `rank_certain`: it has exactly this rank.
    """

    rank: int
    label: Label
    count: float
    lower: float
    upper: float
    certain: bool
    rank_certain: bool


@dataclass(frozen=True, slots=True)
class Top:
    """The k labels with the largest estimated counts, largest first, and a sentence on which ranks are certain."""

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
    """Ranks from intervals that hold together with probability `level`.

    A label surely belongs to the k most frequent if fewer than k others can be as frequent: their upper ends reach its
    lower end. It surely has rank p if p - 1 others are surely more frequent and all the rest surely less.
    """
    check_size("k", k, 1, len(counts))
    lower, upper = ends
    order = np.argsort(-counts, kind="stable")[:k]
    lows, highs = lower[order], upper[order]
    reach = len(counts) - np.searchsorted(np.sort(upper), lows, side="left") - 1  # itself reaches, too
    above = len(counts) - np.searchsorted(np.sort(lower), highs, side="right")
    ranks = np.arange(k)
    rows = tuple(
        TopRow(*row)
        for row in zip(
            (ranks + 1).tolist(),
            (labels[index] for index in order.tolist()),
            counts[order].tolist(),
            lows.tolist(),
            highs.tolist(),
            (reach < k).tolist(),
            ((above == ranks) & (reach == ranks)).tolist(),
            strict=True,
        )
    )
    return Top(rows, level, _statement(rows, [names[index] for index in order.tolist()], level, whole=k == len(counts)))


def _statement(rows: Sequence[TopRow], names: Sequence[str], level: float, *, whole: bool) -> str:
    ranks = [row.rank for row in rows if row.rank_certain]
    members = [name for row, name in zip(rows, names, strict=True) if row.certain and not row.rank_certain]
    open_ones = sum(not row.certain for row in rows)
    k = len(rows)
    said = (
        [f"{'Rank' if len(ranks) == 1 else 'Ranks'} {_runs(ranks)} {_is(len(ranks))} certain"]
        if ranks
        else ["No rank is certain"]
    )
    said[0] += f" ({percent(level)} %)."
    if members:
        named = ", ".join(f'"{label}"' for label in members[:10])
        more = f" and {len(members) - 10} more" if len(members) > 10 else ""
        among = f"{_is(len(members))} certainly in the top {k}, in an uncertain order."
        said.append(f"The order of {named}{more} is uncertain." if whole else f"{named}{more} {among}")
    if open_ones:
        said.append(f"{open_ones} of these {k} may not belong in the top {k}.")
    return " ".join(said)


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _runs(ranks: Sequence[int]) -> str:
    """1, 2, 3, 5 as "1-3 and 5"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def nearest_counts(counts: Floats, users: int, total: int | None) -> Floats:
    """The point of [0, users]^D nearest to `counts`, with its sum equal to `total` if one is given (users, then).

    With a sum: the projection on a simplex takes the same from every count and stops at 0. What it takes is found by
    sorting: with the m largest kept it is (their sum - total) / m, for the largest m that leaves them all positive.
    """
    if total is None:
        return np.clip(counts, 0, users)
    falling = -np.sort(-counts)
    taken = (np.cumsum(falling) - total) / np.arange(1, len(counts) + 1)
    kept = int(np.flatnonzero(falling > taken)[-1])
    nearest: Floats = np.maximum(counts - taken[kept], 0)
    return nearest
