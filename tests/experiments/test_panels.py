from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from experiments.panels import DEFAULTS, Panel, fit_power, panels, points
from shufflesum.privacy import RandomizedResponseAccountant


def full() -> dict[str, Panel]:
    return {panel.name: panel for panel in panels(quick=False, rows=100_000)}


def test_the_panels_are_those_of_the_paper() -> None:
    assert {name: (panel.values[0], panel.values[-1], len(panel.values)) for name, panel in full().items()} == {
        "by_t": (1, 10, 10),
        "by_k": (1, 10, 10),
        "by_d": (60, 150, 10),
        "by_n": (10_000, 70_000, 7),
        "by_epsilon_below_1": (0.5, 0.95, 10),
        "by_epsilon_from_1": (1, 5.5, 10),
    }


def test_quick_panels_are_part_of_the_full_ones_and_n_stops_where_the_data_does() -> None:
    for panel in panels(quick=True, rows=100_000):
        assert set(panel.values) < set(full()[panel.name].values)
        assert len(panel.values) >= 3
    for quick in (False, True):
        few = {panel.name: panel for panel in panels(quick=quick, rows=25_000)}
        assert few["by_n"].values == (10_000, 20_000)


def test_every_point_uses_the_published_noise_and_varies_one_parameter() -> None:
    for panel in full().values():
        for point in points(panel, DEFAULTS, "paper"):
            assert point.trial is not None
            change: dict[str, Any] = {panel.parameter: point.value}
            setting = replace(DEFAULTS, **change)
            shape = (setting.users, setting.dimension, setting.levels, setting.coordinates)
            used = point.trial.mechanism
            assert shape == (point.trial.users, point.trial.dimension, used.levels, used.coordinates)
            accounted = RandomizedResponseAccountant(
                setting.users,
                setting.levels,
                coordinates=setting.coordinates,
                dimension=setting.dimension,
                sampling="uniform",
            )
            gamma = accounted.published_noise_probability(setting.epsilon, setting.delta)
            assert point.noise_probability == pytest.approx(gamma, rel=1e-12)


def test_values_for_which_the_published_noise_reaches_one_have_no_trial() -> None:
    found = points(full()["by_t"], replace(DEFAULTS, users=10_000), "paper")
    assert [point.trial is None for point in found] == [False] + 9 * [True]
    assert all(point.noise_probability >= 1 and point.bound is None for point in found[1:])


def test_a_power_law_is_found_and_few_points_are_not_fitted() -> None:
    values = [10.0, 20.0, 50.0, 80.0]
    fit = fit_power(values, [3 * value**-1.5 for value in values])
    assert fit is not None
    assert fit.exponent == pytest.approx(-1.5)
    assert fit.at(40.0) == pytest.approx(3 * 40.0**-1.5)
    assert fit.standard_error < 1e-9
    assert fit_power(values[:2], [1.0, 2.0]) is None
    bent = fit_power(values, [1.0, 3.0, 2.0, 9.0])
    assert bent is not None
    assert bent.standard_error > 0.1
