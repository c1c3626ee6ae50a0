"""What a notebook and `print` show of an estimate: whose it is, what is guaranteed, and a table of some entries."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._rounding import evenly, number
from shufflesum._shown import Cells, Shown
from shufflesum.estimate.base import Released
from shufflesum.estimate.contents import columns_of
from shufflesum.estimate.hashed import HashedEstimate

__all__ = ["shown"]

_SHOWN = 12
_LEVEL = 0.95
_HEADS = {  # of what files have, in this order, as far as a kind of estimate has it
    "label": "label",
    "count": "users",
    "count_standard_error": "standard error",
    "count_lower": "from",
    "count_upper": "to (95 %)",
    "frequency": "share",
    "mean": "mean",
    "standard_error": "standard error",
    "lower": "from",
    "upper": "to (95 %)",
}
_ENDS = {"lower": ROUND_FLOOR, "upper": ROUND_CEILING}


def shown(estimate: Released) -> Shown:
    """A small table, with no more than a dozen rows."""
    plan = estimate.plan
    later = f", round {estimate.round_number:,} of {plan.rounds:,}" if plan.rounds > 1 else ""
    facts = [f"{estimate.users:,} users{later}; plan {plan.id[:12]}"]
    notes = [*([estimate.adjustment] if estimate.adjustment else []), *map(str, estimate.warnings)]
    if estimate.broken is None:
        facts.append(f"guarantee for one user: {plan.guarantee.in_words}")
    else:
        notes.insert(0, f"NO GUARANTEE: {estimate.broken}")
    if isinstance(estimate, HashedEstimate):
        return Shown(type(estimate).__name__, [*facts, "ask for words: estimate.counts_of(words)"], None, notes)
    columns = columns_of(estimate, _LEVEL)
    size = len(next(iter(columns.values())))
    places = _largest(columns["count"]) if "label" in columns and size > _SHOWN else evenly(size, _SHOWN)
    if size > len(places):
        which = "the most frequent" if "label" in columns else "some"
        facts.append(f"{which} {len(places)} of {size:,} shown; estimate.to_frame() has all")
    return Shown(type(estimate).__name__, facts, _cells(columns, places), notes)


def _largest(counts: NDArray[Any]) -> list[int]:
    places: list[int] = np.argsort(-counts, kind="stable")[:_SHOWN].tolist()
    return places


def _cells(columns: dict[str, NDArray[Any]], shown: list[int]) -> Cells:
    """Names of entries or their places, then figures: of labels counts alone, of groups sizes without ends."""
    labels, groups = "label" in columns, "group" in columns
    index = [name for name in columns if name.startswith("index_")]
    first = ["group"] if groups else []
    first += [] if labels else ["name"] if "name" in columns else index
    left_out = {"mean", "standard_error", "lower", "upper"} if labels else {"frequency"}
    left_out |= {"count_lower", "count_upper"} if groups else set()
    kept = [name for name in _HEADS if name in columns and name not in left_out]
    heads = [name.replace("index_", "axis ") for name in first] + [_HEADS[name] for name in kept]
    rows = [
        [*(str(columns[name][place]) for name in first), *(_figure(name, columns, place) for name in kept)]
        for place in shown
    ]
    return heads, rows


def _figure(name: str, columns: dict[str, NDArray[Any]], place: int) -> str:
    """As many digits as the standard error allows; ends are rounded outwards."""
    value = columns[name][place]
    if isinstance(value, str):
        return str(value)
    if not np.isfinite(value):
        return "too few" if name == "mean" else ""
    if name.endswith("standard_error"):
        return f"{value:.2g}"
    if name == "frequency":
        return f"{100 * value:.2f} %"
    error = columns["count_standard_error" if name.startswith("count") else "standard_error"][place]
    return number(value, error, _ENDS.get(name.removeprefix("count_"), ROUND_HALF_EVEN))
