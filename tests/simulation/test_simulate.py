from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.plan_builders import held
from tests.refusals import refusal
from tests.slow_params import slow_among

import shufflesum as ss
from shufflesum import simulation
from shufflesum.aggregation import aggregate_batches
from shufflesum.domains.base import NUMBER_DISTRIBUTIONS
from shufflesum.errors import DataError, ParameterError
from shufflesum.simulation import Simulation, found, made_up, simulate

REPEATS = 60
# Means of numbers between 0 and 1 fall below their expectation by t with chance e^(-2 R t^2) at most (Hoeffding).
SLACK = math.sqrt(math.log(1e6) / (2 * REPEATS))

DOMAINS = {
    "arrays": 2,
    "matrix": (2, 2),
    "symmetric": ss.Symmetric(2),
    "span": ss.Span(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])),
    "categories": ss.Categories(["a", "b", "c"]),
    "bins": ss.Categories(bins=[0, 1, 5]),
    "other": ss.Categories(2, other=True),
    "choices": ss.MultiChoice(4, max_choices=2),
    "groups": ss.GroupBy(["x", "y"], ss.Arrays(2, (-5, 10))),
    "open vocabulary": ss.OpenVocabulary(64, 4),
}


@cache
def planned(shape: Any) -> ss.Plan:
    return ss.plan(users=500, **held(shape), epsilon=4.0, delta=1e-3)


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    slow_among(DOMAINS, ["matrix", "bins", "other", "symmetric", "span"]),
)
def test_intervals_hold_the_truth_of_made_up_users_of_every_domain(kind: str) -> None:
    tried = simulate(planned(DOMAINS[kind]), repeats=REPEATS)
    assert tried.users == 500
    assert tried.coverage >= tried.level - SLACK
    assert tried.data.startswith("made up: ")
    assert tried.truth.size * REPEATS >= tried.intervals > 0
    assert tried.observed < 4 * tried.predicted
    assert tried.observed_each.shape == tried.held_each.shape == tried.truth.reshape(-1).shape


def test_a_shifted_truth_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shufflesum.simulation.true_values", lambda *_, **__: (np.full(2, 0.4) + 0.1, 500))
    assert simulate(planned(2), distribution="constant", repeats=REPEATS).coverage < 0.95 - SLACK


@pytest.mark.parametrize("distribution", slow_among([*NUMBER_DISTRIBUTIONS], ["skewed", "constant"]))
def test_the_observed_error_is_that_of_the_error_bars(distribution: str) -> None:
    tried = simulate(planned(2), distribution=distribution, repeats=200)
    # Four hundred nearly normal errors: their squares are off by 7 % on average, by a third once in a million.
    assert 0.5 < (tried.observed / tried.predicted) ** 2 < 1.6
    assert not 0.5 < (tried.observed / (2 * tried.predicted)) ** 2 < 1.6
    assert tried.predicted <= (tried.worst or 0) * 1.01


@pytest.mark.slow
def test_vectors_of_a_ball_are_made_up_within_it() -> None:
    center = np.linspace(-1, 1, 6)
    plan = planned(ss.L2Ball(6, 2.0, center=center))
    for distribution in NUMBER_DISTRIBUTIONS:
        (rows,) = made_up(plan.domain, 100, distribution, 1)
        assert np.linalg.norm(rows - center, axis=1).max() <= 2.0
    tried = simulate(plan, repeats=REPEATS)
    assert tried.coverage >= tried.level - SLACK


@pytest.mark.long
@pytest.mark.parametrize("kind", DOMAINS)
def test_the_same_seed_gives_the_same_users_and_another_others(kind: str) -> None:
    domain = planned(DOMAINS[kind]).domain
    law = domain.distributions[0]
    first, again, other = ([repr(domain.block(rows)) for rows in made_up(domain, 50, law, seed)] for seed in (1, 1, 2))
    assert first == again != other


def test_public_data_of_ones_own_is_judged_by_its_own_truth() -> None:
    rows = np.random.default_rng(1).random((600, 2))
    tried = simulate(planned(2), rows, repeats=3)
    assert tried.users == 600
    np.testing.assert_allclose(tried.truth, rows.mean(axis=0))
    words = ["a", "b", "a"] * 200
    tried = simulate(planned(ss.OpenVocabulary(64, 4)), words, words=["b", "a", "c"], repeats=2)
    assert tried.truth.tolist() == [200, 400, 0]
    labels, numbers = ["x", "y"] * 300, np.tile([[1.0, 2.0], [3.0, 4.0]], (300, 1))
    tried = simulate(planned(DOMAINS["groups"]), (labels, numbers), repeats=2)
    assert tried.truth.tolist() == [[1, 2], [3, 4]]


def test_words_are_hashed_with_another_key_in_each_try(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, plan = list[Any](), planned(ss.OpenVocabulary(64, 4))

    def noted(batches: Any, tried: Any, **options: Any) -> Any:
        keys.append(tried.domain.key)
        return aggregate_batches(batches, tried, **options)

    monkeypatch.setattr(simulation, "aggregate_batches", noted)
    simulate(plan, ["a", "b"] * 300, words=["a"], repeats=3)
    assert isinstance(plan.domain, ss.OpenVocabulary)
    assert keys[0] == plan.domain.key
    assert len(set(keys)) == 3


def test_clipped_data_is_judged_by_the_truth_after_clipping() -> None:
    rows = np.full((500, 2), 3.0)
    with refusal("out-of-bounds", error=DataError):
        simulate(planned(2), rows, repeats=1)
    assert simulate(planned(2), rows, repeats=1, clip=True).truth.tolist() == [1.0, 1.0]


def test_what_makes_no_sense_is_refused() -> None:
    plan, labels = planned(2), planned(ss.Categories(2))
    for other, distribution in ((plan, "zipf"), (labels, "normal"), (plan, "cauchy")):
        with refusal("unknown-choice", distribution, "uniform", error=ParameterError):
            simulate(other, distribution=distribution)
    with refusal("conflicting-arguments", "made-up", error=ParameterError):
        simulate(plan, np.zeros((500, 2)), distribution="normal")
    with refusal("out-of-range", "repeats", error=ParameterError):
        simulate(plan, repeats=0)
    with refusal("missing-argument", "words", error=ParameterError):
        simulate(planned(ss.OpenVocabulary(64, 4)), ["a"] * 500)


def test_progress_counts_the_rows_of_all_tries() -> None:
    seen: list[int] = []
    simulate(planned(2), repeats=3, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1500


@pytest.mark.long
def test_figures_name_what_a_user_would_send() -> None:
    tried = simulate(planned(2), repeats=1)
    assert isinstance(tried, Simulation)
    told = found(tried)
    assert f"{tried.plan.reports:,} reports" in told["a user would send"]
    assert told["error observed"].endswith("tried once")
    assert f"\nerror observed: {told['error observed']}\n" in str(tried)
    alone = simulate(ss.plan(users=500, shape=2, epsilon=4.0, delta=1e-3, noise_by="curator"), repeats=1)
    assert "nothing" in found(alone)["a user would send"]
