"""A domain that is another in each round, of which all roles must speak alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shufflesum.domain import Bounds, Box

__all__ = ["turn_boxes"]


def turn_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the bounds of a box are n times as far apart in round n: 2 is a value of the second round only.

    Whoever encodes or decodes with the domain of another round is out of bounds, or out by a factor.
    """

    def of_round(box: Box, number: int) -> Box:
        lower, width = float(box.lower.min()), float(box.width.max())
        return replace(box, bounds=Bounds(lower, lower + number * width))

    monkeypatch.setattr(Box, "of_round", of_round)
