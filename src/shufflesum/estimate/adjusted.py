"""What was done to users' values before they were counted: an estimate is of the values after that.

Which options were given is known, and how many values they changed is not told: exact counts of private data are not
private.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from shufflesum.domain import Ball, Categories, Domain, Missing

__all__ = ["ADJUSTMENTS", "Adjustment", "adjusted_by", "in_words"]

Adjustment: TypeAlias = Literal["clipped", "midpoint", "dropped"]
ADJUSTMENTS: tuple[Adjustment, ...] = ("clipped", "midpoint", "dropped")


def adjusted_by(*, clip: bool, missing: Missing) -> tuple[Adjustment, ...]:
    """What these options do."""
    return (*(("clipped",) if clip else ()), *(("midpoint",) if missing == "midpoint" else ()))


def in_words(adjusted: tuple[Adjustment, ...], domain: Domain) -> str | None:
    """What was done, and that no interval covers it; None where nothing was."""
    if not adjusted:
        return None
    match domain:
        case Ball():
            clipped = "rows longer than the radius were scaled down to it"
        case Categories():
            clipped = "numbers beyond the bins were counted in the nearest one"
        case _:
            clipped = "values beyond the bounds were moved to the nearest one"
    words = {
        "clipped": clipped,
        "midpoint": "missing values were put in the middle of the bounds",
        "dropped": "rows with a missing value were left out",
    }
    said = ", and ".join(words[each] for each in adjusted)
    return (
        f"{said[0].upper()}{said[1:]}, if there were any: estimates and intervals are of the values after that, and no "
        "interval covers this bias."
    )
