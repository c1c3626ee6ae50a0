from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, hypergeom, multinomial
from tests.chances import FALSE_ALARM, mean_is, report_law

from shufflesum import Analyzer, Estimate, Plan, Randomizer, Reports, Span, Symmetric, shuffle
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.estimation import BrokenGuaranteeWarning, Target, UnreportedCoordinateWarning
from shufflesum.testing import SeededSource, unprotected_plan

Floats = Any
NOISE = (0.0, 0.001, 0.01, 0.1, 0.3, 0.6, 0.9)
TARGETS: tuple[Target, ...] = ("users", "population")


def reports_for(plan: Plan, cells: list[tuple[int, int]]) -> Reports:
    return Reports(
        plan.id, np.array([c for c, _ in cells], dtype=np.uint32), np.array([v for _, v in cells], dtype=np.uint16)
    )


# Estimates ----------------------------------------------------------------------------------------------------------


@given(
    shape=st.sampled_from([(), (1,), (3,), (2, 3, 4)]),
    users=st.integers(1, 6),
    seed=st.integers(0, 2**32),
    bounds=st.tuples(st.floats(-100, 100), st.floats(0.01, 100)),
)
def test_without_noise_values_on_levels_come_back_exactly(
    shape: tuple[int, ...], users: int, seed: int, bounds: tuple[float, float]
) -> None:
    low, width = bounds
    plan = unprotected_plan(users=users, shape=shape, reports=int(np.prod(shape)), levels=8, bounds=(low, low + width))
    arrays = low + width * np.random.default_rng(seed).integers(0, 9, (users, *shape)) / 8
    # the coordinates' own rounding may leave a value a hair off its level; it is then rounded to either neighbour
    arrays = np.clip(arrays, low, low + width)
    estimate = Analyzer(plan).analyze(shuffle(Randomizer(plan).randomize(arrays)))
    assert estimate.users == users
    assert estimate.mean.shape == estimate.sum.shape == estimate.standard_error.shape == shape
    assert estimate.report_counts.shape == shape
    assert (estimate.report_counts == users).all()
    np.testing.assert_allclose(estimate.mean, arrays.mean(axis=0), rtol=1e-12, atol=1e-12 * (abs(low) + width))
    np.testing.assert_allclose(estimate.sum, arrays.sum(axis=0), rtol=1e-11, atol=1e-10 * (abs(low) + width))
    for target in TARGETS:
        lower, upper = estimate.confidence_interval(0.9, target=target)
        assert lower.shape == upper.shape == shape
        assert (lower < upper).all()


def test_the_estimate_is_the_papers_debiased_mean() -> None:
    plan = unprotected_plan(users=2, shape=2, reports=1, levels=4, noise_probability=0.25, bounds=(-1, 3))
    estimate = Analyzer(plan).analyze(reports_for(plan, [(0, 4), (0, 1), (0, 3), (1, 0)]))
    # c = 3 reports whose values sum to v = 8: z = (v/k - gamma c/2) / (1 - gamma)
    z = (8 / 4 - 0.25 * 3 / 2) / 0.75
    np.testing.assert_allclose(estimate.mean, [-1 + 4 * z / 3, -1 + 4 * (-0.125 / 0.75)])
    np.testing.assert_allclose(estimate.sum, 4 * estimate.mean)
    assert estimate.users == 4  # the accepted reports, not the plan's users
    assert estimate.report_counts.tolist() == [3, 1]


def test_users_are_accepted_reports_over_reports_per_user() -> None:
    plan = unprotected_plan(users=2, shape=3, reports=3)
    with pytest.warns(BrokenGuaranteeWarning, match="at least 1 of 3 users strayed"):
        estimate = Analyzer(plan).analyze(reports_for(plan, [(0, 0), (1, 1), (2, 0)] * 2 + [(0, 1), (1, 1), (7, 0)]))
    assert (estimate.users, estimate.rejected) == (2, 1)


def test_a_coordinate_nobody_reported_is_nan_and_warned_about() -> None:
    plan = unprotected_plan(users=2, shape=(2, 2))
    with pytest.warns(UnreportedCoordinateWarning, match=r"nobody reported entry \[0, 0\] nor 1 others"):
        estimate = Analyzer(plan).analyze(reports_for(plan, [(1, 1), (2, 0)]))
    low, high = estimate.confidence_interval()
    for result in (estimate.mean, estimate.sum, estimate.standard_error, low, high):
        assert np.isnan(result).tolist() == [[True, False], [False, True]]
    assert np.isnan(estimate.standard_error_of("population")).sum() == 2
    assert estimate.report_counts.tolist() == [[0, 1], [1, 0]]


