"""One page that opens without a network, with every figure, its caption and the table behind it."""

from __future__ import annotations

import base64
import html
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from shufflesum.experiments.figures import Figure
from shufflesum.experiments.rows import Row, columns

__all__ = ["PAPER", "About", "Heading", "format_value", "page", "versions"]

_STYLE = """
body { font: 17px/1.55 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto; max-width: 54rem;
  padding: 1rem 1.2rem 4rem; }
h1 { font-size: 1.8rem; line-height: 1.25; margin: 1.2rem 0 .4rem; }
h2 { font-size: 1.35rem; margin: 2.6rem 0 .6rem; border-top: 1px solid #ccc; padding-top: 1.4rem; }
.note { background: #fdf3d8; border-left: 5px solid #e69f00; padding: .6rem 1rem; }
figure { margin: 1.8rem 0 2.6rem; }
figure img { width: 100%; height: auto; border: 1px solid #ddd; }
figcaption { margin: .5rem 0; }
details { margin: .3rem 0; }
summary { cursor: pointer; color: #0060a0; }
.scroll { overflow: auto; max-height: 26rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
th { background: #f4f4f4; position: sticky; top: 0; }
td.word, th.word { text-align: left; }
pre { background: #f4f4f4; padding: .7rem 1rem; overflow-x: auto; }
"""


@dataclass(frozen=True, slots=True)
class Heading:
    """What a page is called, and what it is about in a sentence."""

    title: str
    words: str


PAPER = Heading(
    "The paper's experiments, and what a certified guarantee changes",
    "Private sums of vectors in the shuffle model (Scott, Cormode and Maple): their evaluation repeated, and beside it "
    "the same protocol with exact privacy accounting, noise sent as further reports, and a trusted curator.",
)


@dataclass(frozen=True, slots=True)
class About:
    """What was run, on what."""

    command: str
    data: str
    fingerprint: str
    note: str
    seconds: float
    repeats: int
    reused: int
    measured: int


def versions() -> dict[str, str]:
    """The versions that the figures depend on."""
    found = {"Python": platform.python_version()}
    for library in ("shufflesum", "numpy", "numba", "altair", "vl-convert-python"):
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "not installed as a package"
    return found


def page(
    summary: Sequence[str],
    sections: Mapping[str, Sequence[Figure]],
    pictures: Mapping[str, str],
    about: About,
    heading: Heading = PAPER,
) -> str:
    """The HTML text; `pictures` maps a figure's name to its SVG."""
    points = "\n".join(f"<li>{html.escape(line)}</li>" for line in summary)
    body = "\n".join(
        f"<h2>{html.escape(heading)}</h2>\n" + "\n".join(_figure(figure, pictures[figure.name]) for figure in figures)
        for heading, figures in sections.items()
        if figures
    )
    listed = "\n".join(
        f"<tr><td class='word'>{html.escape(name)}</td><td class='word'>{html.escape(value)}</td></tr>"
        for name, value in (
            ("data", about.data),
            ("SHA-256 of the data as used", about.fingerprint),
            ("repeats of each measurement", str(about.repeats)),
            ("measurements", f"{about.measured:,} made, {about.reused:,} kept from an earlier run"),
            ("time, without drawing", f"{about.seconds:.0f} seconds"),
            *versions().items(),
        )
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>shufflesum: {html.escape(heading.title[0].lower() + heading.title[1:], quote=False)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{html.escape(heading.title, quote=False)}</h1>
<p>{html.escape(heading.words, quote=False)}</p>
<p class="note">{html.escape(about.note)}. Data: {html.escape(about.data)}.</p>
<h2>In short</h2>
<ul>
{points}
</ul>
{body}
<h2>How this page was made</h2>
<pre>{html.escape(about.command)}</pre>
<div class="scroll"><table>
{listed}
</table></div>
<p>All randomness of these experiments comes from a fixed seed, so that the figures can be made again; a deployment
never uses a seed. Beside this page, <code>figures/</code> holds each figure as PNG and SVG and its table as CSV.</p>
</body>
</html>
"""


def _figure(figure: Figure, picture: str) -> str:
    source = base64.b64encode(picture.encode()).decode("ascii")
    return f"""<figure id="{figure.name}">
<img alt="{html.escape(figure.title, quote=True)}" src="data:image/svg+xml;base64,{source}">
<figcaption>{html.escape(figure.caption)}</figcaption>
<details><summary>The table behind this figure ({len(figure.rows)} rows)</summary>
<div class="scroll">{_table(figure.rows)}</div></details>
</figure>"""


def _table(rows: Sequence[Row]) -> str:
    named = columns(rows)
    words = {column for column in named if any(isinstance(row.get(column), str | bool) for row in rows)}
    kind = {column: " class='word'" if column in words else "" for column in named}
    head = "".join(f"<th{kind[column]}>{html.escape(column)}</th>" for column in named)
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind[c]}>{html.escape(format_value(row.get(c)))}</td>" for c in named) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>\n{body}</table>"


def format_value(value: float | int | str | bool | None) -> str:
    """A cell for people: four digits of what is measured, all of what is counted."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else value
