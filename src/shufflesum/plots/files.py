"""Pictures as files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shufflesum.errors import FileError
from shufflesum.plots._altair import alt, require_plots
from shufflesum.plots.names import visible

__all__ = ["DRAWABLE", "rendered", "rendered_svg", "save_chart", "svg_to_png"]

DRAWABLE = (".png", ".svg", ".html")
_STAND_IN = "\ufdd0"


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

    png: bytes = vl_convert.svg_to_png(svg, scale=2)
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
