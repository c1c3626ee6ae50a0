"""The planner: as few reports as an error close to the least takes, at the privacy asked for, by any mechanism.

What it returns is certified.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, TypedDict

from shufflesum._checks import check_choice, check_size
from shufflesum.cautions import BoxIsBetterWarning, UninformativePlanWarning
from shufflesum.cells import MOST_CELLS
from shufflesum.domain import Ball, BoundsLike, Box, Categories, Choices, Domain, Groups, Hashed, Structure
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms import Replace, Sampling
from shufflesum.mechanisms.add import MOST_DIGITS
from shufflesum.mechanisms.add.moves import AddMoves
from shufflesum.mechanisms.replace.moves import ReplaceMoves, halvings, most_levels, published_choice
from shufflesum.planning.ball import ball_alternatives, ball_plan, box_is_better
from shufflesum.planning.labels import AS_GOOD_WORDS, label_plans, worst_error
from shufflesum.plans import Plan, check_spread
from shufflesum.privacy import Accountant, Guarantee

__all__ = [
    "PlanChoices",
    "Shape",
    "alternatives",
    "domain_of",
    "plan",
    "predicted_error",
    "published_plan",
    "warn_if_uninformative",
]

Shape: TypeAlias = int | Sequence[int] | Structure | Ball | Categories | Choices | Groups | Hashed
"""What a caller says that users hold: an array's shape or structure, or labels."""

_AS_GOOD = 0.05  # so much more error than the least counts as good
_HOPELESS = 1.5  # a guessed error so many times that of a certified plan is not worth certifying


class PlanChoices(TypedDict, total=False):
    """What a caller of `plan` may fix or leave open; the same wherever plans are made."""

    bounds: BoundsLike | None
    columns: Sequence[str] | None
    mechanism: Literal["replace", "add"] | None
    max_reports: int | None
    coordinates: int | None
    levels: int | None
    sampling: Sampling | None
    digits: int | None
    accountant: Accountant
    honest_fraction: float
    rounds: int
    spread: float | None
    one_process: bool


def plan(
    *,
    users: int,
    shape: Shape,
    epsilon: float,
    delta: float,
    bounds: BoundsLike | None = None,
    columns: Sequence[str] | None = None,
    mechanism: Literal["replace", "add"] | None = None,
    max_reports: int | None = None,
    coordinates: int | None = None,
    levels: int | None = None,
    sampling: Sampling | None = None,
    digits: int | None = None,
    accountant: Accountant = "exact",
    honest_fraction: float = 1.0,
    rounds: int = 1,
    spread: float | None = None,
    one_process: bool = False,
) -> Plan:
    """A plan for collecting arrays of `shape` from at least `users` users under (epsilon, delta).

    Of the plans under which a user sends at most `max_reports` reports, it is the one with the fewest whose predicted
    error of the mean is within 5 % of the least: for the worst data, or for data whose users differ by a `spread` that
    is publicly known, their standard deviation in every coordinate. `mechanism="add"` (`digits` of each value, noise as
    further reports) is as accurate as a trusted curator, but leaves users nothing if shuffler and analyzer collude;
    `mechanism="replace"` (the paper's: `coordinates`, `levels`, `sampling`) sends less and leaves them something.
    `accountant="paper"` uses the published formulas as they stand. A plan for `one_process` serves whoever holds all
    data: nothing can be sent under it. Bounds are public: choose them from what the values can be, never from the data;
    a pair for all, one for each coordinate, ([lo, ...], [hi, ...]), or one for each column, {"age": (0, 120), ...}.
    They are 0 to 1 unless given.

    `shape` may also be a `Ball` (vectors with a bounded norm, as model updates), or `Categories`, `Choices`, `Groups`
    or `Hashed`: users then hold labels. `columns` names the entries of a vector, and tables must then have just these
    columns.
    """
    check_choice("accountant", accountant, ("exact", "paper"))
    guarantee = Guarantee(epsilon, delta, users, honest_fraction, rounds, accountant)
    domain = domain_of(shape, bounds, columns)
    if spread is not None:
        check_spread(spread)
    if max_reports is not None:
        check_size("max_reports", max_reports, 1, MOST_CELLS)
    papers: dict[str, object] = {"coordinates": coordinates, "levels": levels, "sampling": sampling}
    papers["accountant='paper'"] = accountant == "paper" or None
    kinds = _kinds(mechanism, {"replace": papers, "add": {"digits": digits}})
    if not isinstance(domain, Box):
        _refuse_for_labels(domain, {**papers, "spread": spread, "digits": digits})
        if isinstance(domain, Ball):
            chosen = ball_plan(domain, guarantee, kinds, max_reports)
            _warn_of_better_box(chosen)
            warn_if_uninformative(chosen)
            return chosen
        found = label_plans(domain, guarantee, kinds, max_reports, digits, one_process)
        # who caps reports says themselves how many are not too many
        knee = isinstance(domain, Hashed) and max_reports is None
        return _chosen(found, worst_error, AS_GOOD_WORDS if knee else _AS_GOOD)
    found = []
    if "add" in kinds:
        if digits is not None:
            check_size("digits", digits, 1, MOST_DIGITS)
        moves = AddMoves(domain, guarantee, digits, one_process, spread)
        found += _added(moves, max_reports, alone=kinds == ["add"])
    if "replace" in kinds:
        found += _replaced(domain, guarantee, coordinates, max_reports, levels, sampling, spread, found)
    return _chosen(found, lambda one: predicted_error(one, spread), _AS_GOOD)


