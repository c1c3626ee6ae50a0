"""Labels, words and groups as they come out: the error beside a trusted curator's, coverage, and who is on top."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import shufflesum as ss
from shufflesum.cautions import UninformativePlanWarning
from shufflesum.privacy.engine.gaussian import gaussian_noise
from shufflesum.protocol import Tally
from shufflesum.release import release

EPSILON, DELTA = 1.0, 1e-6


def run(plan: ss.Plan, rows: Any) -> Any:
    tally = Tally(plan)
    tally.add(rows)
    return release(tally.counts())


def zipf(users: int, words: int, seed: int) -> np.ndarray:
    weights = 1 / np.arange(1, words + 1)
    return np.random.default_rng(seed).choice(words, users, p=weights / weights.sum())


def test_ten_labels_of_60000_users_have_nearly_the_error_of_central_gaussian_noise() -> None:
    """Mean of 500 runs; its standard error is 2 %, and noise with half the variance would be noticed."""
    labels = np.random.default_rng(1).choice(10, 60_000, p=np.arange(6, 16) / 105)
    truth = np.bincount(labels)
    plan = ss.plan(users=len(labels), domain=ss.Categories(10), epsilon=EPSILON, delta=DELTA)
    errors = [np.sum((run(plan, labels).counts - truth) ** 2) for _ in range(500)]
    gaussian = 10 * 2 * gaussian_noise(EPSILON, DELTA) ** 2
    step = math.exp(-EPSILON / 2)
    laplace = 10 * 2 * step / (1 - step) ** 2
    assert np.mean(errors) <= 1.2 * gaussian
    assert np.mean(errors) <= 5.5 * laplace
    predicted = plan.expected_error.total * len(labels) ** 2
    assert np.mean(errors) == pytest.approx(predicted, abs=6 * np.std(errors) / math.sqrt(500))
    assert np.mean(errors) != pytest.approx(predicted / 2, abs=6 * np.std(errors) / math.sqrt(500))


def test_the_most_frequent_of_10000_words_are_found() -> None:
    """Mean precision of the first 20 over 50 runs of 50,000 users."""
    plan = ss.plan(users=50_000, domain=ss.Categories(10_000), epsilon=EPSILON, delta=DELTA)
    found = []
    for seed in range(50):
        words = zipf(50_000, 10_000, seed)
        truth = np.bincount(words, minlength=10_000)
        least = np.sort(truth)[-20]
        found.append(np.mean([truth[row.label] >= least for row in run(plan, words).top(20).rows]))
    assert np.mean(found) >= 0.97


@pytest.mark.parametrize(
    ("mechanism", "users"),
    [
        *(("noisy-counts", users) for users in (1, 30, 3000)),
        *(pytest.param("randomized-response", users, marks=pytest.mark.slow) for users in (1, 30, 3000)),
    ],
)
def test_intervals_hold_the_truth_on_rare_and_common_labels_from_one_user_on(mechanism: Any, users: int) -> None:
    """400 batches of five labels: as many misses as the level allows, or fewer, but for chance (1e-6)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UninformativePlanWarning)
        plan = ss.plan(users=users, domain=ss.Categories(5), epsilon=2.0, delta=1e-4, mechanism=mechanism)
    weights = np.array([0.9, 0.09, 0.009, 0.001, 0.0])
    missed = {0.8: np.zeros(5, dtype=int), 0.95: np.zeros(5, dtype=int)}
    for seed in range(400):
        labels = np.random.default_rng(seed).choice(5, users, p=weights)
        estimate, truth = run(plan, labels), np.bincount(labels, minlength=5)
        for level in missed:
            low, high = estimate.count_interval(level)
            missed[level] += (truth < low - 1e-9) | (truth > high + 1e-9)
    for level, misses in missed.items():
        assert (binom.sf(misses - 1, 400, 1 - level) > 1e-6).all()


def test_simultaneous_intervals_hold_all_labels_together() -> None:
    plan = ss.plan(users=5000, domain=ss.Categories(200), epsilon=1.0, delta=1e-6)
    missed = alone = 0
    for seed in range(200):
        labels = zipf(5000, 200, seed)
        estimate, truth = run(plan, labels), np.bincount(labels, minlength=200)
        low, high = estimate.count_interval(0.9, simultaneous=True)
        missed += bool(((truth < low) | (truth > high)).any())
        low, high = estimate.count_interval(0.9)
        alone += bool(((truth < low) | (truth > high)).any())
    assert binom.sf(missed - 1, 200, 0.1) > 1e-6
    assert alone > 100


@pytest.mark.long
def test_choices_are_counted_with_the_error_predicted() -> None:
    chosen = np.random.default_rng(2).uniform(size=(20_000, 8)) < np.linspace(0.05, 0.5, 8)
    chosen &= np.cumsum(chosen, axis=1) <= 3
    plan = ss.plan(
        users=20_000, domain=ss.MultiChoice(8, max_choices=3), epsilon=EPSILON, delta=DELTA, noise_by="curator"
    )
    errors = [np.sum((run(plan, chosen).counts - chosen.sum(axis=0)) ** 2) for _ in range(300)]
    predicted = plan.expected_error.total * 20_000**2
    assert np.mean(errors) == pytest.approx(predicted, abs=6 * np.std(errors) / math.sqrt(300))


def test_group_means_have_the_error_predicted_for_equally_large_groups() -> None:
    """60 runs of four groups of 2,500 vectors, at values where a wrong count matters most and least."""
    random = np.random.default_rng(3)
    groups = np.repeat(np.arange(4), 2500)
    rows = random.uniform(0.9, 1.0, (10_000, 20))
    plan = ss.plan(users=10_000, domain=ss.GroupBy(4, 20), epsilon=EPSILON, delta=DELTA, noise_by="curator")
    truth = rows.reshape(4, 2500, 20).mean(axis=1)
    errors = [np.sum((run(plan, (groups, rows)).mean - truth) ** 2) for _ in range(60)]
    assert np.mean(errors) <= plan.expected_error.total + 6 * np.std(errors) / math.sqrt(60)
    assert np.mean(errors) >= 0.7 * plan.expected_error.total


@pytest.mark.slow
def test_group_means_of_images_are_within_15_percent_of_a_curators() -> None:
    """28 x 28 pixels, 10 groups of 6,000: 20 runs agree with the prediction for this data."""
    random = np.random.default_rng(4)
    groups = np.repeat(np.arange(10), 6000)
    faces = random.uniform(0, 1, (10, 28, 28)) ** 3
    images = np.clip(faces[groups] + random.normal(0, 0.2, (60_000, 28, 28)), 0, 1).astype(np.float32)
    plan = ss.plan(users=60_000, domain=ss.GroupBy(10, (28, 28)), epsilon=EPSILON, delta=DELTA, noise_by="curator")
    assert plan.expected_error.total <= 1.15 * plan.curator_error
    truth = np.stack([images[groups == g].mean(axis=0, dtype=np.float64) for g in range(10)])
    errors = [np.sum((run(plan, (groups, images)).mean - truth) ** 2) for _ in range(20)]
    assert np.mean(errors) <= 1.15 * plan.curator_error
    assert np.mean(errors) <= plan.expected_error.total + 6 * np.std(errors) / math.sqrt(20)
    assert np.mean(errors) >= 0.85 * plan.expected_error.noise
