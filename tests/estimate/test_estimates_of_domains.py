"""Estimates of what real mechanisms send, domain by domain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from tests.stat_tests import FALSE_ALARM

import shufflesum as ss
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.domains.counts import CountEstimate
from shufflesum.domains.group_by.estimate import GroupEstimate, fieller
from shufflesum.domains.open_vocabulary.estimate import VocabularyEstimate
from shufflesum.estimate import estimate_of
from shufflesum.plans import Plan
from shufflesum.testing import SeededSource

Floats = Any


def estimates(plan: Plan, values: Any, users: int, runs: int) -> list[Any]:
    tally = plan.mechanism.tally(plan.encoding, SeededSource(1))
    block = plan.domain.block(plan.domain.rows(values))
    found = []
    for _ in range(runs):
        table = np.zeros(plan.cells, dtype=np.int64)
        tally.add(block, table)
        found.append(estimate_of(plan, users, 0, table + tally.noise(users)))
    return found


@pytest.mark.parametrize(
    ("domain", "values", "kind"),
    [
        (ss.Arrays(2), np.zeros((500, 2)), Estimate),
        (ss.Categories(["a", "b"]), ["a", "b"] * 250, CountEstimate),
        (ss.MultiChoice(["a", "b", "c"], max_choices=2), [["a"], ["b", "c"]] * 250, CountEstimate),
        (ss.GroupBy(["a", "b"], 2), (["a", "b"] * 250, np.zeros((500, 2))), GroupEstimate),
        (ss.OpenVocabulary(), ["some", "words"] * 250, VocabularyEstimate),
    ],
)
def test_each_domain_has_its_kind_of_estimate(domain: Any, values: Any, kind: type[Estimate]) -> None:
    estimate = ss.aggregate(values, domain=domain, epsilon=1, delta=1e-5)
    assert type(estimate) is kind
    assert estimate.users == 500
    if isinstance(estimate, CountEstimate | GroupEstimate):
        assert estimate.names[:2] == ("a", "b")


@pytest.mark.long
def test_means_of_groups_hold_with_the_noise_of_a_plan() -> None:
    """1,500 runs, three groups: too few 95 % intervals that hold once in 10^6; without the size's noise far fewer."""
    sizes, users, runs = (4000, 400, 60), 4460, 1500
    plan = ss.plan(users=users, domain=ss.GroupBy(3, ()), bounds=(-1, 1), epsilon=1, delta=1e-6)
    groups = np.repeat(np.arange(3), sizes)
    values = np.random.default_rng(1).uniform(0.8, 1, users)
    truth = np.array([values[groups == group].mean() for group in range(3)])
    least = binom.ppf(FALSE_ALARM, runs, 0.95)
    held, wrongly = np.zeros(3), np.zeros(3)
    for estimate in estimates(plan, (groups, values), users, runs):
        assert isinstance(estimate, GroupEstimate)
        low, high = estimate.confidence_interval()
        held += (low <= truth) & (truth <= high)
        sums = plan.mechanism.decode_groups(plan.encoding, estimate.table, users)
        low, high = fieller(
            2 * sums.sums[:, 0], sums.counts, np.full(3, 4 * sums.sum_variance), 0.0, np.array(2.0), 0.025
        )
        wrongly += (low - 1 <= truth) & (truth <= high - 1)
    assert (held >= least).all()
    assert wrongly[2] < least


@pytest.mark.long
def test_standard_errors_of_group_sums_are_those_observed() -> None:
    """Squared errors of 1,000 runs against the claimed variance, within six standard errors of a mean square."""
    plan = ss.plan(users=1000, domain=ss.GroupBy(2, 2), bounds=([1, -3], [2, 3]), epsilon=1, delta=1e-6)
    groups = np.arange(1000) % 2
    values = np.tile([1.25, 1.0], (1000, 1))
    found = estimates(plan, (groups, values), 1000, 1000)
    truth = 500 * np.tile([1.25, 1.0], (2, 1))
    ratio = np.mean([((e.sum - truth) / e.sum_standard_error) ** 2 for e in found], axis=0)
    slack = 6 * np.sqrt(2 / 1000)
    assert (ratio < 1 + slack).all()
    assert (ratio > 0.8 - slack).all()
