"""Every picture: an estimate with its band, and the truth beside it where it is known."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum.errors import FileError, MissingExtraError, ParameterError

if TYPE_CHECKING:
    import altair as alt

__all__ = ["DRAWABLE", "error_chart", "estimate_chart", "require_plots", "save_chart"]

DRAWABLE = (".png", ".svg", ".html")

# Two colours of Okabe and Ito that stay apart for every kind of colour vision, and in print.
_ESTIMATE, _TRUTH = "#0072B2", "#1A1A1A"
_PARTS = ["#56B4E9", "#E69F00", "#0072B2"]
_WIDTH, _HEIGHT = 760, 380
_FEW = 12  # up to here single points with bars say more than a line
_MOST_POINTS = 4000  # more than the picture has pixels


class _Drawable(Protocol):
    @property
    def mean(self) -> NDArray[np.float64]: ...

    def confidence_interval(self, level: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...


def require_plots() -> None:
    """Raise MissingExtraError unless pictures can be drawn; call it before long work."""
    if any(importlib.util.find_spec(library) is None for library in ("altair", "vl_convert")):
        raise MissingExtraError("drawing needs altair and vl-convert: pip install 'shufflesum[plots]'")


def estimate_chart(
    estimate: _Drawable,
    *,
    truth: ArrayLike | None = None,
    title: str,
    subtitle: str = "",
    level: float = 0.95,
) -> alt.LayerChart | alt.HConcatChart:
    """The estimated mean with its confidence band, over the coordinates in order.

    Few coordinates are drawn as points with bars, matrices as heat maps (mean, truth if given, half the
    interval's width), all else as a line with a band. Coordinates without an estimate are left out. Of more
    than 4,000 coordinates evenly spaced ones are drawn, and the subtitle says so.
    """
    require_plots()
    mean = np.asarray(estimate.mean, dtype=np.float64)
    lower, upper = (np.asarray(end, dtype=np.float64) for end in estimate.confidence_interval(level))
    panels = {"mean": mean, "lower": lower, "upper": upper}
    if truth is not None:
        panels["truth"] = np.asarray(truth, dtype=np.float64)
        if panels["truth"].shape != mean.shape:
            raise ParameterError(
                f"truth has shape {panels['truth'].shape}, the estimate {mean.shape}; they must be equal"
            )
    if mean.ndim == 2 and min(mean.shape) > 1 and _FEW < mean.size <= 4 * _MOST_POINTS:
        chart: alt.LayerChart | alt.HConcatChart = _heat_maps(panels, level).properties(title=_title(title, subtitle))
    else:
        step = -(-mean.size // _MOST_POINTS)
        if step > 1:
            subtitle = f"{subtitle}{'. ' if subtitle else ''}One coordinate in {step:,} is shown"
        draw = _points if mean.size <= _FEW else _line
        rows = _rows({name: values.ravel()[::step] for name, values in panels.items()}, step)
        chart = draw(rows, level, truth is not None).properties(
            title=_title(title, subtitle), width=_WIDTH, height=_HEIGHT
        )
    styled: alt.LayerChart | alt.HConcatChart = _styled(chart)
    return styled


def error_chart(parts: Mapping[int, Mapping[str, float]], *, title: str, subtitle: str = "") -> alt.LayerChart:
    """Predicted squared error by number of reports a user sends, its parts (sampling, rounding, noise) stacked."""
    require_plots()
    import altair as alt

    rows = [
        {"reports": reports, "part": name, "error": error, "order": order}
        for reports, split in parts.items()
        for order, (name, error) in enumerate(split.items())
    ]
    totals = [
        {"reports": reports, "error": sum(split.values()), "label": f"{sum(split.values()):.2g}"}
        for reports, split in parts.items()
    ]
    names = list(next(iter(parts.values())))
    x = alt.X("reports:O", title="Reports each user sends", axis=alt.Axis(labelAngle=0))
    y = alt.Y("error:Q", title="Squared error of the mean, all coordinates", axis=alt.Axis(tickCount=6))
    colour = alt.Color(
        "part:N",
        scale=alt.Scale(domain=names, range=_PARTS[: len(names)]),
        legend=alt.Legend(title=None, orient="top", labelLimit=500),
    )
    bars = alt.Chart(_data(rows)).mark_bar(size=min(60, 0.6 * _WIDTH / len(parts)))
    labels = alt.Chart(_data(totals)).mark_text(dy=-10, fontSize=15).encode(x=x, y=y, text="label:N")
    layers = [bars.encode(x=x, y=y, color=colour, order="order:Q"), labels]
    chart: alt.LayerChart = _styled(
        alt.LayerChart(layer=layers).properties(title=_title(title, subtitle), width=_WIDTH, height=_HEIGHT)
    )
    return chart


def save_chart(chart: alt.TopLevelMixin, path: str | os.PathLike[str]) -> None:
    """Write a picture by its suffix: .png (twice the pixels), .svg, or .html that opens without a network."""
    path = Path(path)
    require_plots()
    kind = path.suffix.lower()
    try:
        if kind == ".png":
            chart.save(path, format="png", scale_factor=2)
        elif kind == ".svg":
            chart.save(path, format="svg")
        elif kind == ".html":
            chart.save(path, format="html", inline=True)
        else:
            raise FileError(f"{path}: pictures cannot end in {path.suffix!r}; allowed are {', '.join(DRAWABLE)}")
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}; check the disk") from error


def _rows(columns: Mapping[str, NDArray[np.float64]], step: int) -> list[dict[str, Any]]:
    # Vega draws a gap for null; JSON has no NaN.
    return [
        {"coordinate": index * step}
        | {name: value if np.isfinite(value) else None for name, value in zip(columns, values, strict=True)}
        for index, values in enumerate(zip(*(column.tolist() for column in columns.values()), strict=True))
    ]


def _line(rows: list[dict[str, Any]], level: float, with_truth: bool) -> alt.LayerChart:
    import altair as alt

    x = alt.X(
        "coordinate:Q",
        title="Coordinate",
        scale=alt.Scale(nice=False),
        axis=alt.Axis(grid=False, labelFlush=False, tickCount=10),
    )
    base = alt.Chart(_data(rows)).encode(x=x)
    color, dash = _legend(level, with_truth, symbol_size=500)
    band = base.mark_area(opacity=0.3, color=_ESTIMATE).encode(y=_value("lower"), y2="upper:Q")
    line = _named(base, "mean").mark_line(strokeWidth=2.5).encode(y=_value("mean"), color=color, strokeDash=dash)
    layers = [band, line]
    if with_truth:
        truth = _named(base, "truth").mark_line(strokeWidth=2)
        layers.append(truth.encode(y=_value("truth"), color=color, strokeDash=dash))
    return alt.LayerChart(layer=layers)


def _points(rows: list[dict[str, Any]], level: float, with_truth: bool) -> alt.LayerChart:
    import altair as alt

    x = alt.X("coordinate:O", title="Coordinate", axis=alt.Axis(labelAngle=0))
    base = alt.Chart(_data(rows)).encode(x=x)
    color, _ = _legend(level, with_truth, symbol_size=140)
    bars = base.mark_rule(strokeWidth=3, color=_ESTIMATE).encode(y=_value("lower"), y2="upper:Q")
    points = _named(base, "mean").mark_point(filled=True, size=140, opacity=1)
    layers = [bars, points.encode(y=_value("mean"), color=color)]
    if with_truth:
        truth = _named(base, "truth").mark_tick(thickness=3, size=34, opacity=1)
        layers.append(truth.encode(y=_value("truth"), color=color))
    return alt.LayerChart(layer=layers)


def _heat_maps(panels: Mapping[str, NDArray[np.float64]], level: float) -> alt.HConcatChart:
    import altair as alt

    shown = {"Private estimate": (panels["mean"], "means")}
    if "truth" in panels:
        shown["True mean"] = (panels["truth"], "means")
    half_width = (panels["upper"] - panels["lower"]) / 2
    shown[f"Half of the {100 * level:.4g} % interval"] = (half_width, "widths")
    finite = [values[np.isfinite(values)] for values, scale in shown.values() if scale == "means"]
    together = np.concatenate(finite)
    means_domain = [float(together.min()), float(together.max())] if together.size else [0.0, 1.0]
    rows, columns = panels["mean"].shape
    cell = max(1.0, 300 / max(rows, columns))
    charts = []
    for name, (values, scale) in shown.items():
        data = [
            {
                "row": row,
                "column": column,
                "value": values[row, column] if np.isfinite(values[row, column]) else None,
            }
            for row, column in np.ndindex(rows, columns)
        ]
        colours = (
            alt.Scale(scheme="viridis", domain=means_domain)
            if scale == "means"
            else alt.Scale(range=["#FFFFFF", _ESTIMATE], zero=True)
        )
        charts.append(
            alt.Chart(_data(data), title=name)
            .mark_rect()
            .encode(
                x=alt.X("column:O", title="Column", axis=alt.Axis(labelOverlap=True, labelAngle=0)),
                y=alt.Y("row:O", title="Row", axis=alt.Axis(labelOverlap=True)),
                color=alt.Color("value:Q", title=None, scale=colours, legend=alt.Legend(gradientLength=160)),
            )
            .properties(width=cell * columns, height=cell * rows)
        )
    side_by_side: alt.HConcatChart = alt.HConcatChart(hconcat=charts, spacing=36).resolve_scale(color="independent")
    return side_by_side


def _value(field: str) -> alt.Y:
    import altair as alt

    return alt.Y(f"{field}:Q", title="Mean", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=6))


def _named(chart: alt.Chart, series: str) -> alt.Chart:
    return chart.transform_calculate(series=f"'{series}'")


def _legend(level: float, with_truth: bool, symbol_size: int) -> tuple[alt.Color, alt.StrokeDash]:
    """Colour and dash by series; equal domains make Vega-Lite merge them into one legend."""
    import altair as alt

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


def _data(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    # Given as values, not as a data frame, so that no limit on the number of rows applies.
    return alt.InlineData(values=rows)


def _title(title: str, subtitle: str) -> alt.TitleParams:
    import altair as alt

    return alt.TitleParams(title, subtitle=subtitle) if subtitle else alt.TitleParams(title)


def _styled(chart: Any) -> Any:
    # Large type: the picture must still read at half its size.
    return (
        chart.configure_axis(
            labelFontSize=15, titleFontSize=17, titleFontWeight="normal", titlePadding=10, gridColor="#E4E4E4"
        )
        .configure_legend(labelFontSize=16)
        .configure_title(
            fontSize=20,
            subtitleFontSize=16,
            subtitleColor="#444444",
            anchor="start",
            offset=14,
            subtitlePadding=6,
        )
        .configure_view(stroke=None)
    )
