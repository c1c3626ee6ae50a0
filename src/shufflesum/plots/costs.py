"""What a plan costs: errors against epsilon or users, the parts of an error, and what is spent of a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shufflesum._format import downwards, plain
from shufflesum.plots import look
from shufflesum.plots.look import alt

# colour, dash, point and width: what is drawn first is wide, so that it shows below what lies on it
_LOOKS = (
    (look.BLUE, (), "circle", 5),
    (look.ORANGE, (), "square", 2.5),
    (look.RED, (2, 3), "triangle-up", 2.5),
    (look.BLACK, (6, 6), "cross", 2),
)
_MARGIN = 1.12  # of the horizontal axis, on either side
_HERE_SIZE = 420


def lines_chart(
    rows: look.Rows,
    *,
    lines: Sequence[str],
    x: str,
    y: str,
    title: str,
    subtitle: str,
    here: tuple[str, float, float] | None = None,
) -> alt.VConcatChart:
    """Rows of `line`, `x` and `y`; a line looks by its place in `lines` (up to four), and breaks where `y` is None.

    `here` is a point of its own, with a name, where the reader stands.
    """
    drawn = sorted(({**row} for row in rows), key=lambda row: float(row["x"]))
    values = sorted({float(row["x"]) for row in drawn})
    if here is not None:
        drawn.append(dict(zip(("line", "x", "y"), here, strict=True)))
    all_values = [float(row["x"]) for row in drawn]
    ends = [min(all_values) / _MARGIN, max(all_values) * _MARGIN]
    across = look.value_axis("x", x, values, alt.Scale(type="log", domain=ends, nice=False))
    up = look.error_axis("y", y, logarithmic=True)
    looks = [(name, *how) for name, how in zip(lines, _LOOKS, strict=False)]
    layers = []
    for name, colour, dash, shape, width in looks:
        mine = alt.datum["line"] == name
        stroke = alt.MarkDef("line", strokeWidth=width, color=colour, strokeDash=dash)
        layers.append(alt.Chart(mark=stroke).encode(y=up).transform_filter(mine))
        layers.append(alt.Chart(mark=look.point(110, color=colour, shape=shape)).encode(y=up).transform_filter(mine))
    if here is not None:
        mark = look.point(_HERE_SIZE, color=look.GREEN, shape="diamond", stroke="white", strokeWidth=1.5)
        layers.append(alt.Chart(mark=mark).encode(y=up).transform_filter(alt.datum["line"] == here[0]))
    there = {row["line"] for row in drawn if row["y"] is not None}
    entries = [
        look.KeyEntry(name, "line and point", colour, dash, shape)
        for name, colour, dash, shape, _ in looks
        if name in there
    ]
    if here is not None:
        entries.append(look.KeyEntry(here[0], "point", look.GREEN, shape="diamond"))
    return look.figure(drawn, entries, [look.plot(layers, 340, x=across)], title, [subtitle])


PART_COLOURS = {"sampling": look.SKY, "rounding": look.ORANGE, "noise": look.BLUE}


def error_chart(parts: Mapping[str, Mapping[str, float]], *, title: str, subtitle: str = "") -> alt.LayerChart:
    """Predicted squared error by what a user sends: in words -> part -> error, its parts stacked."""
    axis = alt.Axis(labelAngle=0, labelExpr="split(datum.label, ' ')")  # a line for each word
    x = alt.X("t:O", sort=list(parts), title="Reports each user sends", axis=axis)
    y = look.error_axis("error", f"{look.ERROR}, all coordinates")
    legend = alt.Legend(title=None, orient="top", labelLimit=500)
    return alt.LayerChart(
        layer=stacked_parts(parts, y, min(60, 0.6 * look.WIDTH / len(parts)), legend),
        encoding={"x": x},
        title=look.heading(title, subtitle),
        width=look.WIDTH,
        height=look.HEIGHT,
        config=look.config(),
    )


def stacked_parts(
    parts: Mapping[Any, Mapping[str, float]], y: alt.Y, width: float, legend: alt.Legend | None
) -> list[alt.Chart]:
    """A bar for each number of reports, with the whole error written above it."""
    rows = [
        {"t": reports, "part": part, "error": error, "order": order}
        for reports, split in parts.items()
        for order, (part, error) in enumerate(split.items())
    ]
    totals = {reports: sum(split.values()) for reports, split in parts.items()}
    labels = [{"t": reports, "error": total, "label": plain(total, 2)} for reports, total in totals.items()]
    colours = alt.Scale(domain=list(PART_COLOURS), range=list(PART_COLOURS.values()))
    bars = alt.Chart(look.as_data(rows), mark=alt.MarkDef("bar", size=width))
    words = alt.Chart(look.as_data(labels), mark=alt.MarkDef("text", dy=-11, fontSize=look.TEXT_SIZE))
    return [
        bars.encode(y=y, color=alt.Color("part:N", scale=colours, legend=legend), order=alt.Order("order:Q")),
        words.encode(y=y, text=alt.Text("label:N")),
    ]


_COLOURS = (look.BLUE, look.ORANGE, look.GREEN, look.PURPLE, look.SKY, look.RED)
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
            said = f"{number + 1}" if part > 0.02 else ""  # where there is room for it
            rows.append({"limit": limit, "from": start, "to": start + part, "colour": colour, "said": said})
            start += part
        unspent = max(0.0, 1.0 - start)
        said = f"{downwards(100 * unspent)} % {rest}" if unspent else ""
        rows.append({"limit": limit, "from": start, "to": start + unspent, "colour": _LEFT, "said": said})
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
        data=look.as_data(rows),
        title=look.heading(title, subtitle),
        width=look.WIDTH,
        height=90 * len(spent),
        config=look.config(),
    )
