"""Bars with intervals, each with its label: counts of labels, or one number for each group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shufflesum._format import percent
from shufflesum.errors import ParameterError
from shufflesum.estimate import EstimateTable
from shufflesum.plots.axes import drawn_names, needs_log, symlog_axis
from shufflesum.plots.look import BLACK, BLUE, HEIGHT, SKY, WIDTH, Rows, alt, as_data, config, heading

MOST_BARS = 40
_FEW, _SHORT = 12, 9  # so many labels of so many letters stand beside each other
_BAR_HEIGHT = 24
_NUMBERS = ("value", "lower", "upper", "truth")
_LABEL_WIDTH = 460  # pixels, beyond which labels are cut off


def bar_chart(rows: Rows, *, axis: str, level: float, title: str, subtitle: str | list[str]) -> alt.LayerChart:
    """Rows of label, value, lower, upper and perhaps truth, in their order; a value may be None, with a `note` why.

    Bars lie on their side where labels are many or long. Where small ones would vanish, points on a logarithmic axis
    take their place.
    """
    names = drawn_names(row["label"] for row in rows)
    rows = [{**row, "label": name} for row, name in zip(rows, names, strict=True)]
    lying = len(rows) > _FEW or max(len(row["label"]) for row in rows) > _SHORT
    along, across = ("x", "y") if lying else ("y", "x")
    with_truth = any("truth" in row for row in rows)

    numbers = [row[name] for row in rows for name in _NUMBERS if row.get(name) is not None]
    lowest, highest = min(numbers, default=0.0), max(numbers, default=1.0)
    # Not up to round numbers: an interval that reaches just below 0 would leave much empty room there.
    room = 0.02 * (max(highest, 0.0) - min(lowest, 0.0))
    ends = [lowest - room if lowest < 0 else 0.0, highest + room if highest > 0 else 0.0]
    scale, ticks = alt.Scale(domain=ends, nice=False), alt.Axis(format=",f", tickCount=6)
    known = [row for row in rows if None not in (row["value"], row["lower"], row["upper"])]
    logarithmic = needs_log(*([row[name] for row in known] for name in ("value", "lower", "upper")))
    if logarithmic:
        scale, ticks = symlog_axis(numbers, [(row["upper"] - row["lower"]) / 2 for row in known])
        notes = [subtitle] if isinstance(subtitle, str) and subtitle else list(subtitle)
        subtitle = [*notes, "Logarithmic scale, linear around 0: small ones would not be seen otherwise"]

    def value(field: str) -> dict[str, Any]:
        channel: Any = alt.X if lying else alt.Y
        return {along: channel(f"{field}:Q", title=axis, scale=scale, axis=ticks)}

    def until(field: str) -> dict[str, Any]:
        return {"x2": alt.X2(f"{field}:Q")} if lying else {"y2": alt.Y2(f"{field}:Q")}

    named: Any = alt.Y if lying else alt.X
    look = alt.Axis(labelAngle=0, labelLimit=_LABEL_WIDTH, labelOverlap=False, ticks=False, grid=False, domain=False)
    channels = {across: named("label:N", sort=names, title=None, axis=look)}
    base = alt.Chart().encode(**channels)
    estimate = f"Private estimate with its {percent(level)} % interval"
    color = alt.Color(
        "series:N",
        scale=alt.Scale(domain=["estimate", "truth"] if with_truth else ["estimate"], range=[BLUE, BLACK]),
        legend=alt.Legend(
            title=None,
            orient="top",
            symbolType="stroke",
            symbolSize=500,
            symbolStrokeWidth=4,
            labelLimit=500,
            labelExpr=f"datum.label === 'estimate' ? '{estimate}' : 'Truth'",
        ),
    )
    # The length of a bar says nothing on a logarithmic axis.
    bars = [] if logarithmic else [base.mark_bar(color=SKY, opacity=0.6).encode(**value("value"))]
    layers = [
        *bars,
        alt.Chart(as_data([{"zero": 0}])).mark_rule(color="#666666").encode(**value("zero")),
        base.mark_rule(strokeWidth=3, opacity=1)
        .transform_calculate(series="'estimate'")
        .encode(**value("lower"), **until("upper"), color=color),
        base.mark_point(filled=True, size=30 if lying and not logarithmic else 60, opacity=1, color=BLUE).encode(
            **value("value")
        ),
    ]
    if with_truth:
        layers.append(
            base.mark_tick(thickness=3, size=16 if lying else 34, opacity=1)
            .transform_calculate(series="'truth'")
            .encode(**value("truth"), color=color)
        )
    if any(row.get("note") for row in rows):
        words = {"align": "left", "dx": 6} if lying else {"dy": -8}
        layers.append(
            base.mark_text(fontSize=14, color="#555555", **words).encode(
                text=alt.Text("note:N"), **{along: (alt.XDatum if lying else alt.YDatum)(0)}
            )
        )
    return alt.LayerChart(
        data=as_data(rows),
        layer=layers,
        title=heading(title, subtitle),
        width=WIDTH,
        height=_BAR_HEIGHT * len(rows) if lying else HEIGHT,
        config=config(),
    )


def count_chart(
    table: EstimateTable, *, truth: ArrayLike | None = None, title: str, subtitle: str = ""
) -> alt.LayerChart:
    """The unbiased count of each label with its interval, labels in their order; `truth` is of true counts.

    Of more than 40 labels those with the largest counts are shown, largest first, and the subtitle says so.
    """
    columns = {"lower": table.lower, "upper": table.upper, "value": table.value}
    if truth is not None:
        columns["truth"] = np.asarray(truth, dtype=np.float64)
        if columns["truth"].shape != table.shape:
            raise ParameterError(
                "wrong-shape",
                f"truth has shape {columns['truth'].shape}, the counts {table.shape}; they must be equal",
            )
    shown = table.some(MOST_BARS)
    notes = [subtitle] if subtitle else []
    if len(shown) < len(table):
        notes.append(f"{MOST_BARS} of {len(table):,} labels are shown, those with the largest counts")
    rows = [
        {"label": label} | {name: float(column[place]) for name, column in columns.items()}
        for place, label in zip(shown, table.labels(shown), strict=True)
    ]
    return bar_chart(rows, axis=table.quantity.capitalize(), level=table.level, title=title, subtitle=notes)
