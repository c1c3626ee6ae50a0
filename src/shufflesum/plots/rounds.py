"""Several rounds of one plan over time: a small plot for each entry, each on a scale of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._rounding import evenly, percent
from shufflesum.errors import ParameterError
from shufflesum.estimate import CountEstimate, Estimate, GroupEstimate, HashedEstimate, Released, WordCounts
from shufflesum.plots._altair import alt
from shufflesum.plots.look import BLUE, as_data, config, folded, heading
from shufflesum.plots.names import drawn_names, entry_names

__all__ = ["rounds_chart"]

_MOST = 12  # plots
_WIDTH = 200
_Floats = NDArray[np.float64]


def rounds_chart(
    estimates: Sequence[Released], *, title: str, subtitle: str = "", level: float = 0.95
) -> alt.ConcatChart:
    """Value and interval of each entry by round, rounds in their order; counts, means, or the means of groups.

    Of many entries twelve are shown: the labels or groups largest in the last round, or evenly spaced means. The
    subtitle says so.
    """
    if not estimates or any(isinstance(each, HashedEstimate) for each in estimates):
        raise ParameterError("missing-argument", "there are no estimates to draw; of words, give counts_of(words)")
    if len({estimate.plan.id for estimate in estimates}) > 1:
        raise ParameterError("conflicting-arguments", "the estimates are of several plans; draw those of one plan")
    ordered = sorted(estimates, key=lambda each: each.round_number)
    found = [_values(estimate, level) for estimate in ordered]
    names, places, whole = _entries(ordered[-1], found[-1][0].size)
    notes = [*([subtitle] if subtitle else []), f"{percent(level)} % intervals; each plot has a scale of its own"]
    if len(places) < whole:
        notes.append(f"{len(places)} of {whole:,} are shown")
    axis = "Users" if isinstance(ordered[-1], CountEstimate | WordCounts) else "Mean"
    plots = []
    for name, place in zip(drawn_names(names), places, strict=True):
        rows: list[dict[str, Any]] = [
            {"round": estimate.round_number}
            | {what: _finite(values[place]) for what, values in zip(("value", "lower", "upper"), columns, strict=True)}
            for estimate, columns in zip(ordered, found, strict=True)
        ]
        plots.append(_plot(rows, name, axis))
    return alt.ConcatChart(
        concat=plots, columns=min(3, len(plots)), title=heading(title, notes), spacing=24, config=config()
    )


def _values(estimate: Released, level: float) -> tuple[_Floats, _Floats, _Floats]:
    if isinstance(estimate, CountEstimate | WordCounts):
        return estimate.counts, *estimate.count_interval(level)
    assert isinstance(estimate, Estimate)
    lower, upper = estimate.confidence_interval(level)
    return np.ravel(estimate.mean), np.ravel(lower), np.ravel(upper)


def _entries(estimate: Released, size: int) -> tuple[list[str], list[int], int]:
    """The names and places of what is shown, and of how many."""
    if isinstance(estimate, CountEstimate | WordCounts):
        places = _largest(estimate.counts, _MOST)
        return [estimate.names[place] for place in places], places, size
    if isinstance(estimate, GroupEstimate):
        each = size // len(estimate.names)
        entries = entry_names(estimate, range(min(each, _MOST)))
        groups = _largest(estimate.counts, max(1, _MOST // len(entries)))
        named = [
            (estimate.names[group] + (f", {entry}" if each > 1 else ""), group * each + place)
            for group in groups
            for place, entry in enumerate(entries)
        ]
        return [name for name, _ in named], [place for _, place in named], size
    places = evenly(size, _MOST)
    return entry_names(estimate, places), places, size


def _largest(counts: _Floats, most: int) -> list[int]:
    return sorted(int(place) for place in np.argsort(-counts, kind="stable")[:most])


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _plot(rows: list[dict[str, Any]], name: str, axis: str) -> alt.LayerChart:
    rounds = [row["round"] for row in rows]
    look = alt.Axis(values=rounds if len(rounds) <= 8 else alt.Undefined, format="d", grid=False, tickMinStep=1)
    scale = alt.Scale(nice=False, zero=False, padding=14)
    base = alt.Chart().encode(x=alt.X("round:Q", title="Round", scale=scale, axis=look))

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=axis, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4, format=",f"))

    layers = [
        base.mark_rule(strokeWidth=3, color=BLUE, opacity=0.5).encode(y=y("lower"), y2=alt.Y2("upper:Q")),
        base.mark_line(strokeWidth=1.5, color=BLUE).encode(y=y("value")),
        base.mark_point(filled=True, size=70, opacity=1, color=BLUE).encode(y=y("value")),
    ]
    words: Any = folded(name, _WIDTH / 8.5)
    title = alt.TitleParams(words, fontSize=16, offset=10, frame="group")  # of the plot: all stand at one height
    return alt.LayerChart(data=as_data(rows), layer=layers, title=title, width=_WIDTH, height=150)