def test_an_unreported_coefficient_leaves_only_the_entries_it_reaches_without_estimate() -> None:
    plan = unprotected_plan(users=1, shape=Span([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    with pytest.warns(UnreportedCoordinateWarning, match="nobody reported coefficient 0"):
        estimate = Analyzer(plan).analyze(reports_for(plan, [(1, 1)]))
    for result in (estimate.mean, estimate.standard_error, *estimate.confidence_interval()):
        assert np.isnan(result).tolist() == [True, False, True]


def test_reports_that_are_all_noise_are_not_estimated_from() -> None:
    plan = unprotected_plan(users=2, shape=1, noise_probability=1.0)
    with pytest.raises(ParameterError, match="noise_probability is 1"):
        Analyzer(plan).analyze(reports_for(plan, [(0, 0), (0, 1)]))


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95, np.nan])
def test_a_confidence_level_must_lie_between_zero_and_one(level: float) -> None:
    plan = unprotected_plan(users=1, shape=1)
    estimate = Analyzer(plan).analyze(reports_for(plan, [(0, 0)]))
    with pytest.raises(ParameterError, match="confidence level is"):
        estimate.confidence_interval(level)
    with pytest.raises(ParameterError, match="target is 'all'; it must be one of users, population"):
        estimate.confidence_interval(0.9, target="all")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="target is 'all'"):
        estimate.standard_error_of("all")  # type: ignore[arg-type]


def test_the_table_of_an_estimate_is_a_copy_and_cannot_be_written() -> None:
    plan = unprotected_plan(users=1, shape=1)
    analyzer = Analyzer(plan)
    estimate = analyzer.analyze(reports_for(plan, [(0, 0)]))
    analyzer.counts.add(reports_for(plan, [(0, 1)]))
    assert estimate.mean.tolist() == [0.0]
    with pytest.raises(ValueError, match="read-only"):
        estimate.table[0, 0] = 5


def test_a_released_batch_is_closed() -> None:
    """Else the difference of two estimates would show a single user's reports."""
    plan = unprotected_plan(users=1, shape=1)
    analyzer, late = Analyzer(plan), Analyzer(plan)
    first = analyzer.analyze(reports_for(plan, [(0, 0)]))
    late.add(reports_for(plan, [(0, 1)]))
    with pytest.raises(ReportsError, match="released already"):
        analyzer.add(reports_for(plan, [(0, 1)]))
    with pytest.raises(ReportsError, match="released already"):
        analyzer.merge(late)
    assert analyzer.estimate().mean.tolist() == first.mean.tolist()


# The analyzer -------------------------------------------------------------------------------------------------------


def test_below_the_smallest_batch_nothing_is_released() -> None:
    plan = unprotected_plan(users=2, shape=2, reports=2)
    analyzer = Analyzer(plan)
    analyzer.add(reports_for(plan, [(0, 0), (1, 0), (0, 1), (5, 0), (0, 9)]))
    with pytest.raises(
        ReportsError, match=r"3 reports were accepted \(2 rejected\).* below 4 \(2 from each of 2 users"
    ):
        analyzer.estimate()
    analyzer.add(reports_for(plan, [(1, 1)]))
    with pytest.warns(BrokenGuaranteeWarning, match="2 of 6 reports were rejected"):
        assert analyzer.estimate().mean.tolist() == [0.5, 0.5]


def test_reports_that_no_honest_crowd_sends_are_warned_about() -> None:
    plan = unprotected_plan(users=4, shape=2, reports=2)
    with (
        pytest.warns(BrokenGuaranteeWarning, match="the honest fraction 1 allows 0"),
        pytest.warns(UnreportedCoordinateWarning),
    ):
        Analyzer(plan).analyze(reports_for(plan, [(0, 1)] * 8))


def test_a_shard_counts_once_and_a_released_batch_not_again() -> None:
    plan = unprotected_plan(users=2, shape=1)
    released, shard, whole = Analyzer(plan), Analyzer(plan), Analyzer(plan)
    released.analyze(reports_for(plan, [(0, 1), (0, 0)]))
    with pytest.raises(ReportsError, match="released already"):
        whole.merge(released)
    shard.add(reports_for(plan, [(0, 1)]))
    whole.merge(shard)
    for again in (lambda: whole.merge(shard), lambda: shard.add(reports_for(plan, [(0, 1)])), shard.estimate):
        with pytest.raises(ReportsError, match="merged into another analyzer"):
            again()
    with pytest.raises(ReportsError, match="1 reports were accepted"):
        whole.estimate()


