"""What changes with a certified guarantee at a meaningful delta: error against n, epsilon, d, and t.

Beside it stand the local model, whose reports nobody shuffles, and a trusted curator.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from experiments.experiment import Experiment, Row, number
from experiments.panels import Defaults
from experiments.trials import AddTrial, AnyTrial, Trial
from shufflesum._search import bisect, geometric_mean
from shufflesum.cautions import UninformativePlanWarning
from shufflesum.domains import Arrays
from shufflesum.errors import PrivacyError
from shufflesum.mechanisms import NoisyCounts, RandomizedResponse
from shufflesum.mechanisms.randomized_response.decode import coordinate_error
from shufflesum.mechanisms.randomized_response.mechanism import on_grid
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan
from shufflesum.privacy.engine.gaussian import curator_error

CERTIFIED_DELTA = 1e-6
_ONE_REPORT_LEVELS = 10  # more levels cost little noise at one report, and real values are rarely at the worst place

PAPER, ONE_REPORT, PLANNED = "paper's formula, t = 1", "randomized response, t = 1", "randomized response, planned t"
ADDED, CURATOR = "noisy counts, planned digits", "trusted curator"
LOCAL, NO_PRIVACY = "local model (no shuffler)", "no privacy: S²/n, see caption"
LINES = (LOCAL, PAPER, ONE_REPORT, PLANNED, ADDED, CURATOR, NO_PRIVACY)
_SHORT = (PAPER, PLANNED, ADDED, CURATOR)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The lines of one comparison: at each value a trial, None where the paper has no noise probability below 1."""

    name: str
    symbol: str
    axis: str
    settings: tuple[Defaults, ...]
    lines: tuple[str, ...]
    values: tuple[float, ...]
    trials: tuple[dict[str, AnyTrial | None], ...]

    @property
    def all_trials(self) -> list[AnyTrial]:
        """Everything to be measured."""
        return [trial for trials in self.trials for trial in trials.values() if trial is not None]


def published_plan(setting: Defaults, delta: float, levels: int | None = None) -> Plan | None:
    """The paper's choice, with its own number of levels unless given; None where its noise probability reaches 1."""
    try:
        return _plan(
            setting, delta, mechanism=RandomizedResponse.Options(coordinates=1, levels=levels), accountant="paper"
        )
    except PrivacyError:
        return None


def certified_plan(setting: Defaults, *, coordinates: int | None = None, levels: int | None = None) -> Plan:
    """The paper's protocol with the certified guarantee at delta = 1e-6; what is not given the planner chooses."""
    return _plan(
        setting,
        CERTIFIED_DELTA,
        mechanism=RandomizedResponse.Options(coordinates=coordinates, levels=levels),
        accountant="exact",
    )


def added_plan(setting: Defaults) -> Plan:
    """The same guarantee with noise as further reports, the digits chosen by the planner."""
    return _plan(setting, CERTIFIED_DELTA, mechanism="noisy-counts")


@cache  # several figures show the default setting
def _plan(setting: Defaults, delta: float, **choices: object) -> Plan:
    arguments: dict[str, object] = {
        "users": setting.users, "shape": setting.dimension, "epsilon": setting.epsilon, "delta": delta
    }  # fmt: skip
    with warnings.catch_warnings():  # a line that is worse than guessing is part of the picture
        warnings.simplefilter("ignore", UninformativePlanWarning)
        return make_plan(**arguments, **choices)  # type: ignore[arg-type]


def by_users(settings: Sequence[Defaults], progress: Callable[[], None]) -> Sweep:
    """Error against n."""
    values = [setting.users for setting in settings]
    return _sweep("certified_by_n", "n", "Users n", LINES, settings, values, progress)


def by_epsilon(settings: Sequence[Defaults], progress: Callable[[], None]) -> Sweep:
    """Error against epsilon."""
    values = [setting.epsilon for setting in settings]
    return _sweep("certified_by_epsilon", "ε", "ε", LINES, settings, values, progress)


def by_dimension(settings: Sequence[Defaults], progress: Callable[[], None]) -> Sweep:
    """Error against d: both mechanisms between the paper's formula and a trusted curator."""
    values = [setting.dimension for setting in settings]
    return _sweep("mechanisms_by_d", "d", "Coordinates d", _SHORT, settings, values, progress)


def _sweep(
    name: str,
    symbol: str,
    axis: str,
    lines: tuple[str, ...],
    settings: Sequence[Defaults],
    values: Sequence[float],
    progress: Callable[[], None],
) -> Sweep:
    found: list[dict[str, AnyTrial | None]] = []
    for setting in settings:
        found.append({line: _TRIALS[line](setting) for line in lines if line in _TRIALS})
        progress()
    return Sweep(name, symbol, axis, tuple(settings), lines, tuple(values), tuple(found))


