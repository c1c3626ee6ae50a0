"""Numbers, plurals and small tables for people: every text that shows a number has it from here.

A number has as many digits as its error allows, bounds are rounded against us, intervals outwards. For notebooks all is
escaped, in their own colours, without scripts and style sheets: only styles of single elements, with colours that are
readable on light and on dark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from html import escape

_EXACT = Context(prec=400)
_SMALLEST = -9  # digits after the point; smaller numbers are written with an exponent
_LARGEST = 15  # digits before it
# What turns the direction of all that follows, and what XML and HTML have no place for.
_UNSEEN = re.compile("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
Z_95 = 1.959963984540054  # standard errors on either side of a normal 95 % interval


def visible(text: str) -> str:
    """Text with its invisible commands written out, such as \\u202e."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def counted(count: int, noun: str) -> str:
    """1 report, 2,000 reports."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def upwards(value: float, digits: int = 3) -> str:
    """An upper bound to so many significant digits, rounded up."""
    return _rounded(value, digits, ROUND_CEILING)


def downwards(value: float, digits: int = 3) -> str:
    """A lower bound to so many significant digits, rounded down."""
    return _rounded(value, digits, ROUND_FLOOR)


def percent(level: float) -> str:
    """A confidence level in per cent, all its digits: 0.9999999 is not 100 %."""
    return f"{(100 * Decimal(repr(float(level)))).normalize():f}"


def plain(value: float, digits: int = 3, rounding: str = ROUND_HALF_EVEN) -> str:
    """A number to so many significant digits, and all those before its point: 0.0123, 42,189."""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else str(float(value))
    rounded = Context(prec=digits, rounding=rounding).plus(Decimal(repr(float(value))))
    place = rounded.adjusted()
    if not -6 < place < _LARGEST:
        return f"{rounded.normalize():e}".replace("e+", "e")
    if place >= digits and rounding == ROUND_HALF_EVEN:
        rounded = Decimal(repr(float(value))).quantize(Decimal(1), rounding, _EXACT)
    text = f"{rounded:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def margin(error: float, *, whole: bool = False) -> str:
    """What a standard error means on either side at 95 %, to two digits, rounded up; of users a whole number."""
    wide = Z_95 * error
    return plain(math.ceil(wide) if whole and math.isfinite(wide) else wide, 2, ROUND_CEILING)


def number(value: float, error: float, rounding: str = ROUND_HALF_EVEN) -> str:
    """The value, to two digits of its standard error; nothing where there is none."""
    if not math.isfinite(value):
        return "" if math.isnan(value) else str(float(value))
    if not math.isfinite(error) or error <= 0:
        return plain(value, 6 if rounding == ROUND_HALF_EVEN else 15, rounding)
    place = min(math.floor(math.log10(error)) - 1, 0)
    rounded = Decimal(repr(float(value))).quantize(Decimal(1).scaleb(place), rounding, _EXACT)
    if place < _SMALLEST and rounded:
        return f"{rounded.normalize(_EXACT):e}"
    return f"{rounded:,f}" if rounded else f"{abs(rounded):,f}"


def plus_minus(value: float, wide: float, *, whole: bool = False) -> str:
    """A value and what may lie on either side of it, which is rounded up: 42,189 ± 160; users are whole numbers.

    Both have the same decimals: 44.40 ± 0.20.
    """
    if not whole and wide < 10:
        return f"{number(value, wide)} ± {number(wide, wide, ROUND_CEILING)}"
    either = math.ceil(wide) if whole and math.isfinite(wide) else wide
    return f"{number(value, max(wide, 10.0) if whole else wide)} ± {plain(either, 2, ROUND_CEILING)}"


def between(lower: float, upper: float, error: float) -> str:
    """An interval that, as it is shown, holds all of the one that is meant."""
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
    text = f"{rounded:,f}" if -5 < rounded.adjusted() < 7 else f"{rounded.normalize():e}"
    return text.replace("e+", "e")


Cells = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The heads of columns, and rows of as many texts."""

_LINE = "1px solid rgba(128,128,128,.45)"
_ROW = "background:none"  # notebooks stripe tables in colours of their own
_FIRST = "text-align:left;padding:.2em 1em .2em 0;background:none"
_OTHERS = "text-align:right;padding:.2em 0 .2em 1em;background:none;font-variant-numeric:tabular-nums"


@dataclass(frozen=True, slots=True)
class Shown:
    """A title, a line for each fact, a table, and notes that ask for attention."""

    title: str
    facts: Sequence[str]
    cells: Cells | None = None
    notes: Sequence[str] = ()

    def html(self) -> str:
        """For a notebook."""
        lines = [f"<div><strong>{escape(self.title)}</strong></div>"]
        lines += [f'<div style="opacity:.8">{escape(fact)}</div>' for fact in self.facts]
        lines += [_table(*self.cells)] if self.cells else []
        warned = "border-left:3px solid #d9822b;padding-left:.6em;margin-top:.4em"
        lines += [f'<div style="{warned}">{escape(note)}</div>' for note in self.notes]
        frame = (
            f"border:{_LINE};border-radius:4px;padding:.6em .9em;display:inline-block;max-width:60em;line-height:1.4"
        )
        return f'<div style="{frame}">{"".join(lines)}</div>'

    def text(self) -> str:
        """For `print`: lines of plain text, the table in columns."""
        lines = [self.title, *(f"  {fact}" for fact in self.facts)]
        if self.cells:
            heads, rows = self.cells
            widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
            for row in (heads, *rows):
                first, *others = zip(row, widths, strict=True)
                lines.append("  ".join(["", first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]))
        return "\n".join(line.rstrip() for line in (*lines, *(f"note: {note}" for note in self.notes)))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    line = f"border:none;border-bottom:{_LINE}"
    head = "".join(f'<th style="{style};{line}">{escape(text)}</th>' for style, text in _styled(heads))
    body = "".join(
        f'<tr style="{_ROW}">'
        + "".join(f'<td style="{style};border:none">{escape(text)}</td>' for style, text in _styled(row))
        + "</tr>"
        for row in rows
    )
    frame = "border-collapse:collapse;margin:.5em 0;border:none;color:inherit;font-size:inherit"
    return f'<table style="{frame}"><thead><tr style="{_ROW}">{head}</tr></thead><tbody>{body}</tbody></table>'


def _styled(texts: Sequence[str]) -> list[tuple[str, str]]:
    return [(_FIRST if place == 0 else _OTHERS, text) for place, text in enumerate(texts)]