def test_one_missing_user_is_one_too_few() -> None:
    plan = unprotected_plan(users=10, shape=3, reports=3)
    with pytest.raises(ReportsError, match="collect more, or plan for fewer users"):
        Analyzer(plan).analyze(Randomizer(plan).randomize(np.zeros((9, 3))))


def test_reports_of_another_plan_are_refused() -> None:
    plan, other = (unprotected_plan(users=1, shape=2, noise_probability=gamma) for gamma in (0.0, 2.0**-53))
    with pytest.raises(ReportsError, match="belong to plan"):
        Analyzer(plan).analyze(Randomizer(other).randomize(np.zeros((1, 2))))
    with pytest.raises(ReportsError, match="cannot merge"):
        Analyzer(plan).merge(Analyzer(other))


@given(users=st.integers(1, 40), cuts=st.lists(st.integers(0, 120), max_size=4), seed=st.integers(0, 2**32))
def test_pieces_and_shards_estimate_as_the_whole(users: int, cuts: list[int], seed: int) -> None:
    plan = unprotected_plan(users=users, shape=3, reports=3, levels=5, noise_probability=0.2)
    arrays = np.random.default_rng(seed).random((users, 3))
    reports = shuffle(Randomizer(plan, source=SeededSource(seed)).randomize(arrays), source=SeededSource(seed))
    whole = Analyzer(plan).analyze(reports)
    edges = [0, *sorted(cuts), len(reports)]
    in_pieces = Analyzer(plan)
    shards = Analyzer(plan)
    for start, stop in pairwise(edges):
        piece = Reports(plan.id, reports.coordinates[start:stop], reports.values[start:stop])
        in_pieces.add(piece)
        shard = Analyzer(plan)
        shard.add(piece)
        shards.merge(shard)
    for estimate in (in_pieces.estimate(), shards.estimate()):
        np.testing.assert_array_equal(estimate.table, whole.table)
        np.testing.assert_array_equal(estimate.mean, whole.mean)
        np.testing.assert_array_equal(estimate.standard_error, whole.standard_error)
        assert estimate.users == whole.users


def test_a_whole_batch_is_not_mixed_with_pieces_by_accident() -> None:
    plan = unprotected_plan(users=1, shape=1)
    analyzer = Analyzer(plan)
    analyzer.add(reports_for(plan, [(0, 1)]))
    with pytest.raises(ReportsError, match="holds reports already"):
        analyzer.analyze(reports_for(plan, [(0, 1)]))
    with pytest.raises(ReportsError, match="itself"):
        analyzer.merge(analyzer)


# Coverage, enumerated -----------------------------------------------------------------------------------------------


def intervals(
    tables: Floats, users: int, noise_probability: float, level: float, target: Target
) -> tuple[Floats, Floats]:
    """The intervals of many tables of one coordinate: each becomes a coordinate of one large estimate."""
    many, cells = tables.shape
    plan = unprotected_plan(users=1, shape=many, reports=many, levels=cells - 1, noise_probability=noise_probability)
    return Estimate(plan, users, 0, tables).confidence_interval(level, target=target)


def coverage(chances: Floats, ends: tuple[Floats, Floats], truth: Floats) -> Floats:
    """For each row of chances over all outcomes, the chance that the interval holds that row's truth."""
    truth = np.reshape(truth, (-1, 1))
    return (chances * ((ends[0] <= truth + 1e-12) & (truth - 1e-12 <= ends[1]))).sum(axis=1)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("reports", [10, 11, 17, 70, 1000])
def test_intervals_with_one_level_cover_in_every_case(reports: int, level: float) -> None:
    """All outcomes enumerated, so no chance is left: coverage of both targets is at least nominal."""
    ones = np.arange(reports + 1)
    tables = np.stack([reports - ones, ones], axis=1)
    x = np.unique(np.concatenate([np.linspace(0, 1, 201), np.array([0.1, 0.5, 1, 2, 3, 5]) / reports]))
    for gamma in NOISE:
        chances = binom.pmf(ones, reports, ((1 - gamma) * x + gamma / 2)[:, None])
        settings: list[tuple[Target, int]] = [("population", reports)]
        settings += [("users", users) for users in (reports, reports + 1, 2 * reports, 100 * reports)]
        for target, users in settings:  # all users hold the same x, so only rounding and noise vary
            covered = coverage(chances, intervals(tables, users, gamma, level, target), x)
            assert covered.min() >= level, (target, users, gamma)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("reports", [10, 16, 60])
