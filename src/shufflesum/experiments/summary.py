"""The findings of a run in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from shufflesum._rounding import upwards
from shufflesum.experiments import comparisons, panels, portraits
from shufflesum.experiments.experiment import Experiment
from shufflesum.experiments.figures import Figure
from shufflesum.experiments.rows import least, number
from shufflesum.privacy import Setting

__all__ = ["in_short"]


def in_short(
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
        epsilon = Setting(defaults.users, defaults.levels).epsilon(gamma, comparisons.CERTIFIED_DELTA).upper
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
            f"With noise as further reports (mechanism add) and the same guarantee it is {added:.3g}, {expected:.3g} "
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
