"""Whole estimates as files: the plan, and the table of counts that everything follows from; it is packed into JSON.

What is read back is not believed: the plan's guarantee is computed again, the table must be one that the plan's users
can have sent, and a guarantee that the table speaks against is refused. The checksum is against damage; whoever changes
a table on purpose, keeps it possible and computes the checksum again is not found out, for there is no signature.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._documents import decode_checked, encode_checked, problem_of
from shufflesum._machine import replace_file
from shufflesum.errors import FileError, PlanError, ShufflesumError
from shufflesum.estimate.base import ADJUSTMENTS, AnyEstimate, BaseEstimate, estimate_of
from shufflesum.privacy import honest_users

if TYPE_CHECKING:
    from shufflesum.plans import Plan

_FORMAT = "shufflesum-estimate-1"
_FIELDS = {"plan", "round", "users", "rejected_reports", "why_broken", "words", "table"}


def save_estimate(estimate: BaseEstimate, path: str | Path) -> None:
    """Write the estimate; the file appears whole or not at all."""
    content = {
        "plan": estimate.plan.summary(),
        "round": int(estimate.round_number),
        "users": int(estimate.users),
        "rejected_reports": int(estimate.rejected),
        "why_broken": estimate.broken,
        "words": estimate.words,
        "table": table_to_json(estimate.table),
    }
    if estimate.adjusted:
        content["adjusted"] = list(estimate.adjusted)
    if estimate.left_out:
        content["left_out"] = int(estimate.left_out)
    final = Path(path).resolve()  # a link keeps pointing to the file that is replaced
    try:
        replace_file(final, encode_checked(_FORMAT, content))
    except OSError as error:
        raise FileError("unwritable", f"{path}: cannot be written: {error.strerror or error}") from error


def load_estimate(path: str | Path) -> BaseEstimate:
    """The estimate that was saved, of its own kind; refused where anything in the file cannot be."""
    from shufflesum.plans import Plan  # estimates stand below plans, which know their domains

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
    if content.keys() - {"adjusted", "left_out"} != _FIELDS:
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


def _estimate(plan: Plan, content: dict[str, Any]) -> BaseEstimate:
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
    malicious = plan.mechanism.min_malicious(plan.encoding, table, blanks, rejected, users)
    if broken is None and malicious > users - honest_users(users, plan.honest_fraction):
        raise ValueError(f"it says that the guarantee holds, but {malicious} users did not follow the protocol")
    adjusted = content.get("adjusted", [])
    if not isinstance(adjusted, list) or adjusted != [each for each in ADJUSTMENTS if each in adjusted]:
        raise TypeError(f"adjusted is none of {', '.join(ADJUSTMENTS)}")
    left_out = content.get("left_out", 0)
    if type(left_out) is not int or left_out < 0:
        raise TypeError("left_out is no number of rows")
    found: AnyEstimate = estimate_of(plan, users, rejected, table, broken, number)
    estimate: BaseEstimate = replace(found, adjusted=tuple(adjusted), left_out=left_out)
    if words is None:
        return estimate
    if not plan.domain.needs_candidates or not isinstance(words, list):
        raise TypeError("words are asked for under a plan that has none")
    counts: BaseEstimate = found.counts_of(words)
    return replace(counts, adjusted=estimate.adjusted, left_out=left_out)


def table_to_json(table: NDArray[np.int64]) -> dict[str, Any]:
    """Whole numbers of 4 bytes, or of 8 where a count needs them."""
    size = 4 if int(table.max(initial=0)) < 1 << 32 else 8
    packed = zlib.compress(table.astype(f"<u{size}").tobytes(), 1)
    return {"bytes": size, "zlib": base64.b64encode(packed).decode("ascii")}


def table_from_json(value: Any, cells: int) -> NDArray[np.int64]:
    """The table of just so many cells; ValueError, KeyError or TypeError for anything else."""
    size, text = value["bytes"], value["zlib"]
    if size not in (4, 8) or value.keys() != {"bytes", "zlib"}:
        raise ValueError("no table of counts")
    opener = zlib.decompressobj()
    try:
        # One byte more than there should be is enough to see that there is too much.
        counts = opener.decompress(base64.b64decode(text, validate=True), cells * size + 1)
    except (binascii.Error, zlib.error) as error:
        raise ValueError("no table of counts") from error
    if not opener.eof or opener.unused_data or len(counts) != cells * size:
        raise ValueError("a table of another size")
    table = np.frombuffer(counts, f"<u{size}").astype(np.int64)
    if (table < 0).any():
        raise ValueError("counts beyond 2**63")
    table.setflags(write=False)
    return table