def test_intervals_cover_the_mean_of_users_who_differ(reports: int, level: float) -> None:
    """Users at 0 or 1, some of them sampled, then noise: all outcomes enumerated."""
    ones = np.arange(reports + 1)
    tables = np.stack([reports - ones, ones], axis=1)
    for gamma in NOISE:
        flipped = [
            np.convolve(
                binom.pmf(np.arange(h + 1), h, 1 - gamma / 2),
                binom.pmf(np.arange(reports - h + 1), reports - h, gamma / 2),
            )
            for h in range(reports + 1)
        ]
        for users in (reports, reports + 1, 2 * reports, 5 * reports):
            ends = intervals(tables, users, gamma, level, "users")
            at_one = np.unique(np.concatenate([np.arange(6), np.linspace(0, users, 21).astype(int)]))
            chances = hypergeom.pmf(np.arange(reports + 1), users, at_one[:, None], reports) @ np.array(flipped)
            assert coverage(chances, ends, at_one / users).min() >= level, (users, gamma)


def compositions(total: int, parts: int) -> Floats:
    if parts == 1:
        return np.array([[total]])
    return np.concatenate(
        [
            np.column_stack([np.full(len(rest), first), rest])
            for first in range(total + 1)
            for rest in [compositions(total - first, parts - 1)]
        ]
    )


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("levels", [2, 3])
def test_intervals_of_ten_reports_cover_with_more_levels(levels: int, level: float) -> None:
    """Ten reports, all tables enumerated: two kinds of users drawn for the population, all equal for these users."""
    tables = compositions(10, levels + 1)
    grid = np.linspace(0, 1, 13)
    for gamma in NOISE:
        for target in TARGETS:
            ends = intervals(tables, 10, gamma, level, target)
            for y, share in ((0.0, 0.0), (1.0, 0.1), (1.0, 0.5), (0.0, 0.3)):
                if target == "users" and share:
                    continue
                laws = [(1 - share) * report_law(x, levels, gamma) + share * report_law(y, levels, gamma) for x in grid]
                chances = np.array([multinomial.pmf(tables, 10, law) for law in laws])
                truth = (1 - share) * grid + share * y
                assert coverage(chances, ends, truth).min() >= level, (target, gamma, y, share)


@pytest.mark.parametrize("level", [0.95, 0.99])
@pytest.mark.parametrize("reports", [10, 1000])
@pytest.mark.parametrize(("levels", "gamma"), [(3, 0.01), (3, 0.4), (10, 0.1), (30, 0.01), (30, 0.1)])
def test_simulated_intervals_cover_with_many_levels(levels: int, gamma: float, reports: int, level: float) -> None:
    """8,000 tables a case. Falls below the line once in 10^6; twin: intervals of 0.6 times the width are rejected."""
    rng = np.random.default_rng(levels * 1000 + reports)
    tables = 8_000
    least = binom.ppf(FALSE_ALARM, tables, level) / tables
    narrow = []
    groups: list[list[tuple[float, float]]] = [
        [(1, 0.0)],
        [(0.9, 0.0), (0.1, 1.0)],
        [(0.5, 0.03), (0.5, 0.35)],
        [(1, 0.45)],
    ]
    for data in groups:
        truth = sum(share * x for share, x in data)
        every_user = sum(
            rng.multinomial(round(share * reports), report_law(x, levels, gamma), tables) for share, x in data
        )
        law = sum(share * report_law(x, levels, gamma) for share, x in data)
        drawn = rng.multinomial(reports, law, tables)
        for table, users, target in (
            (every_user, reports, "users"),
            (drawn, reports, "population"),
            (drawn, 10**9, "users"),
        ):
            low, high = intervals(np.asarray(table), users, gamma, level, target)  # type: ignore[arg-type]
            assert np.mean((low <= truth) & (truth <= high)) >= least, (data, target)
            middle, half = (low + high) / 2, 0.6 * (high - low) / 2
            narrow.append(np.mean((middle - half <= truth) & (truth <= middle + half)))
    assert min(narrow) < least


