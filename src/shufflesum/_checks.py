"""What users are told: refusals in the same words everywhere, numbers rounded against us, facts and tables.

A number has as many digits as its error allows, bounds are rounded against us, intervals outwards. For notebooks all is
escaped, in their own colours, without scripts and style sheets: only styles of single elements, with colours that are
readable on light and on dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from html import escape
from numbers import Real
from typing import NoReturn, SupportsIndex

import numpy as np

from shufflesum.errors import CopyError, ParameterError

_SHOWN = 60


class OnlyOnce:
    """What draws, releases or spends: of the same, a copy could do so a second time."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse `copy`, `deepcopy` and `pickle`, which all ask here."""
        raise CopyError(
            "only-once",
            f"a {type(self).__name__} can be neither copied nor pickled: the copy could draw, release or spend what "
            "was already; make one where it is used, and merge results",
        )


def check_size(name: str, value: int, least: int, most: int) -> None:
    """Refuse a number that is not whole or not in range, naming it."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ParameterError("wrong-type", f"{name} is {value!r}; it must be a whole number")
    if not least <= value <= most:
        raise ParameterError("out-of-range", f"{name} is {value}; it must lie between {least} and {most}")


def check_number(name: str, value: float) -> None:
    """Refuse what is no real number, naming it."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ParameterError("wrong-type", f"{name} is {value!r}; it must be a number")


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not one of the allowed ones, naming them."""
    if value not in allowed:
        raise ParameterError("unknown-choice", f"{name} is {value!r}; it must be one of {', '.join(allowed)}")


def shown(value: object) -> str:
    """A value as messages name it: as Python writes it, and not all of a long one."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


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


def counted(count: int, noun: str) -> str:
    """1 report, 2,000 reports."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def number(value: float, error: float, rounding: str = ROUND_HALF_EVEN) -> str:
    """The value, to two digits of its standard error; nothing where there is none."""
    if not math.isfinite(value):
        return "" if math.isnan(value) else ("inf" if value > 0 else "-inf")
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
