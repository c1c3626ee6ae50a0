"""Plans from the error: the smallest number of users, or the smallest epsilon, that reaches it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Unpack

from shufflesum._checks import check_number
from shufflesum.domain import Structure
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.planning.planner import (
    PlanChoices,
    UninformativePlanWarning,
    plan,
    predicted_error,
    warn_if_uninformative,
)
from shufflesum.plans import Plan

__all__ = ["plan_for_error"]


def plan_for_error(
    target_error: float,
    *,
    shape: int | Sequence[int] | Structure,
    delta: float,
    users: int | None = None,
    epsilon: float | None = None,
    **choices: Unpack[PlanChoices],
) -> Plan:
    """The plan with the smallest number of users, or the smallest epsilon, whichever is left out, for an error.

    `target_error` is the predicted squared error of the mean, summed over coordinates, in the user's units. The answer
    is within half a percent of the smallest. With a `spread` it is that error at this spread. The other arguments are
    those of `plan`.
    """
    check_number("target_error", target_error)
    if not 0 < target_error < math.inf:
        raise ParameterError("out-of-range", f"target_error is {target_error}; it must be positive and finite")
    if (users is None) == (epsilon is None):
        raise ParameterError(
            "conflicting-arguments",
            "a target error asks for the smallest users or epsilon: leave out exactly one of the two",
        )
    if users is not None and choices.get("accountant") == "paper":
        raise ParameterError(
            "impossible-combination",
            "the smallest epsilon cannot be looked for with accountant='paper', whose formula jumps at epsilon = 1 and "
            "ends at 6; give epsilon and leave out users, or use accountant='exact'",
        )
    spread = choices.get("spread")

    def certified(value: float, near: Plan | None) -> Plan | None:
        """The plan at this many users, or this epsilon; with the mechanism of a plan near it, if given."""
        fixed: Any = near.mechanism.choices() if near else {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UninformativePlanWarning)
                return plan(
                    shape=shape,
                    delta=delta,
                    users=math.ceil(value) if users is None else users,
                    epsilon=value if epsilon is None else epsilon,
                    **{**choices, **fixed},
                )
        except PrivacyError:
            return None

    def excess(found: Plan | None) -> float:
        """The logarithm of error over target, which falls in users and in epsilon."""
        return 50.0 if found is None else math.log(predicted_error(found, spread) / target_error)

    # The error is nearly a power law: straight lines between logarithms home in on the target from both sides.
    least, value, most = (1.0, 1e4, 1e10) if users is None else (1e-4, 1.0, 32.0)
    below: tuple[float, float] | None = None
    above: tuple[float, float, Plan] | None = None
    near: Plan | None = None
    while True:
        found = certified(value, near)
        if found is not None and excess(found) <= 0:
            above = (value, excess(found), found)
        else:
            below = (value, excess(found))
        if above and (value <= least or (below and _adjacent(below[0], above[0], whole=users is None))):
            warn_if_uninformative(above[2])
            return above[2]
        if below and value >= most:
            raise PrivacyError(
                "error-out-of-reach",
                f"a squared error of {target_error} is out of reach with up to "
                + (f"{most:.0e} users; raise epsilon" if users is None else f"epsilon = {most:g}; raise users")
                + ", delta or the target error",
            )
        if below and above:
            near = above[2] if above[0] / below[0] < 1.5 else None
            share = min(max(below[1] / (below[1] - above[1]), 0.1), 0.9)
            value = below[0] * (above[0] / below[0]) ** share
        else:
            value = min(
                max(value * math.exp(max(-3.0, min(3.0, excess(found) + math.copysign(0.05, excess(found))))), least),
                most,
            )


def _adjacent(low: float, high: float, *, whole: bool) -> bool:
    return high / low < 1.005 or (whole and math.ceil(high) - math.ceil(low) <= 1)
