from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.plan_builders import encoding_for

from shufflesum.audit.findings import deviation
from shufflesum.domains import Arrays
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.mechanisms.randomized_response.attack import RandomizedResponseAttack, honest_channel, noise_simulated
from shufflesum.privacy import Guarantee


def attack_on(
    *, dimension: int, coordinates: int, levels: int, values: tuple[int, int, int]
) -> RandomizedResponseAttack:
    gamma = math.ceil(0.3 * 2**53) / 2**53
    guarantee = Guarantee(1.0, 1e-6, users=3)
    domain = Arrays(dimension, (0.0, 1.0))
    encoding = encoding_for(domain, RandomizedResponse)
    return RandomizedResponseAttack(RandomizedResponse(coordinates, levels, gamma), encoding, domain, guarantee, values)


@pytest.mark.parametrize(("cells", "size"), [(2, 2), (3, 3), (7, 3)])
@pytest.mark.parametrize("gamma", [0.003, 0.2, 0.7])
def test_an_honest_channel_known_exactly_simulates_just_itself(cells: int, size: int, gamma: float) -> None:
    law = honest_channel(cells, size, gamma)
    assert noise_simulated(cells, law, law) == pytest.approx(gamma, rel=1e-6)
    assert noise_simulated(cells, 0.98 * law, 1.02 * law) > 1.01 * gamma
    assert noise_simulated(cells, np.zeros_like(law), np.ones_like(law)) == 1


@given(seed=st.integers(0, 2**32 - 1), cells=st.sampled_from([2, 3, 5]), gamma=st.floats(0.01, 0.6))
@settings(max_examples=30, deadline=None)
def test_every_law_of_the_enclosure_becomes_honest_by_a_channel(seed: int, cells: int, gamma: float) -> None:
    size = min(cells, 3)
    law = honest_channel(cells, size, gamma)
    generator = np.random.default_rng(seed)
    lower, upper = law * generator.uniform(0.8, 1, law.shape), law * generator.uniform(1, 1.2, law.shape)
    found = noise_simulated(cells, lower, upper)
    if found == 1:
        return
    worst = 0.0
    for _ in range(50):
        inside = generator.uniform(lower, upper)
        np.fill_diagonal(inside, 0)
        np.fill_diagonal(inside, 1 - inside.sum(axis=1))
        channel = np.linalg.solve(inside, honest_channel(cells, size, found))
        assert np.allclose(channel.sum(axis=1), 1)
        assert channel.min() > -1e-9
        worst = min(worst, float(np.linalg.solve(inside, honest_channel(cells, size, found * 0.6)).min()))
    assert worst < 0  # with much less noise some law of the enclosure has no channel


def test_a_law_that_simulates_honest_noise_reveals_at_least_as_much() -> None:
    """All tables of three users, by hand: victim at 0 or 1, others at 2, noise of many shapes."""
    generator = np.random.default_rng(10)
    for _ in range(10):
        law = generator.uniform(0.0, 0.15, (3, 3))
        np.fill_diagonal(law, 0)
        np.fill_diagonal(law, 1 - law.sum(axis=1))
        honest = honest_channel(3, 3, noise_simulated(3, law, law))
        ours, simulated = ([_tables([part[x], part[2], part[2]]) for x in (0, 1)] for part in (law, honest))
        for epsilon in (0.1, 0.5, 1.0, 2.0):
            assert _divergence(epsilon, *ours) >= _divergence(epsilon, *simulated) - 1e-12
            assert _divergence(epsilon, *ours[::-1]) >= _divergence(epsilon, *simulated[::-1]) - 1e-12


def _tables(laws: list[NDArray[np.float64]]) -> dict[tuple[int, ...], float]:
    """The law of the table of counts when each user reports by a law of their own."""
    result: dict[tuple[int, ...], float] = defaultdict(float)
    for values in itertools.product(range(len(laws[0])), repeat=len(laws)):
        table = tuple(np.bincount(values, minlength=len(laws[0])))
        result[table] += math.prod(law[value] for law, value in zip(laws, values, strict=True))
    return result


