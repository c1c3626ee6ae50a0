"""The charts of the figures: a panel of the paper, comparisons, parts of the error, beats, accuracy by round."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from shufflesum.plots.costs import PART_COLOURS, stacked_parts
from shufflesum.plots.look import (
    BLACK,
    BLUE,
    ERROR,
    FIGURE_WIDTH,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    TEXT_SIZE,
    KeyEntry,
    Rows,
    alt,
    as_data,
    error_axis,
    figure,
    line,
    plot,
    point,
    value_axis,
)

_PANEL_HEIGHT = 340
_CURVE_LOOKS = ((BLUE, (2, 3)), (GREEN, (10, 4)), (GREY, (10, 4)))


def _drawable(rows: Rows) -> Rows:
    """The rows under names that a chart can use: there a straight apostrophe would begin a quotation."""
    return [{name.replace("'", "’"): value for name, value in row.items()} for row in rows]


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
        *_impossible_columns(
            [float(row[symbol]) for row in rows if not row["possible"]], spacing, scale, _PANEL_HEIGHT
        ),
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
    return figure(_drawable(shown), entries, [plot(layers, _PANEL_HEIGHT, x=x)], title, subtitle)


def _with_ends(row: Mapping[str, Any], *, logarithmic: bool) -> dict[str, Any]:
    """The row with the ends of its error bar."""
    middle, half = row["measured"], 2 * (row["standard error"] or 0.0)
    lowest = middle / 10 if logarithmic else 0.0  # an interval that reaches 0 has no place on the axis
    return {**row, "low": max(middle - half, lowest), "high": middle + half}


_SWEEP_LOOKS = (
    (RED, (2, 3), "triangle-up"),
    (PURPLE, (6, 3), "diamond"),
    (SKY, (), "square"),
    (BLUE, (), "circle"),
    (ORANGE, (), "square"),
    (BLACK, (10, 4), "cross"),
    (GREEN, (2, 2), "triangle-down"),
)
_SWEEP_MARGIN = 1.12  # of the logarithmic axis, on either side


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
    ends = [values[0] / _SWEEP_MARGIN, values[-1] * _SWEEP_MARGIN]
    scale = alt.Scale(type="log", domain=ends, nice=False)
    x = value_axis(symbol, axis, values, scale)
    colours, dashes, shapes = (alt.Scale(domain=lines, range=looks) for looks in zip(*_SWEEP_LOOKS, strict=True))
    colour = alt.Color("line:N", scale=colours, legend=None)
    dash = alt.StrokeDash("line:N", scale=dashes, legend=None)
    shape = alt.Shape("line:N", scale=shapes, legend=None)
    missing = {float(row[symbol]) for row in rows if not row["possible"]}

    def layers(end: str, words: str) -> list[alt.Chart]:
        predicted, measured = (error_axis(field + end, words, logarithmic=True) for field in ("predicted", "point"))
        return [
            *_impossible_areas(values, missing, ends, scale),
            alt.Chart(mark=line()).encode(y=predicted, color=colour, strokeDash=dash),
            alt.Chart(mark=point(130)).encode(y=measured, color=colour, shape=shape),
        ]

    kinds = ["", f" over {over}"] if over else [""]
    shown = [{f"predicted{end}": None for end in kinds} | dict(row) for row in rows]  # null breaks a line
    for row in shown:
        row |= {f"point{end}": row.get(f"measured{end}", row[f"predicted{end}"]) for end in kinds}
    drawn = {row["line"] for row in rows}
    entries = [
        KeyEntry(words, "line and point", *look)
        for words, look in zip(lines, _SWEEP_LOOKS, strict=True)
        if words in drawn
    ]
    plots = [plot(layers("", ERROR), 400, x=x)]
    if over:
        plots.append(plot(layers(kinds[1], f"Times that of a {over}"), 300, x=x))
    return figure(shown, entries, plots, title, subtitle)


def parts_chart(rows: Rows, *, title: str, subtitle: Sequence[str]) -> alt.VConcatChart:
    """The parts stacked, and below them both metrics, predicted and measured."""
    parts = {row["t"]: {part: row[part] for part in PART_COLOURS} for row in rows}
    above = stacked_parts(parts, error_axis("error", ERROR), 54, None)
    below = []
    entries = [KeyEntry(f"{part} part", "bar", colour) for part, colour in PART_COLOURS.items()]
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
    return figure(_drawable(rows), entries, plots, title, subtitle)


_BEAT_COLOURS = ((BLUE, "#06283D"), (RED, "#5C2600"))  # of the estimate and of the truth
_TRUTH_DASH = (5, 4)


def beats_chart(
    groups: Mapping[str, Rows], classes: Sequence[str], *, title: str, subtitle: Sequence[str]
) -> alt.VConcatChart:
    """One plot above another: `groups` maps a plot's heading to its rows, those of a `class` each if there are any."""
    rows = [{"class": "", **row, "plot": heading} for heading, group in groups.items() for row in group]
    ends = [row[end] for row in rows for end in ("lower", "upper")]
    scale = alt.Scale(domain=[min(ends, default=0.0), max(ends, default=1.0)], nice=True, zero=False)
    x = alt.X(
        "sample:Q",
        title="Sample of the beat",
        scale=alt.Scale(nice=False),
        axis=alt.Axis(grid=False, tickCount=10),
    )

    def drawn(mark: alt.MarkDef, field: str, heading: str, name: str) -> alt.Chart:
        y = alt.Y(f"{field}:Q", title="Mean", scale=scale, axis=alt.Axis(tickCount=5))
        mine = (alt.datum["plot"] == heading) & (alt.datum["class"] == name)
        return alt.Chart(mark=mark).encode(y=y).transform_filter(mine)

    looks = list(zip(_BEAT_COLOURS, classes or [""], strict=False))
    plots, entries = [], []
    for heading in groups:
        bands, lines = [], []
        for (colour, dark), name in looks:
            band = alt.MarkDef("area", opacity=0.3, color=colour)
            bands.append(drawn(band, "lower", heading, name).encode(y2=alt.Y2("upper:Q")))
            lines.append(drawn(line(color=colour), "estimate", heading, name))
            lines.append(drawn(line(color=dark, strokeDash=_TRUTH_DASH), "truth", heading, name))
        plots.append(plot([*bands, *lines], 230, heading, x=x))
    for (colour, dark), name in looks:
        entries.append(KeyEntry(f"private{', ' + name if name else ' estimate'}, with band", "band", colour))
        entries.append(KeyEntry(f"true mean{', ' + name if name else ''}", "line", dark, _TRUTH_DASH))
    return figure(rows, entries, plots, title, subtitle)


