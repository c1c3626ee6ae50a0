"""With unlinked reports the published noise is never too small, and usually far too large.

The published formulas ask for a noise probability; wherever that is at most 1, the certified accountant must agree that
it suffices: delta at the published value is at most the target. The ratio to what is needed is printed (`pytest -s`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from shufflesum.errors import PrivacyError
from shufflesum.privacy import RandomizedResponseAccountant
from shufflesum.privacy.randomized_response import blanket
from shufflesum.privacy.randomized_response.accountant import Sampling
from shufflesum.privacy.randomized_response.published import theorem_main_noise_probability

LOW, HIGH = (0.1, 0.5, 0.95), (1.0, 2.5, 5.9)  # the two ranges of epsilon
DELTAS = (0.5, 0.1, 1e-2, 1e-6)
LEVELS = (1, 3, 9)
USERS = (1_000, 50_000, 10**6)
DIMENSIONS = (1, 10, 100)


def settings(
    coordinates: tuple[int, ...], users: tuple[int, ...] = USERS
) -> Iterator[tuple[RandomizedResponseAccountant, float, float, float]]:
    """All settings in which the published noise probability is one: accountant, epsilon, delta, published gamma."""
    for n, d, k, t in itertools.product(users, DIMENSIONS, LEVELS, coordinates):
        if t > d:
            continue
        setting = RandomizedResponseAccountant(users=n, levels=k, coordinates=t, dimension=d, sampling="uniform")
        for epsilon, delta in itertools.product(LOW + HIGH, DELTAS):
            try:
                gamma = setting.published_noise_probability(epsilon, delta)
            except PrivacyError:  # above 1: nothing to compare
                continue
            yield replace(setting, noise_probability=gamma), epsilon, delta, gamma


def test_published_noise_of_one_report_is_certified_everywhere_and_the_ratio_is_reported() -> None:
    certified: dict[tuple[int, int, float, float], float] = {}
    ratios = {}
    for setting, epsilon, delta, published in settings((1,)):
        key = setting.users, setting.levels, epsilon, delta
        if key not in certified:
            certified[key] = blanket.smallest_noise_probability(*key)
        ratios[setting.dimension, *key] = published / certified[key]
    low, high = min(ratios.values()), max(ratios.values())
    print(f"published / certified, one report: {low:.3g} to {high:.3g} in {len(ratios)} settings")
    assert len(ratios) > 250
    assert low > 1.0, min(ratios, key=lambda setting: ratios[setting])
    # nowhere near tight, as soon as there is more than one coordinate
    assert min(ratio for setting, ratio in ratios.items() if setting[0] == 100) > 100


def test_a_tenth_of_the_published_noise_would_not_be_certified_for_a_single_coordinate() -> None:
    scarce = [
        setting
        for setting in settings((1,), users=(50_000,))
        if setting[0].dimension == 1
        and replace(setting[0], noise_probability=setting[3] / 10).delta_upper(setting[1]) > setting[2]
    ]
    assert len(scarce) > 5


@pytest.mark.long
@pytest.mark.parametrize("sampling", ["uniform", "stratified"])
def test_published_noise_of_two_coordinates_is_certified(sampling: Sampling) -> None:
    checked = 0
    for given, epsilon, delta, _ in settings((2,), users=(10**6,)):
        if given.levels == 3 and epsilon in (0.5, 0.95, 5.9):
            assert replace(given, sampling=sampling).delta_upper(epsilon) <= delta
            checked += 1
    assert checked >= 8


@pytest.mark.long
def test_the_main_theorem_asks_for_more_than_enough_of_one_report_too() -> None:
    checked = 0
    for setting, epsilon, delta, _ in settings((1,), users=(50_000,)):
        gamma = theorem_main_noise_probability(
            users=setting.users,
            dimension=setting.dimension or 1,
            levels=setting.levels,
            coordinates=1,
            epsilon=epsilon,
            delta=delta,
        )
        if gamma <= 1:
            assert replace(setting, noise_probability=gamma).delta_upper(epsilon) <= delta
            checked += 1
    assert checked > 20


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["uniform", "stratified"])
def test_published_noise_of_several_coordinates_is_certified_and_the_ratio_is_reported(
    sampling: Sampling,
) -> None:
    ratios = {}
    for given, epsilon, delta, published in settings((2, 10, 100), users=(50_000, 10**6, 10**8)):
        setting = replace(given, sampling=sampling)
        assert setting.delta_upper(epsilon) <= delta, (setting, epsilon, delta)
        if given.levels == 3 and delta in (0.5, 1e-6):  # a search each
            ratios[setting, epsilon, delta] = published / setting.smallest_noise_probability(epsilon, delta)
    low, high = min(ratios.values()), max(ratios.values())
    print(f"published / certified, {sampling}: {low:.3g} to {high:.3g} in {len(ratios)} settings")
    assert low > 1.0
