"""Values with intervals under their names, as points or as bars: axes that units share, names, logarithms, panels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._format import percent, plain, visible
from shufflesum.errors import ParameterError
from shufflesum.estimate import BaseEstimate, EstimateTable
from shufflesum.plots import look
from shufflesum.plots.look import Rows, alt

_Floats = NDArray[np.float64]

_WIDER = 8.0  # an axis that is so much wider than an entry's bounds leaves nothing to see of it
_SMALLER = 150.0  # a part so much smaller than the largest is a few pixels
_FEW = 12  # named columns that may each have a panel, or numbers of a group that are points with bars
_LONGEST = 60  # letters of a name in a picture: measuring thousands of them takes the drawing library seconds


def check_drawable(*estimates: BaseEstimate) -> None:
    """Refuse pictures of nothing, and of words before any are named."""
    prompt = next((each.prompt for each in estimates if each.prompt is not None), None)
    if not estimates or prompt is not None:
        raise ParameterError("missing-argument", f"there is nothing to draw yet; {prompt or 'give estimates'}")


def drawn_names(names: Iterable[str]) -> list[str]:
    """Names as a picture shows them: visible, cut off where they are long, and still different from each other."""
    short = [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…" for name in map(visible, names)]
    seen: Counter[str] = Counter()
    drawn = []
    for name in short:
        seen[name] += 1
        drawn.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return drawn


def units_of(table: EstimateTable) -> list[list[int]]:
    """The entries of a vector, or of each group's, by what can share an axis."""
    if table.bounds is None:
        return [list(range(table.entries))]
    # years and centimetres would hide each other's intervals
    return (by_bounds if table.named and table.entries <= _FEW else by_unit)(*table.bounds)


def by_bounds(lower: _Floats, upper: _Floats) -> list[list[int]]:
    """Entries in their order, those with the same bounds together."""
    panels: dict[tuple[float, float], list[int]] = {}
    for place, ends in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
        panels.setdefault(ends, []).append(place)
    return list(panels.values())


def by_unit(lower: _Floats, upper: _Floats) -> list[list[int]]:
    """Entries in their order, each with the first ones it fits: together no wider than 8 times the narrowest."""
    panels: list[list[int]] = []
    ends: list[tuple[float, float, float]] = []  # from, to, and the narrowest width of each panel
    for place, (low, high) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
        for number, (start, stop, narrowest) in enumerate(ends):
            joined = min(start, low), max(stop, high), min(narrowest, high - low)
            if joined[1] - joined[0] <= _WIDER * joined[2]:
                panels[number].append(place)
                ends[number] = joined
                break
        else:
            panels.append([place])
            ends.append((low, high, high - low))
    return panels


