"""Where the error comes from (sampling, rounding, noise), by the number of reports that each user sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shufflesum.plots._altair import alt
from shufflesum.plots.key import KeyEntry, figure, plot
from shufflesum.plots.look import (
    BLACK,
    BLUE,
    ERROR,
    HEIGHT,
    ORANGE,
    PURPLE,
    SKY,
    TEXT_SIZE,
    WIDTH,
    Rows,
    as_data,
    config,
    drawable,
    error_axis,
    heading,
    line,
    point,
)

__all__ = ["error_chart", "parts_chart"]

_COLOURS = {"sampling": SKY, "rounding": ORANGE, "noise": BLUE}


def error_chart(parts: Mapping[str, Mapping[str, float]], *, title: str, subtitle: str = "") -> alt.LayerChart:
    """Predicted squared error by what a user sends: in words -> part -> error, its parts stacked."""
    axis = alt.Axis(labelAngle=0, labelExpr="split(datum.label, ' ')")  # a line for each word
    x = alt.X("t:O", sort=list(parts), title="Reports each user sends", axis=axis)
    y = error_axis("error", f"{ERROR}, all coordinates")
    legend = alt.Legend(title=None, orient="top", labelLimit=500)
    return alt.LayerChart(
        layer=_stacked(parts, y, min(60, 0.6 * WIDTH / len(parts)), legend),
        encoding={"x": x},
        title=heading(title, subtitle),
        width=WIDTH,
        height=HEIGHT,
        config=config(),
    )


def parts_chart(rows: Rows, *, title: str, subtitle: Sequence[str]) -> alt.VConcatChart:
    """The parts stacked, and below them both metrics, predicted and measured."""
    parts = {row["t"]: {part: row[part] for part in _COLOURS} for row in rows}
    above = _stacked(parts, error_axis("error", ERROR), 54, None)
    below = []
    entries = [KeyEntry(f"{part} part", "bar", colour) for part, colour in _COLOURS.items()]
    for metric, colour, dash, shape, name in (
        ("", BLACK, (), "circle", "against the true mean"),
        (", paper’s metric", PURPLE, (6, 4), "diamond", "the paper's metric"),
    ):
        predicted, measured = (
            error_axis(f"{what}{metric}", "Both metrics", logarithmic=True) for what in ("predicted", "measured")
        )
        below.append(alt.Chart(mark=line(color=colour, strokeDash=dash)).encode(y=predicted))
        below.append(alt.Chart(mark=point(150, shape=shape, color=colour)).encode(y=measured))
        entries.append(KeyEntry(name, "line and point", colour, dash, shape))
    axis = alt.Axis(labelAngle=0)
    plots = [
        plot(above, 250, x=alt.X("t:O", title=None, axis=axis)),
        plot(below, 230, x=alt.X("t:O", title="Reports t of each user", axis=axis)),
    ]
    return figure(drawable(rows), entries, plots, title, subtitle)


def _stacked(
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
    colours = alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values()))
    bars = alt.Chart(as_data(rows), mark=alt.MarkDef("bar", size=width))
    words = alt.Chart(as_data(labels), mark=alt.MarkDef("text", dy=-11, fontSize=TEXT_SIZE))
    return [
        bars.encode(y=y, color=alt.Color("part:N", scale=colours, legend=legend), order=alt.Order("order:Q")),
        words.encode(y=y, text=alt.Text("label:N")),
    ]
