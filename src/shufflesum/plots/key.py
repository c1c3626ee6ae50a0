"""A figure of several plots under one title, with a key drawn with the very marks that it explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from shufflesum.plots._altair import alt
from shufflesum.plots.look import Rows, as_data, config, heading, point

__all__ = ["FIGURE_WIDTH", "KeyEntry", "figure", "plot"]

FIGURE_WIDTH = 680
_LINE_HEIGHT = 25


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One line of the key: what a mark means."""

    label: str
    mark: Literal["bar", "line", "point", "band", "line and point"]
    colour: str
    dash: tuple[int, ...] = ()
    shape: str = "circle"


def figure(
    rows: Rows, entries: Sequence[KeyEntry], plots: Sequence[alt.LayerChart], title: str, subtitle: Sequence[str]
) -> alt.VConcatChart:
    """The key and the plots one above another; a layer without data of its own draws the rows."""
    return alt.VConcatChart(
        data=as_data(rows),
        vconcat=[_key(entries), *plots],
        title=heading(title, subtitle),
        padding=14,
        spacing=14,
        resolve=alt.Resolve(scale=alt.ScaleResolveMap(x="independent", y="independent", color="independent")),
        config=config(),
    )


def plot(layers: Sequence[alt.Chart], height: int, title: str = "", **axes: alt.X | alt.Y) -> alt.LayerChart:
    """One plot of a figure; the axes are for all layers that have none of their own."""
    words = alt.TitleParams(title, fontSize=17, fontWeight="normal", offset=6) if title else alt.Undefined
    return alt.LayerChart(layer=layers, encoding=axes, width=FIGURE_WIDTH, height=height, title=words)


def _key(entries: Sequence[KeyEntry]) -> alt.LayerChart:
    """In two columns."""
    lines = -(-len(entries) // 2)
    rows = [
        asdict(entry) | {"left": (index // lines) * FIGURE_WIDTH / 2, "row": index % lines}
        for index, entry in enumerate(entries)
    ]
    x = alt.X("left:Q", scale=alt.Scale(domain=[0, FIGURE_WIDTH], nice=False), axis=None)
    y = alt.Y("row:Q", scale=alt.Scale(domain=[lines - 0.5, -0.5], nice=False), axis=None)
    words = alt.MarkDef("text", align="left", dx=44, fontSize=16)
    rule = alt.MarkDef("rule", strokeWidth=3, x2Offset=34)
    ends = {"x2": alt.X2("left:Q"), "strokeDash": alt.StrokeDash("dash:N", scale=None)}
    shape = {"shape": alt.Shape("shape:N", scale=None)}
    layers = [alt.Chart(as_data(rows), mark=words).encode(text=alt.Text("label:N"))]
    for mark, channels, kinds in (
        (point(240, shape="square", xOffset=17), {}, ("bar",)),
        (point(240, shape="square", xOffset=17, opacity=0.35), {}, ("band",)),
        (rule, ends, ("line", "band", "line and point")),
        (point(150, xOffset=17), shape, ("point", "line and point")),
    ):
        if explained := [row for row in rows if row["mark"] in kinds]:
            chart = alt.Chart(as_data(explained), mark=mark)
            layers.append(chart.encode(color=alt.Color("colour:N", scale=None), **channels))
    return plot(layers, _LINE_HEIGHT * lines, x=x, y=y)
