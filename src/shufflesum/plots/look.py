"""One look for every picture: colours, large type, axes and marks.

The colours are those of Okabe and Ito, which stay apart for every kind of colour vision; shapes and dashes tell marks
apart in print. Rows go into a chart as plain dictionaries, and once for all the layers that draw them: whatever Altair
is given it copies and checks, again and again.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from shufflesum.plots._altair import alt

__all__ = [
    "BLACK",
    "BLUE",
    "ERROR",
    "GREEN",
    "GREY",
    "HEIGHT",
    "ORANGE",
    "PURPLE",
    "RED",
    "SKY",
    "TEXT_SIZE",
    "WIDTH",
    "Rows",
    "as_data",
    "config",
    "drawable",
    "error_axis",
    "folded",
    "heading",
    "line",
    "point",
    "value_axis",
]

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


def drawable(rows: Rows) -> Rows:
    """The rows under names that a chart can use: there a straight apostrophe would begin a quotation."""
    return [{name.replace("'", "’"): value for name, value in row.items()} for row in rows]


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
