"""A round's estimate as an analyzer answers with it, and back.

The answer holds what people want to read and, on request, the table of counts that all of it follows from: whoever has
the plan can ask it for more, such as the counts of any words. The table is what the guarantee is about; it reveals
nothing beside.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shufflesum.estimate import HashedEstimate, Released, estimate_of
from shufflesum.estimate.packed import table_from_json, table_to_json
from shufflesum.plans import Plan
from shufflesum.tables import estimate_to_json, warnings_to_json

__all__ = ["MOST_CELLS_ANSWERED", "round_from_json", "round_to_json"]

MOST_CELLS_ANSWERED = 1 << 26
"""The largest table an answer carries: 256 MiB before it is compressed."""


def round_to_json(estimate: Released, level: float) -> dict[str, Any]:
    """The estimate and its table; of words, which nobody has asked for yet, the table alone."""
    return _figures(estimate, level) | {
        "warnings": warnings_to_json(estimate),
        "table": table_to_json(estimate.table),
    }


def round_from_json(plan: Plan, found: dict[str, Any]) -> Released:
    """The estimate whose `round_to_json` this is; what it lists must follow from its table.

    ValueError, KeyError or TypeError for anything else.
    """
    users, rejected, level = found["users"], found["rejected_reports"], found["confidence_level"]
    broken = found.get("why_broken")
    if (
        type(users) is not int
        or type(rejected) is not int
        or not isinstance(level, float)
        or not isinstance(broken, str | None)
        or not (users >= 1 and rejected >= 0 and 0 < level < 1)
    ):
        raise ValueError("users, rejected reports or level are none")
    if plan.cells > MOST_CELLS_ANSWERED:
        raise ValueError("no answer carries a table that large")
    table, number = table_from_json(found["table"], plan.cells), found["round"]
    if type(number) is not int or not 1 <= number <= plan.rounds:
        raise ValueError("the round is none of the plan's")
    estimate = estimate_of(plan, users, rejected, table, broken, number)
    for name, figures in _figures(estimate, level).items():
        if not _same(found[name], figures):
            raise ValueError(f"{name} does not follow from the table")
    return estimate


def _figures(estimate: Released, level: float) -> dict[str, Any]:
    if isinstance(estimate, HashedEstimate):
        whole = {
            "confidence_level": level,
            "users": int(estimate.users),
            "rejected_reports": int(estimate.rejected),
            "guarantee_holds": estimate.guarantee_holds,
        }
        return whole if estimate.broken is None else whole | {"why_broken": estimate.broken}
    figures = estimate_to_json(estimate, level)
    del figures["warnings"]  # sentences: whoever has the estimate has their own
    return figures


def _same(stated: Any, true: Any) -> bool:
    """Equal but for the last digits of figures, which may differ between machines; null is not a number."""
    if stated == true:
        return True
    ours = np.array(true, dtype=np.float64)
    theirs = np.array(stated, dtype=np.float64)
    scale = float(np.nanmax(np.abs(ours), initial=0.0))
    return ours.shape == theirs.shape and np.allclose(theirs, ours, rtol=1e-6, atol=1e-9 * scale, equal_nan=True)
