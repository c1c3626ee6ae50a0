"""What stands behind a plan of these tests: `replace`, whose cells are pairs of a coordinate and a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.mechanisms import Replace
from shufflesum.plans import Plan
from shufflesum.reports import Reports

__all__ = ["coordinates_of", "replace_of", "reports_of", "values_of", "with_guarantee", "with_mechanism"]


def replace_of(plan: Plan) -> Replace:
    """The plan's mechanism, which must be `replace`."""
    assert isinstance(plan.mechanism, Replace)
    return plan.mechanism


def with_mechanism(plan: Plan, **changes: Any) -> Plan:
    """The plan with other parameters of its mechanism."""
    return replace(plan, mechanism=replace(replace_of(plan), **changes))


def with_guarantee(plan: Plan, **changes: Any) -> Plan:
    """The plan with another claim, which may be false."""
    return replace(plan, guarantee=replace(plan.guarantee, **changes))


def reports_of(plan: Plan, pairs: Iterable[tuple[int, int]]) -> Reports:
    """Reports that say (coordinate, value) each."""
    cells = [coordinate * replace_of(plan).values + value for coordinate, value in pairs]
    return Reports(plan.id, np.array(cells, dtype=np.uint32))


def coordinates_of(plan: Plan, reports: Reports) -> NDArray[np.int64]:
    """The coordinate that each report is about."""
    return (reports.cells // replace_of(plan).values).astype(np.int64)


def values_of(plan: Plan, reports: Reports) -> NDArray[np.int64]:
    """The value that each report says."""
    return (reports.cells % replace_of(plan).values).astype(np.int64)
