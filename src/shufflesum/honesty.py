"""Whether a batch can have come from as many honest users as its plan counts on, as far as its table shows."""

from __future__ import annotations

import math

import numpy as np

from shufflesum.errors import ReportsError
from shufflesum.privacy import honest_users
from shufflesum.protocol import Counts

__all__ = ["refuse_broken", "strayed_users", "why_broken"]


def strayed_users(counts: Counts, users: int) -> int:
    """The fewest of `users` who can have strayed from the protocol, given the table of a whole batch.

    Whoever follows it has all reports accepted: in the stratified scheme exactly one in each block, in the uniform one
    no two of a coordinate. A user who strays can leave a block out, or put all reports into one place.
    """
    plan = counts.plan
    fewest = math.ceil(counts.rejected / plan.reports)
    places = counts.table.sum(axis=1)
    if plan.sampling == "stratified":
        places = np.add.reduceat(places, plan.block_starts)
    if len(places) == plan.reports:
        fewest = max(fewest, users - int(places.min()))
    if plan.reports > 1:
        fewest = max(fewest, math.ceil((int(places.max()) - users) / (plan.reports - 1)))
    return fewest


def why_broken(counts: Counts, users: int) -> str | None:
    """Why the plan's guarantee does not hold for a whole batch of `users`; None where nothing speaks against it."""
    plan, strayed = counts.plan, strayed_users(counts, users)
    allowed = users - honest_users(users, plan.honest_fraction)
    if strayed <= allowed:
        return None
    return (
        f"the guarantee no longer holds: {counts.rejected} of {users * plan.reports} reports were rejected, and at "
        f"least {strayed} of {users} users strayed from the protocol, where the honest fraction "
        f"{plan.honest_fraction:g} allows {allowed}"
    )


def refuse_broken(counts: Counts, users: int) -> None:
    """Refuse a whole batch of `users` for which the plan's guarantee does not hold."""
    if (why := why_broken(counts, users)) is not None:
        raise ReportsError(f"{why}; there is no estimate: plan with a smaller honest fraction, and collect anew")
