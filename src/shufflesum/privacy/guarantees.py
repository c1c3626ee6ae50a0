"""What is guaranteed, and who must keep to the protocol for it."""

from __future__ import annotations

from dataclasses import dataclass

from shufflesum._checks import check_number
from shufflesum.errors import ParameterError

__all__ = ["Interval", "honest_users"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A certified upper bound, and a lower bound nobody can beat (0 where none is known)."""

    upper: float
    lower: float


def honest_users(users: int, honest_fraction: float) -> int:
    """The users whose noise counts: the exact floor of users x honest_fraction, at least 1."""
    check_number("honest_fraction", honest_fraction)
    if not 0 < honest_fraction <= 1:
        raise ParameterError(f"honest_fraction is {honest_fraction}; it must lie in (0, 1]")
    # a product of floats may round up to the next whole number
    numerator, denominator = float(honest_fraction).as_integer_ratio()
    return max(1, int(users) * numerator // denominator)
