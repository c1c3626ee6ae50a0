"""Estimates of labels, groups and words as tables for a person."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table as RichTable

from shufflesum.cli.options import console
from shufflesum.estimate import CountEstimate, GroupEstimate, WordCounts

__all__ = ["print_counts", "print_groups"]

_SHOWN = 20  # of more labels those with the largest counts
_GROUPS = 10
_NUMBERS = 4  # of a group, so that a table of images stays one

_Floats = NDArray[np.float64]


def print_counts(estimate: CountEstimate | WordCounts, level: float, *, hint: str = "") -> None:
    """How many users hold each label: all of few labels in their order, or the largest counts."""
    counts, errors = estimate.counts, estimate.count_standard_error
    low, high = estimate.count_interval(level)
    shown = range(len(counts)) if len(counts) <= _SHOWN else np.argsort(-counts, kind="stable")[:_SHOWN].tolist()
    table = _table("label", "users", "standard error", f"{100 * level:g}% interval", "frequency")
    for place in shown:
        table.add_row(
            escape(estimate.names[place]),
            f"{counts[place]:.1f}",
            f"{errors[place]:.2g}",
            _interval(low[place], high[place]),
            f"{estimate.frequencies[place]:.5g}",
        )
    console.print(table)
    if len(shown) < len(counts):
        console.print(f"the {len(shown)} largest of {len(counts):,} counts{hint}")


def print_groups(estimate: GroupEstimate, level: float, *, hint: str = "") -> None:
    """Size and mean of each group; of arrays the first numbers, of many groups the largest."""
    groups = len(estimate.groups)
    order = range(groups) if groups <= _GROUPS else sorted(np.argsort(-estimate.counts)[:_GROUPS].tolist())
    means, errors = (values.reshape(groups, -1) for values in (estimate.mean, estimate.standard_error))
    low, high = (ends.reshape(groups, -1) for ends in estimate.confidence_interval(level))
    size_low, size_high = estimate.count_interval(level)
    numbers = means.shape[1]
    titles = ["group", "users", "their interval", *(["number"] if numbers > 1 else []), "mean", "standard error"]
    table = _table(*titles, f"{100 * level:g}% interval")
    for group in order:
        size = [f"{estimate.counts[group]:.1f}", _interval(size_low[group], size_high[group])]
        for place in range(min(numbers, _NUMBERS)):
            first = [escape(estimate.names[group]), *size] if place == 0 else ["", "", ""]
            which = [] if numbers == 1 else [_name(estimate.columns, place)]
            if estimate.too_few[group]:
                table.add_row(*first, *which, "too few users", "", "")
                break
            ends = _interval(low[group, place], high[group, place])
            table.add_row(*first, *which, f"{means[group, place]:.5g}", f"{errors[group, place]:.2g}", ends)
    console.print(table)
    if len(order) < groups or numbers > _NUMBERS:
        console.print(
            f"{len(order)} of {groups:,} groups and {min(numbers, _NUMBERS)} of {numbers:,} numbers shown{hint}"
        )


def _table(first: str, *titles: str) -> RichTable:
    table = RichTable(box=None, header_style="bold")
    table.add_column(first)
    for title in titles:
        table.add_column(title, justify="right")
    return table


def _interval(low: float, high: float) -> str:
    return f"{low:.5g} to {high:.5g}"


def _name(columns: Sequence[str] | None, place: int) -> str:
    return str(place) if columns is None else escape(columns[place])