def domain_of(shape: Shape, bounds: BoundsLike | None, columns: Sequence[str] | None) -> Domain:
    """What a caller of `plan` says that users hold."""
    if isinstance(shape, Ball | Categories | Choices | Hashed):
        for name, value in (("bounds", bounds), ("columns", columns)):
            if value is not None:
                raise ParameterError(
                    "conflicting-arguments",
                    f"{name} is for arrays in a box, not for {type(shape).__name__}: leave it out",
                )
        return shape
    if isinstance(shape, Groups):
        named = shape
        if columns is not None:
            named = Groups(shape.labels, shape.box.structure, shape.box.bounds, columns, column=shape.column)
        return named if bounds is None else named.with_bounds(bounds)
    return Box.of(shape, (0.0, 1.0) if bounds is None else bounds, columns)


def _refuse_for_labels(domain: Domain, given: dict[str, object]) -> None:
    """Refuse arguments that say something about numbers only."""
    for name, value in given.items():
        if value is not None and not (name == "digits" and isinstance(domain, Groups)):
            raise ParameterError(
                "impossible-combination", f"{name} means nothing for {type(domain).__name__}; leave it out"
            )


def _chosen(found: Sequence[Plan], error: Callable[[Plan], float], as_good: float) -> Plan:
    """The fewest reports within so much of the least error."""
    least = min(map(error, found))
    good = [one for one in found if error(one) <= (1 + as_good) * least]
    chosen = min(good, key=lambda one: (one.reports, error(one)))
    warn_if_uninformative(chosen)
    return chosen


def _kinds(mechanism: str | None, given: dict[str, dict[str, object]]) -> list[str]:
    """The mechanisms that may be planned for; an argument that only one of them has means that one."""
    if mechanism is not None:
        check_choice("mechanism", mechanism, tuple(given))
    meant = {kind: name for kind, options in given.items() for name, value in options.items() if value is not None}
    if mechanism is not None:
        meant.setdefault(mechanism, "mechanism")
    if len(meant) > 1:
        one, other = meant.items()
        raise ParameterError(
            "conflicting-arguments",
            f"{one[1]} means mechanism {one[0]!r}, and {other[1]} means {other[0]!r}; leave one of them out",
        )
    return list(meant) or list(given)


def _added(moves: AddMoves, max_reports: int | None, *, alone: bool) -> list[Plan]:
    """Plans with `add`, from one digit on; none where nothing can carry them and another mechanism may."""
    found: list[Plan] = []
    try:
        for mechanism in moves.starts():
            candidate = Plan(moves.domain, mechanism, moves.guarantee)
            if not alone and not moves.worth_it(mechanism):
                break
            if max_reports is not None and candidate.reports > max_reports:
                if alone and not found:
                    raise PrivacyError(
                        "privacy-out-of-reach",
                        f"max_reports is {max_reports}, but mechanism 'add' with {mechanism.digits} digits needs "
                        f"{candidate.reports} reports of a user; raise max_reports, or plan with mechanism 'replace'",
                    )
                break
            found.append(candidate)
    except (ParameterError, PrivacyError):
        if alone and not found:
            raise
    return found


