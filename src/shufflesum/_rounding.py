"""Numbers for people: of as many digits as their error allows, bounds against us, intervals outwards; few of many."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

__all__ = ["between", "downwards", "evenly", "number", "percent", "upwards"]

_EXACT = Context(prec=400)
_SMALLEST = -9  # digits after the point; smaller numbers are written with an exponent


def upwards(value: float, digits: int = 3) -> str:
    """An upper bound to so many significant digits, rounded up."""
    return _rounded(value, digits, ROUND_CEILING)


def downwards(value: float, digits: int = 3) -> str:
    """A lower bound to so many significant digits, rounded down."""
    return _rounded(value, digits, ROUND_FLOOR)


def percent(level: float) -> str:
    """A confidence level in per cent, all its digits: 0.9999999 is not 100 %."""
    return f"{(100 * Decimal(repr(float(level)))).normalize():f}"


def number(value: float, error: float, rounding: str = ROUND_HALF_EVEN) -> str:
    """The value, to two digits of its standard error; nothing where there is none."""
    if not math.isfinite(value):
        return "" if math.isnan(value) else ("no end" if value > 0 else "no beginning")
    if not math.isfinite(error) or error <= 0:
        return f"{value:,.{6 if rounding == ROUND_HALF_EVEN else 15}g}"
    place = min(math.floor(math.log10(error)) - 1, 0)
    rounded = Decimal(repr(float(value))).quantize(Decimal(1).scaleb(place), rounding, _EXACT)
    if place < _SMALLEST and rounded:
        return f"{rounded.normalize(_EXACT):e}"
    return f"{rounded:,f}" if rounded else f"{abs(rounded):,f}"


def between(lower: float, upper: float, error: float) -> str:
    """An interval that, as it is shown, holds all of the one that is meant."""
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return "anything"
    return f"{number(lower, error, ROUND_FLOOR)} to {number(upper, error, ROUND_CEILING)}"


def evenly(size: int, most: int) -> list[int]:
    """All places below `size`, or so many of them from the first to the last."""
    return list(range(size)) if size <= most else [round(i * (size - 1) / max(1, most - 1)) for i in range(most)]


def _rounded(value: float, digits: int, rounding: str) -> str:
    # What was asked for as 0.1 is shown as 0.1: the shortest decimal of the same double is that double.
    shortest = Decimal(repr(value))
    if not shortest.is_finite():
        return str(value)
    rounded = Context(prec=digits, rounding=rounding).plus(shortest)
    text = f"{rounded:g}" if -5 < rounded.adjusted() < 7 else f"{rounded:e}"
    return text.replace("e+", "e")
