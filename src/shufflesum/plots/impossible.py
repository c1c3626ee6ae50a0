"""Grey where there is no such protocol, because the published noise probability is 1 or more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any

from shufflesum.plots._altair import alt
from shufflesum.plots.look import TEXT_SIZE, Rows, as_data

__all__ = ["impossible_areas", "impossible_columns"]


def impossible_columns(values: Sequence[float], spacing: float, scale: alt.Scale, height: int) -> list[alt.Chart]:
    """Columns in place of bars that cannot be, each saying why."""
    rows = [{"from": v - spacing / 2, "to": v + spacing / 2, "middle": v} for v in values]
    if not rows:
        return []
    x, y = alt.X("middle:Q", scale=scale), alt.value(height - 8)
    return [_grey(rows, scale, stroke="white"), _words(rows, "published γ ≥ 1: impossible", x, y, angle=270)]


def impossible_areas(
    values: Sequence[float], where: Collection[float], ends: Sequence[float], scale: alt.Scale
) -> list[alt.Chart]:
    """Areas around the values `where`, up to halfway to their neighbours; words above the first say why."""
    edges = [ends[0], *(math.sqrt(a * b) for a, b in itertools.pairwise(values)), ends[1]]
    rows = [{"from": edges[i], "to": edges[i + 1]} for i, v in enumerate(values) if v in where]
    if not rows:
        return []
    x, y = alt.X("from:Q", scale=scale), alt.value(-10)
    return [_grey(rows, scale, opacity=0.55), _words(rows[:1], "grey: the published γ is 1 or more", x, y)]


def _grey(rows: Rows, scale: alt.Scale, **look: Any) -> alt.Chart:
    mark = alt.MarkDef("rect", color="#DDDDDD", **look)
    return alt.Chart(as_data(rows), mark=mark).encode(x=alt.X("from:Q", scale=scale), x2=alt.X2("to:Q"))


def _words(rows: Rows, words: str, x: alt.X, y: Any, **look: Any) -> alt.Chart:
    mark = alt.MarkDef("text", text=words, align="left", fontSize=TEXT_SIZE, color="#444444", **look)
    return alt.Chart(as_data(rows), mark=mark).encode(x=x, y=y)
