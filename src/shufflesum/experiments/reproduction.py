"""The whole reproduction: measure what is missing, draw every figure, write the page."""

from __future__ import annotations

import csv
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shufflesum._machine import cores
from shufflesum.errors import DataError
from shufflesum.experiments import comparisons, figures, panels, portraits
from shufflesum.experiments.data import Heartbeats
from shufflesum.experiments.experiment import Experiment
from shufflesum.experiments.figures import Figure
from shufflesum.experiments.kept import writing
from shufflesum.experiments.measurements import Measurements
from shufflesum.experiments.page import PAPER, About, Heading, page
from shufflesum.experiments.rows import Row, columns
from shufflesum.experiments.summary import in_short
from shufflesum.experiments.trials import Encoding
from shufflesum.plots import rendered, require_plots
from shufflesum.tables import StagedOutputs

__all__ = ["LEAST_ROWS", "Reproduction", "Request", "reproduce", "write_report"]

LEAST_ROWS = 10_000  # the smallest crowd of the paper's panels


@dataclass(frozen=True, slots=True)
class Request:
    """What to do; `quick` takes some of the values only."""

    folder: Path
    repeats: int = 10
    quick: bool = False
    encoding: Encoding = "paper"
    seed: int = 0
    command: str = "shufflesum reproduce"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Where the page is and what it says in short."""

    page: Path
    summary: list[str]
    measured: int
    reused: int


def reproduce(data: Heartbeats, request: Request, progress: Callable[[int], None]) -> Reproduction:
    """Run everything; `progress` is called with the percentage done.

    Measurements are kept in the folder as they come: the same request goes on where it was stopped. Figures and page
    appear together at the end.
    """
    require_plots()
    started = time.monotonic()
    if len(data.beats) < LEAST_ROWS:
        raise DataError(
            "too-few-users", f"{data.name}: holds {len(data.beats):,} rows; at least {LEAST_ROWS:,} are needed"
        )
    measurements = Measurements.open(request.folder, data, request.encoding, request.seed)
    experiment = Experiment(data, measurements, request.repeats, workers=cores())
    defaults = replace(panels.DEFAULTS, users=min(panels.DEFAULTS.users, len(data.beats)))
    found = [
        (panel, panels.points(panel, defaults, request.encoding))
        for panel in panels.panels(quick=request.quick, rows=len(data.beats))
    ]
    trials = [point.trial for _, points in found for point in points if point.trial is not None]
    missing = len(experiment.missing(trials))
    experiment.run(trials, _steps(progress, 0, 35, missing))

    crowds, budgets, counts = _values(request.quick, len(data.beats), defaults)
    widths = [replace(defaults, dimension=d) for d in ([10, 100] if request.quick else [1, 3, 10, 30, 100, 150])]
    step = _steps(progress, 35, 50, len(crowds) + len(budgets) + len(widths) + len(counts))
    by_users = comparisons.by_users(crowds, step)
    by_epsilon = comparisons.by_epsilon(budgets, step)
    by_dimension = comparisons.by_dimension(widths, step)
    by_coordinates = comparisons.by_coordinates(defaults, counts, step)
    others = [*by_users.all_trials, *by_epsilon.all_trials, *by_dimension.all_trials, *by_coordinates]
    missing_others = len(experiment.missing(others))
    experiment.run(others, _steps(progress, 50, 75, missing_others))
    measured = missing + missing_others
    reused = len({*trials, *others}) * request.repeats - measured

    contrast = portraits.class_contrast(data, defaults, request.seed)
    paper = [figures.panel_figure(panel, points, experiment, defaults) for panel, points in found]
    ours = [
        figures.sweep_figure(by_users, experiment),
        figures.sweep_figure(by_epsilon, experiment),
        figures.mechanisms_figure(by_dimension, experiment),
        figures.parts_figure(by_coordinates, defaults, experiment),
        figures.beat_figure(portraits.mean_beat_table(data, defaults, request.seed), defaults, data),
    ]
    if contrast is not None:
        ours.append(figures.class_figure(contrast, defaults, data))
    summary = in_short(paper, by_users, experiment, defaults, contrast)
    sections = {"The paper's six panels": paper, "What changes with a certified guarantee": ours}
    about = About(
        request.command,
        f"{data.name}, {len(data.beats):,} rows",
        measurements.content.fingerprint,
        data.note,
        time.monotonic() - started,
        request.repeats,
        reused,
        measured,
    )
    written = write_report(request.folder, summary, sections, about, _steps(progress, 75, 100, len(paper) + len(ours)))
    return Reproduction(written, summary, measured, reused)


def _values(
    quick: bool, rows: int, defaults: panels.Defaults
) -> tuple[list[panels.Defaults], list[panels.Defaults], list[int]]:
    """The settings of the comparisons: crowds, budgets, and numbers of coordinates."""
    users = [10_000, 50_000] if quick else [5_000, 10_000, 20_000, 50_000, 100_000]
    users = sorted({n for n in users if n <= rows} | {defaults.users})
    epsilons = [0.5, 0.95] if quick else [0.25, 0.5, 0.95, 1.25, 2.0, 4.0]
    counts = [1, 10, 100] if quick else [1, 2, 5, 10, 20, 50, 100]
    return [replace(defaults, users=n) for n in users], [replace(defaults, epsilon=e) for e in epsilons], counts


def _steps(progress: Callable[[int], None], start: int, end: int, count: int) -> Callable[[], None]:
    """A function to call `count` times, which moves the percentage from `start` to `end`."""
    done = itertools.count(1)
    return lambda: progress(start + (end - start) * next(done) // max(count, 1))


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