def test_simultaneous_intervals_hold_all_entries_together() -> None:
    """400 runs of 50 entries at 90%: fewer than the least count once in 10^6; single intervals are far from it."""
    plan = unprotected_plan(users=200, shape=(5, 10), reports=50, levels=2, noise_probability=0.2)
    randomizer = Randomizer(plan, source=SeededSource(1))
    data = np.random.default_rng(1).random((200, 5, 10))
    together = alone = 0
    for _ in range(400):
        estimate = Analyzer(plan).analyze(randomizer.randomize(data))
        for simultaneous in (True, False):
            low, high = estimate.confidence_interval(0.9, simultaneous=simultaneous)
            hit = bool(((low <= data.mean(axis=0)) & (data.mean(axis=0) <= high)).all())
            together, alone = together + (simultaneous and hit), alone + (not simultaneous and hit)
    least = binom.ppf(FALSE_ALARM, 400, 0.9)
    assert together >= least
    assert alone < least


# Standard errors and structures -------------------------------------------------------------------------------------


def runs_of(plan: Plan, data: Floats, runs: int, seed: int) -> list[Estimate]:
    randomizer = Randomizer(plan, source=SeededSource(seed))
    return [Analyzer(plan).analyze(randomizer.randomize(data)) for _ in range(runs)]


@pytest.mark.parametrize(("reports", "levels", "gamma"), [(1, 1, 0.1), (2, 4, 0.3), (4, 1, 0.25), (4, 8, 0.05)])
def test_standard_errors_are_honest_and_not_much_too_wide(reports: int, levels: int, gamma: float) -> None:
    """Mean squared error over mean squared standard error, all coordinates; false alarm 1e-6."""
    plan = unprotected_plan(users=500, shape=4, reports=reports, levels=levels, noise_probability=gamma, bounds=(0, 10))
    data = np.random.default_rng(1).uniform([0, 2, 4, 5], [10, 3, 6, 5], (500, 4))
    estimates = runs_of(plan, data, 800, seed=reports)
    squared = np.array([((e.mean - data.mean(axis=0)) ** 2).sum() for e in estimates])
    claimed = np.mean([(e.standard_error**2).sum() for e in estimates])
    ratio = squared / claimed
    if ratio.mean() > 1:
        assert mean_is(ratio, 1.0) > FALSE_ALARM
    assert mean_is(ratio, 1.4) < FALSE_ALARM  # so an error bar 15% too short would be noticed
    assert ratio.mean() > 0.5
    assert all((e.standard_error <= e.standard_error_of("population") * (1 + 1e-12)).all() for e in estimates[:20])


@pytest.mark.parametrize("reports", [1, 3, 6])
def test_symmetric_matrices_come_back_symmetric_with_their_errors(reports: int) -> None:
    plan = unprotected_plan(
        users=400, shape=Symmetric(3), reports=reports, levels=4, noise_probability=0.1, bounds=(-1, 1)
    )
    half = np.random.default_rng(2).uniform(-0.5, 0.5, (400, 3, 3))
    data = half + half.transpose(0, 2, 1)
    estimates = runs_of(plan, data, 400, seed=7)
    one = estimates[0]
    low, high = one.confidence_interval()
    for result in (one.mean, one.sum, one.standard_error, one.report_counts, low, high):
        assert result.shape == (3, 3)
        np.testing.assert_array_equal(result, result.T)
    errors = np.array([e.mean - data.mean(axis=0) for e in estimates])[:, *np.triu_indices(3)]
    assert mean_is(errors, np.zeros(6)) > FALSE_ALARM
    claimed = np.mean([e.standard_error[np.triu_indices(3)] ** 2 for e in estimates], axis=0)
    ratio = (errors**2 / claimed).mean(axis=1)
    assert ratio.mean() < 1 or mean_is(ratio, 1.0) > FALSE_ALARM
    assert ratio.mean() > 0.5
    assert (errors**2).sum(axis=1).mean() < plan.expected_error.total