def needs_log(values: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> bool:
    """Whether something that can be told from 0 would be too small to see beside the largest."""
    sizes = [
        abs(value) for value, low, high in zip(values, lower, upper, strict=True) if (low > 0 or high < 0) and value
    ]
    return len(sizes) > 1 and max(sizes) > _SMALLER * min(sizes)


def symlog_axis(numbers: Sequence[float], half_widths: Sequence[float]) -> tuple[alt.Scale, alt.Axis]:
    """A scale that is logarithmic but around 0, where it is linear as far as the typical interval reaches.

    So it has a place for 0 and below, as estimates of nothing have it.
    """
    constant = max(float(np.median(half_widths)), 1e-12 * max(map(abs, numbers), default=1.0), 1e-300)
    least, most = min(0.0, *numbers), max(0.0, *numbers)
    first, last = int(np.ceil(np.log10(constant))), int(np.floor(np.log10(max(most, -least, constant))))
    step = max(1, -(-(last - first + 1) // 6))
    powers = [10.0**power for power in range(first, last + 1, step)]
    ticks = [-power for power in powers if -power >= least] + [0.0] + [power for power in powers if power <= most]
    scale = alt.Scale(type="symlog", constant=constant, domain=[1.05 * least, 1.05 * most], nice=False)
    return scale, alt.Axis(values=ticks, format=",~r")


MOST_NAMED = 40
_SHORT, _SHORT_BAR = 12, 9  # letters of names that stand beside each other
_ROW, _LETTER = 26, 8  # pixels of a name that lies, and of one letter
_PANEL_HEIGHT = 220
_LABEL_WIDTH = 460  # pixels, beyond which names are cut off
_AXIS = 90  # pixels beside a panel that stands


@dataclass(frozen=True, slots=True)
class Panel:
    """Rows of label, value, lower, upper, and perhaps truth and note; numbers may be None."""

    rows: Rows
    title: str = ""


def panels_chart(
    panels: Sequence[Panel], *, axis: str, level: float, title: str, subtitle: Sequence[str], bars: bool = False
) -> alt.LayerChart | alt.VConcatChart | alt.ConcatChart:
    """Each panel on a scale of its own, logarithmic where parts of it would vanish; names lie where they are long.

    `bars` begin at 0; on a logarithmic axis, where their length says nothing, points take their place.
    """
    rows = [row for panel in panels for row in panel.rows]
    longest = max((len(row["label"]) for row in rows), default=0)
    lying = longest > (_SHORT_BAR if bars else _SHORT) or max(len(panel.rows) for panel in panels) > _FEW
    titled = panels[-1:] if lying else panels  # below each other one axis says it for all
    drawn = [_panel(panel, axis if panel in titled else None, lying, len(panels), bars) for panel in panels]
    notes = [*subtitle, f"{percent(level)} % intervals" + ("; black: the truth" if rows and "truth" in rows[0] else "")]
    if len(panels) > 1:
        notes[-1] += "; each panel has a scale of its own"
    if any(logarithmic for _, logarithmic in drawn):
        notes.append("Logarithmic scale, linear around 0: small ones would not be seen otherwise")
    charts = [chart for chart, _ in drawn]
    if bars:
        charts[0].title, charts[0].config = look.heading(title, notes), look.config()
        return charts[0]
    if lying:
        words = look.heading(title, notes, look.WIDTH + _LETTER * longest)
        return alt.VConcatChart(vconcat=charts, spacing=16, title=words, config=look.config())
    columns = max(1, min(3, len(charts), look.WIDTH // max(chart.width for chart in charts)))
    words = look.heading(title, notes, sum(chart.width + _AXIS for chart in charts[:columns]))
    return alt.ConcatChart(concat=charts, columns=columns, spacing=24, title=words, config=look.config())


def _panel(panel: Panel, axis: str | None, lying: bool, beside: int, bars: bool) -> tuple[alt.LayerChart, bool]:
    rows = panel.rows
    known = [row for row in rows if None not in (row["value"], row["lower"], row["upper"])]
    numbers = [row[name] for row in known for name in ("value", "lower", "upper", "truth") if row.get(name) is not None]
    logarithmic = needs_log(*([row[name] for row in known] for name in ("value", "lower", "upper")))
    scale, ticks = alt.Scale(zero=False), alt.Axis(tickCount=5, format=",f")
    if logarithmic:
        scale, ticks = symlog_axis(numbers, [(row["upper"] - row["lower"]) / 2 for row in known])
    elif bars:
        lowest, highest = min([0.0, *numbers]), max([0.0, *numbers]) or 1.0
        # Not up to round numbers: an interval that reaches just below 0 would leave much empty room there.
        room = 0.02 * (highest - lowest)
        scale = alt.Scale(domain=[lowest - room if lowest else 0.0, highest + room], nice=False)
    along, across = ("x", "y") if lying else ("y", "x")
    channel: Any = alt.X if lying else alt.Y
    named: Any = alt.Y if lying else alt.X

    def value(field: str) -> dict[str, Any]:
        return {along: channel(f"{field}:Q", title=axis, scale=scale, axis=ticks)}

    grid = lying and not bars
    names = alt.Axis(labelAngle=0, labelLimit=_LABEL_WIDTH, labelOverlap=False, ticks=False, grid=grid, domain=False)
    labels = [row["label"] for row in rows]
    base = alt.Chart().encode(**{across: named("label:N", sort=labels, title=None, axis=names)})
    until = {"x2": alt.X2("upper:Q")} if lying else {"y2": alt.Y2("upper:Q")}
    layers = [base.mark_bar(color=look.SKY, opacity=0.6).encode(**value("value"))] if bars and not logarithmic else []
    if bars:
        layers.append(alt.Chart(look.as_data([{"zero": 0}])).mark_rule(color="#666666").encode(**value("zero")))
    small = lying and bars and not logarithmic
    layers += [
        base.mark_rule(strokeWidth=3, color=look.BLUE).encode(**value("lower"), **until),
        base.mark_point(filled=True, size=30 if small else 80, opacity=1, color=look.BLUE).encode(**value("value")),
    ]
    if any("truth" in row for row in rows):
        size = 34 if bars and not lying else 18
        layers.append(base.mark_tick(thickness=3, size=size, opacity=1, color=look.BLACK).encode(**value("truth")))
    height = _ROW * len(rows) if lying else (_PANEL_HEIGHT if beside > 1 else look.HEIGHT)
    if any(row.get("note") for row in rows):
        place = {along: (alt.XValue if lying else alt.YValue)(4 if lying else height - 8)}
        words: dict[str, Any] = {"align": "left"} if lying else {}
        layers.append(base.mark_text(fontSize=13, color="#555555", **words).encode(text=alt.Text("note:N"), **place))
    # Panels that stand are as wide as their names need; a single one takes all the room there is.
    letters = max(map(len, labels), default=0)
    width = look.WIDTH if lying or beside == 1 else max(150, min(look.WIDTH, (24 + _LETTER * letters) * len(rows)))
    chart = alt.LayerChart(
        data=look.as_data(rows),
        layer=layers,
        width=width,
        height=height,
        # Over the plot alone: over its axis, too, titles stand higher where a number is at the very top.
        title=alt.TitleParams(panel.title, fontSize=16, frame="group", offset=12, limit=max(width, 240))
        if panel.title
        else alt.Undefined,
    )
    return chart, logarithmic


# ---- Means of groups, side by side: heat maps, lines with bands, or a bar for each group.

_MOST_PLOTS = 20
_MOST_POINTS = 1000  # of one line
_MOST_PIXELS = 10_000  # of one heat map
_HEAT_MAP = 170  # its longer side

_Panels = dict[str, _Floats]

if TYPE_CHECKING:
    _Plot = alt.Chart | alt.LayerChart


def group_chart(
    table: EstimateTable, *, truth: ArrayLike | None = None, title: str, subtitle: str = ""
) -> alt.LayerChart | alt.VConcatChart | alt.ConcatChart:
    """The mean of each group with its interval.

    Single numbers are the bars of one plot; of a few numbers each has a panel where the groups stand side by side.
    Matrices are heat maps of the means, with half the width of the interval written above, other arrays lines with
    bands: one small plot for each group, all on one scale. Of many groups the largest are shown, and the subtitle says
    so. Groups too small for a mean are named, and left empty.
    """
    groups, level, axis = len(table.groups), table.level, table.quantity.capitalize()
    shape = (groups, *table.shape)
    panels = {"mean": table.value, "lower": table.lower, "upper": table.upper}
    if truth is not None:
        panels["truth"] = look.truth_like(truth, shape, "the means")
    single = table.entries == 1
    most = MOST_NAMED if single else _MOST_PLOTS
    counts = table.users[:: table.entries]
    shown = np.arange(groups)
    notes = [subtitle] if subtitle else []
    if groups > most:
        shown = np.sort(np.argsort(-counts, kind="stable")[:most])
        notes.append(f"{most} of {groups:,} groups are shown, the largest")
    panels = {name: values.reshape(shape)[shown] for name, values in panels.items()}
    names = drawn_names(table.groups[place] for place in shown.tolist())
    sizes, missing = counts[shown].tolist(), np.isnan(table.value[:: table.entries])[shown].tolist()
    if single:
        bars = _side_by_side(names, [""], panels, missing)
        return panels_chart(bars, axis=axis, level=level, title=title, subtitle=notes, bars=True)
    if table.entries <= _FEW:
        entries = drawn_names(table.names_of(range(table.entries)))
        titles = entries if table.named else [f"Entry {entry}" for entry in entries]
        labels = [f"{name} ({_users(size)})" for name, size in zip(names, sizes, strict=True)]
        drawn = _side_by_side(labels, titles, panels, missing)
        return panels_chart(drawn, axis=axis, level=level, title=title, subtitle=notes)
    above = ["too few users" if few else f"{_users(size)} users" for few, size in zip(missing, sizes, strict=True)]
    if len(shape) == 3 and min(table.shape) > 1 and table.entries <= _MOST_PIXELS:
        plots = _heat_maps(names, above, panels, axis)
        columns = 5 if truth is None else 4
        notes.append(f"Above each group its size, and half the width of its {percent(level)} % intervals, on average")
    else:
        plots = _lines(names, above, panels)
        columns = 3
        notes.append(
            f"With {percent(level)} % intervals; above each group its size"
            + ("; black: the truth" if truth is not None else "")
        )
    return alt.ConcatChart(
        concat=plots,
        columns=min(columns, len(plots)),
        title=look.heading(title, notes),
        spacing=20,
        config=look.config(),
    )


def _side_by_side(
    labels: Sequence[str], titles: Sequence[str], panels: _Panels, missing: Sequence[bool]
) -> list[Panel]:
    """A panel for each number, with all groups in it."""
    flat = {("value" if name == "mean" else name): v.reshape(len(labels), -1) for name, v in panels.items()}
    return [
        Panel(
            [
                {"label": label, "note": "too few users" if missing[group] else ""}
                | {name: look.finite(values[group, entry]) for name, values in flat.items()}
                for group, label in enumerate(labels)
            ],
            title,
        )
        for entry, title in enumerate(titles)
    ]


def _users(size: float) -> str:
    """A size for people: noise may bring it below 0, and nobody reads -0."""
    return f"{max(round(size), 0):,}"


def _title(name: str, second: str) -> alt.TitleParams:
    return alt.TitleParams(
        name, subtitle=second, fontSize=16, subtitleFontSize=13, offset=4, subtitlePadding=2, limit=260
    )


def _heat_maps(names: Sequence[str], sizes: Sequence[str], panels: _Panels, axis: str) -> list[_Plot]:
    domain = look.scale_of(*(panels[name] for name in ("mean", "truth") if name in panels))
    colours = alt.Scale(scheme="viridis", domain=domain)
    half = (panels["upper"] - panels["lower"]) / 2
    plots: list[_Plot] = []
    for place, (name, size) in enumerate(zip(names, sizes, strict=True)):
        values = panels["mean"][place]
        seen = bool(np.isfinite(values).all())
        second = f"{size}, ± {plain(float(half[place].mean()))}" if seen else size
        plots.append(_heat_map(values, _title(name, second), colours, axis))
        if "truth" in panels:
            plots.append(_heat_map(panels["truth"][place], _title(name, "the truth"), colours, axis))
    return plots


def _heat_map(values: _Floats, title: alt.TitleParams, colours: alt.Scale, axis: str) -> alt.Chart:
    rows, columns = values.shape
    side = _HEAT_MAP / max(rows, columns)
    if not np.isfinite(values).all():
        empty = alt.MarkDef("rect", color="#EEEEEE")
        return alt.Chart(look.as_data([{}]), mark=empty, title=title, width=side * columns, height=side * rows)
    cells = [{"row": row, "column": column, "value": value} for (row, column), value in np.ndenumerate(values)]
    legend = alt.Legend(title=axis, titleFontSize=look.TEXT_SIZE, gradientLength=_HEAT_MAP)
    return alt.Chart(look.as_data(cells), mark="rect", title=title, width=side * columns, height=side * rows).encode(
        x=alt.X("column:O", axis=None),
        y=alt.Y("row:O", axis=None),
        color=alt.Color("value:Q", scale=colours, legend=legend),
    )


def _lines(names: Sequence[str], sizes: Sequence[str], panels: _Panels) -> list[_Plot]:
    flat = {name: values.reshape(len(names), -1) for name, values in panels.items()}
    size = flat["mean"].shape[1]
    step = -(-size // _MOST_POINTS)
    scale = alt.Scale(domain=look.scale_of(*flat.values()), nice=True, zero=False)
    axis = alt.Axis(grid=False, tickCount=4)
    base = alt.Chart().encode(x=alt.X("coordinate:Q", title=None, scale=alt.Scale(nice=False), axis=axis))

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=None, scale=scale, axis=alt.Axis(tickCount=4))

    plots: list[_Plot] = []
    for place, (name, users) in enumerate(zip(names, sizes, strict=True)):
        rows = [
            {"coordinate": index} | {series: look.finite(values[place, index]) for series, values in flat.items()}
            for index in range(0, size, step)
        ]
        layers = [
            base.mark_area(opacity=0.3, color=look.BLUE).encode(y=y("lower"), y2=alt.Y2("upper:Q")),
            base.mark_line(strokeWidth=2, color=look.BLUE).encode(y=y("mean")),
            base.mark_line(strokeWidth=1.5, strokeDash=[5, 4], color=look.BLACK).encode(y=y("truth")),
        ]
        layers = layers if "truth" in flat else layers[:2]
        words = _title(name, users)
        plots.append(alt.LayerChart(data=look.as_data(rows), layer=layers, title=words, width=240, height=170))
    return plots
