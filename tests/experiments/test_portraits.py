from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.data import Heartbeats
from experiments.panels import DEFAULTS
from experiments.portraits import OURS, PAPER, class_contrast, class_pair

SETTING = replace(DEFAULTS, dimension=20, epsilon=4.0)


def with_labels(crowd: Heartbeats, labels: list[int]) -> Heartbeats:
    return replace(crowd, labels=np.repeat(labels, len(crowd.beats) // len(labels)))


def test_the_classes_are_normal_and_ventricular_or_else_the_commonest(crowd: Heartbeats) -> None:
    assert class_pair(with_labels(crowd, [1, 0, 1, 2])) == (0, 2)
    assert class_pair(with_labels(crowd, [3, 1, 3, 3])) == (3, 1)
    assert class_pair(with_labels(crowd, [1])) is None
    assert class_pair(with_labels(crowd, [0] * 9 + [2])) is None
    assert class_pair(replace(crowd, labels=None)) is None


@pytest.mark.long
def test_equal_classes_are_not_told_apart_and_different_ones_are(crowd: Heartbeats) -> None:
    """Seeded; equal classes would be called different somewhere in at most 5 % of runs."""
    labelled = with_labels(crowd, [0, 2])
    equal = class_contrast(labelled, SETTING, 0)
    beats = crowd.beats.copy()
    beats[2500:] = 1 - beats[2500:]
    different = class_contrast(replace(labelled, beats=beats), SETTING, 0)
    assert equal is not None
    assert different is not None
    assert equal.users == different.users == 2500
    assert equal.apart[OURS] == 0
    ours = different.apart[OURS]
    assert ours is not None
    assert ours >= 10


@pytest.mark.filterwarnings("error")
def test_a_setting_that_the_paper_cannot_serve_is_none(crowd: Heartbeats) -> None:
    contrast = class_contrast(with_labels(crowd, [0, 2]), replace(SETTING, dimension=100, epsilon=0.3), 0)
    assert contrast is not None
    assert contrast.apart[PAPER] is None
    assert contrast.plans[PAPER] is None
    assert {row["setting"] for row in contrast.rows} == {OURS}
