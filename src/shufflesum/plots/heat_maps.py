"""A matrix of estimates as heat maps, side by side."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shufflesum._rounding import percent, upwards
from shufflesum.plots._altair import alt
from shufflesum.plots.look import BLUE, as_data, config, heading

__all__ = ["heat_maps"]

_LONGER_SIDE = 300
_EVEN = 0.01


def heat_maps(panels: Mapping[str, NDArray[np.float64]], level: float, title: str, subtitle: str) -> alt.HConcatChart:
    """The mean, the truth if there is one (in the same colours), and half the width of the interval where it varies."""
    means = {"Private estimate": panels["mean"]}
    if "truth" in panels:
        means["True mean"] = panels["truth"]
    finite = np.concatenate([values[np.isfinite(values)] for values in means.values()])
    domain = [float(finite.min()), float(finite.max())] if finite.size else [0.0, 1.0]
    half_width = (panels["upper"] - panels["lower"]) / 2
    charts = [_heat_map(values, name, alt.Scale(scheme="viridis", domain=domain)) for name, values in means.items()]
    notes = [subtitle] if subtitle else []
    known = half_width[np.isfinite(half_width)]
    least, most = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    if most - least <= _EVEN * most:  # a single colour says less than a number
        most *= 1 - 1e-12  # half of a difference is rounded: what was 0.95 stays so
        notes.append(f"{percent(level)} % intervals: ± {upwards(most)} everywhere")
    else:
        name = f"Half of the {percent(level)} % interval"
        charts.append(_heat_map(half_width, name, alt.Scale(range=["#FFFFFF", BLUE], zero=True)))
    resolve = alt.Resolve(scale=alt.ScaleResolveMap(color="independent"))
    return alt.HConcatChart(hconcat=charts, spacing=36, resolve=resolve, title=heading(title, notes), config=config())


def _heat_map(values: NDArray[np.float64], name: str, colours: alt.Scale) -> alt.Chart:
    cell = max(1.0, _LONGER_SIDE / max(values.shape))
    rows = [
        {"row": row, "column": column, "value": value if np.isfinite(value) else None}
        for (row, column), value in np.ndenumerate(values)
    ]
    return alt.Chart(
        as_data(rows),
        mark="rect",
        title=alt.TitleParams(name, fontSize=16),
        width=cell * values.shape[1],
        height=cell * values.shape[0],
    ).encode(
        x=alt.X("column:O", title="Column", axis=alt.Axis(labelOverlap=True, labelAngle=0)),
        y=alt.Y("row:O", title="Row", axis=alt.Axis(labelOverlap=True)),
        color=alt.Color("value:Q", title=None, scale=colours, legend=alt.Legend(gradientLength=160)),
    )
