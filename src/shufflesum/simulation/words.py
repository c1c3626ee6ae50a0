"""What a simulation found, in words: the same for terminals and pages."""

from __future__ import annotations

import math

from shufflesum._rounding import downwards, percent, upwards
from shufflesum.domain import Groups
from shufflesum.simulation.tries import Simulation

__all__ = ["found"]


def found(simulation: Simulation) -> dict[str, str]:
    """Figures under what they are called; errors are root mean squares of one entry."""
    plan, unit = simulation.plan, f" {simulation.unit}" if simulation.unit else ""
    sure = "" if math.isnan(simulation.observed_error) else f" ± {simulation.observed_error:.2g}"
    worst = "of coefficients, not of entries: see the plan" if simulation.worst is None else _error(simulation.worst)
    equal = ", groups equally large" if isinstance(plan.domain, Groups) else ""
    return {
        "data": f"{simulation.users:,} users, {simulation.data}",
        f"error to expect, worst data{equal}": worst + (unit if simulation.worst is not None else ""),
        "error that the error bars say": _error(simulation.predicted) + unit,
        "error observed": f"{_error(simulation.observed)}{sure}{unit}, {_times(simulation.repeats)}",
        f"{percent(simulation.level)} % intervals that held": _held(simulation),
        "a user would send": _sent(simulation),
    }


def _error(value: float) -> str:
    return f"{value:.4g}"


def _times(repeats: int) -> str:
    return "tried once" if repeats == 1 else f"tried {repeats:,} times"


def _held(simulation: Simulation) -> str:
    if not simulation.intervals:
        return "there were none: too few users everywhere"
    sure = "" if math.isnan(simulation.coverage_error) else f" ± {100 * simulation.coverage_error:.2g}"
    return f"{downwards(100 * simulation.coverage, 4)}{sure} % of {simulation.intervals:,}"


def _sent(simulation: Simulation) -> str:
    plan = simulation.plan
    if plan.one_process:
        return "nothing: the plan is for one process that holds all data"
    size = plan.bytes_per_user
    blanks = f", about {upwards(plan.blanks)} of them blank" if plan.blanks else ""
    return f"{plan.reports:,} reports{blanks}: {size['raw']:,} bytes, {size['sealed']:,} sealed"