def _local_trial(setting: Defaults) -> Trial:
    choice = local_choice(setting.users, setting.dimension, setting.epsilon, CERTIFIED_DELTA)
    return Trial(setting.users, setting.dimension, choice)


def _paper_trial(setting: Defaults) -> Trial | None:
    plan = published_plan(setting, CERTIFIED_DELTA)
    return None if plan is None else Trial.of(plan)


_TRIALS: dict[str, Callable[[Defaults], AnyTrial | None]] = {
    LOCAL: _local_trial,
    PAPER: _paper_trial,
    ONE_REPORT: lambda setting: Trial.of(certified_plan(setting, coordinates=1, levels=_ONE_REPORT_LEVELS)),
    PLANNED: lambda setting: Trial.of(certified_plan(setting)),
    ADDED: lambda setting: AddTrial.of(added_plan(setting)),
}


def sweep_table(sweep: Sweep, experiment: Experiment) -> list[Row]:
    """A row for each value and line; no privacy means the exact mean, whose only error is against everybody else."""
    rows: list[Row] = []
    for value, setting, trials in zip(sweep.values, sweep.settings, sweep.trials, strict=True):
        curator = curator_error(
            setting.users, Arrays(setting.dimension, (0, 1)).central_sensitivity, setting.epsilon, CERTIFIED_DELTA
        )
        for line in sweep.lines:
            row: Row = {sweep.symbol: value, "line": line}
            if line in trials:
                trial = trials[line]
                row["possible"] = trial is not None
                if trial is not None:
                    measured = experiment.measured(trial)
                    row |= _parameters(trial)
                    row |= {"measured": measured.mean_error, "standard error": measured.standard_error}
                    row["predicted"] = measured.prediction.parts.total
                    row[f"measured over {CURATOR}"] = measured.mean_error / curator
            elif line == CURATOR:
                row |= {"possible": True, "predicted": curator}
            else:
                row |= {"possible": True, "predicted": _population_error(setting, experiment)}
            if row["possible"]:
                row[f"predicted over {CURATOR}"] = number(row, "predicted") / curator
            rows.append(row)
    return rows


def _parameters(trial: AnyTrial) -> Row:
    used, reports = trial.mechanism, trial.plan.reports
    if isinstance(used, NoisyCounts):
        return {"J": used.digits, "k": used.levels, "reports": reports}
    return {"t": used.coordinates, "k": used.levels, "gamma": used.noise_probability, "reports": reports}


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
        split: Row = {
            "sampling": parts.sampling,
            "rounding": parts.rounding,
            "noise": parts.noise,
        }
        rows.append(about | split | measured.row)
    return rows


def local_delta(levels: int, coordinates: int, noise_probability: float, epsilon: float) -> float:
    """The exact delta of a user's reports when nobody shuffles them: the t-fold composition of randomized response.

    Of two values one report speaks for the first, for the second, or (another value) for neither; so the privacy loss
    is a whole multiple of eps0, and composing is convolving three numbers t times.
    """
    other = noise_probability / (levels + 1)
    same = 1 - noise_probability + other
    law = np.array([other, (levels - 1) * other, same])
    composed, power, left = np.ones(1), law, coordinates
    while left:
        if left % 2:
            composed = np.convolve(composed, power)
        power, left = np.convolve(power, power), left // 2
    losses = np.arange(-coordinates, coordinates + 1) * math.log(same / other)
    return float(np.sum(composed * -np.expm1(np.minimum(epsilon - losses, 0.0))))


def local_noise_probability(levels: int, coordinates: int, epsilon: float, delta: float) -> float:
    """The least noise probability for (epsilon, delta) without a shuffler."""

    def enough(noise_probability: float) -> bool:
        return local_delta(levels, coordinates, noise_probability, epsilon) <= delta

    return bisect(enough, 1e-9, 1.0, tolerance=1e-12, middle=geometric_mean)[1]


def local_choice(users: int, dimension: int, epsilon: float, delta: float) -> RandomizedResponse:
    """The mechanism with the least worst-case error without a shuffler."""

    def error(choice: RandomizedResponse) -> float:
        sampled = choice.coordinates / dimension
        return coordinate_error(users, sampled, choice.levels, choice.noise_probability).total

    counts = sorted({max(1, round(dimension / divisor)) for divisor in (1, 2, 5, 10, 20, 50, dimension)})
    choices = (
        RandomizedResponse(t, k, on_grid(local_noise_probability(k, t, epsilon, delta)))
        for t in counts
        for k in (1, 2, 3)
    )
    return min(choices, key=error)
