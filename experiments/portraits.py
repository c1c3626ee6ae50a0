"""The mean heartbeat as the analyst sees it: with bands, beside the truth, and one class beside another."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from experiments.comparisons import certified_plan, published_plan
from experiments.data import Heartbeats
from experiments.experiment import Row
from experiments.panels import Defaults
from shufflesum.aggregation import aggregate_batches
from shufflesum.cautions import LargeDeltaWarning
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.plans import Plan
from shufflesum.testing import SeededSource

PAPER, OURS = "The paper's setting", "Certified, planned"
_LEVEL = 0.95
_FEWEST_BEATS = 1000  # of a class, to be worth a comparison


@dataclass(frozen=True, slots=True)
class ClassContrast:
    """Two classes learned apart: the table, how many beats of each, and where an analyst can tell them apart."""

    rows: list[Row]
    names: tuple[str, str]
    users: int
    apart: dict[str, int | None]  # setting -> samples with disjoint bands; None where the setting is impossible
    plans: dict[str, Plan | None]


def mean_beat_table(data: Heartbeats, setting: Defaults, seed: int) -> list[Row]:
    """The true mean beat, with the private estimates and their 95 % bands."""
    beats = np.ascontiguousarray(data.beats[: setting.users, : setting.dimension])
    rows: list[Row] = []
    for name, plan in _plans(setting, setting.levels).items():
        if plan is not None:
            rows += _curve({"setting": name}, beats, _estimate(beats, plan, seed), simultaneous=False)
    return rows


def class_pair(data: Heartbeats) -> tuple[int, int] | None:
    """Normal and ventricular beats, or else the two commonest classes; None without two classes of enough beats."""
    if data.labels is None:
        return None
    labels, counts = np.unique(data.labels, return_counts=True)
    common = [
        int(label)
        for label in labels[np.argsort(-counts, kind="stable")]
        if np.sum(data.labels == label) >= _FEWEST_BEATS
    ]
    if 0 in common and 2 in common:
        return 0, 2
    return (common[0], common[1]) if len(common) > 1 else None


def class_contrast(data: Heartbeats, setting: Defaults, seed: int) -> ClassContrast | None:
    """Two collections, one for each class, of as many beats as the rarer class has."""
    pair = class_pair(data)
    if pair is None:
        return None
    members = [np.flatnonzero(data.labels == label) for label in pair]
    users = min(map(len, members))
    crowds = [np.ascontiguousarray(data.beats[rows[:users], : setting.dimension]) for rows in members]
    plans = _plans(replace(setting, users=users), levels=None)
    rows: list[Row] = []
    apart: dict[str, int | None] = {}
    for name, plan in plans.items():
        if plan is None:
            apart[name] = None
            continue
        ends = []
        for label, crowd in zip(pair, crowds, strict=True):
            estimate = _estimate(crowd, plan, seed + label)
            rows += _curve({"setting": name, "class": data.class_name(label)}, crowd, estimate, simultaneous=True)
            ends.append(_band(estimate, simultaneous=True))
        (low_a, high_a), (low_b, high_b) = ends
        apart[name] = int(np.sum((low_a > high_b) | (low_b > high_a)))
    names = data.class_name(pair[0]), data.class_name(pair[1])
    return ClassContrast(rows, names, users, apart, plans)


def _plans(setting: Defaults, levels: int | None) -> dict[str, Plan | None]:
    return {PAPER: published_plan(setting, setting.delta, levels), OURS: certified_plan(setting)}


def _estimate(beats: NDArray[np.float32], plan: Plan, seed: int) -> Estimate:
    with warnings.catch_warnings():  # the report itself says what the paper's delta is worth
        warnings.simplefilter("ignore", LargeDeltaWarning)
        found: Estimate = aggregate_batches([beats], plan, source=SeededSource(seed))
        return found


def _band(estimate: Estimate, *, simultaneous: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # Two classes share the 5 % that may go wrong anywhere, so that "apart" holds for all samples together.
    level = 1 - (1 - _LEVEL) / 2 if simultaneous else _LEVEL
    return estimate.confidence_interval(level, simultaneous=simultaneous)


def _curve(about: Row, beats: NDArray[np.float32], estimate: Estimate, *, simultaneous: bool) -> list[Row]:
    lower, upper = _band(estimate, simultaneous=simultaneous)
    truth = beats.mean(axis=0, dtype=np.float64)
    columns = (truth, estimate.mean, lower, upper)
    return [
        about | {"sample": sample, "truth": t, "estimate": m, "lower": low, "upper": high}
        for sample, (t, m, low, high) in enumerate(zip(*(column.tolist() for column in columns), strict=True))
    ]