@pytest.mark.parametrize("reports", [1, 2, 3])
def test_arrays_in_a_span_come_back_whole_with_errors_through_the_linear_map(reports: int) -> None:
    """Bias and mean squared error against the claimed one, entry by entry; false alarm 1e-6."""
    rng = np.random.default_rng(3)
    basis = rng.normal(size=(3, 2, 4))
    spanning = np.concatenate([basis, [basis[0] + basis[1]]])  # one vector too many
    span = Span(spanning)
    assert span.dimension == 3
    plan = unprotected_plan(users=400, shape=span, reports=reports, levels=6, noise_probability=0.1, bounds=(-2, 2))
    coefficients = rng.uniform([-2, -1, 0.5], [2, 1, 1.0], (400, 3))
    data = np.tensordot(coefficients, span.vectors, axes=1)
    estimates = runs_of(plan, data, 500, seed=8)
    one = estimates[0]
    low, high = one.confidence_interval()
    for result in (one.mean, one.sum, one.standard_error, low, high):
        assert result.shape == (2, 4)
    assert one.report_counts.shape == (3,)
    # every estimate lies in the span itself
    flat = span.vectors.reshape(3, 8)
    projected = np.linalg.lstsq(flat.T, one.mean.reshape(8), rcond=None)[0] @ flat
    np.testing.assert_allclose(projected, one.mean.reshape(8), atol=1e-9)
    errors = np.array([(e.mean - data.mean(axis=0)).reshape(8) for e in estimates])
    independent = np.linalg.lstsq(flat.T, errors.T, rcond=None)[0].T
    assert mean_is(independent, np.zeros(3)) > FALSE_ALARM
    ratio = (errors**2 / np.mean([e.standard_error.reshape(8) ** 2 for e in estimates], axis=0)).mean(axis=1)
    assert ratio.mean() < 1 or mean_is(ratio, 1.0) > FALSE_ALARM
    assert ratio.mean() > 0.4
    covered = np.mean(
        [
            (ends[0] <= data.mean(axis=0)) & (data.mean(axis=0) <= ends[1])
            for ends in (e.confidence_interval(0.9) for e in estimates)
        ],
        axis=0,
    )
    assert (covered >= binom.ppf(FALSE_ALARM, 500, 0.9) / 500).all()


def test_identity_span_and_plain_vectors_agree_where_every_user_reports_all() -> None:
    cells = [(0, 1), (0, 4), (1, 2), (1, 3)]
    plain = unprotected_plan(users=2, shape=2, reports=2, levels=4, noise_probability=0.1)
    span = unprotected_plan(users=2, shape=Span(np.eye(2)), reports=2, levels=4, noise_probability=0.1)
    a, b = (Analyzer(plan).analyze(reports_for(plan, cells)) for plan in (plain, span))
    np.testing.assert_allclose(a.mean, b.mean)
    np.testing.assert_allclose(a.standard_error, b.standard_error)
    np.testing.assert_allclose(a.confidence_interval(), b.confidence_interval())


def test_population_errors_of_a_span_are_honest_with_one_report_and_refused_with_more() -> None:
    """Coefficients that rise and fall together: 95% intervals over 1,000 crowds, false alarm 1e-6."""
    span = Span([[1.0, 1.0], [0.0, 1.0]])
    plan = unprotected_plan(users=300, shape=span, levels=20, noise_probability=0.01)
    randomizer = Randomizer(plan, source=SeededSource(1))
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        crowd = np.repeat(rng.random((300, 1)), 2, axis=1) @ span.vectors
        low, high = Analyzer(plan).analyze(randomizer.randomize(crowd)).confidence_interval(target="population")
        covered += low[1] <= 1 <= high[1]
    assert covered >= binom.ppf(FALSE_ALARM, 1000, 0.95)
    several = unprotected_plan(users=300, shape=span, reports=2, levels=20)
    estimate = Analyzer(several).analyze(Randomizer(several).randomize(crowd))
    for ask in (estimate.standard_error_of, lambda target: estimate.confidence_interval(target=target)):
        with pytest.raises(ParameterError, match=r"target='population' is not possible for a Span.*reports=1"):
            ask("population")


def test_errors_of_a_span_hold_where_coefficients_rise_against_each_other() -> None:
    """Each user reports one of two coefficients that add up to 1: mean squared error as claimed, false alarm 1e-6."""
    span = Span([[1.0, 1.0], [0.0, 1.0]])
    plan = unprotected_plan(users=300, shape=span, levels=20, noise_probability=0.01)
    first = np.random.default_rng(0).random((300, 1))
    crowd = np.hstack([first, 1 - first]) @ span.vectors
    estimates = runs_of(plan, crowd, 1500, seed=9)
    squared = np.array([(e.mean[1] - 1.0) ** 2 for e in estimates])
    claimed = np.mean([e.standard_error[1] ** 2 for e in estimates])
    assert squared.mean() < claimed or mean_is(squared / claimed, 1.0) > FALSE_ALARM
    # what it would be if each coefficient's error were narrowed as for a plain vector
    assert mean_is(squared / claimed, 0.5) < FALSE_ALARM
