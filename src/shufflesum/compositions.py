"""Several plans on the same users, together: the list is fixed before the first, what users hold may depend on results.

Each plan is dominated by one pair whatever its data and bounds, so that all of them are by the product of their pairs
(docs/privacy.md, 6.1). Which plans there are, and their noise, must not depend on results: for that there is a budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from shufflesum.errors import PlanError
from shufflesum.mechanisms.replace_bits.accounting import BallAccounting
from shufflesum.plans import Plan
from shufflesum.privacy.ball import Certificate
from shufflesum.privacy.engine.composition import ComposedUpper, compose_dominating
from shufflesum.privacy.engine.filters import Charge, Filter, filters_of
from shufflesum.privacy.engine.losses import GridLosses

__all__ = ["charges_of", "compose", "dominating_pair", "filter_for"]

_INTERVAL = 2.0**-24  # all grids are this times a power of two


def dominating_pair(plan: Plan) -> GridLosses:
    """A symmetric pair on a grid that dominates all rounds of a plan, by the certified accountant."""
    _refuse_uncertified(plan)
    return plan.privacy.losses(_INTERVAL)


def _refuse_uncertified(plan: Plan) -> None:
    """Refuse a plan that only published formulas, or nobody, vouches for."""
    if plan.accountant != "exact":
        raise PlanError(
            "not-certified",
            f"a plan of accountant {plan.accountant!r} cannot be composed with others: only certified bounds can; make "
            "a plan with accountant 'exact'",
        )


def charges_of(plan: Plan) -> Callable[[Filter], Charge]:
    """What all rounds of a plan cost under any filter: each by itself, since others may come between them."""
    _refuse_uncertified(plan)
    match plan.privacy:
        case BallAccounting(ball=Certificate() as ball):
            mu, apart = ball.gaussian(plan.delta)
            if math.isfinite(mu):
                return lambda within: within.charge_gaussian(mu, apart)
    pair = dominating_pair(replace(plan, guarantee=replace(plan.guarantee, rounds=1)))
    return lambda within: within.charge(pair, plan.rounds)


def filter_for(epsilon: float, delta: float, charges: Callable[[Filter], Charge]) -> Filter:
    """The filter that admits most plans like this one: for a budget that nothing was entered in, with no result yet."""
    return min(filters_of(epsilon, delta), key=lambda within: within.part_of([charges(within)]))


def compose(plans: Sequence[Plan]) -> ComposedUpper:
    """What all rounds of all these plans together guarantee, read at any epsilon or delta."""
    return compose_dominating([dominating_pair(plan) for plan in plans])
