"""The front of the accountants: the same figures as the bounds behind it, in the words of a plan."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import shufflesum as ss
from shufflesum.errors import ParameterError, PlanError
from shufflesum.privacy import Protocol, _memory, blanket, composition, published


def test_one_report_is_the_blanket() -> None:
    found = ss.privacy.delta_bounds(users=50_000, levels=3, noise_probability=0.004, epsilon=0.95)
    assert found.upper == blanket.delta_upper(50_000, 3, 0.004, 0.95)
    assert found.lower == blanket.delta_lower(50_000, 3, 0.004, 0.95)


def test_several_reports_and_rounds_compose() -> None:
    found = ss.privacy.epsilon_bounds(users=10_000, levels=3, noise_probability=0.2, delta=1e-6, reports=5, rounds=2)
    composed = composition.composed_epsilon_upper(10_000, 3, 0.2, 1e-6, 10, single_coordinate_blocks=False)
    assert found.upper == composed
    assert 0 < found.lower <= found.upper


def test_only_honest_users_count() -> None:
    all_honest = ss.privacy.delta_bounds(users=5_000, levels=2, noise_probability=0.05, epsilon=0.5)
    half_honest = ss.privacy.delta_bounds(
        users=10_001, levels=2, noise_probability=0.05, epsilon=0.5, honest_fraction=0.5
    )
    assert half_honest == all_honest


def test_knowing_that_every_coordinate_is_reported_tightens_one_level() -> None:
    known = ss.privacy.smallest_noise_probability(
        users=5_000, levels=1, reports=10, dimension=10, epsilon=1.0, delta=1e-6
    )
    unknown = ss.privacy.smallest_noise_probability(users=5_000, levels=1, reports=10, epsilon=1.0, delta=1e-6)
    assert known < 0.75 * unknown


def test_uniform_sampling_of_several_reports_is_covered_and_costs_more() -> None:
    protocol = Protocol(users=100_000, levels=1, reports=2, dimension=4, sampling="uniform")
    noise = protocol.smallest_noise_probability(1.0, 1e-6)
    assert protocol.delta_upper(noise, 1.0) <= 1e-6
    assert noise > Protocol(users=100_000, levels=1, reports=2, dimension=4).smallest_noise_probability(1.0, 1e-6)
    assert protocol.delta_upper(noise, protocol.epsilon(noise, 1e-6).upper) <= 1e-6


def test_the_published_noise_is_rounded_up_to_what_a_randomizer_can_draw() -> None:
    protocol = Protocol(users=50_000, levels=3, dimension=100)
    exact = published.improved_noise_probability(users=50_000, dimension=100, levels=3, epsilon=0.95, delta=0.5)
    used = protocol.published_noise_probability(0.95, 0.5)
    assert exact <= used < exact + 2.0**-52
    assert (used * 2.0**53).is_integer()


def test_a_claim_must_hold_under_its_own_accountant() -> None:
    protocol = Protocol(users=50_000, levels=3, dimension=100)
    noise = protocol.smallest_noise_probability(0.95, 1e-6)
    protocol.check_claim("exact", noise, 0.95, 1e-6)
    with pytest.raises(PlanError, match="claims epsilon"):
        protocol.check_claim("exact", noise * 0.99, 0.95, 1e-6)
    with pytest.raises(PlanError, match="published formula asks for"):
        protocol.check_claim("paper", noise, 0.95, 0.5)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"reports": 5, "dimension": 4}, "reports is 5"),
        ({"sampling": "other"}, "sampling is 'other'"),
        ({"sampling": "uniform", "reports": 2}, "needs the dimension"),
        ({"honest_fraction": 0.0}, "honest_fraction is 0.0"),
        ({"reports": 0}, "reports is 0"),
        ({"rounds": -2}, "rounds is -2"),
    ],
)
def test_impossible_protocols_are_refused(arguments: dict[str, object], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        Protocol(users=100, levels=1, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=r"users is 0; it must lie between 1 and"):
        Protocol(users=0, levels=1)


def test_answers_are_remembered_across_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUFFLESUM_CACHE", str(tmp_path))
    protocol = Protocol(users=777, levels=2)
    noise = protocol.smallest_noise_probability(1.0, 1e-5)
    _memory._answers.clear()
    monkeypatch.delattr(Protocol, "_search_noise_probability")
    assert protocol.smallest_noise_probability(1.0, 1e-5) == noise


def test_a_doctored_memory_cannot_lower_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUFFLESUM_CACHE", str(tmp_path))
    protocol = Protocol(users=778, levels=2)
    noise = protocol.smallest_noise_probability(1.0, 1e-5)
    _memory.remember(f"noise {protocol} 1.0 1e-05", noise / 2)
    assert protocol.smallest_noise_probability(1.0, 1e-5) == noise


def test_a_doctored_memory_cannot_lower_what_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUFFLESUM_CACHE", str(tmp_path))
    protocol = Protocol(users=778, levels=2)
    delta, epsilon = protocol.delta(0.1, 1.0), protocol.epsilon(0.1, 1e-5)
    _memory.remember(f"delta {protocol} 0.1 1.0", 0.0)
    _memory.remember(f"epsilon {protocol} 0.1 1e-05", epsilon.upper / 2, 0.0)
    assert protocol.delta(0.1, 1.0).upper == delta.upper
    assert protocol.epsilon(0.1, 1e-5) == epsilon


@pytest.mark.parametrize("answer", [math.nan, 0.0, -1.0, 2.0, math.inf, 1 / 3])
def test_remembered_nonsense_is_no_answer(answer: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUFFLESUM_CACHE", str(tmp_path))
    protocol = Protocol(users=780, levels=2)
    noise, delta = protocol.smallest_noise_probability(1.0, 1e-5), protocol.delta(0.1, 1.0)
    epsilon = protocol.epsilon(0.1, 1e-5)
    _memory.remember(f"noise {protocol} 1.0 1e-05", answer)
    assert protocol.smallest_noise_probability(1.0, 1e-5) == noise
    if not 0 <= answer < 1:  # a lower bound may be anything below the upper one
        _memory.remember(f"delta {protocol} 0.1 1.0", answer)
        _memory.remember(f"epsilon {protocol} 0.1 1e-05", epsilon.upper, answer)
        assert (protocol.delta(0.1, 1.0), protocol.epsilon(0.1, 1e-5)) == (delta, epsilon)


def test_a_broken_memory_is_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUFFLESUM_CACHE", str(tmp_path))
    (tmp_path / "accounting.sqlite").write_bytes(b"not a database at all")
    _memory._answers.clear()
    found = Protocol(users=779, levels=2).delta(0.5, 1.0)
    assert found.upper >= found.lower
    monkeypatch.setenv("SHUFFLESUM_CACHE", "off")
    assert Protocol(users=779, levels=2).delta(0.5, 1.0) == found
