"""Accuracy by round of training, under several kinds of privacy: one plot above another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shufflesum.plots._altair import alt
from shufflesum.plots.key import KeyEntry, figure, plot
from shufflesum.plots.look import BLACK, BLUE, GREEN, ORANGE, PURPLE, Rows, line

__all__ = ["curves_chart"]

_LOOKS = ((GREEN, (2, 2)), (BLACK, (10, 4)), (BLUE, ()), (PURPLE, (6, 3)), (ORANGE, (2, 3)))


def curves_chart(
    groups: Mapping[str, Rows], lines: Sequence[str], *, title: str, subtitle: Sequence[str]
) -> alt.VConcatChart:
    """`groups` maps a plot's heading to rows of `line`, `round`, `accuracy`, `lowest` and `highest`.

    The band runs from the lowest to the highest seed; a line looks by its place in `lines`.
    """
    rows = [{**row, "plot": heading} for heading, group in groups.items() for row in group]
    scale = alt.Scale(domain=[0, 1], nice=False)
    x = alt.X("round:Q", title="Round", scale=alt.Scale(nice=False), axis=alt.Axis(grid=False, tickMinStep=1))

    def drawn(mark: alt.MarkDef, field: str, heading: str, name: str) -> alt.Chart:
        y = alt.Y(f"{field}:Q", title="Test accuracy", scale=scale, axis=alt.Axis(tickCount=5))
        mine = (alt.datum["plot"] == heading) & (alt.datum["line"] == name)
        return alt.Chart(mark=mark).encode(y=y).transform_filter(mine)

    looks = [(name, *look) for name, look in zip(lines, _LOOKS, strict=False)]
    plots = []
    for heading in groups:
        bands, means = [], []
        for name, colour, dash in looks:
            band = alt.MarkDef("area", opacity=0.2, color=colour)
            bands.append(drawn(band, "lowest", heading, name).encode(y2=alt.Y2("highest:Q")))
            means.append(drawn(line(color=colour, strokeDash=dash), "accuracy", heading, name))
        plots.append(plot([*bands, *means], 230, heading, x=x))
    entries = [KeyEntry(name, "band", colour, dash) for name, colour, dash in looks]
    return figure(rows, entries, plots, title, subtitle)
