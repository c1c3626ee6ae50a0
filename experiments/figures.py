"""Each figure of the report: its table, its chart and a caption that says what is plotted and what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.charts import beats_chart, panel_chart, parts_chart, sweep_chart
from experiments.comparisons import (
    ADDED,
    CERTIFIED_DELTA,
    CURATOR,
    LINES,
    PLANNED,
    Sweep,
    parts_table,
    sweep_table,
)
from experiments.data import Heartbeats
from experiments.experiment import Experiment, Row, least, number
from experiments.panels import Defaults, Fit, Panel, Point, curves, fit_power, table
from experiments.portraits import OURS, PAPER, ClassContrast
from experiments.trials import Trial
from shufflesum._format import upwards

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """A picture, the table behind it, and what it shows in words; `fits` are the powers fitted to a panel."""

    name: str
    title: str
    caption: str
    rows: list[Row]
    chart: alt.VConcatChart
    fits: tuple[Fit, Fit] | None = None


def panel_figure(panel: Panel, points: Sequence[Point], experiment: Experiment, defaults: Defaults) -> Figure:
    """One panel of the paper."""
    rows = table(panel, points, experiment)
    possible = [row for row in rows if row["possible"]]
    fits = _fits(panel, possible) if panel.exponents else None
    others = [
        f"{symbol} = {value:,}"
        for symbol, name, value in (
            ("d", "dimension", defaults.dimension),
            ("k", "levels", defaults.levels),
            ("n", "users", defaults.users),
            ("t", "coordinates", defaults.coordinates),
            ("ε", "epsilon", defaults.epsilon),
            ("δ", "delta", defaults.delta),
        )
        if name != panel.parameter
    ]
    about = ", ".join(others) + (
        ", the authors' encoding" if experiment.measurements.content.encoding == "authors" else ""
    )
    caption = (
        f"Squared error of the mean of all users, summed over the coordinates (blue; {experiment.repeats} runs each), "
        f"at the noise probability γ that the paper publishes for {about}. The black line is our exact prediction "
        "from the data; diamonds show the same runs in the paper's metric, which compares with the sampled values "
        "only and divides by (n/d)² for every t; the published bound is for that metric, at the paper's own k."
    )
    if possible:
        best = least(possible, "measured")
        caption += f" The least error, {best['measured']:.4g}, is at {panel.symbol} = {best[panel.symbol]:,}."
    if panel.name == "by_k":
        caption += " The bound presumes the k that the paper derives; at other k the error may exceed it."
    if panel.name == "by_t":
        caption += (
            " t = 1 wins here because the published γ for t > 1 comes from a much weaker theorem (composition); at "
            "equal guarantee, certified, more reports are better (see the figure with the three parts)."
        )
    if fits:
        named = " and ".join(name for _, name in panel.exponents)
        caption += (
            f" Fitted power of {panel.symbol}: {_power(fits[0])} for the error of the mean and {_power(fits[1])} "
            f"in the paper's metric; the paper names {named}."
        )
    impossible = [f"{row[panel.symbol]:,}" for row in rows if not row["possible"]]
    if impossible:
        caption += f" Impossible, because the published γ is 1 or more: {panel.symbol} = {', '.join(impossible)}."
    chart = panel_chart(
        rows,
        symbol=panel.symbol,
        axis=panel.axis,
        logarithmic=panel.logarithmic,
        repeats=experiment.repeats,
        curves=curves(panel, fits[0], possible) if fits else {},
        title=panel.title,
        subtitle=[about, experiment.data.note],
    )
    return Figure(panel.name, panel.title, caption, rows, chart, fits)


def _fits(panel: Panel, rows: Sequence[Row]) -> tuple[Fit, Fit] | None:
    values = [number(row, panel.symbol) for row in rows]
    mean, paper = (
        fit_power(values, [number(row, column) for row in rows]) for column in ("measured", "measured, paper's metric")
    )
    return (mean, paper) if mean and paper else None


def _power(fit: Fit) -> str:
    return f"{fit.exponent:.2f} (± {2 * fit.standard_error:.2f})"


def sweep_figure(sweep: Sweep, experiment: Experiment) -> Figure:
    """Error against n or epsilon, with everything one could do instead."""
    fixed = sweep.settings[0]
    other = f"ε = {fixed.epsilon}" if sweep.symbol == "n" else f"n = {fixed.users:,}"
    title = f"Error by {sweep.symbol} at δ = {upwards(CERTIFIED_DELTA)}: same trust, certified"
    caption = (
        "The paper's formula (with its own k) is drawn where its γ is below 1. The local model is the same randomizer "
        "without a shuffler, its reports composed exactly. Without privacy the mean of these users has error 0; the "
        "line shows S²/n, how far even that exact mean is from the mean of the population."
    )
    return _comparison(sweep, experiment, title, f"{other}, d = {fixed.dimension}", caption)


def mechanisms_figure(sweep: Sweep, experiment: Experiment) -> Figure:
    """Error against d: the paper's formula, both mechanisms certified, and a trusted curator."""
    fixed = sweep.settings[0]
    caption = (
        "All lines have the same guarantee; below, errors as multiples of the curator's. Where users hold few numbers, "
        "Laplace noise is the better one for a curator, and nothing here comes as close to it."
    )
    title = "Both mechanisms beside a trusted curator: error by d"
    about = f"n = {fixed.users:,}, ε = {fixed.epsilon}, δ = {upwards(CERTIFIED_DELTA)}"
    return _comparison(sweep, experiment, title, about, caption, over=CURATOR)


