"""What changes with a certified guarantee at a meaningful delta: error against n, against epsilon, and against t."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from shufflesum.errors import PrivacyError
from shufflesum.experiments.baselines import local_choice
from shufflesum.experiments.experiment import Experiment
from shufflesum.experiments.panels import Defaults
from shufflesum.experiments.rows import Row
from shufflesum.experiments.trials import Trial
from shufflesum.planning import UninformativePlanWarning
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan
from shufflesum.privacy.curator import curator_error

__all__ = [
    "CERTIFIED_DELTA",
    "CURATOR",
    "LINES",
    "NO_PRIVACY",
    "PLANNED",
    "Sweep",
    "by_coordinates",
    "by_epsilon",
    "by_users",
    "certified_plan",
    "parts_table",
    "published_plan",
    "sweep_table",
]

CERTIFIED_DELTA = 1e-6
_ONE_REPORT_LEVELS = 10  # more levels cost little noise at one report, and real values are rarely at the worst place

PAPER, ONE_REPORT, PLANNED = "paper's formula, t = 1", "certified, t = 1", "certified, planned t"
CURATOR, LOCAL, NO_PRIVACY = "trusted curator", "local model (no shuffler)", "no privacy: S²/n, see caption"
LINES = (LOCAL, PAPER, ONE_REPORT, PLANNED, CURATOR, NO_PRIVACY)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The lines of one comparison: at each value a trial, None where the paper has no noise probability below 1."""

    name: str
    symbol: str
    axis: str
    settings: tuple[Defaults, ...]
    values: tuple[float, ...]
    trials: tuple[dict[str, Trial | None], ...]

    @property
    def all_trials(self) -> list[Trial]:
        """Everything to be measured."""
        return [trial for trials in self.trials for trial in trials.values() if trial is not None]


def published_plan(setting: Defaults, delta: float, levels: int | None = None) -> Plan | None:
    """The paper's choice, with its own number of levels unless given; None where its noise probability reaches 1."""
    try:
        return _plan(setting, delta, coordinates=1, levels=levels, accountant="paper")
    except PrivacyError:
        return None


def certified_plan(setting: Defaults, *, coordinates: int | None = None, levels: int | None = None) -> Plan:
    """A plan with the certified guarantee at delta = 1e-6; what is not given is chosen by the planner."""
    return _plan(setting, CERTIFIED_DELTA, coordinates=coordinates, levels=levels, accountant="exact")


@cache  # several figures show the default setting
def _plan(setting: Defaults, delta: float, **choices: object) -> Plan:
    arguments: dict[str, object] = {
        "users": setting.users, "shape": setting.dimension, "epsilon": setting.epsilon, "delta": delta
    }  # fmt: skip
    with warnings.catch_warnings():  # a line that is worse than guessing is part of the picture
        warnings.simplefilter("ignore", UninformativePlanWarning)
        return make_plan(**arguments, **choices)  # type: ignore[arg-type]


def by_users(values: Sequence[Defaults], progress: Callable[[], None]) -> Sweep:
    """Error against n."""
    return _sweep("certified_by_n", "n", "Users n", values, [setting.users for setting in values], progress)


def by_epsilon(values: Sequence[Defaults], progress: Callable[[], None]) -> Sweep:
    """Error against epsilon."""
    return _sweep("certified_by_epsilon", "ε", "ε", values, [setting.epsilon for setting in values], progress)


def _sweep(
    name: str,
    symbol: str,
    axis: str,
    settings: Sequence[Defaults],
    values: Sequence[float],
    progress: Callable[[], None],
) -> Sweep:
    found: list[dict[str, Trial | None]] = []
    for setting in settings:
        paper = published_plan(setting, CERTIFIED_DELTA)
        local = local_choice(setting.users, setting.dimension, setting.epsilon, CERTIFIED_DELTA)
        found.append(
            {
                LOCAL: Trial(setting.users, setting.dimension, local),
                PAPER: None if paper is None else Trial.of(paper),
                ONE_REPORT: Trial.of(certified_plan(setting, coordinates=1, levels=_ONE_REPORT_LEVELS)),
                PLANNED: Trial.of(certified_plan(setting)),
            }
        )
        progress()
    return Sweep(name, symbol, axis, tuple(settings), tuple(values), tuple(found))


def sweep_table(sweep: Sweep, experiment: Experiment) -> list[Row]:
    """A row for each value and line; no privacy means the exact mean, whose only error is against everybody else."""
    rows: list[Row] = []
    for value, setting, trials in zip(sweep.values, sweep.settings, sweep.trials, strict=True):
        for line in LINES:
            row: Row = {sweep.symbol: value, "line": line}
            if line in trials:
                trial = trials[line]
                row["possible"] = trial is not None
                if trial is not None:
                    measured = experiment.measured(trial)
                    row |= _parameters(trial)
                    row |= {"measured": measured.mean_error, "standard error": measured.standard_error}
                    row["predicted"] = measured.prediction.parts.total
            elif line == CURATOR:
                error = curator_error(setting.users, [1.0] * setting.dimension, setting.epsilon, CERTIFIED_DELTA)
                row |= {"possible": True, "predicted": error}
            else:
                row |= {"possible": True, "predicted": _population_error(setting, experiment)}
            rows.append(row)
    return rows


def _parameters(trial: Trial) -> Row:
    used = trial.mechanism
    return {"t": used.coordinates, "k": used.levels, "gamma": used.noise_probability}


def _population_error(setting: Defaults, experiment: Experiment) -> float:
    """S^2 / n, summed: how far the exact mean of n users is from the mean of the population they come from."""
    beats = experiment.data.beats[: setting.users, : setting.dimension]
    return float(beats.var(axis=0, dtype="float64", ddof=1).sum()) / setting.users


def by_coordinates(setting: Defaults, values: Sequence[int], progress: Callable[[], None]) -> list[Trial]:
    """The certified protocol at the paper's levels for each number of coordinates."""
    trials = []
    for coordinates in values:
        trials.append(Trial.of(certified_plan(setting, coordinates=coordinates, levels=setting.levels)))
        progress()
    return trials


def parts_table(trials: Sequence[Trial], experiment: Experiment) -> list[Row]:
    """Where the error comes from at each number of coordinates, and what the paper's metric makes of it."""
    rows: list[Row] = []
    for trial in trials:
        measured = experiment.measured(trial)
        parts = measured.prediction.parts
        about = _parameters(trial)
        split: Row = {"sampling": parts.sampling, "rounding": parts.rounding, "noise": parts.noise}
        rows.append(about | split | measured.row)
    return rows