_TRAINING_LOOKS = ((GREEN, (2, 2)), (BLACK, (10, 4)), (BLUE, ()), (PURPLE, (6, 3)), (ORANGE, (2, 3)))


def curves_chart(
    groups: Mapping[str, Rows], lines: Sequence[str], *, title: str, subtitle: Sequence[str]
) -> alt.VConcatChart:
    """`groups` maps a plot's heading to rows of `line`, `round`, `accuracy`, `lowest` and `highest`.

    The band runs from the lowest to the highest seed; a line looks by its place in `lines`.
    """
    rows = [{**row, "plot": heading} for heading, group in groups.items() for row in group]
    scale = alt.Scale(domain=[0, 1], nice=False)
    x = alt.X("round:Q", title="Round", scale=alt.Scale(nice=False), axis=alt.Axis(grid=False, tickMinStep=1))

    def drawn(mark: alt.MarkDef, field: str, heading: str, name: str) -> alt.Chart:
        y = alt.Y(f"{field}:Q", title="Test accuracy", scale=scale, axis=alt.Axis(tickCount=5))
        mine = (alt.datum["plot"] == heading) & (alt.datum["line"] == name)
        return alt.Chart(mark=mark).encode(y=y).transform_filter(mine)

    looks = [(name, *look) for name, look in zip(lines, _TRAINING_LOOKS, strict=False)]
    plots = []
    for heading in groups:
        bands, means = [], []
        for name, colour, dash in looks:
            band = alt.MarkDef("area", opacity=0.2, color=colour)
            bands.append(drawn(band, "lowest", heading, name).encode(y2=alt.Y2("highest:Q")))
            means.append(drawn(line(color=colour, strokeDash=dash), "accuracy", heading, name))
        plots.append(plot([*bands, *means], 230, heading, x=x))
    entries = [KeyEntry(name, "band", colour, dash) for name, colour, dash in looks]
    return figure(rows, entries, plots, title, subtitle)


def _impossible_columns(values: Sequence[float], spacing: float, scale: alt.Scale, height: int) -> list[alt.Chart]:
    """Columns in place of bars that cannot be, each saying why."""
    rows = [{"from": v - spacing / 2, "to": v + spacing / 2, "middle": v} for v in values]
    if not rows:
        return []
    x, y = alt.X("middle:Q", scale=scale), alt.value(height - 8)
    return [_grey(rows, scale, stroke="white"), _reason(rows, "published γ ≥ 1: impossible", x, y, angle=270)]


def _impossible_areas(
    values: Sequence[float], where: Collection[float], ends: Sequence[float], scale: alt.Scale
) -> list[alt.Chart]:
    """Areas around the values `where`, up to halfway to their neighbours; words above the first say why."""
    edges = [ends[0], *(math.sqrt(a * b) for a, b in itertools.pairwise(values)), ends[1]]
    rows = [{"from": edges[i], "to": edges[i + 1]} for i, v in enumerate(values) if v in where]
    if not rows:
        return []
    x, y = alt.X("from:Q", scale=scale), alt.value(-10)
    return [_grey(rows, scale, opacity=0.55), _reason(rows[:1], "grey: the published γ is 1 or more", x, y)]


def _grey(rows: Rows, scale: alt.Scale, **look: Any) -> alt.Chart:
    mark = alt.MarkDef("rect", color="#DDDDDD", **look)
    return alt.Chart(as_data(rows), mark=mark).encode(x=alt.X("from:Q", scale=scale), x2=alt.X2("to:Q"))


def _reason(rows: Rows, words: str, x: alt.X, y: Any, **look: Any) -> alt.Chart:
    mark = alt.MarkDef("text", text=words, align="left", fontSize=TEXT_SIZE, color="#444444", **look)
    return alt.Chart(as_data(rows), mark=mark).encode(x=x, y=y)
