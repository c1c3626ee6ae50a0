"""Several lines over one quantity, both on logarithmic axes: an error against epsilon, or against users."""

from __future__ import annotations

from collections.abc import Sequence

from shufflesum.plots._altair import alt
from shufflesum.plots.key import KeyEntry, figure, plot
from shufflesum.plots.look import BLACK, BLUE, GREEN, ORANGE, RED, Rows, error_axis, point, value_axis

__all__ = ["lines_chart"]

# colour, dash, point and width: what is drawn first is wide, so that it shows below what lies on it
_LOOKS = (
    (BLUE, (), "circle", 5),
    (ORANGE, (), "square", 2.5),
    (RED, (2, 3), "triangle-up", 2.5),
    (BLACK, (6, 6), "cross", 2),
)
_MARGIN = 1.12  # of the horizontal axis, on either side
_HERE_SIZE = 420


def lines_chart(
    rows: Rows,
    *,
    lines: Sequence[str],
    x: str,
    y: str,
    title: str,
    subtitle: str,
    here: tuple[str, float, float] | None = None,
) -> alt.VConcatChart:
    """Rows of `line`, `x` and `y`; a line looks by its place in `lines` (up to four), and breaks where `y` is None.

    `here` is a point of its own, with a name, where the reader stands.
    """
    drawn = sorted(({**row} for row in rows), key=lambda row: float(row["x"]))
    values = sorted({float(row["x"]) for row in drawn})
    if here is not None:
        drawn.append(dict(zip(("line", "x", "y"), here, strict=True)))
    all_values = [float(row["x"]) for row in drawn]
    ends = [min(all_values) / _MARGIN, max(all_values) * _MARGIN]
    across = value_axis("x", x, values, alt.Scale(type="log", domain=ends, nice=False))
    up = error_axis("y", y, logarithmic=True)
    looks = [(name, *look) for name, look in zip(lines, _LOOKS, strict=False)]
    layers = []
    for name, colour, dash, shape, width in looks:
        mine = alt.datum["line"] == name
        stroke = alt.MarkDef("line", strokeWidth=width, color=colour, strokeDash=dash)
        layers.append(alt.Chart(mark=stroke).encode(y=up).transform_filter(mine))
        layers.append(alt.Chart(mark=point(110, color=colour, shape=shape)).encode(y=up).transform_filter(mine))
    if here is not None:
        mark = point(_HERE_SIZE, color=GREEN, shape="diamond", stroke="white", strokeWidth=1.5)
        layers.append(alt.Chart(mark=mark).encode(y=up).transform_filter(alt.datum["line"] == here[0]))
    there = {row["line"] for row in drawn if row["y"] is not None}
    entries = [
        KeyEntry(name, "line and point", colour, dash, shape) for name, colour, dash, shape, _ in looks if name in there
    ]
    if here is not None:
        entries.append(KeyEntry(here[0], "point", GREEN, shape="diamond"))
    return figure(drawn, entries, [plot(layers, 340, x=across)], title, [subtitle])
