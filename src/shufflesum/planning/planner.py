"""The planner: the mechanism with the least predicted error at the privacy asked for. What it returns is certified."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict, TypeVar

from numpy.typing import ArrayLike

from shufflesum._checks import check_choice, check_size
from shufflesum.cells import MOST_CELLS
from shufflesum.domain import Box, Structure
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms import Mechanism, Moves, Sampling
from shufflesum.mechanisms.replace.moves import ReplaceMoves, halvings, most_levels, published_choice
from shufflesum.plans import Plan, check_spread
from shufflesum.privacy import Accountant, Guarantee

__all__ = [
    "PlanChoices",
    "UninformativePlanWarning",
    "alternatives",
    "plan",
    "predicted_error",
    "published_plan",
    "warn_if_uninformative",
]


_M = TypeVar("_M", bound=Mechanism)


class UninformativePlanWarning(UserWarning):
    """The predicted error is larger than that of guessing the middle of the bounds."""


class PlanChoices(TypedDict, total=False):
    """What a caller of `plan` may fix or leave open; the same wherever plans are made."""

    bounds: tuple[ArrayLike, ArrayLike]
    coordinates: int | None
    max_reports: int | None
    levels: int | None
    sampling: Sampling | None
    accountant: Accountant
    honest_fraction: float
    rounds: int
    spread: float | None


def plan(
    *,
    users: int,
    shape: int | Sequence[int] | Structure,
    epsilon: float,
    delta: float,
    bounds: tuple[ArrayLike, ArrayLike] = (0.0, 1.0),
    coordinates: int | None = None,
    max_reports: int | None = None,
    levels: int | None = None,
    sampling: Sampling | None = None,
    accountant: Accountant = "exact",
    honest_fraction: float = 1.0,
    rounds: int = 1,
    spread: float | None = None,
) -> Plan:
    """A plan for collecting arrays of `shape` from at least `users` users under (epsilon, delta).

    What is left open (`coordinates` that a user reports, `levels`) is chosen for the least predicted worst-case error
    of the mean, or for data whose users differ by a `spread` that is publicly known: their standard deviation in every
    coordinate. A user sends at most `max_reports` reports. `accountant="paper"` uses the published formulas as they
    stand. Bounds are public: choose them from what the values can be, never from the data.
    """
    check_choice("accountant", accountant, ("exact", "paper"))
    guarantee = Guarantee(epsilon, delta, users, honest_fraction, rounds, accountant)
    domain = Box.of(shape, bounds)
    if spread is not None:
        check_spread(spread)
    if coordinates is not None:
        check_size("coordinates", coordinates, 1, domain.dimension)
    if max_reports is not None:
        check_size("max_reports", max_reports, 1, MOST_CELLS)
        if coordinates is not None and coordinates > max_reports:
            raise ParameterError(
                "conflicting-arguments",
                f"coordinates is {coordinates}, each of which is a report, above max_reports = {max_reports}; "
                "change one of them",
            )
    most = most_levels(domain, certified=accountant == "exact")
    if levels is not None:
        check_size("levels", levels, 1, most)
    if sampling is not None:
        check_choice("sampling", sampling, ("stratified", "uniform"))
    if accountant == "paper":
        chosen = Plan(domain, published_choice(domain, guarantee, coordinates or 1, levels, sampling), guarantee)
    else:
        moves = ReplaceMoves(
            domain,
            guarantee,
            [coordinates] if coordinates else halvings(domain, guarantee, max_reports),
            [levels] if levels else None,
            sampling or "stratified",
            spread,
        )
        chosen = _climb(moves)
    warn_if_uninformative(chosen)
    return chosen


def _climb(moves: Moves[_M]) -> Plan:
    """From the best start to the least predicted error that no single move improves."""

    def error(mechanism: _M) -> float:
        return predicted_error(Plan(moves.domain, mechanism, moves.guarantee), moves.spread)

    best = min(moves.starts(), key=error)
    improved = True
    while improved:
        improved = False
        for rival in moves.neighbours(best):
            if error(rival) < error(best):
                best, improved = rival, True
    if not math.isfinite(error(best)):
        guarantee = moves.guarantee
        raise PrivacyError(
            "privacy-out-of-reach",
            f"no noise short of noise alone is certified for epsilon = {guarantee.epsilon}, "
            f"delta = {guarantee.delta} with {guarantee.honest_users} honest users, each of whom sends "
            f"{best.describe(moves.domain)}; raise users or epsilon, or lower coordinates",
        )
    return Plan(moves.domain, best, moves.guarantee)


def predicted_error(plan: Plan, spread: float | None) -> float:
    """The squared error that a plan is chosen by."""
    return (plan.expected_error if spread is None else plan.error_at_spread(spread)).total


def alternatives(chosen: Plan) -> list[Plan]:
    """The same collection with d, d/2, d/4, ... coordinates per user, each at its own levels and certified noise."""
    guarantee = replace(chosen.guarantee, accountant="exact")
    sampling = chosen.mechanism.choices().get("sampling", "stratified")
    moves = ReplaceMoves(chosen.domain, guarantee, halvings(chosen.domain, guarantee), sampling=sampling)
    return [Plan(chosen.domain, moves.best_with(coordinates), guarantee) for coordinates in moves.coordinates]


def published_plan(plan: Plan, epsilon: float) -> Plan:
    """What the published formula makes of one round of the same collection, with one coordinate from each user."""
    guarantee = replace(plan.guarantee, epsilon=epsilon, rounds=1, accountant="paper")
    return Plan(plan.domain, published_choice(plan.domain, guarantee, 1, None, None), guarantee)


def warn_if_uninformative(chosen: Plan) -> None:
    """Say where guessing would do better."""
    if chosen.worse_than_guessing:
        warnings.warn(
            "with this plan the estimate can be worse than guessing the middle of the bounds; "
            "more users, a larger epsilon or fewer coordinates would help",
            UninformativePlanWarning,
            stacklevel=3,
        )
