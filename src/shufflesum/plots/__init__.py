"""Every picture: what is estimated, what a plan costs, and the figures of the reproduction, in one look."""

from __future__ import annotations

from shufflesum.plots._altair import require_plots
from shufflesum.plots.beats import beats_chart
from shufflesum.plots.counts import count_chart
from shufflesum.plots.curves import curves_chart
from shufflesum.plots.estimate import estimate_chart
from shufflesum.plots.files import DRAWABLE, rendered, save_chart
from shufflesum.plots.groups import group_chart
from shufflesum.plots.panel import panel_chart
from shufflesum.plots.parts import error_chart, parts_chart
from shufflesum.plots.sweep import sweep_chart

__all__ = [
    "DRAWABLE",
    "beats_chart",
    "count_chart",
    "curves_chart",
    "error_chart",
    "estimate_chart",
    "group_chart",
    "panel_chart",
    "parts_chart",
    "rendered",
    "require_plots",
    "save_chart",
    "sweep_chart",
]
