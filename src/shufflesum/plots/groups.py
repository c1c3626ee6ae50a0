"""Means of groups, side by side: heat maps, lines with bands, or a bar for each group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._format import percent, plain
from shufflesum.errors import ParameterError
from shufflesum.estimate import EstimateTable
from shufflesum.plots.look import BLACK, BLUE, TEXT_SIZE, alt, as_data, config, heading
from shufflesum.plots.panels import MOST_NAMED, Panel, drawn_names, panels_chart

_MOST_PLOTS = 20
_FEW = 12  # numbers that are points with bars
_MOST_POINTS = 1000  # of one line
_MOST_PIXELS = 10_000  # of one heat map
_HEAT_MAP = 170  # its longer side

_Floats = NDArray[np.float64]
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
        panels["truth"] = np.asarray(truth, dtype=np.float64)
        if panels["truth"].shape != shape:
            raise ParameterError(
                "wrong-shape", f"truth has shape {panels['truth'].shape}, the means {shape}; they must be equal"
            )
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
        concat=plots, columns=min(columns, len(plots)), title=heading(title, notes), spacing=20, config=config()
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
                | {name: float(v) if np.isfinite(v := values[group, entry]) else None for name, values in flat.items()}
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
    means = np.concatenate([panels[name].ravel() for name in ("mean", "truth") if name in panels])
    means = means[np.isfinite(means)]
    domain = [float(means.min()), float(means.max())] if means.size else [0.0, 1.0]
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
        return alt.Chart(as_data([{}]), mark=empty, title=title, width=side * columns, height=side * rows)
    cells = [{"row": row, "column": column, "value": value} for (row, column), value in np.ndenumerate(values)]
    legend = alt.Legend(title=axis, titleFontSize=TEXT_SIZE, gradientLength=_HEAT_MAP)
    return alt.Chart(as_data(cells), mark="rect", title=title, width=side * columns, height=side * rows).encode(
        x=alt.X("column:O", axis=None),
        y=alt.Y("row:O", axis=None),
        color=alt.Color("value:Q", scale=colours, legend=legend),
    )


def _lines(names: Sequence[str], sizes: Sequence[str], panels: _Panels) -> list[_Plot]:
    flat = {name: values.reshape(len(names), -1) for name, values in panels.items()}
    size = flat["mean"].shape[1]
    step = -(-size // _MOST_POINTS)
    inside = np.concatenate([values[np.isfinite(values)] for values in flat.values()])
    domain = [float(inside.min()), float(inside.max())] if inside.size else [0.0, 1.0]
    scale = alt.Scale(domain=domain, nice=True, zero=False)
    plots: list[_Plot] = []
    for place, (name, users) in enumerate(zip(names, sizes, strict=True)):
        rows = [
            {"coordinate": index}
            | {series: float(v) if np.isfinite(v := values[place, index]) else None for series, values in flat.items()}
            for index in range(0, size, step)
        ]
        axis = alt.Axis(grid=False, tickCount=4)
        x = alt.X("coordinate:Q", title=None, scale=alt.Scale(nice=False), axis=axis)
        base = alt.Chart().encode(x=x)

        def y(field: str) -> alt.Y:
            return alt.Y(f"{field}:Q", title=None, scale=scale, axis=alt.Axis(tickCount=4))

        until = alt.Y2("upper:Q")
        layers = [
            base.mark_area(opacity=0.3, color=BLUE).encode(y=y("lower"), y2=until),
            base.mark_line(strokeWidth=2, color=BLUE).encode(y=y("mean")),
        ]
        if "truth" in flat:
            mark = base.mark_line(strokeWidth=1.5, strokeDash=[5, 4], color=BLACK)
            layers.append(mark.encode(y=y("truth")))
        plots.append(
            alt.LayerChart(
                data=as_data(rows),
                layer=layers,
                title=_title(name, users),
                width=240,
                height=170,
            )
        )
    return plots
