"""Pictures as files."""

from __future__ import annotations

import os
from pathlib import Path

from shufflesum.errors import FileError
from shufflesum.plots._altair import alt, require_plots

__all__ = ["DRAWABLE", "rendered", "save_chart"]

DRAWABLE = (".png", ".svg", ".html")


def rendered(chart: alt.TopLevelMixin) -> tuple[str, bytes]:
    """SVG, and PNG at twice the pixels."""
    svg = _svg(chart)
    return svg, _png(svg)


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
            chart.save(path, format="html", inline=True)
        else:
            svg = _svg(chart)
            path.write_bytes(_png(svg) if kind == ".png" else svg.encode())
    except OSError as error:
        raise FileError(
            "unwritable", f"{path}: cannot be written: {error.strerror or error}; check the disk"
        ) from error


def _svg(chart: alt.TopLevelMixin) -> str:
    require_plots()
    import vl_convert

    # Not checked against the schema here, which would take longer than drawing; the tests check every chart.
    svg: str = vl_convert.vegalite_to_svg(chart.to_dict(validate=False))
    return svg


def _png(svg: str) -> bytes:
    import vl_convert

    png: bytes = vl_convert.svg_to_png(svg, scale=2)
    return png
