"""Error against the number of users or against epsilon, for everything that one could do."""

from __future__ import annotations

from collections.abc import Sequence

from shufflesum.plots._altair import alt
from shufflesum.plots.impossible import impossible_areas
from shufflesum.plots.key import KeyEntry, figure, plot
from shufflesum.plots.look import (
    BLACK,
    BLUE,
    ERROR,
    GREEN,
    PURPLE,
    RED,
    SKY,
    Rows,
    error_axis,
    line,
    point,
    value_axis,
)

__all__ = ["sweep_chart"]

_LOOKS = (
    (RED, (2, 3), "triangle-up"),
    (PURPLE, (6, 3), "diamond"),
    (SKY, (), "square"),
    (BLUE, (), "circle"),
    (BLACK, (10, 4), "cross"),
    (GREEN, (2, 2), "triangle-down"),
)
_MARGIN = 1.12  # of the logarithmic axis, on either side


def sweep_chart(
    rows: Rows, *, symbol: str, axis: str, lines: Sequence[str], title: str, subtitle: Sequence[str]
) -> alt.VConcatChart:
    """Predicted as lines, measured (or else predicted) as points; grey where a line is not `possible`."""
    values = sorted({float(row[symbol]) for row in rows})
    ends = [values[0] / _MARGIN, values[-1] * _MARGIN]
    scale = alt.Scale(type="log", domain=ends, nice=False)
    x = value_axis(symbol, axis, values, scale)
    colours, dashes, shapes = (alt.Scale(domain=lines, range=looks) for looks in zip(*_LOOKS, strict=True))
    colour = alt.Color("line:N", scale=colours, legend=None)
    dash = alt.StrokeDash("line:N", scale=dashes, legend=None)
    shape = alt.Shape("line:N", scale=shapes, legend=None)
    predicted, measured = (error_axis(field, ERROR, logarithmic=True) for field in ("predicted", "point"))
    missing = {float(row[symbol]) for row in rows if not row["possible"]}
    layers = [
        *impossible_areas(values, missing, ends, scale),
        alt.Chart(mark=line()).encode(y=predicted, color=colour, strokeDash=dash),
        alt.Chart(mark=point(130)).encode(y=measured, color=colour, shape=shape),
    ]
    shown = [{"predicted": None, **row} for row in rows]  # null breaks a line
    shown = [{**row, "point": row.get("measured", row["predicted"])} for row in shown]
    entries = [KeyEntry(words, "line and point", *look) for words, look in zip(lines, _LOOKS, strict=True)]
    return figure(shown, entries, [plot(layers, 400, x=x)], title, subtitle)
