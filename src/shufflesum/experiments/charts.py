"""The pictures of the reproduction: colours of Okabe and Ito, told apart by shape and dash as well, large type."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shufflesum.experiments.panels import Fit, Panel
from shufflesum.experiments.results import Row
from shufflesum.experiments.vega import WIDTH, KeyEntry, Spec, error_axis, figure, key, layer

__all__ = ["beats_chart", "panel_chart", "parts_chart", "sweep_chart"]

_HEIGHT = 340
_BLACK, _SKY, _BLUE, _ORANGE, _RED, _GREEN, _PURPLE, _GREY = (
    "#1A1A1A", "#56B4E9", "#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#767676"
)  # fmt: skip
_IMPOSSIBLE = "#DDDDDD"
_CLASS_COLOURS = ((_BLUE, "#06283D"), (_RED, "#5C2600"))  # of the estimate and of the truth
_LINE_LOOKS = (
    (_RED, (2, 3), "triangle-up"),
    (_PURPLE, (6, 3), "diamond"),
    (_SKY, (1, 0), "square"),
    (_BLUE, (1, 0), "circle"),
    (_BLACK, (10, 4), "cross"),
    (_GREEN, (2, 2), "triangle-down"),
)
_ERROR = "Squared error of the mean"
_NUMBERS = ",~r"
_MARGIN = 1.12  # of a logarithmic axis, on either side


def panel_chart(
    panel: Panel, rows: Sequence[Row], fit: Fit | None, repeats: int, title: str, subtitle: Sequence[str]
) -> Spec:
    """One panel of the paper: measured with error bars, predicted, the published bound, curves, impossible values."""
    possible = [row for row in rows if row["possible"]]
    spacing = float(np.min(np.diff(panel.values))) if len(panel.values) > 1 else 1.0
    ends = [panel.values[0] - 0.7 * spacing, panel.values[-1] + 0.7 * spacing]
    scale = {"domain": ends, "nice": False, "zero": False}
    x = _axis(panel.symbol, panel.axis, scale, panel.values)
    y = error_axis("error", _ERROR, logarithmic=panel.logarithmic)
    measured = _renamed(possible, "measured")
    label = f"measured, mean of {repeats} run{'s' if repeats > 1 else ''} ± 2 s.e."
    layers = _impossible_layers([float(row[panel.symbol] or 0) for row in rows if not row["possible"]], spacing, scale)
    if panel.logarithmic:  # a bar has no foot on a logarithmic axis
        entries = [KeyEntry(label, "point", _SKY)]
        layers.append(layer(measured, _point("circle", 260, _SKY), x=x, y=y))
    else:
        entries = [KeyEntry(label, "bar", _SKY)]
        width = 0.62 * WIDTH * spacing / (ends[1] - ends[0])
        layers.append(layer(measured, {"type": "bar", "size": width, "color": _SKY}, x=x, y=y))
    curves = _curves(possible, panel, fit)
    layers += [layer(values, _line(entry.colour, entry.dash), x=x, y=y) for entry, values in curves]
    layers += _whiskers(possible, x, logarithmic=panel.logarithmic)
    diamonds = _point("diamond", 130, _PURPLE) | {"stroke": "white"}
    layers.append(layer(_renamed(possible, "measured, paper's metric"), diamonds, x=x, y=y))
    entries += [entry for entry, _ in reversed(curves)]
    entries.append(KeyEntry("measured, the paper's metric", "point", _PURPLE, shape="diamond"))
    return figure([key(entries), _plot(layers, _HEIGHT)], title, subtitle)


def _curves(rows: Sequence[Row], panel: Panel, fit: Fit | None) -> list[tuple[KeyEntry, list[Row]]]:
    drawn: list[tuple[KeyEntry, list[Row]]] = []
    if fit is not None and rows:
        values = [float(row[panel.symbol] or 0) for row in rows]
        grid = np.linspace(values[0], values[-1], 60).tolist()
        centre = math.exp(np.mean(np.log(values)))
        for (exponent, name), colour in zip(panel.exponents, (_GREEN, _GREY), strict=False):
            # Through the fitted curve's centre, so that only the slopes differ.
            entry = KeyEntry(f"the paper's power {name}, same centre", "line", colour, (10, 4))
            height = fit.at(centre)
            drawn.append((entry, [{panel.symbol: v, "error": height * (v / centre) ** exponent} for v in grid]))
        entry = KeyEntry(f"fitted: {panel.symbol} to the power {fit.exponent:.2f}", "line", _BLUE, (2, 3))
        drawn.append((entry, [{panel.symbol: value, "error": fit.at(value)} for value in grid]))
    bound = KeyEntry("published bound (the paper's metric)", "line", _RED, (6, 4))
    drawn.append((bound, _renamed(rows, "published bound")))
    drawn.append((KeyEntry("predicted from the data", "line", _BLACK), _renamed(rows, "predicted")))
    return drawn


def _whiskers(rows: Sequence[Row], x: Spec, *, logarithmic: bool) -> list[Spec]:
    ends = []
    for row in rows:
        middle, half = float(row["measured"] or 0.0), 2 * float(row["standard error"] or 0.0)
        lowest = middle / 10 if logarithmic else 0.0  # an interval that reaches 0 has no place on the axis
        ends.append(row | {"low": max(middle - half, lowest), "high": middle + half})
    low, high = (error_axis(end, _ERROR, logarithmic=logarithmic) for end in ("low", "high"))
    tick = {"type": "tick", "orient": "horizontal", "size": 14, "thickness": 2, "color": _BLACK, "opacity": 1}
    rule = {"type": "rule", "strokeWidth": 2, "color": _BLACK}
    return [layer(ends, rule, x=x, y=low, y2={"field": "high"}), *(layer(ends, tick, x=x, y=y) for y in (low, high))]


def sweep_chart(
    symbol: str, axis: str, rows: Sequence[Row], lines: Sequence[str], title: str, subtitle: Sequence[str]
) -> Spec:
    """Error against n or epsilon for every line: predicted as a line, measured as points on it."""
    values = sorted({float(row[symbol] or 0) for row in rows})
    scale = {"type": "log", "domain": [values[0] / _MARGIN, values[-1] * _MARGIN], "nice": False}
    x = _axis(symbol, axis, scale, values)
    y = error_axis("error", _ERROR, logarithmic=True)
    layers = _missing_layers(values, {float(row[symbol] or 0) for row in rows if not row["possible"]}, scale)
    entries = []
    for line, (colour, dash, shape) in zip(lines, _LINE_LOOKS, strict=True):
        mine = [row for row in rows if row["line"] == line]
        predicted = [row | {"error": row.get("predicted")} for row in mine]  # null breaks the line
        measured = [row | {"error": row.get("measured", row.get("predicted"))} for row in mine if row["possible"]]
        layers.append(layer(predicted, _line(colour, dash), x=x, y=y))
        layers.append(layer(measured, _point(shape, 130, colour), x=x, y=y))
        entries.append(KeyEntry(line, "line and point", colour, dash, shape))
    return figure([key(entries), _plot(layers, _HEIGHT + 60)], title, subtitle)


def parts_chart(rows: Sequence[Row], title: str, subtitle: Sequence[str]) -> Spec:
    """Error against the number of reports: its three parts stacked, and below it both metrics."""
    parts = {"sampling": _SKY, "rounding": _ORANGE, "noise": _BLUE}
    stacked: list[Row] = [
        {"t": row["t"], "part": part, "error": row[part], "order": order}
        for row in rows
        for order, part in enumerate(parts)
    ]
    x: Spec = {"field": "t", "type": "ordinal", "title": None, "axis": {"labelAngle": 0}}
    y = error_axis("error", _ERROR)
    colour = {
        "field": "part", "type": "nominal", "legend": None,
        "scale": {"domain": list(parts), "range": list(parts.values())},
    }  # fmt: skip
    labels = [row | {"label": f"{row['predicted']:.2g}"} for row in _renamed(rows, "predicted")]
    text = {"type": "text", "dy": -11, "fontSize": 15}
    above = [
        layer(stacked, {"type": "bar", "size": 54}, x=x, y=y, color=colour, order={"field": "order"}),
        layer(labels, text, x=x, y=y, text={"field": "label"}),
    ]
    below: list[Spec] = []
    entries = [KeyEntry(f"{part} part", "bar", shade) for part, shade in parts.items()]
    for column, shade, dash, shape, name in (
        ("", _BLACK, (1, 0), "circle", "against the true mean"),
        (", paper's metric", _PURPLE, (6, 4), "diamond", "the paper's metric"),
    ):
        x = x | {"title": "Reports t of each user"}
        y = error_axis("error", "Both metrics", logarithmic=True)
        below.append(layer(_renamed(rows, f"predicted{column}"), _line(shade, dash), x=x, y=y))
        below.append(layer(_renamed(rows, f"measured{column}"), _point(shape, 150, shade), x=x, y=y))
        entries.append(KeyEntry(name, "line and point", shade, dash, shape))
    return figure([key(entries), _plot(above, 250), _plot(below, 230)], title, subtitle)


def beats_chart(
    groups: Mapping[str, Sequence[Row]], classes: Sequence[str], title: str, subtitle: Sequence[str]
) -> Spec:
    """Mean beats with their bands, one plot above another: `groups` maps a plot's heading to its rows."""
    ends = [float(row[end] or 0.0) for rows in groups.values() for row in rows for end in ("lower", "upper")]
    scale = {"domain": [min(ends, default=0.0), max(ends, default=1.0)], "nice": True, "zero": False}
    x = {
        "field": "sample", "type": "quantitative", "title": "Sample of the beat",
        "scale": {"nice": False}, "axis": {"grid": False, "tickCount": 10},
    }  # fmt: skip

    def value(field: str) -> Spec:
        return {
            "field": field, "type": "quantitative", "title": "Mean", "scale": scale, "axis": {"tickCount": 5}
        }  # fmt: skip

    looks = list(zip(_CLASS_COLOURS, classes or [""], strict=False))
    plots = []
    for heading, rows in groups.items():
        layers = []
        for (shade, dark), name in looks:
            mine = [row for row in rows if row.get("class", "") == name]
            band = {"type": "area", "opacity": 0.3, "color": shade}
            layers.append(layer(mine, band, x=x, y=value("lower"), y2={"field": "upper"}))
            layers.append(layer(mine, _line(shade, (1, 0)), x=x, y=value("estimate")))
            layers.append(layer(mine, _line(dark, (5, 4)), x=x, y=value("truth")))
        named = {"text": heading, "fontSize": 17, "fontWeight": "normal", "offset": 6}
        plots.append(_plot(layers, 230) | {"title": named})
    entries = []
    for (shade, dark), name in looks:
        entries.append(KeyEntry(f"private{', ' + name if name else ' estimate'}, with band", "band", shade))
        entries.append(KeyEntry(f"true mean{', ' + name if name else ''}", "line", dark, (5, 4)))
    return figure([key(entries), *plots], title, subtitle)


