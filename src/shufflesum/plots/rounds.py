"""Several rounds of one plan over time: a small plot for each entry, each on a scale of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._format import evenly, percent
from shufflesum.errors import ParameterError
from shufflesum.estimate import BaseEstimate, EstimateTable
from shufflesum.plots.look import BLUE, alt, as_data, config, folded, heading
from shufflesum.plots.panels import check_drawable, drawn_names

_MOST = 12  # plots
_WIDTH = 200
_Floats = NDArray[np.float64]


def rounds_chart(
    estimates: Sequence[BaseEstimate], *, title: str, subtitle: str = "", level: float = 0.95
) -> alt.ConcatChart:
    """Value and interval of each entry by round, rounds in their order; counts, means, or the means of groups.

    Of many entries twelve are shown: the labels or groups largest in the last round, or evenly spaced means. The
    subtitle says so.
    """
    check_drawable(*estimates)
    if len({estimate.plan.id for estimate in estimates}) > 1:
        raise ParameterError("conflicting-arguments", "the estimates are of several plans; draw those of one plan")
    ordered = sorted(estimates, key=lambda each: each.round_number)
    found = [estimate.to_table(level) for estimate in ordered]
    places = _entries(found[-1])
    notes = [*([subtitle] if subtitle else []), f"{percent(level)} % intervals; each plot has a scale of its own"]
    if len(places) < len(found[-1]):
        notes.append(f"{len(places)} of {len(found[-1]):,} are shown")
    axis = found[-1].quantity.capitalize()
    plots = []
    for name, place in zip(drawn_names(found[-1].labels(places)), places, strict=True):
        rows: list[dict[str, Any]] = [
            {"round": estimate.round_number}
            | {what: _finite(getattr(table, what)[place]) for what in ("value", "lower", "upper")}
            for estimate, table in zip(ordered, found, strict=True)
        ]
        plots.append(_plot(rows, name, axis))
    return alt.ConcatChart(
        concat=plots, columns=min(3, len(plots)), title=heading(title, notes), spacing=24, config=config()
    )


def _entries(table: EstimateTable) -> list[int]:
    """The places of what is shown."""
    if table.of_users:
        return _largest(table.value, _MOST)
    if not table.groups:
        return evenly(len(table), _MOST)
    each = min(table.entries, _MOST)
    groups = _largest(table.users[:: table.entries], max(1, _MOST // each))
    return [group * table.entries + entry for group in groups for entry in range(each)]


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
