"""Several plans on the same users, together: the list is fixed before the first, what users hold may depend on results.

Each plan is dominated by one PLD whatever its data and bounds, so that all of them are by the composition of these
(docs/privacy.md, 6.1). Which plans there are, and their noise, must not depend on results: for that there is a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from shufflesum.errors import PlanError
from shufflesum.plans import Plan
from shufflesum.privacy.engine.composition import ComposedUpper, compose_dominating
from shufflesum.privacy.engine.filters import PrivacyCost, PrivacyFilter, privacy_filters
from shufflesum.privacy.engine.pld import PrivacyLossDistribution

_INTERVAL = 2.0**-24  # all grids are this times a power of two


def dominating_pld(plan: Plan) -> PrivacyLossDistribution:
    """A symmetric PLD that dominates all rounds of a plan, by the certified accountant."""
    _refuse_uncertified(plan)
    return plan.privacy.pld(_INTERVAL)


def _refuse_uncertified(plan: Plan) -> None:
    """Refuse a plan that only published formulas, or nobody, vouches for."""
    if plan.accountant != "exact":
        raise PlanError(
            "not-certified",
            f"a plan of accountant {plan.accountant!r} cannot be composed with others: only certified bounds can; make "
            "a plan with accountant 'exact'",
        )


def costs_of(plan: Plan) -> Callable[[PrivacyFilter], PrivacyCost]:
    """What all rounds of a plan cost under any filter: each by itself, since others may come between them."""
    _refuse_uncertified(plan)
    gaussian = plan.privacy.dominating_gaussian(plan.delta)
    if gaussian is not None:
        return lambda within: within.gaussian_cost(*gaussian)
    pld = dominating_pld(replace(plan, guarantee=replace(plan.guarantee, rounds=1)))
    return lambda within: within.cost(pld, plan.rounds)


def filter_for(epsilon: float, delta: float, costs: Callable[[PrivacyFilter], PrivacyCost]) -> PrivacyFilter:
    """The filter that admits most plans like this one: for a budget that nothing was entered in, with no result yet."""
    return min(privacy_filters(epsilon, delta), key=lambda within: within.part_of([costs(within)]))


def compose(plans: Sequence[Plan]) -> ComposedUpper:
    """What all rounds of all these plans together guarantee, read at any epsilon or delta."""
    return compose_dominating([dominating_pld(plan) for plan in plans])
