"""A plan's privacy on one page, for people who answer for it but do not read proofs."""

from __future__ import annotations

import math
import textwrap

from shufflesum._rounding import upwards
from shufflesum.errors import PlanError
from shufflesum.plans import Plan

__all__ = ["dishonest", "statement"]

_LARGEST = 700.0  # the largest epsilon whose exponential is a number here


def statement(plan: Plan) -> str:
    """Plain text in Markdown: who sees what, what is guaranteed for whom, on which assumptions, and what is left."""
    if plan.accountant == "none":
        raise PlanError(
            "no-guarantee", "this plan has no privacy guarantee (accountant 'none'); there is nothing to state"
        )
    plan.verify()
    epsilon, delta = plan.epsilon, plan.delta
    factor = math.exp(min(epsilon, _LARGEST))
    rounds = "one round" if plan.rounds == 1 else f"up to {plan.rounds:,} rounds"
    honest = (
        "All users are counted on to follow the protocol."
        if plan.honest_fraction == 1
        else f"The guarantee counts on {plan.honest_users:,} users following the protocol."
    )
    return f"""# Privacy statement

Plan {plan.id[:16]}: the mean and sum of arrays of shape {plan.shape} ({plan.dimension:,} numbers a user), from at least
{plan.users:,} users, in {rounds}.

## Who sees what

{_device(plan)}
{_shuffler(plan)}
- **The analyzer**, and everybody it shares its results with, sees the mixed reports only, and is not trusted.

## What is guaranteed

(epsilon, delta) = (**{upwards(epsilon)}**, **{upwards(delta)}**) differential privacy for **one user, that is one row of data**, over
{rounds}: whether a user's row is what it is or anything else, no outcome becomes more likely by more than a factor of
{upwards(factor) if epsilon <= _LARGEST else "e^" + upwards(epsilon)}, plus {upwards(delta)}. People who own several rows have less: the guarantee is per row unless rows are combined
first. That somebody took part, and how many did, is not hidden.{_large_delta(plan)}

## What taking part can reveal at most

- Whoever has narrowed a user's row down to two equally likely ones, and sees all that the analyzer sees, guesses right with
  probability at most {_percent((factor + delta) / (1 + factor))} (50% is blind guessing).
- A test that wrongly accuses 1% of users finds at most {_percent(0.01 * factor + delta)} of those it is after.

## What is assumed

- The shuffler mixes and does not work together with the analyzer. Batches do not overlap. {honest}
- Every user counts once in each round, and each device draws fresh, secret randomness.
- Bounds and plan were chosen without looking at the data.
- {_accountant(plan)}

## If the shuffler and the analyzer collude

{_fallback(plan)}

## If users do not keep to the protocol

{textwrap.fill(f"At most, {dishonest(plan)}. That is a matter of accuracy, not of other users' privacy.", 120)}
"""


def dishonest(plan: Plan) -> str:
    """By how much users who send what they like can move a mean, in words."""
    few = max(1, plan.users // 100)
    if plan.one_process:
        return f"one row moves a mean by {upwards(plan.influence(1))}; nobody sends reports of their own"
    return (
        f"one user who sends what they like moves a mean by {upwards(plan.influence(1))}, "
        f"and 1 % of the users ({few:,}) by {upwards(plan.influence(few))}"
    )


def _device(plan: Plan) -> str:
    if plan.one_process:
        text = (
            "- **One process** holds the data of all users and does what users, shuffler and analyzer would do; it is "
            f"trusted with the data. As if each user sent {plan.mechanism.describe(plan.domain)}."
        )
        return textwrap.fill(text, 120, subsequent_indent="  ")
    text = (
        f"- **A user's device** holds the data. In each round it sends {plan.mechanism.describe(plan.domain)}. That makes "
        f"{plan.reports:,} reports ({plan.bytes_per_user['raw']:,} bytes), as many from everybody, each a message of its own."
    )
    return textwrap.fill(text, 120, subsequent_indent="  ")


def _shuffler(plan: Plan) -> str:
    text = (
        "- **The shuffler** receives the reports, mixes those of all users, and forgets who sent what. It releases nothing "
        f"below {plan.users:,} users."
    )
    if plan.local_epsilon is None and not plan.one_process:
        text += " It must not read them: they come to it sealed, and only the analyzer can open them."
    return textwrap.fill(text, 120, subsequent_indent="  ")


def _large_delta(plan: Plan) -> str:
    if plan.delta * plan.users < 1:
        return ""
    return (
        f" **This delta is no less than one in {plan.users:,} users: it would allow that one of them is laid open whole.** "
        "It should be far below."
    )


def _percent(probability: float) -> str:
    return f"{upwards(100 * min(1.0, probability))}%"


def _accountant(plan: Plan) -> str:
    if plan.accountant == "paper":
        return "The guarantee rests on the published formula, and on a user's reports not being linked to each other."
    return "The guarantee is computed by a certified accountant: every numerical error is counted against us."


def _fallback(plan: Plan) -> str:
    if plan.local_epsilon is None:
        return "Nothing is left: whoever can link reports to their sender reads the sender's data."
    each = upwards(plan.local_epsilon / (plan.reports * plan.rounds))
    weight = (
        "A figure that large is next to no protection: the shuffler matters."
        if plan.local_epsilon > 10
        else "That is a weaker, but real, protection."
    )
    return (
        f"Each report alone still protects its user: epsilon {each} a report, and {upwards(plan.local_epsilon)} for all "
        f"reports of a user together, with delta 0. {weight}"
    )
