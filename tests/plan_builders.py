"""Plans of these tests stand on `randomized-response`, whose cells are pairs of a coordinate and a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum import plans
from shufflesum.domains import Domain
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.mechanisms.mechanism import Mechanism
from shufflesum.plans import Plan
from shufflesum.reports import Reports

__all__ = [
    "coordinates_of",
    "encoding_for",
    "held",
    "replace_of",
    "reports_of",
    "values_of",
    "with_guarantee",
    "with_mechanism",
]


def encoding_for(domain: Domain, mechanism: type[Mechanism]) -> Any:
    """The encoding that the mechanism accepts: of just that type, which a type checker does not see."""
    return plans.encoding_for(domain, mechanism)


def replace_of(plan: Plan) -> RandomizedResponse:
    """The plan's mechanism, which must be `randomized-response`."""
    assert isinstance(plan.mechanism, RandomizedResponse)
    return plan.mechanism


def held(what: Any) -> dict[str, Any]:
    """What users hold, as `plan` and `aggregate` take it: a domain, or the shape of arrays."""
    return {"domain" if isinstance(what, Domain) else "shape": what}


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
