"""Where the error comes from (sampling, rounding, noise), by the number of reports that each user sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shufflesum.plots._altair import alt
from shufflesum.plots.look import (
    BLUE,
    ERROR,
    HEIGHT,
    ORANGE,
    SKY,
    TEXT_SIZE,
    WIDTH,
    as_data,
    config,
    error_axis,
    heading,
)

__all__ = ["PART_COLOURS", "error_chart", "stacked_parts"]

PART_COLOURS = {"sampling": SKY, "rounding": ORANGE, "noise": BLUE}


def error_chart(parts: Mapping[str, Mapping[str, float]], *, title: str, subtitle: str = "") -> alt.LayerChart:
    """Predicted squared error by what a user sends: in words -> part -> error, its parts stacked."""
    axis = alt.Axis(labelAngle=0, labelExpr="split(datum.label, ' ')")  # a line for each word
    x = alt.X("t:O", sort=list(parts), title="Reports each user sends", axis=axis)
    y = error_axis("error", f"{ERROR}, all coordinates")
    legend = alt.Legend(title=None, orient="top", labelLimit=500)
    return alt.LayerChart(
        layer=stacked_parts(parts, y, min(60, 0.6 * WIDTH / len(parts)), legend),
        encoding={"x": x},
        title=heading(title, subtitle),
        width=WIDTH,
        height=HEIGHT,
        config=config(),
    )


def stacked_parts(
    parts: Mapping[Any, Mapping[str, float]], y: alt.Y, width: float, legend: alt.Legend | None
) -> list[alt.Chart]:
    """A bar for each number of reports, with the whole error written above it."""
    rows = [
        {"t": reports, "part": part, "error": error, "order": order}
        for reports, split in parts.items()
        for order, (part, error) in enumerate(split.items())
    ]
    totals = {reports: sum(split.values()) for reports, split in parts.items()}
    labels = [{"t": reports, "error": total, "label": f"{total:.2g}"} for reports, total in totals.items()]
    colours = alt.Scale(domain=list(PART_COLOURS), range=list(PART_COLOURS.values()))
    bars = alt.Chart(as_data(rows), mark=alt.MarkDef("bar", size=width))
    words = alt.Chart(as_data(labels), mark=alt.MarkDef("text", dy=-11, fontSize=TEXT_SIZE))
    return [
        bars.encode(y=y, color=alt.Color("part:N", scale=colours, legend=legend), order=alt.Order("order:Q")),
        words.encode(y=y, text=alt.Text("label:N")),
    ]
