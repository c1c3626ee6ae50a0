"""The six panels of the paper's evaluation: one parameter varied, the others at the paper's defaults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments import published_errors
from experiments.experiment import Experiment, Row, number
from experiments.trials import Encoding, Trial
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.mechanisms.randomized_response.mechanism import on_grid
from shufflesum.privacy import published


@dataclass(frozen=True, slots=True)
class Defaults:
    """The paper's default setting."""

    users: int = 50_000
    dimension: int = 100
    levels: int = 3
    coordinates: int = 1
    epsilon: float = 0.95
    delta: float = 0.5


DEFAULTS = Defaults()


@dataclass(frozen=True, slots=True)
class Panel:
    """Which parameter is varied, over what values, and which powers of it the paper names (none: no curve)."""

    name: str
    parameter: str
    symbol: str
    title: str
    axis: str
    values: tuple[float, ...]
    exponents: tuple[tuple[float, str], ...] = ()
    logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a panel; without a trial where the published formula asks for more noise than there is."""

    value: float
    noise_probability: float
    bound: float | None
    trial: Trial | None


@dataclass(frozen=True, slots=True)
class Fit:
    """factor * value ** exponent, by least squares of the logarithms."""

    factor: float
    exponent: float
    standard_error: float

    def at(self, value: float) -> float:
        """The fitted error."""
        return self.factor * math.pow(value, self.exponent)


def panels(*, quick: bool, rows: int) -> list[Panel]:
    """All six; `quick` takes some of the values, and n stops where the data does."""
    users = [n for n in (10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 70_000) if n <= rows]
    epsilon_power = ((-4 / 3, "-4/3"),)

    def some(values: Sequence[float], *kept: int) -> tuple[float, ...]:
        return tuple(dict.fromkeys(values[i] for i in kept)) if quick else tuple(values)

    low = [round(0.5 + 0.05 * i, 2) for i in range(10)]
    high = [1 + 0.5 * i for i in range(10)]
    return [
        Panel(
            "by_t", "coordinates", "t", "Error by number of coordinates t that each user reports", "Coordinates t",
            some(range(1, 11), 0, 1, 4, 9), logarithmic=True,
        ),
        Panel("by_k", "levels", "k", "Error by number of levels k", "Levels k", some(range(1, 11), 0, 1, 2, 3, 9)),
        Panel(
            "by_d", "dimension", "d", "Error by vector dimension d", "Dimension d", some(range(60, 151, 10), 0, 4, 9),
            ((8 / 3, "8/3"),),
        ),
        Panel(
            "by_n", "users", "n", "Error by number of vectors n", "Vectors n", some(users, 0, len(users) // 2, -1),
            ((-7 / 6, "-7/6"), (-5 / 3, "-5/3")), logarithmic=True,
        ),
        Panel(
            "by_epsilon_below_1", "epsilon", "ε", "Error by ε where ε < 1", "ε", some(low, 0, 5, 9), epsilon_power
        ),
        Panel(
            "by_epsilon_from_1", "epsilon", "ε", "Error by ε where 1 ≤ ε < 6", "ε", some(high, 0, 3, 9), epsilon_power,
            logarithmic=True,
        ),
    ]  # fmt: skip


def points(panel: Panel, defaults: Defaults, encoding: Encoding) -> list[Point]:
    """Each value of a panel with the published noise probability and the published bound on the error."""
    return [_point(value, _varied(defaults, panel.parameter, value), encoding) for value in panel.values]


def _varied(defaults: Defaults, parameter: str, value: float) -> Defaults:
    change: dict[str, Any] = {parameter: value if parameter == "epsilon" else int(value)}
    return replace(defaults, **change)


def _point(value: float, setting: Defaults, encoding: Encoding) -> Point:
    n, d, k, t = setting.users, setting.dimension, setting.levels, setting.coordinates
    epsilon, delta = setting.epsilon, setting.delta
    one_report = t == 1  # the paper has tighter formulas for it
    if one_report:
        gamma = published.improved_noise_probability(users=n, dimension=d, levels=k, epsilon=epsilon, delta=delta)
    else:
        gamma = published.theorem_main_noise_probability(
            users=n, dimension=d, levels=k, coordinates=t, epsilon=epsilon, delta=delta
        )
    if gamma >= 1:
        return Point(value, gamma, None, None)
    if one_report:
        bound = published_errors.improved_mse(
            users=n, dimension=d, epsilon=epsilon, delta=delta, noise_probability=gamma
        )
    else:
        bound = published_errors.theorem_mse(
            users=n, dimension=d, coordinates=t, epsilon=epsilon, delta=delta, noise_probability=gamma
        )
    return Point(value, gamma, bound, Trial(n, d, RandomizedResponse(t, k, on_grid(gamma), "uniform"), encoding))


def fit_power(values: Sequence[float], errors: Sequence[float]) -> Fit | None:
    """The power law through positive errors; None for fewer than three, where it would say nothing."""
    if len(values) < 3:
        return None
    x, y = np.log(values), np.log(errors)
    design = np.column_stack([np.ones_like(x), x])
    (constant, exponent), *_ = np.linalg.lstsq(design, y, rcond=None)
    residual = y - design @ (constant, exponent)
    variance = float(residual @ residual) / (len(x) - 2) / float(np.sum((x - x.mean()) ** 2))
    return Fit(math.exp(constant), float(exponent), math.sqrt(variance))


def curves(panel: Panel, fit: Fit, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The fitted curve over the values of the rows, and the paper's powers through its centre: only slopes differ."""
    values = [number(row, panel.symbol) for row in rows]
    grid = np.linspace(values[0], values[-1], 60).tolist()
    centre = math.exp(np.mean(np.log(values)))
    drawn = {f"fitted: {panel.symbol} to the power {fit.exponent:.2f}": fit}
    for exponent, name in panel.exponents:
        power = Fit(fit.at(centre) / centre**exponent, exponent, 0.0)
        drawn[f"the paper's power {name}, same centre"] = power
    return {words: [{panel.symbol: v, "error": curve.at(v)} for v in grid] for words, curve in drawn.items()}


def table(panel: Panel, found: Sequence[Point], experiment: Experiment) -> list[Row]:
    """The table behind a panel, a row for each value; empty cells where nothing can be measured."""
    rows = []
    for point in found:
        row: Row = {panel.symbol: point.value, "gamma": point.noise_probability, "possible": point.trial is not None}
        if point.trial is not None:
            measured = experiment.measured(point.trial)
            row |= measured.row
            row |= {"predicted standard error": measured.predicted_standard_error, "published bound": point.bound}
        rows.append(row)
    return rows
