"""One page that opens without a network, with every figure, its caption and the table behind it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from shufflesum.experiments.figures import Figure
from shufflesum.experiments.rows import Row, columns
from shufflesum.pages import Column, Table, picture, render, table_html
from shufflesum.pages import page as whole_page

__all__ = ["PAPER", "About", "Heading", "format_value", "page", "versions"]


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
    made = {
        "data": about.data,
        "SHA-256 of the data as used": about.fingerprint,
        "repeats of each measurement": str(about.repeats),
        "measurements": f"{about.measured:,} made, {about.reused:,} kept from an earlier run",
        "time, without drawing": f"{about.seconds:.0f} seconds",
        **versions(),
    }
    body = render(
        "reproduction.html",
        heading=heading,
        about=about,
        summary=summary,
        sections={
            name: [
                {
                    "picture": picture(pictures[figure.name], figure.title, figure.caption, id=figure.name),
                    "rows": len(figure.rows),
                    "table": table_html(_table(figure.rows), tall=True),
                }
                for figure in figures
            ]
            for name, figures in sections.items()
        },
        made=table_html(Table([Column("what", words=True), Column("value", words=True)], list(made.items()))),
    )
    return whole_page(f"shufflesum: {heading.title[0].lower() + heading.title[1:]}", body)


def _table(rows: Sequence[Row]) -> Table:
    named = columns(rows)
    heads = [Column(name, any(isinstance(row.get(name), str | bool) for row in rows)) for name in named]
    return Table(heads, [[format_value(row.get(name)) for name in named] for row in rows])


def format_value(value: float | int | str | bool | None) -> str:
    """A cell for people: four digits of what is measured, all of what is counted."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else value
