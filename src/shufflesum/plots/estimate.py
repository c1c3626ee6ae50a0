"""An estimate with its band, and the truth beside it where it is known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._format import evenly, percent, upwards
from shufflesum.domains.frames import by_name
from shufflesum.errors import ParameterError
from shufflesum.estimate import BaseEstimate, EstimateTable
from shufflesum.plots import look
from shufflesum.plots.look import Rows, alt
from shufflesum.plots.panels import (
    MOST_NAMED,
    Panel,
    check_drawable,
    drawn_names,
    group_chart,
    needs_log,
    panels_chart,
    units_of,
)

_ESTIMATE, _TRUTH = look.BLUE, look.BLACK
if TYPE_CHECKING:
    _Chart = alt.LayerChart | alt.HConcatChart | alt.VConcatChart | alt.ConcatChart
_FEW = 12  # up to here single points with bars say more than a line
_MOST_POINTS = 4000  # more than the picture has pixels
_MOST_UNITS = 6  # plots above each other
_LETTERS = 90  # of all names, that stand beside each other
_LONGER_SIDE = 300  # pixels of a heat map
_EVEN = 0.01  # intervals whose widths differ by no more are one number
_NAMED = 7  # ticks with names along a line


def estimate_chart(
    estimate: BaseEstimate, *, truth: ArrayLike | None = None, title: str, subtitle: str = "", level: float = 0.95
) -> _Chart:
    """What is estimated, with its confidence band: counts as bars, groups as `group_chart` draws them.

    Counts by two questions are a heat map.

    Means are drawn over the coordinates in order: few, or up to 40 with names, as points with bars, matrices as heat
    maps (mean, truth if given, half the interval's width), all else as a line with a band. Coordinates whose bounds
    differ widely are in panels of their own, and an axis is logarithmic where parts would vanish.
    Coordinates without an estimate are left out. Of more than 4,000 coordinates evenly spaced ones are drawn, and the
    subtitle says so.
    """
    check_drawable(estimate)
    table = estimate.to_table(level)
    if not table.groups and (table.of_users or estimate.columns is not None):
        truth = by_name(truth, table.labels(range(len(table.value))), "truth")
    if table.groups:
        return group_chart(table, truth=truth, title=title, subtitle=subtitle)
    if len(table.crossed) == 2 and truth is None:
        return _cross_chart(table, title=title, subtitle=subtitle)
    if table.of_users:
        return _count_chart(table, truth=truth, title=title, subtitle=subtitle)
    mean = table.value.reshape(table.shape)
    panels = {"mean": mean, "lower": table.lower.reshape(table.shape), "upper": table.upper.reshape(table.shape)}
    if truth is not None:
        panels["truth"] = look.truth_like(truth, mean.shape, "the estimate")
    if mean.ndim == 2 and min(mean.shape) > 1 and _FEW < mean.size <= 4 * _MOST_POINTS:
        return _heat_maps(panels, level, title, subtitle)
    return _vector(table, panels, title, subtitle)


def _count_chart(table: EstimateTable, *, truth: ArrayLike | None = None, title: str, subtitle: str = "") -> _Chart:
    """The unbiased count of each label with its interval, labels in their order; `truth` is of true counts.

    Of more than 40 labels those with the largest counts are shown, largest first, and the subtitle says so.
    """
    columns = {"lower": table.lower, "upper": table.upper, "value": table.value}
    if truth is not None:
        columns["truth"] = look.truth_like(truth, table.shape, "the counts")
    shown = table.some(MOST_NAMED)
    notes = [subtitle] if subtitle else []
    if len(shown) < len(table):
        notes.append(table.left_out(shown).rstrip("."))
    if not shown:
        notes.append("nothing is listed")
    rows = [
        {"label": label} | {name: float(column[place]) for name, column in columns.items()}
        for place, label in zip(shown, drawn_names(table.labels(shown)), strict=True)
    ]
    axis = table.quantity.capitalize()
    return panels_chart([Panel(rows)], axis=axis, level=table.level, title=title, subtitle=notes, bars=True)


def _cross_chart(table: EstimateTable, *, title: str, subtitle: str = "") -> _Chart:
    """Counts by the answers to two questions, the first from top to bottom, with numbers where there is room."""
    (down, rows), (across, columns) = table.crossed
    counts = table.value.reshape(len(rows), len(columns))
    half_widths = (table.upper - table.lower) / 2
    notes = [*([subtitle] if subtitle else []), *_evenly_wide(half_widths, table.level)]
    names = drawn_names(rows), drawn_names(columns)
    data = [
        {"row": names[0][row], "column": names[1][column], "value": float(count), "text": f"{round(count):,}"}
        for (row, column), count in np.ndenumerate(counts)
    ]
    least, most = look.scale_of(counts)
    base = alt.Chart().encode(
        x=alt.X("column:N", title=across, sort=None, axis=alt.Axis(labelAngle=0 if len(columns) < _FEW else -45)),
        y=alt.Y("row:N", title=down, sort=None),
    )
    scale = alt.Scale(scheme="blues", domain=[min(0.0, least), most])
    layers = [base.mark_rect().encode(color=alt.Color("value:Q", title="Users", scale=scale))]
    if max(len(rows), len(columns)) <= _FEW:
        dark = alt.condition(f"datum.value > {(least + most) / 2}", alt.value("white"), alt.value(look.BLACK))
        layers.append(base.mark_text(fontSize=look.TEXT_SIZE).encode(text="text:N", color=dark))
    return alt.LayerChart(
        data=look.as_data(data),
        layer=layers,
        title=look.heading(title, notes),
        width=look.WIDTH * min(1.0, 0.2 + 0.1 * len(columns)),
        height=max(120, min(900, 44 * len(rows))),
        config=look.config(),
    )


def _evenly_wide(half_widths: NDArray[np.float64], level: float) -> list[str]:
    """How wide intervals are, where all are as good as the same, or at most."""
    if not np.isfinite(half_widths).any():
        return []
    least, most = look.scale_of(half_widths)
    where = "everywhere" if most - least <= _EVEN * most else "at most"
    return [f"{percent(level)} % intervals: ± {upwards(most * (1 - 1e-12))} {where}"]


def _vector(table: EstimateTable, panels: Mapping[str, NDArray[np.float64]], title: str, subtitle: str) -> _Chart:
    """All entries in their order."""
    mean, with_truth, level = panels["mean"], "truth" in panels, table.level
    units = units_of(table)
    names = drawn_names(table.names_of(range(mean.size))) if table.named else None
    flat = {name: values.ravel() for name, values in panels.items()}
    if mean.size <= MOST_NAMED and (len(units) > 1 or (names and _crowded(names)) or _vanishing(flat)):
        labels = names or [str(place) for place in range(mean.size)]
        drawn = [Panel(_labelled(flat, labels, unit)) for unit in units]
        notes = [subtitle] if subtitle else []
        return panels_chart(drawn, axis=table.quantity.capitalize(), level=level, title=title, subtitle=notes)
    step = -(-mean.size // _MOST_POINTS)
    if step > 1:
        subtitle = f"{subtitle}{'. ' if subtitle else ''}One coordinate in {step:,} is shown"
    rows = _rows({name: values[::step] for name, values in flat.items()}, step)
    if mean.size <= _FEW:
        if names is not None:
            rows = [row | {"coordinate": name} for row, name in zip(rows, names, strict=True)]
        layers = _points(table, with_truth, named=names is not None, alone=mean.size == 1)
        return _alone(rows, layers, look.heading(title, subtitle))
    if 1 < len(units) <= _MOST_UNITS:
        return _lines(table, rows, units, names, look.heading(title, subtitle))
    return _alone(rows, _line(table, with_truth, names), look.heading(title, subtitle))


def _crowded(names: Sequence[str]) -> bool:
    """Whether names need a line each: they stand at equal distances."""
    return len(names) > _FEW or len(names) * max(map(len, names)) > _LETTERS


def _vanishing(flat: Mapping[str, NDArray[np.float64]]) -> bool:
    """Whether few points would need a logarithmic axis."""
    return flat["mean"].size <= _FEW and needs_log(*(flat[name].tolist() for name in ("mean", "lower", "upper")))


def _labelled(
    flat: Mapping[str, NDArray[np.float64]], labels: Sequence[str], places: Sequence[int]
) -> list[dict[str, Any]]:
    columns = {("value" if name == "mean" else name): values for name, values in flat.items()}
    return [
        {"label": labels[place]} | {name: look.finite(values[place]) for name, values in columns.items()}
        for place in places
    ]


def _alone(rows: Rows, layers: list[alt.Chart], title: alt.TitleParams) -> alt.LayerChart:
    return alt.LayerChart(
        data=look.as_data(rows), layer=layers, title=title, width=look.WIDTH, height=look.HEIGHT, config=look.config()
    )


def _lines(
    table: EstimateTable,
    rows: Rows,
    units: Sequence[Sequence[int]],
    names: Sequence[str] | None,
    title: alt.TitleParams,
) -> alt.VConcatChart:
    """One plot above another, each of the coordinates that share an axis; dots where they do not follow each other."""
    charts = []
    for unit in units:
        members = set(unit)
        mine = [row for row in rows if row["coordinate"] in members]
        together = len(unit) > 1 and unit[-1] - unit[0] == len(unit) - 1
        layers = (_line if together else _dots)(table, "truth" in rows[0], names)
        charts.append(alt.LayerChart(data=look.as_data(mine), layer=layers, width=look.WIDTH, height=look.HEIGHT / 2))
    return alt.VConcatChart(vconcat=charts, title=title, spacing=20, config=look.config())


def _rows(columns: Mapping[str, NDArray[np.float64]], step: int) -> list[dict[str, Any]]:
    return [
        {"coordinate": index * step} | {name: look.finite(value) for name, value in zip(columns, values, strict=True)}
        for index, values in enumerate(zip(*(column.tolist() for column in columns.values()), strict=True))
    ]


def _coordinate(names: Sequence[str] | None) -> alt.X:
    """Places in their order; of names as many as there is room for."""
    scale = alt.Scale(nice=False)
    if names is None:
        axis = alt.Axis(grid=False, labelFlush=False, tickCount=10)
        return alt.X("coordinate:Q", title="Coordinate", scale=scale, axis=axis)
    ticks = evenly(len(names), _NAMED)
    shown = json.dumps({str(tick): names[tick] for tick in ticks})  # a literal of Vega's expressions as well
    axis = alt.Axis(values=ticks, labelExpr=f"({shown})[datum.value]", labelLimit=90, grid=False, labelOverlap=False)
    return alt.X("coordinate:Q", title=None, scale=scale, axis=axis)


def _line(table: EstimateTable, with_truth: bool, names: Sequence[str] | None) -> list[alt.Chart]:
    base = alt.Chart().encode(x=_coordinate(names))
    color, dash = _legend(table.level, with_truth, symbol_size=500)
    y = partial(_value, table)
    band = base.mark_area(opacity=0.3, color=_ESTIMATE).encode(y=y("lower"), y2=alt.Y2("upper:Q"))
    line = _named(base, "mean").mark_line(strokeWidth=2.5).encode(y=y("mean"), color=color, strokeDash=dash)
    truth = _named(base, "truth").mark_line(strokeWidth=2).encode(y=y("truth"), color=color, strokeDash=dash)
    return [band, line, truth] if with_truth else [band, line]


def _dots(table: EstimateTable, with_truth: bool, names: Sequence[str] | None) -> list[alt.Chart]:
    return _marks(alt.Chart().encode(x=_coordinate(names)), table, with_truth, size=30)


def _points(table: EstimateTable, with_truth: bool, *, named: bool, alone: bool) -> list[alt.Chart]:
    axis = alt.Axis(labelAngle=0) if named or not alone else alt.Axis(labels=False, ticks=False)
    x = alt.X("coordinate:O", title=None if named or alone else "Coordinate", sort=None, axis=axis)
    return _marks(alt.Chart().encode(x=x), table, with_truth, size=140)


def _marks(base: alt.Chart, table: EstimateTable, with_truth: bool, size: int) -> list[alt.Chart]:
    color, _ = _legend(table.level, with_truth, symbol_size=140)
    y = partial(_value, table)
    wide, long = (3, 34) if size > 100 else (1.5, 8)
    bars = base.mark_rule(strokeWidth=wide, color=_ESTIMATE).encode(y=y("lower"), y2=alt.Y2("upper:Q"))
    points = _named(base, "mean").mark_point(filled=True, size=size, opacity=1).encode(y=y("mean"), color=color)
    ticks = _named(base, "truth").mark_tick(thickness=3, size=long, opacity=1)
    truth = ticks.encode(y=y("truth"), color=color)
    return [bars, points, truth] if with_truth else [bars, points]


def _value(table: EstimateTable, field: str) -> alt.Y:
    return alt.Y(
        f"{field}:Q", title=table.quantity.capitalize(), scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=6)
    )


def _named(chart: alt.Chart, series: str) -> alt.Chart:
    return chart.transform_calculate(series=f"'{series}'")


def _legend(level: float, with_truth: bool, symbol_size: int) -> tuple[alt.Color, alt.StrokeDash]:
    """Colour and dash by series; equal domains make Vega-Lite merge them into one legend."""
    series = ["mean", "truth"] if with_truth else ["mean"]
    estimate = f"Private estimate with its {percent(level)} % interval"
    legend = alt.Legend(
        title=None,
        orient="top",
        symbolSize=symbol_size,
        symbolStrokeWidth=3,
        labelLimit=500,
        labelExpr=f"datum.label === 'mean' ? '{estimate}' : 'True mean'",
    )
    color = alt.Scale(domain=series, range=[_ESTIMATE, _TRUTH][: len(series)])
    dash = alt.Scale(domain=series, range=[[1, 0], [7, 5]][: len(series)])
    return alt.Color("series:N", scale=color, legend=legend), alt.StrokeDash("series:N", scale=dash, legend=legend)


# ---- matrices --------------------------------------------------------------------------------------------------------


def _heat_maps(panels: Mapping[str, NDArray[np.float64]], level: float, title: str, subtitle: str) -> alt.HConcatChart:
    """The mean, the truth if there is one (in the same colours), and half the width of the interval where it varies."""
    means = {"Private estimate": panels["mean"]}
    if "truth" in panels:
        means["True mean"] = panels["truth"]
    domain = look.scale_of(*means.values())
    half_width = (panels["upper"] - panels["lower"]) / 2
    charts = [_heat_map(values, name, alt.Scale(scheme="viridis", domain=domain)) for name, values in means.items()]
    notes = [subtitle] if subtitle else []
    least, most = look.scale_of(half_width) if np.isfinite(half_width).any() else (0.0, 0.0)
    if most - least <= _EVEN * most:  # a single colour says less than a number
        most *= 1 - 1e-12  # half of a difference is rounded: what was 0.95 stays so
        notes.append(f"{percent(level)} % intervals: ± {upwards(most)} everywhere")
    else:
        name = f"Half of the {percent(level)} % interval"
        charts.append(_heat_map(half_width, name, alt.Scale(range=["#FFFFFF", look.BLUE], zero=True)))
    resolve = alt.Resolve(scale=alt.ScaleResolveMap(color="independent"))
    return alt.HConcatChart(
        hconcat=charts, spacing=36, resolve=resolve, title=look.heading(title, notes), config=look.config()
    )


def _heat_map(values: NDArray[np.float64], name: str, colours: alt.Scale) -> alt.Chart:
    cell = max(1.0, _LONGER_SIDE / max(values.shape))
    rows = [
        {"row": row, "column": column, "value": look.finite(value)} for (row, column), value in np.ndenumerate(values)
    ]
    return alt.Chart(
        look.as_data(rows),
        mark="rect",
        title=alt.TitleParams(name, fontSize=16),
        width=cell * values.shape[1],
        height=cell * values.shape[0],
    ).encode(
        x=alt.X("column:O", title="Column", axis=alt.Axis(labelOverlap=True, labelAngle=0)),
        y=alt.Y("row:O", title="Row", axis=alt.Axis(labelOverlap=True)),
        color=alt.Color("value:Q", title=None, scale=colours, legend=alt.Legend(gradientLength=160)),
    )


# ---- Several rounds of one plan over time: a small plot for each entry, each on a scale of its own.

_MOST = 12  # plots
_WIDTH = 200
_Floats = NDArray[np.float64]


def rounds_chart(
    estimates: Sequence[BaseEstimate], *, title: str, subtitle: str = "", level: float = 0.95
) -> alt.ConcatChart:
    """Value and interval of each entry by round, rounds in their order; counts, means, or the means of groups.

    Of many entries twelve are shown: the labels or groups largest in the last round, or evenly spaced means. The
    subtitle says so.
    """
    check_drawable(*estimates)
    if len({estimate.plan.id for estimate in estimates}) > 1:
        raise ParameterError("conflicting-arguments", "the estimates are of several plans; draw those of one plan")
    ordered = sorted(estimates, key=lambda each: each.round_number)
    found = [estimate.to_table(level) for estimate in ordered]
    places = _entries(found[-1])
    notes = [*([subtitle] if subtitle else []), f"{percent(level)} % intervals; each plot has a scale of its own"]
    if len(places) < len(found[-1]):
        notes.append(f"{len(places)} of {len(found[-1]):,} are shown")
    axis = found[-1].quantity.capitalize()
    plots = []
    for name, place in zip(drawn_names(found[-1].labels(places)), places, strict=True):
        rows: list[dict[str, Any]] = [
            {"round": estimate.round_number}
            | {what: look.finite(getattr(table, what)[place]) for what in ("value", "lower", "upper")}
            for estimate, table in zip(ordered, found, strict=True)
        ]
        plots.append(_plot(rows, name, axis))
    return alt.ConcatChart(
        concat=plots, columns=min(3, len(plots)), title=look.heading(title, notes), spacing=24, config=look.config()
    )


def _entries(table: EstimateTable) -> list[int]:
    """The places of what is shown."""
    if table.of_users:
        return _largest(table.value, _MOST)
    if not table.groups:
        return evenly(len(table), _MOST)
    each = min(table.entries, _MOST)
    groups = _largest(table.users[:: table.entries], max(1, _MOST // each))
    return [group * table.entries + entry for group in groups for entry in range(each)]


def _largest(counts: _Floats, most: int) -> list[int]:
    return sorted(int(place) for place in np.argsort(-counts, kind="stable")[:most])


def _plot(rows: list[dict[str, Any]], name: str, axis: str) -> alt.LayerChart:
    rounds = [row["round"] for row in rows]
    ticks = alt.Axis(values=rounds if len(rounds) <= 8 else alt.Undefined, format="d", grid=False, tickMinStep=1)
    scale = alt.Scale(nice=False, zero=False, padding=14)
    base = alt.Chart().encode(x=alt.X("round:Q", title="Round", scale=scale, axis=ticks))

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=axis, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4, format=",f"))

    layers = [
        base.mark_rule(strokeWidth=3, color=look.BLUE, opacity=0.5).encode(y=y("lower"), y2=alt.Y2("upper:Q")),
        base.mark_line(strokeWidth=1.5, color=look.BLUE).encode(y=y("value")),
        base.mark_point(filled=True, size=70, opacity=1, color=look.BLUE).encode(y=y("value")),
    ]
    words: Any = look.folded(name, _WIDTH / 8.5)
    title = alt.TitleParams(words, fontSize=16, offset=10, frame="group")  # of the plot: all stand at one height
    return alt.LayerChart(data=look.as_data(rows), layer=layers, title=title, width=_WIDTH, height=150)
