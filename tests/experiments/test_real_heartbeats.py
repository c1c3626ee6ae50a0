"""What must hold on the real heartbeats; skipped without them."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from tests.experiments.agreement import p_value
from tests.stat_tests import FALSE_ALARM

from experiments.data import Heartbeats
from experiments.experiment import Experiment
from experiments.measurements import Measurements
from experiments.panels import DEFAULTS, panels, points
from experiments.reproduction import Request, reproduce
from shufflesum.mechanisms.randomized_response.mechanism import on_grid


@pytest.fixture(scope="module")
def folder(real: Heartbeats, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole reproduction, as `make reproduce` runs it."""
    folder = tmp_path_factory.mktemp("real")
    reproduce(real, Request(folder), lambda percent: None)
    return folder


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / "figures" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def at(rows: list[dict[str, str]], column: str, value: float) -> dict[str, str]:
    return next(row for row in rows if float(row[column]) == value)


def test_the_archive_is_the_known_one(real: Heartbeats) -> None:
    assert real.beats.shape == (109_446, 187)


def test_the_least_error_is_at_one_report_and_three_levels(folder: Path) -> None:
    by_t = [float(row["measured"]) for row in table(folder, "by_t")]
    assert min(by_t) == by_t[0]
    in_the_papers_metric = [float(row["measured, paper's metric"]) for row in table(folder, "by_t")]
    assert min(in_the_papers_metric) == in_the_papers_metric[0]
    by_k = {int(float(row["k"])): row for row in table(folder, "by_k")}
    best = min(by_k, key=lambda k: float(by_k[k]["measured"]))
    assert 2 <= best <= 4
    noise = 4 * float(by_k[3]["predicted standard error"])
    assert float(by_k[3]["measured"]) <= float(by_k[best]["measured"]) + noise


def test_the_error_at_the_defaults_is_the_known_one(folder: Path) -> None:
    assert float(at(table(folder, "by_k"), "k", 3)["measured"]) == pytest.approx(0.0235, rel=0.15)


@pytest.mark.parametrize("shift", [0.0, 0.05], ids=["as predicted", "noise predicted too high is refuted"])
def test_observed_and_predicted_agree_at_every_point(folder: Path, real: Heartbeats, shift: float) -> None:
    """57 points share a false-alarm rate of 1e-6; with the prediction for 0.05 more noise the whole is refuted."""
    experiment = Experiment(real, Measurements.open(folder, real, "paper", 0), 10, workers=1)
    chances = []
    for panel in panels(quick=False, rows=len(real.beats)):
        for point in points(panel, DEFAULTS, "paper"):
            assert point.trial is not None
            measured = experiment.measured(point.trial)
            other = replace(
                point.trial.mechanism, noise_probability=on_grid(min(point.noise_probability + shift, 0.99))
            )
            trial = replace(point.trial, mechanism=other)
            chances.append(p_value(measured.mean_error, 10, experiment.predict(trial)))
    assert len(chances) == 57
    assert (min(chances) > FALSE_ALARM / len(chances)) == (shift == 0.0)


def test_the_certified_plan_keeps_its_promise(folder: Path) -> None:
    rows = [row for row in table(folder, "certified_by_n") if float(row["n"]) == 50_000]
    found = {row["line"]: row for row in rows}
    error = float(found["randomized response, planned t"]["measured"])
    paper = float(at(table(folder, "by_k"), "k", 3)["measured"])
    assert error <= 0.0002
    assert paper / error >= 100
    assert error / float(found["trusted curator"]["predicted"]) <= 2.5


def test_the_authors_encoding_agrees_with_its_prediction_too(real: Heartbeats, tmp_path: Path) -> None:
    experiment = Experiment(real, Measurements.open(tmp_path, real, "authors", 0), 5, workers=2)
    found = [
        point.trial
        for panel in panels(quick=True, rows=len(real.beats))
        for point in points(panel, DEFAULTS, "authors")
        if point.trial is not None
    ]
    experiment.run(found, lambda: None)
    chances = [p_value(experiment.measured(trial).mean_error, 5, experiment.predict(trial)) for trial in found]
    assert min(chances) > FALSE_ALARM / len(chances)
