"""One page that opens without a network, with every figure, its caption and its table, and the files beside it."""

from __future__ import annotations

import csv
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from experiments.experiment import Row, columns
from experiments.figures import Figure
from experiments.measurements import writing
from shufflesum.pages import Column, Table, html_table, picture, render
from shufflesum.pages import page as whole_page
from shufflesum.plots import rendered
from shufflesum.tables.writers import StagedOutputs


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
        Path(__file__).with_name("report.html"),
        heading=heading,
        about=about,
        summary=summary,
        sections={
            name: [
                {
                    "picture": picture(pictures[figure.name], figure.title, figure.caption, id=figure.name),
                    "rows": len(figure.rows),
                    "table": html_table(_table(figure.rows), tall=True),
                }
                for figure in figures
            ]
            for name, figures in sections.items()
        },
        made=html_table(Table([Column("what", words=True), Column("value", words=True)], list(made.items()))),
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


def write_report(
    folder: Path,
    summary: Sequence[str],
    sections: dict[str, list[Figure]],
    about: About,
    step: Callable[[], None],
    heading: Heading = PAPER,
    tables: Mapping[str, list[Row]] | None = None,
) -> Path:
    """Every figure as SVG, PNG and CSV, further tables as CSV, and the page: all of it or nothing."""
    place, report = folder / "figures", folder / "report.html"
    pictures = {}
    with writing(folder), StagedOutputs() as outputs:
        place.mkdir(exist_ok=True)
        for figure in (figure for group in sections.values() for figure in group):
            svg, png = rendered(figure.chart)
            pictures[figure.name] = svg
            outputs.stage(place / f"{figure.name}.svg", (".svg",)).write_text(svg, encoding="utf-8")
            outputs.stage(place / f"{figure.name}.png", (".png",)).write_bytes(png)
            _write_table(outputs.stage(place / f"{figure.name}.csv", (".csv",)), figure.rows)
            step()
        for name, rows in (tables or {}).items():
            _write_table(outputs.stage(place / f"{name}.csv", (".csv",)), rows)
        staged = outputs.stage(report, (".html",))
        staged.write_text(page(summary, sections, pictures, about, heading), encoding="utf-8")
    return report


def _write_table(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns(rows), restval="")
        writer.writeheader()
        writer.writerows(rows)