def _comparison(
    sweep: Sweep, experiment: Experiment, title: str, about: str, caption: str, over: str | None = None
) -> Figure:
    rows = sweep_table(sweep, experiment)
    last = {str(row["line"]): row for row in rows if row[sweep.symbol] == sweep.values[-1]}
    replaced, added = last[PLANNED], last[ADDED]
    times = {
        kind: " and ".join(f"{number(row, f'{kind} over {CURATOR}'):.2f}" for row in (replaced, added))
        for kind in ("predicted", "measured")
    }
    caption = (
        f"Squared error of the mean, summed over the coordinates, at {about}: lines are predicted from the data, "
        f"points measured ({experiment.repeats} runs). At {sweep.symbol} = {sweep.values[-1]:,} each user sends "
        f"{replaced['reports']:,} reports with randomized response (k = {replaced['k']}) and {added['reports']:,}, "
        f"with blanks, with noisy counts ({added['J']} digits); the errors are {times['predicted']} times the "
        f"curator's as predicted, {times['measured']} times as measured. The trusted curator sees all data and adds "
        f"noise once, Gaussian or Laplace, whichever is better (its line is exact, not measured). {caption}"
    )
    subtitle = [f"{about}; lines predicted, points measured", experiment.data.note]
    chart = sweep_chart(
        rows, symbol=sweep.symbol, axis=sweep.axis, lines=LINES, title=title, subtitle=subtitle, over=over
    )
    return Figure(sweep.name, title, caption, rows, chart)


def parts_figure(trials: Sequence[Trial], setting: Defaults, experiment: Experiment) -> Figure:
    """Error against t, with its parts."""
    rows = parts_table(trials, experiment)
    best, paper_best = least(rows, "measured"), least(rows, "measured, paper's metric")
    title = "More reports are better: where the error comes from, by t"
    about = (
        f"certified at ε = {setting.epsilon}, δ = {upwards(CERTIFIED_DELTA)}; n = {setting.users:,}, "
        f"d = {setting.dimension}, k = {setting.levels}"
    )
    caption = (
        f"Above: the error of the mean split into what sampling coordinates, rounding and noise cost ({about}; "
        f"each t at its own certified γ). Below: the same runs in both metrics. Against the true mean the least "
        f"error, {best['measured']:.3g}, is at t = {best['t']}; the paper's metric leaves the sampling part out "
        f"and does not divide by t, so it is least at t = {paper_best['t']}."
    )
    chart = parts_chart(rows, title=title, subtitle=[about, experiment.data.note])
    return Figure("error_parts_by_t", title, caption, rows, chart)


def beat_figure(rows: list[Row], setting: Defaults, data: Heartbeats) -> Figure:
    """The mean beat, seen through the paper's setting and through ours."""
    title = "The mean heartbeat, learned privately"
    headings = {
        PAPER: f"The paper's setting: δ = {setting.delta}, t = 1, k = {setting.levels}",
        OURS: f"Certified and planned: δ = {upwards(CERTIFIED_DELTA)}",
    }
    groups = {
        heading: [row for row in rows if row["setting"] == name]
        for name, heading in headings.items()
        if any(row["setting"] == name for row in rows)
    }
    errors = {
        name: sum((number(row, "estimate") - number(row, "truth")) ** 2 for row in rows if row["setting"] == name)
        for name in headings
    }
    caption = (
        f"The true mean of {setting.users:,} beats (dashed) and one private estimate of it with its pointwise 95 % "
        f"band, both at ε = {setting.epsilon}. Squared error of the paper's setting: {errors[PAPER]:.3g}; "
        f"certified: {errors[OURS]:.3g}."
    )
    about = f"{setting.users:,} beats, ε = {setting.epsilon}; bands hold 95 % at each sample"
    chart = beats_chart(groups, [], title=title, subtitle=[about, data.note])
    return Figure("mean_beat", title, caption, rows, chart)


def class_figure(contrast: ClassContrast, setting: Defaults, data: Heartbeats) -> Figure:
    """One class of beats against another."""
    first, second = contrast.names
    title = f"Can {first} and {second} beats be told apart?"
    groups, words = {}, []
    for name, delta in ((PAPER, setting.delta), (OURS, CERTIFIED_DELTA)):
        apart, plan = contrast.apart[name], contrast.plans[name]
        budget = f"δ = {upwards(delta)}"
        if apart is None or plan is None:
            words.append(f"{name} ({budget}) is impossible with so few beats: the published γ is 1 or more.")
            continue
        mechanism = Trial.of(plan).mechanism
        heading = (
            f"{name}, {budget}, t = {mechanism.coordinates}, k = {mechanism.levels}: apart at {apart} of "
            f"{setting.dimension} samples"
        )
        groups[heading] = [row for row in contrast.rows if row["setting"] == name]
        words.append(f"{name} ({budget}): the bands are disjoint at {apart} of {setting.dimension} samples.")
    caption = (
        f"Two collections of {contrast.users:,} beats each at ε = {setting.epsilon}; which class a beat is of is "
        "taken as public. All bands of a plot hold together with 95 %, so where they are disjoint an analyst may "
        f"say that the classes differ. {' '.join(words)}"
    )
    about = f"{contrast.users:,} beats of each class, ε = {setting.epsilon}; all bands of a plot hold together, 95 %"
    chart = beats_chart(groups, contrast.names, title=title, subtitle=[about, data.note])
    return Figure("classes", title, caption, contrast.rows, chart)
