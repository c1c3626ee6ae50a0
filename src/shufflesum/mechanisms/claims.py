"""What every mechanism refuses to claim."""

from __future__ import annotations

from collections.abc import Callable

from shufflesum.errors import PlanError
from shufflesum.privacy import Guarantee

__all__ = ["check_certified"]


def check_certified(guarantee: Guarantee, delta_upper: Callable[[float], float]) -> None:
    """Refuse, with a `PlanError`, a guarantee of noise as further reports that certified bounds do not confirm."""
    if guarantee.accountant == "none":
        raise PlanError("no-guarantee", "this plan has no privacy guarantee (accountant 'none'); it is for tests only")
    if guarantee.accountant == "paper":
        raise PlanError(
            "claim-not-confirmed", "the published formulas say nothing about mechanism 'add'; make a new plan"
        )
    certified = delta_upper(guarantee.epsilon)
    if not certified <= guarantee.delta:
        raise PlanError(
            "claim-not-confirmed",
            f"this plan claims epsilon = {guarantee.epsilon!r}, delta = {guarantee.delta!r}, but with its noise "
            f"delta is up to {certified:.6g}; make a new plan",
        )
