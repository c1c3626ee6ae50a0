"""What the entries of an estimate are called, for people."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from shufflesum.domain import Ball, Groups
from shufflesum.domain.layers import Layers
from shufflesum.estimate import Released

__all__ = ["drawn_names", "entry_names", "visible"]

_LONGEST = 60  # letters of a name in a picture: measuring thousands of them takes the drawing library seconds
# What turns the direction of all that follows, and what XML and HTML have no place for.
_UNSEEN = re.compile("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def visible(text: str) -> str:
    """Text with its invisible commands written out, such as \\u202e."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def drawn_names(names: Iterable[str]) -> list[str]:
    """Names as a picture shows them: visible, cut off where they are long, and still different from each other."""
    short = [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…" for name in map(visible, names)]
    seen: Counter[str] = Counter()
    drawn = []
    for name in short:
        seen[name] += 1
        drawn.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return drawn


def entry_names(estimate: Released, places: Iterable[int]) -> list[str]:
    """The entries at these places of a flat mean: by column, by layer and index, or by index alone."""
    columns, domain = estimate.columns, estimate.domain
    if columns is not None:
        return [columns[place] for place in places]
    if isinstance(domain, Ball) and not domain.structure.single:
        return [_in_layers(domain.structure, place) for place in places]
    shape = domain.box.shape if isinstance(domain, Groups) else domain.shape
    return [_index(shape, place) for place in places]


def _in_layers(structure: Layers, place: int) -> str:
    ends = np.cumsum(structure.sizes)
    layer = int(np.searchsorted(ends, place, side="right"))
    within = place - int(ends[layer]) + structure.sizes[layer]
    name = structure.names[layer] if structure.names is not None else f"layer {layer}"
    return f"{name}[{_index(structure.shapes[layer], within)}]"


def _index(shape: tuple[int, ...], place: int) -> str:
    if math.prod(shape) == 1:
        return "value" if shape == () else ", ".join("0" for _ in shape)
    return ", ".join(str(int(index)) for index in np.unravel_index(place, shape))
