"""The whole reproduction: measure what is missing, draw every figure, say what was found, write the page."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments import comparisons, figures, panels, portraits
from experiments.data import Heartbeats
from experiments.experiment import Experiment, least, number
from experiments.figures import Figure
from experiments.measurements import Measurements
from experiments.report import About, write_report
from experiments.trials import Encoding
from shufflesum._format import upwards
from shufflesum._machine import cores
from shufflesum.errors import DataError
from shufflesum.plots import require_plots
from shufflesum.privacy import RandomizedResponseAccountant

LEAST_ROWS = 10_000  # the smallest crowd of the paper's panels


@dataclass(frozen=True, slots=True)
class Request:
    """What to do; `quick` takes some of the values only."""

    folder: Path
    repeats: int = 10
    quick: bool = False
    encoding: Encoding = "paper"
    seed: int = 0
    command: str = "python -m experiments paper"


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
    summary = _in_short(paper, by_users, experiment, defaults, contrast)
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


def _in_short(
    paper: Sequence[Figure],
    by_users: comparisons.Sweep,
    experiment: Experiment,
    defaults: panels.Defaults,
    contrast: portraits.ClassContrast | None,
) -> list[str]:
    """The findings in plain words, with the figures measured in this run."""
    lines = []
    named = {figure.name: figure for figure in paper}
    levels = {row["k"]: row for row in named["by_k"].rows if row["possible"]}
    standard = levels.get(defaults.levels)
    if standard is not None:
        gamma, own = number(standard, "gamma"), number(standard, "measured, paper's metric")
        accountant = RandomizedResponseAccountant(defaults.users, defaults.levels, gamma)
        epsilon = accountant.epsilon_upper(comparisons.CERTIFIED_DELTA)
        lines.append(
            f"At the paper's defaults the squared error of the mean is {standard['measured']:.4f} (predicted from "
            f"the data: {standard['predicted']:.4f}; in the paper's own metric {own:.4f})."
        )
        lines.append(
            f"The defaults ask for δ = {defaults.delta}, which protects nobody, but the published formula adds far "
            f"more noise than that needs: the certified guarantee of this very setting is ε = {upwards(epsilon)} at "
            f"δ = {upwards(comparisons.CERTIFIED_DELTA)}."
        )
    best = []
    for name, symbol in (("by_t", "t"), ("by_k", "k")):
        rows = [row for row in named[name].rows if row["possible"]]
        if rows:
            best.append(f"{symbol} = {least(rows, 'measured')[symbol]}")
    if best:
        lines.append(f"With the published noise the least error is at {' and '.join(best)}.")
    names = {"by_d": "d", "by_n": "n", "by_epsilon_below_1": "ε below 1", "by_epsilon_from_1": "ε from 1"}
    fitted = [f"{names[figure.name]}: {figure.fits[0].exponent:.2f}" for figure in paper if figure.fits]
    if fitted:
        lines.append(
            f"Fitted powers of the error are {', '.join(fitted)}; the paper names 8/3 for d, -7/6 (fitted) and -5/3 "
            "(proved) for n, -4/3 for ε."
        )
    if standard is not None:
        error, added, expected, curator = _line_at(by_users, experiment, defaults.users)
        lines.append(
            f"With a certified guarantee at δ = {upwards(comparisons.CERTIFIED_DELTA)}, and the number of reports "
            f"chosen by the planner, the error is {error:.5f}: {number(standard, 'measured') / error:.0f} "
            f"times below the paper's setting, and {error / curator:.1f} times that of a curator whom everybody "
            f"would have to trust."
        )
        lines.append(
            f"With noise as further reports (noisy counts) and the same guarantee it is {added:.3g}, {expected:.3g} "
            f"as predicted, which is {expected / curator:.2f} times the curator's {curator:.3g}."
        )
    if contrast is not None:
        apart = {name: "impossible" if n is None else f"{n}" for name, n in contrast.apart.items()}
        lines.append(
            f"Samples (of {defaults.dimension}) at which {contrast.names[0]} and {contrast.names[1]} beats can be "
            f"told apart, {contrast.users:,} beats each: {apart[portraits.PAPER]} in the paper's setting, "
            f"{apart[portraits.OURS]} certified."
        )
    else:
        lines.append(
            "Comparing classes needs two of at least 1,000 beats; this data has none, so that figure is left out."
        )
    return lines


def _line_at(sweep: comparisons.Sweep, experiment: Experiment, users: int) -> tuple[float, float, float, float]:
    """At one number of users: measured with replace, measured and predicted with add, and the curator's error."""
    rows = [row for row in comparisons.sweep_table(sweep, experiment) if row["n"] == users]
    found = {str(row["line"]): row for row in rows}
    replaced, added, curator = (found[line] for line in (comparisons.PLANNED, comparisons.ADDED, comparisons.CURATOR))
    measured, predicted = number(added, "measured"), number(added, "predicted")
    return number(replaced, "measured"), measured, predicted, number(curator, "predicted")
