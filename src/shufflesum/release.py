"""The one gate through which an estimate leaves, for library, files, Spark and service alike.

It fails closed: a plan that does not keep its claim, too few users, or more malicious ones than its guarantee allows
for, and there is no estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shufflesum.cautions import warn
from shufflesum.errors import ReportsError
from shufflesum.estimate import Adjustment, AnyEstimate, estimate_of
from shufflesum.plans import Plan, check_plan
from shufflesum.privacy import honest_users
from shufflesum.reports import Counts

_A_PART = (
    "these reports are not known to be all that their shuffle wrote, and of a part of a batch nobody can see whether "
    "enough users were honest"
)


def release(
    counts: Counts,
    *,
    whole: bool = True,
    flaws: Iterable[str] = (),
    without_guarantee: bool = False,
    adjusted: tuple[Adjustment, ...] = (),
) -> AnyEstimate:
    """The estimate from the table of a batch, or a `ReportsError` that says why there is none.

    `whole` says that it is all of the batch: of a part nobody can see who was honest. `flaws` are reasons found before,
    by `why_broken`, in batches that the table holds as well. `without_guarantee` insists on an estimate all the same;
    it then says itself why the guarantee does not hold (`Estimate.broken`). Nothing makes too few users enough.
    `adjusted` is what was done to users' values before, for the estimate to say.
    """
    plan = counts.plan
    check_plan(plan)
    if plan.positions is not None:
        if counts.users < 1:
            raise ReportsError("too-few-users", "there are no users; collect reports of at least one")
        if (wrong := counts.missing()) is not None:
            raise ReportsError("not-whole", f"{wrong}; give the whole batch, every report once")
    elif counts.users < plan.users:
        raise ReportsError(
            "too-few-users",
            f"{counts.received} reports were received ({counts.rejected} rejected), but this plan releases nothing "
            f"below {plan.least_reports} ({plan.reports} from each of {plan.users} users); collect more, or plan for "
            "fewer users",
        )
    broken = next(iter(flaws), None) or (why_broken(counts) if whole else _A_PART)
    refuse_broken(broken, without_guarantee=without_guarantee)
    counts.close()
    table = counts.table.copy()
    table.setflags(write=False)
    found = estimate_of(plan, counts.users, counts.rejected, table, broken, counts.round_number)
    return _with_warnings(replace(found, adjusted=adjusted))


def release_found(
    plan: Plan, users: int, labels: Sequence[str], table: NDArray[np.int64], round_number: int = 1
) -> AnyEstimate:
    """The estimate of labels that one process found in the data it holds, where nobody sent anything.

    `table` has the noisy count of each, in their order, and then that of the rest.
    """
    check_plan(plan)
    plan.check_round(round_number)
    if users < plan.users:
        raise ReportsError(
            "too-few-users",
            f"there are {users} users, but this plan releases nothing below {plan.users}; add rows, or plan for fewer "
            "users",
        )
    table.setflags(write=False)
    return _with_warnings(
        plan.domain.estimate_type(plan, users, 0, table, None, round_number, labels=tuple(labels))  # type: ignore[call-arg]
    )


def _with_warnings(estimate: AnyEstimate) -> AnyEstimate:
    for warning in estimate.warnings:
        warn(warning)
    return estimate


def refuse_broken(broken: str | None, *, without_guarantee: bool) -> None:
    """Refuse an estimate whose guarantee does not hold, for this reason, unless somebody insists on it."""
    if broken is not None and not without_guarantee:
        raise ReportsError(
            "guarantee-broken",
            f"{broken}; there is no estimate: give whole batches, or plan with a smaller honest fraction and collect "
            "anew (without_guarantee=True insists on one)",
        )


def min_malicious(counts: Counts) -> int:
    """The fewest users who cannot have followed the protocol, given the table of a whole batch.

    Everybody sends the same number of reports: where some are left over, somebody sent another number, unless they are
    a shuffler's.
    """
    plan = counts.plan
    if plan.positions is not None:  # nobody's honesty is counted on, and a noisy table accuses nobody
        return 0
    found = plan.mechanism.min_malicious(plan.encoding, counts.table, counts.blanks, counts.rejected, counts.users)
    return max(found, int(plan.positions is None and counts.received % plan.reports > 0))


def why_broken(counts: Counts) -> str | None:
    """Why the plan's guarantee does not hold for a whole batch; None where nothing speaks against it."""
    plan, users, malicious = counts.plan, counts.users, min_malicious(counts)
    allowed = users - honest_users(users, plan.honest_fraction)
    if malicious <= allowed:
        return None
    return (
        f"the guarantee does not hold: of {counts.received} reports {counts.rejected} were rejected and "
        f"{counts.blanks} blank, and at least {malicious} of {users} users did not follow the protocol, where the "
        f"honest fraction {plan.honest_fraction:g} allows {allowed}"
    )
