"""One look for every picture: colours, large type, axes, marks, keys; and pictures as files.

The colours are those of Okabe and Ito, which stay apart for every kind of colour vision; shapes and dashes tell marks
apart in print. Rows go into a chart as plain dictionaries, and once for all the layers that draw them: whatever Altair
is given it copies and checks, again and again. Altair is loaded when the first chart is made: a command that draws
nothing neither waits for it nor needs it.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import struct
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._format import visible
from shufflesum.errors import FileError, MissingExtraError, ParameterError


def require_plots() -> None:
    """Raise MissingExtraError unless pictures can be drawn; call it before long work."""
    if any(importlib.util.find_spec(library) is None for library in ("altair", "vl_convert")):
        raise MissingExtraError("missing-extra", "drawing needs altair and vl-convert: pip install 'shufflesum[plots]'")


class _OnFirstUse(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if self.__name__ not in sys.modules:
            require_plots()
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    import altair

    alt = altair
else:
    alt = _OnFirstUse("altair")


Rows: TypeAlias = Sequence[Mapping[str, Any]]

BLACK, SKY, BLUE, ORANGE, RED, GREEN, PURPLE, GREY = (
    "#1A1A1A", "#56B4E9", "#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#767676"
)  # fmt: skip
WIDTH, HEIGHT = 760, 380  # of a single plot
ERROR = "Squared error of the mean"
_TITLE_LETTER, _SUBTITLE_LETTER = 10.0, 7.6  # pixels of a letter, on average
TEXT_SIZE = 15  # of words and numbers inside a plot, and at its axes


def config() -> alt.Config:
    """Large type: a picture must still read at half its size."""
    return alt.Config(
        axis=alt.AxisConfig(
            labelFontSize=TEXT_SIZE, titleFontSize=17, titleFontWeight="normal", titlePadding=10, gridColor="#E4E4E4"
        ),
        legend=alt.LegendConfig(labelFontSize=16),
        title=alt.TitleConfig(
            fontSize=20, subtitleFontSize=16, subtitleColor="#444444", anchor="start", offset=14, subtitlePadding=6
        ),
        view=alt.ViewConfig(stroke=None),
    )


def heading(title: str, subtitle: str | Sequence[str], width: float = WIDTH) -> alt.TitleParams:
    """A title, with a line or lines below it if there are any; none is much longer than the picture is wide."""
    lines = [subtitle] if isinstance(subtitle, str) else subtitle
    below = [part for line in lines for part in folded(line, width / _SUBTITLE_LETTER)]
    text = folded(title, width / _TITLE_LETTER)
    words: Any = text if len(text) > 1 else title
    return alt.TitleParams(words, subtitle=below) if below else alt.TitleParams(words)


def folded(text: str, letters: float) -> list[str]:
    """Lines of no more than about so many letters."""
    return textwrap.wrap(text, max(24, int(letters)), break_on_hyphens=False)


def as_data(rows: Rows) -> dict[str, Any]:
    """Rows as the data of a chart; as values, not as a data frame, so that no limit on their number applies."""
    return {"values": tuple(rows)}  # a list would be copied, deeply, whenever Altair copies a chart


def finite(value: float) -> float | None:
    """A number, or None for what JSON has none for: Vega draws a gap."""
    return float(value) if math.isfinite(value) else None


def truth_like(truth: ArrayLike, shape: tuple[int, ...], what: str) -> NDArray[np.float64]:
    """The truth beside what is drawn; refused in another shape."""
    found = np.asarray(truth, dtype=np.float64)
    if found.shape != shape:
        raise ParameterError("wrong-shape", f"truth has shape {found.shape}, {what} {shape}; they must be equal")
    return found


def scale_of(*values: NDArray[np.float64]) -> list[float]:
    """From the least to the largest number that is finite; 0 to 1 where there is none."""
    known = np.concatenate([each[np.isfinite(each)] for each in values])
    return [float(known.min()), float(known.max())] if known.size else [0.0, 1.0]


def value_axis(symbol: str, title: str, values: Sequence[float], scale: alt.Scale) -> alt.X:
    """A horizontal axis with a tick at each of the values that were tried, and only there."""
    axis = alt.Axis(values=list(values), format=",~r", grid=False, labelOverlap=False)
    return alt.X(f"{symbol}:Q", title=title, scale=scale, axis=axis)


def error_axis(field: str, title: str, *, logarithmic: bool = False) -> alt.Y:
    """A vertical axis of errors."""
    if not logarithmic:
        return alt.Y(f"{field}:Q", title=title, axis=alt.Axis(tickCount=6))
    scale = alt.Scale(type="log", nice=True)
    return alt.Y(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(format="~g", tickCount=5))


def line(**look: Any) -> alt.MarkDef:
    """A line of the usual width."""
    return alt.MarkDef("line", strokeWidth=2.5, **look)


def point(size: int, opacity: float = 1, **look: Any) -> alt.MarkDef:
    """A filled point."""
    return alt.MarkDef("point", size=size, filled=True, opacity=opacity, **look)


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


DRAWABLE = (".png", ".svg", ".html")
_SCALE = 2  # pixels of a PNG for each of the picture's
_STAND_IN = "\ufdd0"


class Picture:
    """A chart as a notebook shows it: a PNG inside the output, without scripts, so that it needs no network.

    `chart` is the chart of Altair, for whoever wants to change it.
    """

    def __init__(self, chart: alt.TopLevelMixin) -> None:
        self.chart = chart

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it by its suffix: .png, .svg, or .html that opens without a network."""
        save_chart(self.chart, path)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        png = svg_to_png(rendered_svg(self.chart))
        width, height = struct.unpack(">II", png[16:24])
        return png, {"width": width // _SCALE, "height": height // _SCALE}


def rendered(chart: alt.TopLevelMixin) -> tuple[str, bytes]:
    """SVG, and PNG at twice the pixels."""
    svg = rendered_svg(chart)
    return svg, svg_to_png(svg)


def save_chart(chart: alt.TopLevelMixin, path: str | os.PathLike[str]) -> None:
    """Write a picture by its suffix: .png (twice the pixels), .svg, or .html that opens without a network."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in DRAWABLE:
        raise FileError(
            "unknown-file-type", f"{path}: pictures cannot end in {path.suffix!r}; allowed are {', '.join(DRAWABLE)}"
        )
    try:
        if kind == ".html":
            path.write_text(_html(chart), encoding="utf-8")
        else:
            svg = rendered_svg(chart)
            path.write_bytes(svg_to_png(svg) if kind == ".png" else svg.encode())
    except OSError as error:
        raise FileError(
            "unwritable", f"{path}: cannot be written: {error.strerror or error}; check the disk"
        ) from error


def rendered_svg(chart: alt.TopLevelMixin) -> str:
    """SVG alone."""
    require_plots()
    import vl_convert

    # Not checked against the schema here, which would take longer than drawing; the tests check every chart.
    svg: str = vl_convert.vegalite_to_svg(_visible(chart.to_dict(validate=False)))
    return svg


def svg_to_png(svg: str) -> bytes:
    """PNG of an SVG, at twice the pixels."""
    import vl_convert

    png: bytes = vl_convert.svg_to_png(svg, scale=_SCALE)
    return png


def _html(chart: alt.TopLevelMixin) -> str:
    require_plots()
    import vl_convert

    # What is named like the end of a script must not end ours. In strings of a script \u003c is the same letter; the
    # drawing library would escape its backslash, so that something that is no character stands in for it until then.
    chart_without = _visible(chart.to_dict(validate=False), ((_STAND_IN, "?"), ("<", _STAND_IN)))
    page: str = vl_convert.vegalite_to_html(chart_without, bundle=True)
    return page.replace(_STAND_IN, "\\u003c")


def _visible(part: Any, instead: Sequence[tuple[str, str]] = ()) -> Any:
    """A chart whose texts have nothing invisible in them: some of it would end the process that draws it."""
    match part:
        case str():
            text = visible(part)
            for letter, other in instead:
                text = text.replace(letter, other)
            return text
        case Mapping():
            return {name: _visible(value, instead) for name, value in part.items()}
        case list() | tuple():
            return [_visible(value, instead) for value in part]
    return part
