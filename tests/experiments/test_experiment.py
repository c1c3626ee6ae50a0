from __future__ import annotations

from pathlib import Path

import pytest

from experiments.data import Heartbeats
from experiments.experiment import Experiment
from experiments.measurements import Measurements
from experiments.trials import Trial
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.mechanisms.randomized_response.mechanism import on_grid

TRIALS = [Trial(5000, 20, RandomizedResponse(t, 3, on_grid(0.2), "uniform")) for t in (1, 2, 3)]


def experiment(folder: Path, crowd: Heartbeats, repeats: int = 4) -> Experiment:
    return Experiment(crowd, Measurements.open(folder, crowd, "paper", 0), repeats, workers=2)


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path, crowd: Heartbeats) -> None:
    class Stop(Exception):
        pass

    done = 0

    def stop_after_five() -> None:
        nonlocal done
        done += 1
        if done == 5:
            raise Stop

    first = experiment(tmp_path, crowd)
    with pytest.raises(Stop):
        first.run(TRIALS, stop_after_five)
    second = experiment(tmp_path, crowd)
    missing = second.missing(TRIALS)
    assert len(missing) == 12 - 5
    steps: list[int] = []
    second.run(TRIALS, lambda: steps.append(1))
    assert len(steps) == 7
    whole = experiment(tmp_path / "whole", crowd)
    whole.run(TRIALS, lambda: None)
    for trial in TRIALS:
        assert second.measured(trial).mean_error == whole.measured(trial).mean_error


def test_more_repeats_keep_the_earlier_ones(tmp_path: Path, crowd: Heartbeats) -> None:
    experiment(tmp_path, crowd, repeats=2).run(TRIALS, lambda: None)
    assert len(experiment(tmp_path, crowd, repeats=5).missing(TRIALS)) == 9
    assert experiment(tmp_path, crowd, repeats=1).missing(TRIALS) == []


def test_a_trial_named_twice_is_measured_once(tmp_path: Path, crowd: Heartbeats) -> None:
    assert len(experiment(tmp_path, crowd).missing([*TRIALS, *TRIALS])) == 12


def test_a_single_run_has_no_standard_error(tmp_path: Path, crowd: Heartbeats) -> None:
    one = experiment(tmp_path, crowd, repeats=1)
    one.run(TRIALS[:1], lambda: None)
    assert one.measured(TRIALS[0]).standard_error is None
