"""What of a budget is spent, by whom, and what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shufflesum._rounding import downwards
from shufflesum.plots._altair import alt
from shufflesum.plots.look import BLUE, GREEN, ORANGE, PURPLE, RED, SKY, WIDTH, as_data, config, heading

__all__ = ["budget_chart"]

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)
_LEFT = "#E4E4E4"


def budget_chart(
    spent: Mapping[str, Sequence[float]],
    *,
    title: str,
    subtitle: str = "",
    whole: str = "the budget",
    rest: str = "left",
) -> alt.LayerChart:
    """For each limit a bar from 0 to 100 %: the parts of it that entries have spent, in their order, and the rest.

    `whole` and `rest` are words for what 100 % is, and for what nobody has spent yet.
    """
    rows = list[dict[str, Any]]()
    for limit, parts in spent.items():
        start = 0.0
        for number, part in enumerate(parts):
            colour = _COLOURS[number % len(_COLOURS)]
            rows.append(
                {"limit": limit, "from": start, "to": start + part, "colour": colour, "said": _said(number, part)}
            )
            start += part
        unspent = max(0.0, 1.0 - start)
        rows.append(
            {
                "limit": limit,
                "from": start,
                "to": start + unspent,
                "colour": _LEFT,
                "said": f"{downwards(100 * unspent)} % {rest}" if unspent else "",
            }
        )
    for row in rows:
        row["middle"] = (row["from"] + row["to"]) / 2
    y = alt.Y("limit:N", sort=list(spent), title=None, axis=alt.Axis(labelLimit=300))
    x = alt.X("from:Q", title=f"Part of {whole}", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", grid=False))
    bars = alt.Chart(mark=alt.MarkDef("bar", stroke="white", strokeWidth=2, height=60))
    words = alt.Chart(mark=alt.MarkDef("text", fontSize=14))
    dark = alt.condition(f"datum.colour == '{_LEFT}'", alt.value("#1A1A1A"), alt.value("white"))
    return alt.LayerChart(
        layer=[
            bars.encode(y=y, x=x, x2="to:Q", color=alt.Color("colour:N", scale=None)),
            words.encode(y=y, x=alt.X("middle:Q"), text="said:N", color=dark),
        ],
        data=as_data(rows),
        title=heading(title, subtitle),
        width=WIDTH,
        height=90 * len(spent),
        config=config(),
    )


def _said(number: int, part: float) -> str:
    """The number of the entry, where there is room for it."""
    return f"{number + 1}" if part > 0.02 else ""
