"""An estimate with its band, and the truth beside it where it is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum.errors import ParameterError
from shufflesum.estimate import CountEstimate, Estimate, GroupEstimate, WordCounts
from shufflesum.plots._altair import alt
from shufflesum.plots.counts import count_chart
from shufflesum.plots.groups import group_chart
from shufflesum.plots.heat_maps import heat_maps
from shufflesum.plots.look import BLACK, BLUE, HEIGHT, WIDTH, as_data, config, heading

__all__ = ["estimate_chart"]

_ESTIMATE, _TRUTH = BLUE, BLACK
_FEW = 12  # up to here single points with bars say more than a line
_MOST_POINTS = 4000  # more than the picture has pixels


class _Drawable(Protocol):
    @property
    def mean(self) -> NDArray[np.float64]: ...

    def confidence_interval(self, level: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...


def estimate_chart(
    estimate: _Drawable | WordCounts,
    *,
    truth: ArrayLike | None = None,
    title: str,
    subtitle: str = "",
    level: float = 0.95,
) -> alt.LayerChart | alt.HConcatChart | alt.ConcatChart:
    """What is estimated, with its confidence band: counts and groups as `count_chart` and `group_chart` draw them.

    Means are drawn over the coordinates in order: few as points with bars, under their names if they have any,
    matrices as heat maps (mean, truth if given, half the interval's width), all else as a line with a band.
    Coordinates without an estimate are left out. Of more than 4,000 coordinates evenly spaced ones are drawn, and the
    subtitle says so.
    """
    if isinstance(estimate, CountEstimate | WordCounts):
        return count_chart(estimate, truth=truth, title=title, subtitle=subtitle, level=level)
    if isinstance(estimate, GroupEstimate):
        return group_chart(estimate, truth=truth, title=title, subtitle=subtitle, level=level)
    mean = np.asarray(estimate.mean, dtype=np.float64)
    lower, upper = (np.asarray(end, dtype=np.float64) for end in estimate.confidence_interval(level))
    panels = {"mean": mean, "lower": lower, "upper": upper}
    if truth is not None:
        panels["truth"] = np.asarray(truth, dtype=np.float64)
        if panels["truth"].shape != mean.shape:
            raise ParameterError(
                "wrong-shape", f"truth has shape {panels['truth'].shape}, the estimate {mean.shape}; they must be equal"
            )
    if mean.ndim == 2 and min(mean.shape) > 1 and _FEW < mean.size <= 4 * _MOST_POINTS:
        return heat_maps(panels, level, heading(title, subtitle))
    step = -(-mean.size // _MOST_POINTS)
    if step > 1:
        subtitle = f"{subtitle}{'. ' if subtitle else ''}One coordinate in {step:,} is shown"
    draw = _points if mean.size <= _FEW else _line
    names = estimate.plan.domain.names if isinstance(estimate, Estimate) and mean.size <= _FEW else None
    rows = _rows({name: values.ravel()[::step] for name, values in panels.items()}, step)
    if names is not None:
        rows = [row | {"coordinate": name} for row, name in zip(rows, names, strict=True)]
    return alt.LayerChart(
        data=as_data(rows),
        layer=draw(level, truth is not None),
        title=heading(title, subtitle),
        width=WIDTH,
        height=HEIGHT,
        config=config(),
    )


def _rows(columns: Mapping[str, NDArray[np.float64]], step: int) -> list[dict[str, Any]]:
    # Vega draws a gap for null; JSON has no NaN.
    return [
        {"coordinate": index * step}
        | {name: value if np.isfinite(value) else None for name, value in zip(columns, values, strict=True)}
        for index, values in enumerate(zip(*(column.tolist() for column in columns.values()), strict=True))
    ]


def _line(level: float, with_truth: bool) -> list[alt.Chart]:
    x = alt.X(
        "coordinate:Q",
        title="Coordinate",
        scale=alt.Scale(nice=False),
        axis=alt.Axis(grid=False, labelFlush=False, tickCount=10),
    )
    base = alt.Chart().encode(x=x)
    color, dash = _legend(level, with_truth, symbol_size=500)
    band = base.mark_area(opacity=0.3, color=_ESTIMATE).encode(y=_value("lower"), y2=alt.Y2("upper:Q"))
    line = _named(base, "mean").mark_line(strokeWidth=2.5).encode(y=_value("mean"), color=color, strokeDash=dash)
    truth = _named(base, "truth").mark_line(strokeWidth=2).encode(y=_value("truth"), color=color, strokeDash=dash)
    return [band, line, truth] if with_truth else [band, line]


def _points(level: float, with_truth: bool) -> list[alt.Chart]:
    base = alt.Chart().encode(x=alt.X("coordinate:O", title="Coordinate", sort=None, axis=alt.Axis(labelAngle=0)))
    color, _ = _legend(level, with_truth, symbol_size=140)
    bars = base.mark_rule(strokeWidth=3, color=_ESTIMATE).encode(y=_value("lower"), y2=alt.Y2("upper:Q"))
    points = _named(base, "mean").mark_point(filled=True, size=140, opacity=1).encode(y=_value("mean"), color=color)
    truth = _named(base, "truth").mark_tick(thickness=3, size=34, opacity=1).encode(y=_value("truth"), color=color)
    return [bars, points, truth] if with_truth else [bars, points]


def _value(field: str) -> alt.Y:
    return alt.Y(f"{field}:Q", title="Mean", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=6))


def _named(chart: alt.Chart, series: str) -> alt.Chart:
    return chart.transform_calculate(series=f"'{series}'")


def _legend(level: float, with_truth: bool, symbol_size: int) -> tuple[alt.Color, alt.StrokeDash]:
    """Colour and dash by series; equal domains make Vega-Lite merge them into one legend."""
    series = ["mean", "truth"] if with_truth else ["mean"]
    estimate = f"Private estimate with its {100 * level:.4g} % interval"
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
    return (
        alt.Color("series:N", scale=color, legend=legend),
        alt.StrokeDash("series:N", scale=dash, legend=legend),
    )
