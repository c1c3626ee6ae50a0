"""Every picture: what is estimated and what a plan costs, in one look."""

from __future__ import annotations

from shufflesum.plots.costs import budget_chart, error_chart, lines_chart
from shufflesum.plots.estimate import estimate_chart, rounds_chart
from shufflesum.plots.look import DRAWABLE, Picture, rendered, rendered_svg, require_plots, save_chart, svg_to_png

__all__ = [
    "DRAWABLE",
    "Picture",
    "budget_chart",
    "error_chart",
    "estimate_chart",
    "lines_chart",
    "rendered",
    "rendered_svg",
    "require_plots",
    "rounds_chart",
    "save_chart",
    "svg_to_png",
]
