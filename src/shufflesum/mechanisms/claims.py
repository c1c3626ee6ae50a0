"""What every mechanism refuses to claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from shufflesum.errors import PlanError
from shufflesum.privacy import Guarantee

__all__ = ["accountant_of", "check_certified"]


def accountant_of(guarantee: Guarantee) -> Literal["exact", "paper"]:
    """Who vouches for a guarantee; refused, with a `PlanError`, where nobody does."""
    if guarantee.accountant == "none":
        raise PlanError("no-guarantee", "this plan has no privacy guarantee (accountant 'none'); it is for tests only")
    return guarantee.accountant


def check_certified(guarantee: Guarantee, delta_upper: Callable[[float], float]) -> None:
    """Refuse, with a `PlanError`, a guarantee that certified bounds do not confirm."""
    if accountant_of(guarantee) == "paper":
        raise PlanError(
            "claim-not-confirmed", "the published formulas say nothing about this mechanism; make a new plan"
        )
    certified = delta_upper(guarantee.epsilon)
    if not certified <= guarantee.delta:
        raise PlanError(
            "claim-not-confirmed",
            f"this plan claims epsilon = {guarantee.epsilon!r}, delta = {guarantee.delta!r}, but with its noise "
            f"delta is up to {certified:.6g}; make a new plan",
        )
