"""Numbers rounded for people, never in our favour."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

__all__ = ["downwards", "percent", "upwards"]


def upwards(value: float, digits: int = 3) -> str:
    """An upper bound to so many significant digits, rounded up."""
    return _rounded(value, digits, ROUND_CEILING)


def downwards(value: float, digits: int = 3) -> str:
    """A lower bound to so many significant digits, rounded down."""
    return _rounded(value, digits, ROUND_FLOOR)


def percent(level: float) -> str:
    """A confidence level in per cent, all its digits: 0.9999999 is not 100 %."""
    return f"{(100 * Decimal(repr(float(level)))).normalize():f}"


def _rounded(value: float, digits: int, rounding: str) -> str:
    # What was asked for as 0.1 is shown as 0.1: the shortest decimal of the same double is that double.
    shortest = Decimal(repr(value))
    if not shortest.is_finite():
        return str(value)
    rounded = Context(prec=digits, rounding=rounding).plus(shortest)
    text = f"{rounded:g}" if -5 < rounded.adjusted() < 7 else f"{rounded:e}"
    return text.replace("e+", "e")
