"""Numbers in digits of any radix: cells, sensitivity, the radices a planner takes, and what comes out."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.encodings import MultiHot
from shufflesum.errors import PlanError, PrivacyError
from shufflesum.mechanisms import NoisyTable
from shufflesum.mechanisms.noisy_table.digits import Digits
from shufflesum.plans import Plan
from shufflesum.privacy.engine.gaussian import gaussian_noise
from shufflesum.protocol import Analyzer, Randomizer, Tally, shuffle
from shufflesum.testing import SeededSource

TARGET: Any = {"epsilon": 1.0, "delta": 1e-6}
RADICES = [(2,), (3,), (4,), (2, 2, 2), (3, 3), (5, 3), (4, 3), (4, 6, 2), (7, 2, 2)]
UNIT = ss.Arrays(3, (0, 1))


def table_of(plan: Plan) -> NoisyTable:
    assert isinstance(plan.mechanism, NoisyTable)
    return plan.mechanism


@pytest.mark.parametrize("radices", RADICES)
def test_every_number_is_the_weighted_sum_of_its_digits(radices: tuple[int, ...]) -> None:
    digits = Digits(radices)
    for number, cells in enumerate(digits.cell_of):
        value = digits.origin + sum(digits.weights(j)[cell] for j, cell in enumerate(cells.tolist()) if cell >= 0)
        assert value == pytest.approx(number / digits.levels)
    assert len(np.unique(digits.cell_of, axis=0)) == digits.levels + 1
    squares = [np.sum(digits.weights(j) ** 2) for j in range(len(radices))]
    np.testing.assert_allclose(squares, digits.squares * digits.places**2 / digits.levels**2)


@pytest.mark.parametrize("radices", RADICES)
@pytest.mark.parametrize("groups", [1, 3])
def test_replacing_a_user_changes_as_many_cells_of_each_class_as_the_positions_say(
    radices: tuple[int, ...], groups: int
) -> None:
    """All pairs of numbers and groups: never more, and for some pair just as many."""
    encoding = MultiHot(1, groups=groups, counted=groups > 1, scale=UNIT)
    positions, digits = encoding.positions(radices), Digits(radices)
    classes = positions.class_of_cells
    assert len(classes) == positions.cells
    tables = []
    for group, number in product(range(groups), range(digits.levels + 1)):
        table = np.zeros(positions.cells, dtype=int)
        for j, cell in enumerate(digits.cell_of[number].tolist()):
            if cell >= 0:
                table[positions.first[j] + group * digits.sizes[j] + cell] += 1
        if groups > 1:
            table[positions.first[-2] + group] += 1
        held = [table[start:stop].sum() for start, stop in zip(positions.first[:-1], positions.first[1:], strict=True)]
        assert all(one == 1 or (one == 0 and blank) for one, blank in zip(held, positions.blank, strict=True))
        tables.append(table)
    most = [0] * len(positions.changed)
    for one, other in product(tables, tables):
        changed = np.abs(one - other)
        assert changed.max() <= 1
        most = [max(known, int(changed[classes == number].sum())) for number, known in enumerate(most)]
    assert tuple(most) == positions.changed


@pytest.mark.parametrize("noise_by", ["shuffler", "servers"])
@pytest.mark.parametrize("radices", [(2, 2), (5, 3)])
def test_what_users_hold_arrives_through_the_roles(noise_by: Any, radices: tuple[int, ...]) -> None:
    """Three means of 3,000 users within 7 standard errors, and beyond that where the truth is another; seeded."""
    rows = np.random.default_rng(1).uniform(0, 1, (3000, 3)) ** [1, 2, 3]
    plan = ss.plan(users=3000, shape=3, noise_by=noise_by, mechanism=ss.NoisyTable.Options(radices), **TARGET)
    assert table_of(plan).radices == radices
    analyzer = Analyzer(plan, source=SeededSource(1))
    reports = Randomizer(plan, source=SeededSource(2)).randomize(rows)
    analyzer.add(shuffle(reports, plan=plan, source=SeededSource(3)))
    estimate = analyzer.estimate()
    assert (np.abs(estimate.mean - rows.mean(axis=0)) < 7 * estimate.standard_error).all()
    assert not (np.abs(estimate.mean - rows.mean(axis=0)[::-1]) < 7 * estimate.standard_error).all()
    tally = Tally(plan, source=SeededSource(4))
    tally.add(rows)
    difference = tally.counts().table - estimate.table
    # both have the same truth, up to coins that round and two draws; a cell in another place would be off by hundreds
    spread = np.sqrt(2 * table_of(plan).draws * table_of(plan).noise[0].variance + 3000 / 2)
    assert (np.abs(difference) < 7 * spread).all()


@pytest.mark.parametrize("noise_by", ["curator", "shuffler"])
def test_groups_have_ternary_digits_counted_from_the_middle(noise_by: Any) -> None:
    """Sizes, sums and means of groups of 3,000 users within 7 standard errors; seeded."""
    random = np.random.default_rng(2)
    groups, rows = random.choice(["a", "b", "c"], 3000, p=[0.5, 0.3, 0.2]), random.uniform(10, 20, (3000, 2))
    domain = ss.GroupBy(["a", "b", "c"], ss.Arrays(2, (10, 20)))
    plan = ss.plan(users=3000, domain=domain, noise_by=noise_by, mechanism=ss.NoisyTable.Options((3, 3)), **TARGET)
    if noise_by == "curator":
        estimate = ss.aggregate((groups, rows), plan=plan, source=SeededSource(5))
    else:
        analyzer = Analyzer(plan)
        reports = Randomizer(plan, source=SeededSource(6)).randomize((groups, rows))
        analyzer.add(shuffle(reports, plan=plan, source=SeededSource(7)))
        estimate = analyzer.estimate()
    truth = np.array([rows[groups == group].mean(axis=0) for group in "abc"])
    sums = np.array([rows[groups == group].sum(axis=0) for group in "abc"])
    sizes = np.array([np.count_nonzero(groups == group) for group in "abc"])
    assert (np.abs(estimate.counts - sizes) < 7 * estimate.count_standard_error).all()
    assert (np.abs(estimate.mean - truth) < 7 * estimate.standard_error).all()
    assert (np.abs(estimate.sum - sums) < 7 * estimate.sum_standard_error).all()
    low, high = estimate.confidence_interval(1 - 1e-9)
    assert ((low < truth) & (truth < high)).all()


def test_groups_of_many_numbers_take_no_binary_digits() -> None:
    """Each would change in two cells, the old group's and the new one's."""
    plan = ss.plan(users=10**6, domain=ss.GroupBy(["a", "b", "c"], 20), noise_by="shuffler", **TARGET)
    assert 2 not in table_of(plan).radices


@pytest.mark.filterwarnings("ignore::shufflesum.ShufflesumWarning")
@pytest.mark.parametrize("dimension", [5, 10, 100])
@pytest.mark.parametrize("digits", [1, 2, 3])
def test_ternary_digits_cost_nothing_over_gaussian_noise(dimension: int, digits: int) -> None:
    mechanism = ss.NoisyTable.Options((3,) * digits)
    plan = ss.plan(users=10**6, shape=dimension, noise_by="shuffler", mechanism=mechanism, **TARGET)
    gaussian = dimension**2 * gaussian_noise(1.0, 1e-6) ** 2 / 1e12
    assert plan.expected_error.noise <= 1.003 * gaussian


def test_heartbeats_take_200_reports_at_nearly_a_curators_error() -> None:
    for noise_by, times in (("shuffler", 1.09), ("servers", 2.15)):
        plan = ss.plan(users=50_000, shape=100, epsilon=0.95, delta=1e-6, noise_by=noise_by)  # type: ignore[arg-type]
        assert plan.reports <= 200
        assert plan.bytes_per_user["sealed"] <= 10_500
        assert plan.times_curator <= times


def test_fewer_reports_are_taken_where_they_cost_little_and_never_more_than_allowed() -> None:
    best = ss.plan(users=50_000, shape=10, noise_by="shuffler", **TARGET)
    for reports in (30, 20, 10):
        plan = ss.plan(users=50_000, shape=10, noise_by="shuffler", max_reports=reports, **TARGET)
        assert plan.reports <= reports
        assert plan.expected_error.total >= 0.9 * best.expected_error.total
    with refusal("privacy-out-of-reach", "max_reports", error=PrivacyError):
        ss.plan(users=50_000, shape=10, noise_by="shuffler", max_reports=9, **TARGET)


def test_a_malicious_user_moves_a_mean_by_no_more_than_its_bounds() -> None:
    """Whatever cells they choose at their positions, one each."""
    plan = ss.plan(users=100, shape=1, noise_by="shuffler", mechanism=ss.NoisyTable.Options((3, 3)), **TARGET)
    mechanism, encoding = plan.mechanism, plan.encoding
    means = []
    for cells in product(*(range(-1, size) for size in (2, 2))):
        table = mechanism.most_drawn(encoding) // 2
        for position, cell in enumerate(cells):
            if cell >= 0:
                table[2 * position + cell] += 1
        means.append(float(mechanism.decode(encoding, table, 100).mean[0]))
    assert max(means) - min(means) == pytest.approx(plan.max_shift(1))
    assert plan.max_shift(1) == pytest.approx(0.01)


@pytest.mark.filterwarnings("ignore::shufflesum.ShufflesumWarning")
@pytest.mark.parametrize("users", [1, 2, 5, 20, 100])
def test_intervals_of_few_users_hold_as_often_as_said(users: int) -> None:
    """Of 400 batches at 90 %: fewer than 330 would be missed by more than 5 standard errors; seeded."""
    plan = ss.plan(
        users=users, shape=2, noise_by="servers", mechanism=ss.NoisyTable.Options((3,)), epsilon=8, delta=1e-3
    )
    rows = np.random.default_rng(users).uniform(0, 1, (users, 2))
    held = np.zeros(2)
    for seed in range(200):
        tally = Tally(plan, source=SeededSource(seed))
        tally.add(rows)
        estimate: Any = plan.domain.estimate_type(plan, users, 0, tally.counts().table)
        low, high = estimate.confidence_interval(0.9)
        held += (low <= rows.mean(axis=0)) & (rows.mean(axis=0) <= high)
    assert held.sum() >= 330


def test_radices_that_fit_no_numbers_are_refused() -> None:
    plan = ss.plan(users=100, shape=2, noise_by="shuffler", **TARGET)
    noise = table_of(plan).noise
    for radices in ((), (3,) * (len(noise) + 1), (1 << 16, 3)):
        with refusal(("conflicting-arguments", "out-of-range")):
            Plan(plan.domain, NoisyTable("shuffler", radices, noise), plan.guarantee)
    curator = ss.plan(users=100, shape=2, noise_by="curator", mechanism=ss.NoisyTable.Options((3, 3)), **TARGET)
    with refusal("one-process-only", error=PlanError):
        Randomizer(curator)
