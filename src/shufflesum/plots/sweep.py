"""Error against the number of users, epsilon or the dimension, for everything that one could do."""

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
    ORANGE,
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
    (ORANGE, (), "square"),
    (BLACK, (10, 4), "cross"),
    (GREEN, (2, 2), "triangle-down"),
)
_MARGIN = 1.12  # of the logarithmic axis, on either side


def sweep_chart(
    rows: Rows,
    *,
    symbol: str,
    axis: str,
    lines: Sequence[str],
    title: str,
    subtitle: Sequence[str],
    over: str | None = None,
) -> alt.VConcatChart:
    """Predicted as lines, measured (or else predicted) as points; grey where a line is not `possible`.

    A line looks by its place in `lines`, the same in every figure; the key shows those that have rows. With `over`,
    the name of one line, a second plot shows errors as multiples of that line's: the columns that end in `over ...`.
    """
    values = sorted({float(row[symbol]) for row in rows})
    ends = [values[0] / _MARGIN, values[-1] * _MARGIN]
    scale = alt.Scale(type="log", domain=ends, nice=False)
    x = value_axis(symbol, axis, values, scale)
    colours, dashes, shapes = (alt.Scale(domain=lines, range=looks) for looks in zip(*_LOOKS, strict=True))
    colour = alt.Color("line:N", scale=colours, legend=None)
    dash = alt.StrokeDash("line:N", scale=dashes, legend=None)
    shape = alt.Shape("line:N", scale=shapes, legend=None)
    missing = {float(row[symbol]) for row in rows if not row["possible"]}

    def layers(end: str, words: str) -> list[alt.Chart]:
        predicted, measured = (error_axis(field + end, words, logarithmic=True) for field in ("predicted", "point"))
        return [
            *impossible_areas(values, missing, ends, scale),
            alt.Chart(mark=line()).encode(y=predicted, color=colour, strokeDash=dash),
            alt.Chart(mark=point(130)).encode(y=measured, color=colour, shape=shape),
        ]

    kinds = ["", f" over {over}"] if over else [""]
    shown = [{f"predicted{end}": None for end in kinds} | dict(row) for row in rows]  # null breaks a line
    for row in shown:
        row |= {f"point{end}": row.get(f"measured{end}", row[f"predicted{end}"]) for end in kinds}
    drawn = {row["line"] for row in rows}
    entries = [
        KeyEntry(words, "line and point", *look) for words, look in zip(lines, _LOOKS, strict=True) if words in drawn
    ]
    plots = [plot(layers("", ERROR), 400, x=x)]
    if over:
        plots.append(plot(layers(kinds[1], f"Times that of a {over}"), 300, x=x))
    return figure(shown, entries, plots, title, subtitle)
