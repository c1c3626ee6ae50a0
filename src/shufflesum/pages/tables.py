"""An estimate of any kind as a table for people: names, values, intervals; of many entries some, and how many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shufflesum._rounding import between, evenly, number, percent
from shufflesum.estimate import CountEstimate, Estimate, GroupEstimate, HashedEstimate, Released, WordCounts
from shufflesum.pages.render import render
from shufflesum.plots.names import entry_names

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Column", "Table", "estimate_table", "table_html"]

_MOST = 100  # rows
_LONGEST = 300  # letters of a cell


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and whether words stand below it or numbers."""

    title: str
    words: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as they are shown, and a sentence on what is not."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    note: str = ""


def table_html(table: Table, *, tall: bool = False, what: str = "Table") -> Markup:
    """The table as HTML; a `tall` one scrolls in a box of its own. `what` it is says a screen reader."""
    rows = [[_short(cell) for cell in row] for row in table.rows]
    return render("table.html", table=Table(table.columns, rows, table.note), tall=tall, what=what)


def _short(cell: str) -> str:
    return cell if len(cell) <= _LONGEST else f"{cell[:_LONGEST]}… ({len(cell):,} letters)"


def estimate_table(estimate: Released, level: float = 0.95, most: int = _MOST) -> Table:
    """Value, standard error and interval of each entry, of `most` entries at most.

    Of many means evenly spaced ones are shown, of many counts and groups the largest; the note says so.
    """
    interval = f"{percent(level)} % interval"
    match estimate:
        case CountEstimate() | WordCounts():
            return _counts(estimate, level, interval, most)
        case GroupEstimate():
            return _groups(estimate, level, interval, most)
        case HashedEstimate():
            functions, buckets = estimate.cells.shape
            note = f"A table of {functions:,} by {buckets:,} cells, from which any word can be counted that is named."
            return Table([], [], note)
        case Estimate():
            return _means(estimate, level, interval, most)
    raise TypeError(f"{type(estimate).__name__} is no estimate that tables know")


def _means(estimate: Estimate, level: float, interval: str, most: int) -> Table:
    mean, error, total = (np.asarray(a).ravel() for a in (estimate.mean, estimate.standard_error, estimate.sum))
    lower, upper = (np.asarray(end).ravel() for end in estimate.confidence_interval(level))
    places = evenly(mean.size, most)
    rows = [
        [
            name,
            number(mean[i], error[i]) or "nobody reported it",
            number(error[i], error[i]),
            between(lower[i], upper[i], error[i]),
            number(total[i], estimate.users * error[i]),
        ]
        for i, name in zip(places, entry_names(estimate, places), strict=True)
    ]
    heads = [Column("Entry", words=True), *map(Column, ("Mean", "Standard error", interval, "Sum"))]
    note = "" if len(rows) == mean.size else f"{len(rows)} of {mean.size:,} entries are shown, evenly spaced."
    return Table(heads, rows, note)


def _counts(estimate: CountEstimate | WordCounts, level: float, interval: str, most: int) -> Table:
    counts, error, shares = estimate.counts, estimate.count_standard_error, estimate.frequencies
    lower, upper = estimate.count_interval(level)
    places = _largest(counts, most)
    rows = [
        [
            estimate.names[i],
            number(counts[i], error[i]),
            number(error[i], error[i]),
            between(lower[i], upper[i], error[i]),
            f"{number(100 * shares[i], 100 * error[i] / estimate.users)} %",
        ]
        for i in places
    ]
    heads = [Column("Label", words=True), *map(Column, ("Users", "Standard error", interval, "Share"))]
    note = "" if len(rows) == counts.size else f"{len(rows)} of {counts.size:,} labels are shown, the largest counts."
    return Table(heads, rows, note)


def _groups(estimate: GroupEstimate, level: float, interval: str, most: int) -> Table:
    groups = len(estimate.names)
    mean, error, lower, upper = (
        np.asarray(values).reshape(groups, -1)
        for values in (estimate.mean, estimate.standard_error, *estimate.confidence_interval(level))
    )
    entries = mean.shape[1]
    each = evenly(entries, max(1, most // min(groups, 10)))
    shown = _largest(estimate.counts, max(1, most // len(each)))
    names = entry_names(estimate, each)
    few, sizes, spread = estimate.too_few, estimate.counts, estimate.count_standard_error
    rows = []
    for g in shown:
        size = f"{number(sizes[g], spread[g])} ± {number(spread[g], spread[g])}"
        if few[g]:
            rows.append([estimate.names[g], size, *([""] if entries > 1 else []), "too few users", "", ""])
            continue
        for i, name in zip(each, names, strict=True):
            value = number(mean[g, i], error[g, i]), number(error[g, i], error[g, i])
            held = between(lower[g, i], upper[g, i], error[g, i])
            rows.append([estimate.names[g], size, *([name] if entries > 1 else []), *value, held])
    heads = [
        Column("Group", words=True),
        Column("Users"),
        *([Column("Entry", words=True)] if entries > 1 else []),
        *map(Column, ("Mean", "Standard error", interval)),
    ]
    hidden = len(shown) < groups or len(each) < entries
    note = f"{len(shown)} of {groups:,} groups are shown, the largest, with {len(each)} of {entries:,} entries each."
    return Table(heads, rows, note if hidden else "")


def _largest(counts: NDArray[np.float64], most: int) -> list[int]:
    """All in their order, or the largest first."""
    if counts.size <= most:
        return list(range(counts.size))
    return [int(place) for place in np.argsort(-counts, kind="stable")[:most]]
