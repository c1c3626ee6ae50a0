"""Every picture: what is estimated and what a plan costs, in one look."""

from __future__ import annotations

from shufflesum.plots._altair import require_plots
from shufflesum.plots.budget import budget_chart
from shufflesum.plots.counts import count_chart
from shufflesum.plots.estimate import estimate_chart
from shufflesum.plots.files import DRAWABLE, rendered, rendered_svg, save_chart, svg_to_png
from shufflesum.plots.groups import group_chart
from shufflesum.plots.lines import lines_chart
from shufflesum.plots.parts import error_chart
from shufflesum.plots.rounds import rounds_chart

__all__ = [
    "DRAWABLE",
    "budget_chart",
    "count_chart",
    "error_chart",
    "estimate_chart",
    "group_chart",
    "lines_chart",
    "rendered",
    "rendered_svg",
    "require_plots",
    "rounds_chart",
    "save_chart",
    "svg_to_png",
]
