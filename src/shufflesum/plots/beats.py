"""Mean heartbeats with their bands, beside the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shufflesum.plots._altair import alt
from shufflesum.plots.key import KeyEntry, figure, plot
from shufflesum.plots.look import BLUE, RED, Rows, line

__all__ = ["beats_chart"]

_COLOURS = ((BLUE, "#06283D"), (RED, "#5C2600"))  # of the estimate and of the truth
_TRUTH_DASH = (5, 4)


def beats_chart(
    groups: Mapping[str, Rows], classes: Sequence[str], *, title: str, subtitle: Sequence[str]
) -> alt.VConcatChart:
    """One plot above another: `groups` maps a plot's heading to its rows, those of a `class` each if there are any."""
    rows = [{"class": "", **row, "plot": heading} for heading, group in groups.items() for row in group]
    ends = [row[end] for row in rows for end in ("lower", "upper")]
    scale = alt.Scale(domain=[min(ends, default=0.0), max(ends, default=1.0)], nice=True, zero=False)
    x = alt.X(
        "sample:Q",
        title="Sample of the beat",
        scale=alt.Scale(nice=False),
        axis=alt.Axis(grid=False, tickCount=10),
    )

    def drawn(mark: alt.MarkDef, field: str, heading: str, name: str) -> alt.Chart:
        y = alt.Y(f"{field}:Q", title="Mean", scale=scale, axis=alt.Axis(tickCount=5))
        mine = (alt.datum["plot"] == heading) & (alt.datum["class"] == name)
        return alt.Chart(mark=mark).encode(y=y).transform_filter(mine)

    looks = list(zip(_COLOURS, classes or [""], strict=False))
    plots, entries = [], []
    for heading in groups:
        bands, lines = [], []
        for (colour, dark), name in looks:
            band = alt.MarkDef("area", opacity=0.3, color=colour)
            bands.append(drawn(band, "lower", heading, name).encode(y2=alt.Y2("upper:Q")))
            lines.append(drawn(line(color=colour), "estimate", heading, name))
            lines.append(drawn(line(color=dark, strokeDash=_TRUTH_DASH), "truth", heading, name))
        plots.append(plot([*bands, *lines], 230, heading, x=x))
    for (colour, dark), name in looks:
        entries.append(KeyEntry(f"private{', ' + name if name else ' estimate'}, with band", "band", colour))
        entries.append(KeyEntry(f"true mean{', ' + name if name else ''}", "line", dark, _TRUTH_DASH))
    return figure(rows, entries, plots, title, subtitle)
