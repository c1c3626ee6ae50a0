"""Audits of plans for labels: the honest pass, with a lower bound near what is certified; sabotage is caught."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.slow_params import slow_but_for

import shufflesum as ss
from shufflesum.audit import audit
from shufflesum.audit.findings import judged
from shufflesum.cells import BLANK
from shufflesum.encodings import ChosenCells
from shufflesum.mechanisms.auditing import Attack
from shufflesum.protocol import Randomizer

DOMAINS: dict[str, Any] = {
    "categories": ss.Categories(["red", "green", "blue", "none"]),
    "categories, replaced": ss.Categories(["red", "green", "blue", "none"]),
    "two labels": ss.Categories(2),
    "bins": ss.Categories(bins=[0, 10, 20, 50], other=True),
    "multi-choice": ss.MultiChoice(6, max_choices=2),
    "groups": ss.GroupBy(["a", "b", "c"], 2),
    "words": ss.OpenVocabulary(200, 8, bytes(16)),
}


@cache
def planned(name: str) -> ss.Plan:
    mechanism: Any = "randomized-response" if name.endswith("replaced") else "noisy-counts"
    return ss.plan(users=3000, domain=DOMAINS[name], epsilon=1.0, delta=1e-6, mechanism=mechanism)


def attack_of(plan: ss.Plan) -> Attack:
    nothing = np.zeros(plan.cells, dtype=np.int64)
    return plan.mechanism.attack(plan.encoding, plan.domain, plan.guarantee, lambda _: nothing)


def run(plan: ss.Plan, randomize: Any) -> Any:
    return audit(plan, randomize=randomize, trials=20, seconds=6)


@pytest.mark.parametrize("name", slow_but_for(DOMAINS, ["categories"]))
def test_the_honest_pass_with_a_lower_bound_near_what_is_certified(name: str) -> None:
    """False alarms once in a million audits."""
    plan = planned(name)
    result = run(plan, Randomizer(plan).randomize)
    assert result.passed, result.findings
    assert 0.9 * result.epsilon_upper < result.epsilon_lower <= result.epsilon_upper <= plan.epsilon


class LessNoise:
    """Blanks out a fifth of the noise, whatever it is."""

    def __init__(self, plan: ss.Plan) -> None:
        self._plan, self._honest, self._rng = plan, Randomizer(plan), np.random.default_rng(1)

    def __call__(self, rows: Any) -> ss.Reports:
        reports = self._honest.randomize(rows)
        cells = reports.cells.reshape(-1, self._plan.reports).copy()
        return ss.Reports(reports.plan_id, self.spoilt(cells, rows).reshape(-1))

    def spoilt(self, cells: NDArray[np.uint32], rows: Any) -> NDArray[np.uint32]:
        own = self.own(rows)
        noise = (cells != BLANK) & (np.cumsum(cells != BLANK, axis=1) > own[:, None])
        cells[noise & (self._rng.uniform(size=cells.shape) < 0.2)] = BLANK
        return cells

    def own(self, rows: Any) -> NDArray[np.int64]:
        """How many of a user's reports, the first ones, are true."""
        domain = self._plan.domain
        block = domain.block(domain.rows(rows))
        if isinstance(block, ChosenCells):
            return np.asarray(np.count_nonzero(block.cells != BLANK, axis=1))
        return np.ones(len(block), dtype=np.int64)


class OneCellWithoutNoise(LessNoise):
    def spoilt(self, cells: NDArray[np.uint32], rows: Any) -> NDArray[np.uint32]:
        cells[:, 1:][cells[:, 1:] == 1] = BLANK
        return cells


class SlotsNeverUsed(LessNoise):
    def spoilt(self, cells: NDArray[np.uint32], rows: Any) -> NDArray[np.uint32]:
        cells[:, 1:] = BLANK
        return cells


@pytest.mark.parametrize(
    ("name", "sabotage"),
    [
        pytest.param("categories", OneCellWithoutNoise, marks=pytest.mark.slow),
        *(
            pytest.param(name, LessNoise, marks=pytest.mark.slow)
            for name in ("categories", "two labels", "multi-choice", "words")
        ),
        *(pytest.param(name, SlotsNeverUsed, marks=pytest.mark.slow) for name in ("categories", "words")),
    ],
)
def test_sabotage_is_caught(name: str, sabotage: type[LessNoise]) -> None:
    plan = planned(name)
    result = run(plan, sabotage(plan))
    assert not result.passed


@pytest.mark.slow  # nor on its key: test_sabotage.py
def test_a_hash_that_does_not_depend_on_the_function_is_caught() -> None:
    plan = planned("words")
    honest, domain = Randomizer(plan), plan.domain
    assert isinstance(domain, ss.OpenVocabulary)

    def first_function_only(rows: Any) -> ss.Reports:
        cells = honest.randomize(rows).cells.reshape(-1, plan.reports).copy()
        buckets = domain.bucket_table(domain.texts(rows))[:, 0]
        cells[:, 0] = cells[:, 0] // domain.layout[1] * domain.layout[1] + buckets
        return ss.Reports(plan.id, cells.reshape(-1))

    assert not run(plan, first_function_only).passed


@pytest.mark.parametrize(("buckets", "functions", "crowds"), [(2, 8, 2), (2, 64, 2), (3, 64, 3), (200, 8, 3)])
def test_words_that_share_the_fewest_buckets_are_attacked_even_where_none_share_none(
    buckets: int, functions: int, crowds: int
) -> None:
    """Under 64 functions into two or three buckets nobody finds words that share none. Of two buckets all hold x."""
    domain = ss.OpenVocabulary(buckets, functions, bytes(16))
    plan = ss.plan(users=300, domain=domain, epsilon=1.0, delta=1e-3)
    attack = attack_of(plan)
    assert len(attack.crowds) == crowds
    assert attack.others == attack.crowds[2 % crowds]
    x, second = domain.bucket_table([str(word).encode() for word in attack.victims])
    # chosen among 4,095 words, of which one shares as many as expected or fewer, but for a chance below 1e-9
    assert (x == second).sum() < functions / buckets


@pytest.mark.slow
@pytest.mark.parametrize("functions", [8, 64])
def test_words_of_two_buckets_are_audited(functions: int) -> None:
    plan = ss.plan(users=300, domain=ss.OpenVocabulary(2, functions, bytes(16)), epsilon=1.0, delta=1e-3)
    result = run(plan, Randomizer(plan).randomize)
    assert result.passed, result.findings
    assert 0.9 * result.epsilon_upper < result.epsilon_lower <= result.epsilon_upper <= plan.epsilon
    assert not run(plan, LessNoise(plan)).passed


def test_a_finding_says_which_label_it_is_about_whatever_is_written_in_it() -> None:
    labels = ["{0}", "{colour}", "{}", "}{"]
    plan = ss.plan(users=3000, domain=ss.Categories(labels), epsilon=1.0, delta=1e-6, mechanism="noisy-counts")
    attack = attack_of(plan)
    without_noise = [10**6 * one for one in np.eye(plan.cells, dtype=np.int64)]
    kinds = [("noise", [each]) for counts in attack.expected(without_noise, [10**6] * 4) for each in counts]
    findings = [finding for kind in kinds for finding in judged([kind], 1e-6).findings]
    # In all cells, in one of the others' and in the label's own.
    assert [sum(f"{label!r} " in finding for finding in findings) for label in labels] == [3, 3, 3, 3]
