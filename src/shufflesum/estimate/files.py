"""Whole estimates as files: the plan, and the table of counts that everything follows from.

What is read back is not believed: the plan's guarantee is computed again, the table must be one that the plan's users
can have sent, and a guarantee that the table speaks against is refused. The checksum is against damage; whoever changes
a table on purpose, keeps it possible and computes the checksum again is not found out, for there is no signature.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shufflesum._documents import decode_checked, encode_checked, problem_of
from shufflesum._machine import replace_file
from shufflesum.errors import FileError, PlanError, ShufflesumError
from shufflesum.estimate.adjusted import ADJUSTMENTS
from shufflesum.estimate.base import Released
from shufflesum.estimate.hashed import HashedEstimate, WordCounts
from shufflesum.estimate.packed import table_from_json, table_to_json
from shufflesum.plans import Plan
from shufflesum.privacy import honest_users

__all__ = ["load_estimate", "save_estimate"]

_FORMAT = "shufflesum-estimate-1"
_FIELDS = {"plan", "round", "users", "rejected_reports", "why_broken", "words", "table"}


def save_estimate(estimate: Released, path: str | Path) -> None:
    """Write the estimate; the file appears whole or not at all."""
    content = {
        "plan": estimate.plan.summary(),
        "round": int(estimate.round_number),
        "users": int(estimate.users),
        "rejected_reports": int(estimate.rejected),
        "why_broken": estimate.broken,
        "words": list(estimate.labels) if isinstance(estimate, WordCounts) else None,
        "table": table_to_json(estimate.table),
    }
    if estimate.adjusted:
        content["adjusted"] = list(estimate.adjusted)
    final = Path(path).resolve()  # a link keeps pointing to the file that is replaced
    try:
        replace_file(final, encode_checked(_FORMAT, content))
    except OSError as error:
        raise FileError("unwritable", f"{path}: cannot be written: {error.strerror or error}") from error


def load_estimate(path: str | Path) -> Released:
    """The estimate that was saved, of its own kind; refused where anything in the file cannot be."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise FileError("unreadable", f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        content = decode_checked(data, _FORMAT)
    except ValueError as error:
        raise FileError(
            problem_of(error),
            f"{path}: is no estimate that can be used: {error}; save one with estimate.save(path)",
        ) from error
    if content.keys() - {"adjusted"} != _FIELDS:
        raise FileError("malformed", f"{path}: an estimate has {', '.join(sorted(_FIELDS))}, and nothing else")
    try:
        plan = Plan.from_json(json.dumps(content["plan"]))
    except PlanError as error:
        raise PlanError(error.problem, f"{path}: {error}") from error
    try:
        return _estimate(plan, content)
    except ShufflesumError as error:
        raise FileError(error.problem, f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(
            "changed-afterwards", f"{path}: was changed after it was saved: {error}; have it saved again"
        ) from error


def _estimate(plan: Plan, content: dict[str, Any]) -> Released:
    from shufflesum.estimate import estimate_of  # which knows all kinds

    number, users, rejected = content["round"], content["users"], content["rejected_reports"]
    broken, words = content["why_broken"], content["words"]
    if not all(type(value) is int for value in (number, users, rejected)):
        raise TypeError("round, users or rejected reports are no whole numbers")
    if not isinstance(broken, str | None) or broken == "":
        raise TypeError("why_broken is neither null nor a reason")
    plan.check_round(number)
    table = table_from_json(content["table"], plan.cells)
    accepted = int(np.sum(table, dtype=object))  # whole numbers without end
    if users < plan.users or rejected < 0 or accepted + rejected >= (users + 1) * plan.reports:
        raise ValueError(
            f"{accepted} reports and {rejected} rejected ones of {users} users, where the plan has {plan.reports} of "
            f"each of at least {plan.users} users"
        )
    blanks = max(0, users * plan.reports - accepted - rejected)
    dishonest = plan.mechanism.fewest_dishonest(plan.domain, table, blanks, rejected, users)
    if broken is None and dishonest > users - honest_users(users, plan.honest_fraction):
        raise ValueError(f"it says that the guarantee holds, but {dishonest} users did not follow the protocol")
    adjusted = content.get("adjusted", [])
    if not isinstance(adjusted, list) or adjusted != [each for each in ADJUSTMENTS if each in adjusted]:
        raise TypeError(f"adjusted is none of {', '.join(ADJUSTMENTS)}")
    estimate = replace(estimate_of(plan, users, rejected, table, broken, number), adjusted=tuple(adjusted))
    if words is None:
        return estimate
    if not isinstance(estimate, HashedEstimate) or not isinstance(words, list):
        raise TypeError("words are asked for under a plan that has none")
    return estimate.counts_of(words)
