"""What notebooks show of plans and estimates: a few facts and a small table, escaped, in the notebook's own colours.

No scripts and no style sheets: only styles of single elements, with colours that are readable on light and on dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["Cells", "box"]

Cells = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The heads of columns, and rows of as many texts."""

_LINE = "1px solid rgba(128,128,128,.45)"
_ROW = "background:none"  # notebooks stripe tables in colours of their own
_FIRST = "text-align:left;padding:.2em 1em .2em 0;background:none"
_OTHERS = "text-align:right;padding:.2em 0 .2em 1em;background:none;font-variant-numeric:tabular-nums"


def box(title: str, facts: Sequence[str], cells: Cells | None = None, notes: Sequence[str] = ()) -> str:
    """A title, a line for each fact, a table, and notes that ask for attention."""
    lines = [f"<div><strong>{escape(title)}</strong></div>"]
    lines += [f'<div style="opacity:.8">{escape(fact)}</div>' for fact in facts]
    lines += [_table(*cells)] if cells else []
    warned = "border-left:3px solid #d9822b;padding-left:.6em;margin-top:.4em"
    lines += [f'<div style="{warned}">{escape(note)}</div>' for note in notes]
    frame = f"border:{_LINE};border-radius:4px;padding:.6em .9em;display:inline-block;max-width:60em;line-height:1.4"
    return f'<div style="{frame}">{"".join(lines)}</div>'


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
