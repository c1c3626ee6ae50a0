"""The front of the accountants: the same figures as the bounds behind it, in the words of a plan."""

from __future__ import annotations

import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.errors import ParameterError, PlanError
from shufflesum.privacy import Setting
from shufflesum.privacy.replace import Blocks, blanket, published
from shufflesum.privacy.replace.setting import forget


def test_one_report_is_the_blanket() -> None:
    found = ss.privacy.delta_bounds(users=50_000, levels=3, noise_probability=0.004, epsilon=0.95)
    assert found.upper == blanket.delta_upper(50_000, 3, 0.004, 0.95)
    assert found.lower == blanket.delta_lower(50_000, 3, 0.004, 0.95)


def test_several_reports_and_rounds_compose() -> None:
    found = ss.privacy.epsilon_bounds(
        users=10_000, levels=3, noise_probability=0.2, delta=1e-6, coordinates=5, rounds=2
    )
    assert found.upper == Blocks(10_000, 3, 10).epsilon_upper(0.2, 1e-6)
    assert 0 < found.lower <= found.upper


def test_only_honest_users_count() -> None:
    all_honest = ss.privacy.delta_bounds(users=5_000, levels=2, noise_probability=0.05, epsilon=0.5)
    half_honest = ss.privacy.delta_bounds(
        users=10_001, levels=2, noise_probability=0.05, epsilon=0.5, honest_fraction=0.5
    )
    assert half_honest == all_honest


def test_knowing_that_every_coordinate_is_reported_tightens_one_level() -> None:
    known = ss.privacy.smallest_noise_probability(
        users=5_000, levels=1, coordinates=10, dimension=10, epsilon=1.0, delta=1e-6
    )
    unknown = ss.privacy.smallest_noise_probability(users=5_000, levels=1, coordinates=10, epsilon=1.0, delta=1e-6)
    assert known < 0.75 * unknown


def test_uniform_sampling_of_several_reports_is_covered_and_costs_more() -> None:
    setting = Setting(users=100_000, levels=1, coordinates=2, dimension=4, sampling="uniform")
    noise = setting.smallest_noise_probability(1.0, 1e-6)
    assert setting.delta_upper(noise, 1.0) <= 1e-6
    assert noise > Setting(users=100_000, levels=1, coordinates=2, dimension=4).smallest_noise_probability(1.0, 1e-6)
    assert setting.delta_upper(noise, setting.epsilon(noise, 1e-6).upper) <= 1e-6


def test_the_published_noise_is_rounded_up_to_what_a_randomizer_can_draw() -> None:
    setting = Setting(users=50_000, levels=3, dimension=100)
    exact = published.improved_noise_probability(users=50_000, dimension=100, levels=3, epsilon=0.95, delta=0.5)
    used = setting.published_noise_probability(0.95, 0.5)
    assert exact <= used < exact + 2.0**-52
    assert (used * 2.0**53).is_integer()


def test_a_claim_must_hold_under_its_own_accountant() -> None:
    setting = Setting(users=50_000, levels=3, dimension=100)
    noise = setting.smallest_noise_probability(0.95, 1e-6)
    setting.check_claim("exact", noise, 0.95, 1e-6)
    with refusal("claim-not-confirmed", error=PlanError):
        setting.check_claim("exact", noise * 0.99, 0.95, 1e-6)
    with refusal("claim-not-confirmed", error=PlanError):
        setting.check_claim("paper", noise, 0.95, 0.5)


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ({"coordinates": 5, "dimension": 4}, ("out-of-range", "coordinates is 5")),
        ({"sampling": "other"}, ("unknown-choice", "sampling is 'other'")),
        ({"sampling": "uniform", "coordinates": 2}, ("missing-argument", "dimension")),
        ({"honest_fraction": 0.0}, ("out-of-range", "honest_fraction is 0.0")),
        ({"coordinates": 0}, ("out-of-range", "coordinates is 0")),
        ({"rounds": -2}, ("out-of-range", "rounds is -2")),
    ],
)
def test_impossible_settings_are_refused(arguments: dict[str, object], refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=ParameterError):
        Setting(users=100, levels=1, **arguments)  # type: ignore[arg-type]
    with refusal("out-of-range", "is 0", "between 1", error=ParameterError):
        Setting(users=0, levels=1)


@pytest.mark.parametrize("coordinates", [1, 10])
def test_uniform_sampling_of_one_coordinate_or_of_all_is_stratified_too(coordinates: int) -> None:
    uniform = Setting(users=5000, levels=1, coordinates=coordinates, dimension=10, sampling="uniform")
    stratified = Setting(users=5000, levels=1, coordinates=coordinates, dimension=10)
    assert not uniform.subsets_overlap
    assert uniform.delta(0.2, 0.5) == stratified.delta(0.2, 0.5)


def test_answers_are_remembered_and_the_same_after_they_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers() -> tuple[object, ...]:
        setting = Setting(users=777, levels=2)
        noise = setting.smallest_noise_probability(1.0, 1e-5)
        return noise, setting.delta(noise, 1.0), setting.epsilon(noise, 1e-5)

    found = answers()
    with monkeypatch.context() as patch:
        for name in ("delta_upper", "delta_lower", "epsilon_upper", "epsilon_lower", "smallest_noise_probability"):
            patch.delattr(Blocks, name)
        assert answers() == found
    forget()
    assert answers() == found


def test_what_was_remembered_never_lets_a_wrong_argument_pass() -> None:
    Setting(users=100, levels=1).delta(1.0, 1.0)
    with refusal("wrong-type", error=ParameterError):
        Setting(users=100, levels=True).delta(1.0, 1.0)
    with refusal("wrong-type", error=ParameterError):
        Setting(users=100, levels=1).delta(True, 1.0)
    with refusal("wrong-type", error=ParameterError):
        Setting(users=100, levels=1).delta(1.0, True)
