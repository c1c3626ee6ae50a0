"""One panel of the paper's evaluation: measured with error bars, predicted, the published bound, fitted powers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shufflesum.plots._altair import alt
from shufflesum.plots.impossible import impossible_columns
from shufflesum.plots.key import FIGURE_WIDTH, KeyEntry, figure, plot
from shufflesum.plots.look import (
    BLACK,
    BLUE,
    ERROR,
    GREEN,
    GREY,
    PURPLE,
    RED,
    SKY,
    Rows,
    as_data,
    drawable,
    error_axis,
    line,
    point,
    value_axis,
)

__all__ = ["panel_chart"]

_HEIGHT = 340
_CURVE_LOOKS = ((BLUE, (2, 3)), (GREEN, (10, 4)), (GREY, (10, 4)))


def panel_chart(
    rows: Rows,
    *,
    symbol: str,
    axis: str,
    logarithmic: bool,
    repeats: int,
    curves: Mapping[str, Rows],
    title: str,
    subtitle: Sequence[str],
) -> alt.VConcatChart:
    """Error against the parameter `symbol`; rows that are not `possible` become grey columns that say why.

    `curves` maps words to rows of the parameter and "error": the fitted curve first, then up to two of the paper's.
    """
    values = [float(row[symbol]) for row in rows]
    spacing = float(np.min(np.diff(values))) if len(values) > 1 else 1.0
    ends = [values[0] - 0.7 * spacing, values[-1] + 0.7 * spacing]
    scale = alt.Scale(domain=ends, nice=False, zero=False)
    x = value_axis(symbol, axis, values, scale)
    shown = [_with_ends(row, logarithmic=logarithmic) for row in rows if row["possible"]]
    width = 0.62 * FIGURE_WIDTH * spacing / (ends[1] - ends[0])
    # A bar has no foot on a logarithmic axis.
    mark = point(260, color=SKY) if logarithmic else alt.MarkDef("bar", size=width, color=SKY)
    label = f"measured, mean of {repeats} run{'s' if repeats > 1 else ''} ± 2 s.e."

    def drawn(mark: alt.MarkDef | alt.ErrorBarDef, field: str, data: Rows | None = None) -> alt.Chart:
        chart = alt.Chart(mark=mark) if data is None else alt.Chart(as_data(data), mark=mark)
        return chart.encode(y=error_axis(field, ERROR, logarithmic=logarithmic))

    lines: list[tuple[KeyEntry, str, Rows | None]] = [
        (KeyEntry("predicted from the data", "line", BLACK), "predicted", None),
        (KeyEntry("published bound (the paper's metric)", "line", RED, (6, 4)), "published bound", None),
    ]
    for (words, curve), (colour, dash) in zip(curves.items(), _CURVE_LOOKS, strict=False):
        lines.append((KeyEntry(words, "line", colour, dash), "error", curve))
    whisker = alt.ErrorBarDef(type="errorbar", color=BLACK, opacity=1, thickness=2, ticks={"size": 14})
    layers = [
        *impossible_columns([float(row[symbol]) for row in rows if not row["possible"]], spacing, scale, _HEIGHT),
        drawn(mark, "measured"),
        *(drawn(line(color=key.colour, strokeDash=key.dash), field, data) for key, field, data in reversed(lines)),
        drawn(whisker, "low").encode(y2=alt.Y2("high:Q")),
        drawn(point(130, shape="diamond", color=PURPLE, stroke="white"), "measured, paper’s metric"),
    ]
    entries = [
        KeyEntry(label, "point" if logarithmic else "bar", SKY),
        *(entry for entry, _, _ in lines),
        KeyEntry("measured, the paper's metric", "point", PURPLE, shape="diamond"),
    ]
    return figure(drawable(shown), entries, [plot(layers, _HEIGHT, x=x)], title, subtitle)


def _with_ends(row: Mapping[str, Any], *, logarithmic: bool) -> dict[str, Any]:
    """The row with the ends of its error bar."""
    middle, half = row["measured"], 2 * (row["standard error"] or 0.0)
    lowest = middle / 10 if logarithmic else 0.0  # an interval that reaches 0 has no place on the axis
    return {**row, "low": max(middle - half, lowest), "high": middle + half}
