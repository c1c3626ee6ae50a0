"""Small pieces of Vega-Lite, as plain dictionaries, and their rendering.

Written down directly because building the same charts through a library that copies and checks every part took more
than half of a quick run. The look is that of `shufflesum.plots`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = ["WIDTH", "KeyEntry", "Spec", "error_axis", "figure", "key", "layer", "render"]

Spec: TypeAlias = dict[str, Any]

WIDTH = 680
_CONFIG: Spec = {
    "axis": {
        "labelFontSize": 15,
        "titleFontSize": 17,
        "titleFontWeight": "normal",
        "titlePadding": 10,
        "gridColor": "#E4E4E4",
    },
    "title": {
        "fontSize": 20,
        "subtitleFontSize": 16,
        "subtitleColor": "#444444",
        "anchor": "start",
        "offset": 14,
        "subtitlePadding": 6,
    },
    "view": {"stroke": None},
}


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One line of the key: what a mark means."""

    label: str
    mark: Literal["bar", "line", "point", "band", "line and point"]
    colour: str
    dash: tuple[int, int] = (1, 0)
    shape: str = "circle"


def layer(rows: Sequence[Mapping[str, Any]], mark: Spec, **channels: Spec) -> Spec:
    """Marks drawn from rows of values."""
    return {"data": {"values": list(rows)}, "mark": mark, "encoding": channels}


def error_axis(field: str, title: str, *, logarithmic: bool = False) -> Spec:
    """A vertical axis of errors."""
    axis: Spec = {"field": field, "type": "quantitative", "title": title}
    if logarithmic:
        return axis | {"scale": {"type": "log", "nice": True}, "axis": {"format": "~g", "tickCount": 5}}
    return axis | {"axis": {"tickCount": 6}}


def key(entries: Sequence[KeyEntry]) -> Spec:
    """A key in two columns, drawn with the very marks it explains."""
    lines = -(-len(entries) // 2)
    layers: list[Spec] = []
    y = {"field": "y", "type": "quantitative", "scale": {"domain": [lines - 0.5, -0.5], "nice": False}, "axis": None}

    def across(field: str) -> Spec:
        scale = {"domain": [0, WIDTH], "nice": False}
        return {"field": field, "type": "quantitative", "scale": scale, "axis": None}

    for index, entry in enumerate(entries):
        left = (index // lines) * WIDTH / 2
        place = [
            {"x": left, "x2": left + 34, "middle": left + 17, "at": left + 44, "y": index % lines, "t": entry.label}
        ]
        if entry.mark in ("bar", "band"):
            block = _point("square", 240, entry.colour) | {"opacity": 0.35 if entry.mark == "band" else 1}
            layers.append(layer(place, block, x=across("middle"), y=y))
        if entry.mark in ("line", "band", "line and point"):
            rule = {"type": "rule", "color": entry.colour, "strokeDash": list(entry.dash), "strokeWidth": 3}
            layers.append(layer(place, rule, x=across("x"), x2={"field": "x2"}, y=y))
        if entry.mark in ("point", "line and point"):
            layers.append(layer(place, _point(entry.shape, 150, entry.colour), x=across("middle"), y=y))
        text = {"type": "text", "align": "left", "fontSize": 16}
        layers.append(layer(place, text, x=across("at"), y=y, text={"field": "t"}))
    return {"layer": layers, "width": WIDTH, "height": 25 * lines}


def _point(shape: str, size: int, colour: str) -> Spec:
    return {"type": "point", "shape": shape, "size": size, "filled": True, "opacity": 1, "color": colour}


def figure(parts: Sequence[Spec], title: str, subtitle: Sequence[str]) -> Spec:
    """Parts one above another under a common title."""
    return {
        "background": "white",
        "padding": 14,
        "title": {"text": title, "subtitle": list(subtitle)},
        "vconcat": list(parts),
        "spacing": 14,
        "resolve": {"scale": {"x": "independent", "y": "independent", "color": "independent"}},
        "config": _CONFIG,
    }


def render(spec: Spec) -> tuple[str, bytes]:
    """SVG, and PNG at twice the pixels."""
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(spec)
    png: bytes = vl_convert.svg_to_png(svg, scale=2)
    return svg, png
