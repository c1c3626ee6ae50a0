"""What all estimates share: the plan, the table they are decoded from, and whether the guarantee holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_number
from shufflesum.domain import Domain
from shufflesum.errors import ParameterError
from shufflesum.plans import Plan

__all__ = ["Floats", "Released", "tail_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Released:
    """The table of a batch that came through the gate, with its plan; each kind of domain has its own estimate of it.

    `broken` says why the plan's guarantee does not hold, where somebody insisted on an estimate all the same; it is
    None wherever the guarantee holds. `round_number` is the plan's round that it is of.
    """

    plan: Plan
    users: int
    rejected: int
    table: NDArray[np.int64]
    broken: str | None = None
    round_number: int = 1

    def __repr__(self) -> str:
        broken = "" if self.guarantee_holds else ", WITHOUT the plan's guarantee"
        name = type(self).__name__
        later = f", round {self.round_number}" if self.round_number > 1 else ""
        return f"{name}({self.users} users, shape={self.plan.shape}, plan {self.plan.id[:12]}{later}{broken})"

    @property
    def domain(self) -> Domain:
        """What users held, as it was reported in this round."""
        return self.plan.domain.of_round(self.round_number)

    @property
    def guarantee_holds(self) -> bool:
        """Whether nothing speaks against the plan's guarantee."""
        return self.broken is None


def tail_of(level: float, together: int = 1) -> float:
    """What may lie beyond either end of an interval of this level, where so many must hold together (union bound)."""
    check_number("confidence level", level)
    if not 0 < level < 1:
        raise ParameterError("out-of-range", f"confidence level is {level}; it must lie strictly between 0 and 1")
    return (1 - level) / 2 / together
