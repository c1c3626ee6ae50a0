"""Plans from the error: the smallest number of users, or the smallest epsilon, that reaches it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from shufflesum._checks import check_number
from shufflesum._format import Z_95
from shufflesum._search import bracket
from shufflesum.cautions import ArraysAreBetterWarning, UninformativePlanWarning
from shufflesum.domains import Domain
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.planning.planner import (
    PlanOptions,
    Shape,
    domain_of,
    plan,
    predicted_error,
    warn_if_uninformative,
)
from shufflesum.plans import Plan

_NAMED = 5


def plan_for_error(
    target_error: float | None = None,
    *,
    margin: float | Mapping[str, float] | None = None,
    delta: float,
    domain: Domain | None = None,
    shape: Shape | None = None,
    users: int | None = None,
    epsilon: float | None = None,
    **choices: Unpack[PlanOptions],
) -> Plan:
    """The plan with the smallest number of users, or the smallest epsilon, whichever is left out, for an error.

    `margin` is what each mean may be off on either side at 95 %, predicted for the worst data, in its own unit, or each
    label's share: one for all, or {"age": 0.5, "income": 300}. `target_error` is instead the squared error of the mean,
    summed over coordinates, in the user's units; with an `assumed_std` it is that error at this assumed_std. The
    answer is within half a percent of the smallest. The other arguments are those of `plan`.
    """
    if (target_error is None) == (margin is None):
        raise ParameterError(
            "conflicting-arguments", "give either margin, of each mean, or target_error, squared and summed"
        )
    asked: Domain | None = None
    if target_error is None:
        assert margin is not None
        if choices.get("assumed_std") is not None:
            raise ParameterError("conflicting-arguments", "assumed_std goes with target_error, not with margin")
        asked = domain_of(domain, shape, choices.get("bounds"), choices.get("columns"))
        target_error = _squared_and_summed(margin, asked)
    _check_error("target_error", target_error)
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
    assumed_std = choices.get("assumed_std")
    least, guess, most = (1.0, 1e4, 1e10) if users is None else (1e-4, 1.0, 32.0)
    found: dict[float, Plan] = {}

    def error(value: float) -> float:
        """The least predicted error with so many users, or at this epsilon; far above the target if none is."""
        # Near a plan of numbers that is known, its coordinates and levels will do, and spare the search for them.
        near = min(found, key=lambda known: abs(math.log(known / value)), default=math.inf)
        close = 2 / 3 < near / value < 3 / 2
        options = found[near].mechanism.options() if close and found[near].domain.numbers is not None else None
        fixed: Any = {} if options is None else {"mechanism": options}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UninformativePlanWarning)
                warnings.simplefilter("ignore", ArraysAreBetterWarning)
                found[value] = plan(
                    domain=domain,
                    shape=shape,
                    delta=delta,
                    users=math.ceil(max(value, least)) if users is None else users,
                    epsilon=max(value, least) if epsilon is None else epsilon,
                    **{**choices, **fixed},
                )
        except PrivacyError:
            return 1e20 * target_error
        return predicted_error(found[value], assumed_std)

    _, enough = bracket(error, target_error, guess=guess, highest=most, tolerance=0.005, first_factor=4.0)
    if enough == math.inf:
        least_error = min((predicted_error(known, assumed_std) for known in found.values()), default=math.inf)
        wanted = _in_the_words_asked(asked, margin, target_error, least_error)
        with_up_to, knob = (
            (f"{most:.0e} users", "epsilon") if users is None else (f"epsilon = {most:g} for {users:,} users", "users")
        )
        raise PrivacyError(
            "error-out-of-reach",
            f"{wanted} is out of reach with up to {with_up_to}; accept a larger error, or raise {knob} or delta"
            + ("" if asked is None else ", or narrow what is asked: fewer numbers, closer bounds, fewer labels"),
        )
    warn_if_uninformative(found[enough])
    return found[enough]


def _check_error(name: str, error: float) -> None:
    check_number(name, error)
    if not 0 < error < math.inf:
        raise ParameterError("out-of-range", f"{name} is {error}; it must be positive and finite")


def _squared_and_summed(margin: float | Mapping[str, float], domain: Domain) -> float:
    """The largest target at which every margin is kept; all errors are the same part of their widths."""
    box = domain.numbers
    if isinstance(margin, Mapping):
        columns = None if box is None else box.columns
        if columns is None or set(margin) != set(columns):
            named = "have no names" if columns is None else f"are {str(list(columns))[:200]}"
            raise ParameterError(
                "unknown-column",
                f"margin is given for {str(list(margin))[:200]}, but the numbers {named}; give one for "
                "each of them, by the same names, or one for all",
            )
        each = [margin[name] for name in columns]
    else:
        each = [margin]
    for error in each:
        _check_error("margin", error)
    if box is None:
        return (each[0] / Z_95) ** 2 * domain.dimension
    part = float(np.min(np.array(each) / box.width)) / Z_95
    return float(part**2 * np.sum(box.width**2) * domain.dimension / box.dimension)


def _in_the_words_asked(
    domain: Domain | None, margin: float | Mapping[str, float] | None, target: float, least: float
) -> str:
    """The error that was asked for, and the least that was found, both as whoever asked put it."""
    if domain is None or margin is None:
        return f"a squared error of {target:.4g}{_at_best(least)}"
    times = math.sqrt(least / target)  # all errors are the same part of their widths, and at the target one just fits
    box = domain.numbers
    if isinstance(margin, Mapping):
        assert box is not None  # `_squared_and_summed` saw to it
        widths = dict(zip(box.columns, box.width.tolist(), strict=True))
        part = times * min(margin[name] / width for name, width in widths.items())
        missed = [name for name, width in widths.items() if part * width > margin[name]]
        each = [f"{margin[name]:g} of {name}{_at_best(part * widths[name], '± ')}" for name in missed[:_NAMED]]
        return f"a margin of ± {', ± '.join(each)}{', ...' if len(missed) > _NAMED else ''}"
    whose = domain.entry_noun
    return f"a margin of ± {margin:g} of {whose}{_at_best(times * margin, '± ')}"


def _at_best(error: float, sign: str = "") -> str:
    return f" (at best {sign}{error:.3g})" if math.isfinite(error) else ""