def _divergence(epsilon: float, first: dict[tuple[int, ...], float], second: dict[tuple[int, ...], float]) -> float:
    return sum(max(0.0, chance - math.exp(epsilon) * second[table]) for table, chance in first.items())


@pytest.mark.parametrize(("levels", "values"), [(1, (0, 1, 0)), (2, (0, 2, 1)), (3, (3, 0, 1))])
def test_batches_are_scored_by_their_likelihood_ratio(levels: int, values: tuple[int, int, int]) -> None:
    law = 0.7 * np.eye(levels + 1) + 0.3 / (levels + 1)
    x, other_x, v = values
    first, second = (_tables([law[victim], law[v], law[v]]) for victim in (x, other_x))
    attack = attack_on(dimension=1, coordinates=1, levels=levels, values=values)
    for table, chance in first.items():
        assert attack.score(np.array(table)) == pytest.approx(math.log(chance / second[table]), abs=1e-9)


def test_scores_of_blocks_add_up() -> None:
    whole = attack_on(dimension=4, coordinates=2, levels=2, values=(0, 2, 1))
    part = attack_on(dimension=1, coordinates=1, levels=2, values=(0, 2, 1))
    both = whole.score(np.array([[1, 0, 1], [2, 1, 0], [0, 1, 1], [1, 2, 0]]).reshape(-1))
    assert both == pytest.approx(part.score(np.array([3, 1, 1])) + part.score(np.array([1, 3, 1])))


def test_a_block_without_reports_does_not_stop_the_attack() -> None:
    attack = attack_on(dimension=4, coordinates=2, levels=2, values=(0, 2, 1))
    assert attack.score(np.array([1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])) == 0


def test_it_attacks_where_a_few_reports_show_the_least_noise() -> None:
    """A randomizer that never replaces by 3 and hardly by 0: these are the pair to tell apart among users at 1."""
    mechanism, domain, guarantee = (
        RandomizedResponse(1, 3, 0.25),
        Arrays(2, (0.0, 3.0)),
        Guarantee(1.0, 1e-6, users=100),
    )
    asked: list[Any] = []

    def sample_table(coordinates: Any) -> Any:
        asked.append(coordinates.tolist())
        return np.array([1, 400, 40, 0, 2, 390, 60, 0])

    attack = mechanism.attack(encoding_for(domain, RandomizedResponse), domain, guarantee, sample_table)
    assert asked == [[1.0, 1.0]]
    assert attack.values == (3, 0, 1)
    assert [held.tolist() for held in (*attack.victims, attack.others)] == [[3.0, 3.0], [0.0, 0.0], [1.0, 1.0]]


def test_with_two_values_the_victim_is_at_the_one_that_is_kept_more_often() -> None:
    mechanism, domain, guarantee = (
        RandomizedResponse(1, 1, 0.25),
        Arrays(2, (0.0, 1.0)),
        Guarantee(1.0, 1e-6, users=100),
    )
    encoding = encoding_for(domain, RandomizedResponse)
    attack = mechanism.attack(
        encoding, domain, guarantee, lambda at: np.array([90, 10, 90, 10] if at[0] == 0 else [5, 95, 5, 95])
    )
    assert attack.values == (1, 0, 1)


def test_every_report_that_names_no_cell_is_one_too_few() -> None:
    """A blank is no rejected report; under `randomized-response` nobody sends one, so a single one of 400 is found."""
    attack = attack_on(dimension=4, coordinates=2, levels=1, values=(0, 1, 0))
    tables = [np.full(8, 25), np.full(8, 25), np.full(8, 25)]

    def missing() -> bool:
        *_, (sent,) = attack.expected(tables, [100, 100, 100])
        return bool(deviation(sent.observed, sent.trials, sent.chances)[0] == math.inf)

    assert not missing()
    tables[1][3] -= 1
    assert missing()
