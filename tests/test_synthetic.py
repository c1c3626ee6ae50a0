import numpy as np
import pytest
from tests.refusals import refusal

from shufflesum.errors import ParameterError
from shufflesum.synthetic import heartbeats


def test_beats_are_float32_between_zero_and_one() -> None:
    beats = heartbeats(5000, 60)
    assert beats.shape == (5000, 60)
    assert beats.dtype == np.float32
    assert beats.min() >= 0.0
    assert beats.max() <= 1.0


def test_clipping_is_rare_so_that_the_bounds_do_not_bend_the_mean() -> None:
    beats = heartbeats(20_000)
    assert np.mean((beats == 0.0) | (beats == 1.0)) < 0.002


def test_the_mean_beat_shows_the_five_waves_in_order() -> None:
    mean = heartbeats(20_000).mean(axis=0)
    baseline = np.median(mean)
    extremes = {
        "P": mean[15:30].max() - baseline,
        "Q": mean[32:38].min() - baseline,
        "R": mean[37:43].max() - baseline,
        "S": mean[42:48].min() - baseline,
        "T": mean[55:78].max() - baseline,
    }
    assert extremes["Q"] < -0.01
    assert extremes["S"] < extremes["Q"]
    assert 0.03 < extremes["P"] < extremes["T"] < extremes["R"]
    assert 38 <= mean.argmax() <= 41


def test_people_differ_in_more_than_noise() -> None:
    # Noise alone has standard deviation 0.02 of 2.2 millivolts.
    assert heartbeats(2000).std(axis=0).max() > 0.05


def test_the_same_seed_repeats_and_another_does_not() -> None:
    assert np.array_equal(heartbeats(10, seed=3), heartbeats(10, seed=3))
    assert not np.array_equal(heartbeats(10, seed=3), heartbeats(10, seed=4))


def test_every_person_is_drawn_across_blocks() -> None:
    beats = heartbeats(9000, 20)
    assert len(np.unique(beats, axis=0)) == 9000


@pytest.mark.parametrize(("people", "samples"), [(0, 100), (-1, 100), (5, 0)])
def test_too_few_people_or_samples_are_refused(people: int, samples: int) -> None:
    with refusal("out-of-range", "people=", str(people), "samples=", str(samples), "least 1", error=ParameterError):
        heartbeats(people, samples)
