"""Counts of labels as bars with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum.errors import ParameterError
from shufflesum.plots._altair import alt
from shufflesum.plots.bars import MOST_BARS, bar_chart

__all__ = ["count_chart"]

_Floats = NDArray[np.float64]


class _Counted(Protocol):
    @property
    def names(self) -> Sequence[str]: ...

    @property
    def counts(self) -> _Floats: ...

    def count_interval(self, level: float = 0.95) -> tuple[_Floats, _Floats]: ...


def count_chart(
    estimate: _Counted, *, truth: ArrayLike | None = None, title: str, subtitle: str = "", level: float = 0.95
) -> alt.LayerChart:
    """The unbiased count of each label with its interval, labels in their order; `truth` is of true counts.

    Of more than 40 labels those with the largest counts are shown, largest first, and the subtitle says so.
    """
    counts, names = estimate.counts, estimate.names
    columns = dict(zip(("lower", "upper"), estimate.count_interval(level), strict=True)) | {"value": counts}
    if truth is not None:
        columns["truth"] = np.asarray(truth, dtype=np.float64)
        if columns["truth"].shape != counts.shape:
            raise ParameterError(
                "wrong-shape",
                f"truth has shape {columns['truth'].shape}, the counts {counts.shape}; they must be equal",
            )
    shown: NDArray[np.intp] = np.arange(len(counts))
    notes = [subtitle] if subtitle else []
    if len(counts) > MOST_BARS:
        shown = np.argsort(-counts, kind="stable")[:MOST_BARS]
        notes.append(f"{MOST_BARS} of {len(counts):,} labels are shown, those with the largest counts")
    rows = [
        {"label": names[place]} | {name: float(column[place]) for name, column in columns.items()}
        for place in shown.tolist()
    ]
    return bar_chart(rows, axis="Users", level=level, title=title, subtitle=notes)
