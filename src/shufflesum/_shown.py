"""What notebooks and `print` show of plans, estimates and budgets: a few facts and a small table.

For notebooks it is escaped, in their own colours, without scripts and style sheets: only styles of single elements,
with colours that are readable on light and on dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Cells", "Shown"]

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