def _impossible_layers(values: Sequence[float], spacing: float, scale: Spec) -> list[Spec]:
    """Grey columns in place of bars that cannot be, each saying why."""
    if not values:
        return []
    rows: list[Row] = [
        {"from": v - spacing / 2, "to": v + spacing / 2, "middle": v, "text": "published γ ≥ 1: impossible"}
        for v in values
    ]
    text = {"type": "text", "angle": 270, "align": "left", "fontSize": 15, "color": "#444444"}
    return [
        layer(rows, {"type": "rect", "color": _IMPOSSIBLE, "stroke": "white"}, **_span(scale)),
        layer(rows, text, x=_span(scale)["x"] | {"field": "middle"}, y={"value": _HEIGHT - 8}, text={"field": "text"}),
    ]


def _missing_layers(values: Sequence[float], missing: set[float], scale: Spec) -> list[Spec]:
    """Where a line has no value, grey up to halfway to the neighbours; the first such area says why."""
    inner = (math.sqrt(a * b) for a, b in itertools.pairwise(values))
    edges = [values[0] / _MARGIN, *inner, values[-1] * _MARGIN]
    rows: list[Row] = [{"from": edges[i], "to": edges[i + 1]} for i, v in enumerate(values) if v in missing]
    if not rows:
        return []
    text = {"type": "text", "align": "left", "dx": 8, "fontSize": 15, "color": "#444444"}
    why = [rows[0] | {"text": "grey: the published γ is 1 or more"}]
    return [
        layer(rows, {"type": "rect", "color": _IMPOSSIBLE, "opacity": 0.55}, **_span(scale)),
        layer(why, text, x=_span(scale)["x"], y={"value": 14}, text={"field": "text"}),
    ]


def _span(scale: Spec) -> dict[str, Spec]:
    return {"x": {"field": "from", "type": "quantitative", "scale": scale}, "x2": {"field": "to"}}


def _axis(symbol: str, title: str, scale: Spec, values: Sequence[float]) -> Spec:
    axis = {"values": list(values), "format": _NUMBERS, "grid": False, "labelOverlap": False}
    return {"field": symbol, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _plot(layers: Sequence[Spec], height: int) -> Spec:
    return {"layer": list(layers), "width": WIDTH, "height": height}


def _line(colour: str, dash: Sequence[int]) -> Spec:
    return {"type": "line", "color": colour, "strokeDash": list(dash), "strokeWidth": 2.5}


def _point(shape: str, size: int, colour: str) -> Spec:
    return {"type": "point", "shape": shape, "size": size, "filled": True, "opacity": 1, "color": colour}


def _renamed(rows: Sequence[Row], column: str) -> list[Any]:
    return [row | {"error": row[column]} for row in rows]
