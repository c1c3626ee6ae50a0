"""Every picture: what is estimated, what a plan costs, and the figures of the reproduction, in one look."""

from __future__ import annotations

from shufflesum.plots._altair import require_plots
from shufflesum.plots.beats import beats_chart
from shufflesum.plots.budget import budget_chart
from shufflesum.plots.counts import count_chart
from shufflesum.plots.curves import curves_chart
from shufflesum.plots.estimate import estimate_chart
from shufflesum.plots.files import DRAWABLE, rendered, rendered_svg, save_chart, svg_to_png
from shufflesum.plots.groups import group_chart
from shufflesum.plots.lines import lines_chart
from shufflesum.plots.panel import panel_chart
from shufflesum.plots.parts import error_chart, parts_chart
from shufflesum.plots.rounds import rounds_chart
from shufflesum.plots.sweep import sweep_chart

__all__ = [
    "DRAWABLE",
    "beats_chart",
    "budget_chart",
    "count_chart",
    "curves_chart",
    "error_chart",
    "estimate_chart",
    "group_chart",
    "lines_chart",
    "panel_chart",
    "parts_chart",
    "rendered",
    "rendered_svg",
    "require_plots",
    "rounds_chart",
    "save_chart",
    "svg_to_png",
    "sweep_chart",
]