def _replaced(
    domain: Box,
    guarantee: Guarantee,
    coordinates: int | None,
    max_reports: int | None,
    levels: int | None,
    sampling: Sampling | None,
    spread: float | None,
    rivals: Sequence[Plan],
) -> list[Plan]:
    """Plans with `replace`: the best, and those with fewer coordinates that are as good; none if rivals are better."""
    if coordinates is not None:
        check_size("coordinates", coordinates, 1, domain.dimension)
        if max_reports is not None and coordinates > max_reports:
            raise ParameterError(
                "conflicting-arguments",
                f"coordinates is {coordinates}, each of which is a report, above max_reports = {max_reports}; "
                "change one of them",
            )
    if levels is not None:
        check_size("levels", levels, 1, most_levels(domain, certified=guarantee.accountant == "exact"))
    if sampling is not None:
        check_choice("sampling", sampling, ("stratified", "uniform"))
    if guarantee.accountant == "paper":
        return [Plan(domain, published_choice(domain, guarantee, coordinates or 1, levels, sampling), guarantee)]
    moves = ReplaceMoves(
        domain,
        guarantee,
        [coordinates] if coordinates else halvings(domain, guarantee, max_reports),
        [levels] if levels else None,
        sampling or "stratified",
        spread,
    )
    least = min((predicted_error(rival, spread) for rival in rivals), default=math.inf)
    if moves.least_guess > _HOPELESS * least:
        return []
    try:
        found = [_climb(moves)]
    except PrivacyError:
        if rivals:
            return []
        raise
    for fewer in moves.coordinates:
        if fewer < found[-1].reports:
            candidate = Plan(domain, moves.best_with(fewer), guarantee)
            if not predicted_error(candidate, spread) <= (1 + _AS_GOOD) * min(least, predicted_error(found[0], spread)):
                break
            found.append(candidate)
    return found


def _climb(moves: ReplaceMoves) -> Plan:
    """From the best start to the least predicted error that no single move improves."""

    def error(mechanism: Replace) -> float:
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
    """What the same collection would cost otherwise, each at its certified noise, by reports sent.

    With `replace` d, d/2, d/4, ... coordinates, each at its own levels; with `add` every number of digits. For a ball
    1, 4, 16, ... bits of each coordinate.
    """
    guarantee = replace(chosen.guarantee, accountant="exact")
    if isinstance(chosen.domain, Ball):
        return sorted(ball_alternatives(chosen, guarantee), key=lambda one: one.reports)
    if not isinstance(chosen.domain, Box):
        found = label_plans(chosen.domain, guarantee, ["replace", "add"], None, None, chosen.one_process)
        return sorted(found, key=lambda one: one.reports)
    sampling = chosen.mechanism.choices().get("sampling", "stratified")
    moves = ReplaceMoves(chosen.domain, guarantee, halvings(chosen.domain, guarantee), sampling=sampling)
    found = [Plan(chosen.domain, moves.best_with(coordinates), guarantee) for coordinates in moves.coordinates]
    found += _added(AddMoves(chosen.domain, guarantee, one_process=chosen.one_process), None, alone=False)
    return sorted(found, key=lambda one: one.reports)


def published_plan(plan: Plan, epsilon: float) -> Plan:
    """What the published formula makes of one round of the same collection, with one coordinate from each user."""
    if not isinstance(plan.domain, Box):
        raise PrivacyError("not-certified", "the published formula is for arrays in a box only")
    guarantee = replace(plan.guarantee, epsilon=epsilon, rounds=1, accountant="paper")
    return Plan(plan.domain, published_choice(plan.domain, guarantee, 1, None, None), guarantee)


def warn_if_uninformative(chosen: Plan) -> None:
    """Say where guessing would do better."""
    if chosen.worse_than_guessing:
        guess = "the centre" if isinstance(chosen.domain, Ball) else "the middle of the bounds"
        warnings.warn(
            f"with this plan the estimate can be worse than guessing {guess}; "
            "more users, a larger epsilon or fewer coordinates would help",
            UninformativePlanWarning,
            stacklevel=3,
        )


def _warn_of_better_box(chosen: Plan) -> None:
    if box_is_better(chosen):
        warnings.warn(
            f"for {chosen.dimension} numbers a box serves better: plan with shape={chosen.dimension}, mechanism='add' "
            "and bounds of minus and plus the radius around the centre",
            BoxIsBetterWarning,
            stacklevel=3,
        )
