"""Numbers for people: as many digits as their error allows, ends of intervals rounded outwards."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

__all__ = ["between", "number"]

_EXACT = Context(prec=400)
_SMALLEST = -9  # digits after the point; smaller numbers are written with an exponent


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
