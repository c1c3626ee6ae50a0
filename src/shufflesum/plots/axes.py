"""What stands along an axis: names, entries that can share it by their public bounds, and where it is logarithmic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import ParameterError
from shufflesum.estimate import BaseEstimate, EstimateTable
from shufflesum.plots.look import alt, visible

_Floats = NDArray[np.float64]

_WIDER = 8.0  # an axis that is so much wider than an entry's bounds leaves nothing to see of it
_SMALLER = 150.0  # a part so much smaller than the largest is a few pixels
_FEW = 12  # named columns that may each have a panel
_LONGEST = 60  # letters of a name in a picture: measuring thousands of them takes the drawing library seconds


def check_drawable(*estimates: BaseEstimate) -> None:
    """Refuse pictures of nothing, and of words before any are named."""
    prompt = next((each.prompt for each in estimates if each.prompt is not None), None)
    if not estimates or prompt is not None:
        raise ParameterError("missing-argument", f"there is nothing to draw yet; {prompt or 'give estimates'}")


def drawn_names(names: Iterable[str]) -> list[str]:
    """Names as a picture shows them: visible, cut off where they are long, and still different from each other."""
    short = [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…" for name in map(visible, names)]
    seen: Counter[str] = Counter()
    drawn = []
    for name in short:
        seen[name] += 1
        drawn.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return drawn


def units_of(table: EstimateTable) -> list[list[int]]:
    """The entries of a vector, or of each group's, by what can share an axis."""
    if table.bounds is None:
        return [list(range(table.entries))]
    # years and centimetres would hide each other's intervals
    return (by_bounds if table.named and table.entries <= _FEW else by_unit)(*table.bounds)


def by_bounds(lower: _Floats, upper: _Floats) -> list[list[int]]:
    """Entries in their order, those with the same bounds together."""
    panels: dict[tuple[float, float], list[int]] = {}
    for place, ends in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
        panels.setdefault(ends, []).append(place)
    return list(panels.values())


def by_unit(lower: _Floats, upper: _Floats) -> list[list[int]]:
    """Entries in their order, each with the first ones it fits: together no wider than 8 times the narrowest."""
    panels: list[list[int]] = []
    ends: list[tuple[float, float, float]] = []  # from, to, and the narrowest width of each panel
    for place, (low, high) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
        for number, (start, stop, narrowest) in enumerate(ends):
            joined = min(start, low), max(stop, high), min(narrowest, high - low)
            if joined[1] - joined[0] <= _WIDER * joined[2]:
                panels[number].append(place)
                ends[number] = joined
                break
        else:
            panels.append([place])
            ends.append((low, high, high - low))
    return panels


def needs_log(values: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> bool:
    """Whether something that can be told from 0 would be too small to see beside the largest."""
    sizes = [
        abs(value) for value, low, high in zip(values, lower, upper, strict=True) if (low > 0 or high < 0) and value
    ]
    return len(sizes) > 1 and max(sizes) > _SMALLER * min(sizes)


def symlog_axis(numbers: Sequence[float], half_widths: Sequence[float]) -> tuple[alt.Scale, alt.Axis]:
    """A scale that is logarithmic but around 0, where it is linear as far as the typical interval reaches.

    So it has a place for 0 and below, as estimates of nothing have it.
    """
    constant = max(float(np.median(half_widths)), 1e-12 * max(map(abs, numbers), default=1.0), 1e-300)
    least, most = min(0.0, *numbers), max(0.0, *numbers)
    first, last = int(np.ceil(np.log10(constant))), int(np.floor(np.log10(max(most, -least, constant))))
    step = max(1, -(-(last - first + 1) // 6))
    powers = [10.0**power for power in range(first, last + 1, step)]
    ticks = [-power for power in powers if -power >= least] + [0.0] + [power for power in powers if power <= most]
    scale = alt.Scale(type="symlog", constant=constant, domain=[1.05 * least, 1.05 * most], nice=False)
    return scale, alt.Axis(values=ticks, format=",~r")
