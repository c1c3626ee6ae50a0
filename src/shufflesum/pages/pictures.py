"""The picture of an estimate of any kind, as SVG."""

from __future__ import annotations

from numpy.typing import ArrayLike

from shufflesum.errors import ParameterError
from shufflesum.estimate import Estimate, HashedEstimate, Released, WordCounts
from shufflesum.plots import estimate_chart, rendered_svg

__all__ = ["estimate_svg"]


def estimate_svg(
    estimate: Released, *, title: str, subtitle: str = "", truth: ArrayLike | None = None, level: float = 0.95
) -> str:
    """Means, counts, groups or words with their intervals; refused for words before any are named."""
    if isinstance(estimate, HashedEstimate) or not isinstance(estimate, Estimate | WordCounts):
        raise ParameterError(
            "missing-argument", "there is nothing to draw before words are named: ask counts_of(words)"
        )
    return rendered_svg(estimate_chart(estimate, title=title, subtitle=subtitle, truth=truth, level=level))
