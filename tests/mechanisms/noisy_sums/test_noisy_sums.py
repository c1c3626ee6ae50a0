"""Noisy sums in one process: exact sums, the noise that is certified, errors as predicted, and what is refused."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.oracles import noisy_sums as oracle
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM, chi_square

import shufflesum as ss
from shufflesum.encodings import Residues, Values
from shufflesum.mechanisms import NoisySums, mechanism_from_json, mechanism_to_json
from shufflesum.mechanisms.noisy_sums import mechanism as noisy_sums
from shufflesum.privacy import Guarantee, NoiseDistribution
from shufflesum.privacy.engine.gaussian import gaussian_noise
from shufflesum.protocol import Randomizer, Tally
from shufflesum.testing import SeededSource

TARGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
ONE = NoisySums("curator", 1 << 10, 1 << 7, (NoiseDistribution(1.0, 8.0, 124),), 1)


def planned(users: int, size: int, **choices: Any) -> ss.Plan:
    return ss.plan(users=users, shape=size, noise_by="curator", **{**TARGET, **choices})


def bare_sums(mechanism: NoisySums, encoding: Residues, values: Any) -> Any:
    """The table without its noise."""
    table = np.zeros(encoding.dimension, dtype=np.int64)
    mechanism.tally(encoding, SeededSource(1)).add(Values(values, 0, encoding.scale), table)
    return table


# ---- sums


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("users", "size"), [(1, 1), (1000, 1), (777, 3), (50, 100), (5, 1000)])
def test_every_value_counts_as_its_nearest_level_and_sums_are_exact(users: int, size: int, dtype: Any) -> None:
    domain = ss.Arrays(size, (-3.0, 5.0))
    values = np.random.default_rng(users + size).uniform(-3, 5, (users, size)).astype(dtype)
    (encoding,) = (one for one in domain.encodings() if isinstance(one, Residues))
    mechanism = dataclasses.replace(ONE, levels=1 << 32, step=1 << 29)
    found = bare_sums(mechanism, encoding, values)
    exact = [[round((Fraction(float(x)) + 3) / 8 * 2**32) for x in row] for row in values]
    assert found.tolist() == [sum(column) for column in zip(*exact, strict=True)]


def test_no_user_counts_for_more_than_the_bounds_allow() -> None:
    domain = ss.Arrays(4, (0.0, 0.1))
    (encoding,) = (one for one in domain.encodings() if isinstance(one, Residues))
    ends = np.array([[0.0, 0.1, 0.1, 0.05]])
    for dtype in (np.float32, np.float64):  # 0.1 in single precision is above 0.1
        assert bare_sums(ONE, encoding, ends.astype(dtype)).tolist() == [0, 1024, 1024, 512]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.01, 1.01])
@pytest.mark.parametrize(("users", "size"), [(300, 2), (40, 100)])
def test_a_value_out_of_bounds_is_refused_wherever_it_stands(users: int, size: int, wrong: float) -> None:
    plan = planned(10_000, size)
    for row, column in ((0, 0), (users - 1, size - 1), (users // 2, 1)):
        values = np.full((users, size), 0.5)
        values[row, column] = wrong
        with refusal("missing-value" if math.isnan(wrong) else "out-of-bounds"):
            Tally(plan).add(values)


def test_pieces_of_tallies_add_up_and_noise_comes_once() -> None:
    plan = planned(3000, 5)
    values = np.random.default_rng(2).random((3000, 5))
    whole = Tally(plan, source=SeededSource(3))
    whole.add(values)
    first, second = (Tally(plan, source=SeededSource(3)) for _ in range(2))
    first.add(values[:1000])
    second.add(values[1000:])
    first.merge(second)
    assert (first.counts().table == whole.counts().table).all()


# ---- noise


def draws_of(mechanism: NoisySums, count: int, seed: int) -> Any:
    return mechanism.draw(Residues(count, scale=ss.Arrays(count)), SeededSource(seed))


def p_value(found: Any, law: oracle.Law) -> float:
    """Of the counts of all outcomes, rare ones together; 0 for what the law makes impossible."""
    chances = np.zeros(max(int(found.max()), *law) + 1)
    chances[list(law)] = [float(chance) for chance in law.values()]
    counts = np.bincount(found, minlength=len(chances))
    if counts[chances == 0].any():
        return 0.0
    rare = chances * len(found) < 10
    pooled = [np.append(each[~rare], each[rare].sum()) for each in (counts, chances)]
    kept = pooled[1] * len(found) >= 5
    return chi_square(pooled[0][kept], pooled[1][kept] / pooled[1][kept].sum())


SMALL = NoisySums("curator", 8, 4, (NoiseDistribution(1.5, 1.7, 5),), 1)
PAIR = NoisySums("curator", 1, 1, (NoiseDistribution(2.0, 4.0, 9), NoiseDistribution(2.0, 2.0, 5)), 3)


@pytest.mark.parametrize("mechanism", [SMALL, PAIR], ids=["step", "stride"])
def test_noise_is_drawn_as_certified_and_any_other_is_noticed(mechanism: NoisySums) -> None:
    law = oracle.noise([table.weights for table in mechanism.noise], step=mechanism.step, stride=mechanism.stride)
    found = draws_of(mechanism, 200_000, 4)
    assert p_value(found, law) > FALSE_ALARM
    first, *rest = mechanism.noise
    others = [
        dataclasses.replace(mechanism, noise=(dataclasses.replace(first, scale=first.scale * 0.9), *rest)),
        dataclasses.replace(mechanism, noise=(dataclasses.replace(first, half_length=first.half_length - 1), *rest)),
        dataclasses.replace(mechanism, step=mechanism.step // 2) if mechanism.step > 1 else None,
        dataclasses.replace(mechanism, stride=2) if rest else None,
    ]
    assert all(p_value(draws_of(other, 200_000, 4), law) < FALSE_ALARM for other in others if other is not None)
    assert mechanism.noise_mean == float(sum(place * chance for place, chance in law.items()))
    exact = sum((place - Fraction(mechanism.noise_mean)) ** 2 * chance for place, chance in law.items())
    assert mechanism.noise_variance == pytest.approx(float(exact), rel=1e-12)
    assert found.max() <= mechanism.most_drawn(Residues(1, scale=ss.Arrays(1)))[0] == max(law)


@pytest.mark.parametrize("size", [1, 2])
def test_the_plans_accountant_covers_every_change_of_one_user(size: int) -> None:
    """All neighbours of the whole mechanism, uniform numbers and all: any integers up to the levels, up or down."""
    mechanism = NoisySums("curator", 4, 2, (NoiseDistribution(1.0, 1.5, 3),), 1)
    encoding = Residues(size, scale=ss.Arrays(size))
    accountant = mechanism.accountant(encoding, Guarantee(1.0, 1e-6, 10))
    law = oracle.noise([mechanism.noise[0].weights], step=2)
    moves = [move for move in np.ndindex(*(9,) * size) if any(change != 4 for change in move)]
    for epsilon in (0.2, 1.0):
        weight = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**49))
        upper = Fraction(accountant.delta_upper(epsilon))
        shown = [oracle.delta(law, [change - 4 for change in move], weight) for move in moves]
        assert accountant.delta_lower(epsilon) <= float(max(shown)) * (1 + 1e-9)
        assert max(shown) <= upper
        # integers of more levels than the plan says are not covered
        assert oracle.delta(law, [5] * size, weight) > upper


# ---- errors


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
def test_one_number_costs_no_more_than_laplace_noise(epsilon: float) -> None:
    plan = planned(10_000, 1, epsilon=epsilon)
    assert plan.expected_error.total <= 1.001 * 2 / epsilon**2 / 10_000**2
    assert planned(10_000_000, 1, epsilon=epsilon, delta=1e-9).expected_error.total <= 1.03 * 2 / epsilon**2 / 1e14


def test_ten_numbers_cost_less_than_laplace_or_gaussian_noise() -> None:
    assert planned(10_000, 10).times_curator <= 0.92


@pytest.mark.parametrize(("size", "rounds"), [(100, 1), (1000, 1), (100, 30), (10_000, 100)])
def test_many_numbers_cost_as_much_as_the_analytic_gaussian(size: int, rounds: int) -> None:
    assert planned(100_000, size, rounds=rounds).times_curator <= 1.001


@pytest.mark.filterwarnings("ignore::shufflesum.cautions.UninformativePlanWarning")
@pytest.mark.parametrize(("users", "size"), [(6_000, 8_192), (50_000, 100)])
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 8.0])
@pytest.mark.parametrize("rounds", [1, 30, 100])
def test_vectors_cost_as_much_as_the_analytic_gaussian(users: int, size: int, epsilon: float, rounds: int) -> None:
    plan = ss.plan(
        users=users, domain=ss.L2Ball(size, 2.0), epsilon=epsilon, delta=1e-6, rounds=rounds, noise_by="curator"
    )
    gaussian = size * (4.0 * gaussian_noise(epsilon, 1e-6) / users) ** 2 * rounds
    assert plan.expected_error.total <= 1.02 * gaussian
    assert isinstance(plan.mechanism, NoisySums)
    assert plan.privacy.delta_lower(epsilon) >= 0.95e-6  # neighbours at both ends of an axis: nothing is given away


def several(plan: ss.Plan, values: Any, seed: int) -> Any:
    """Means of many coordinates under the mechanism of a plan for fewer: as many estimates of one."""
    encoding = Residues(values.shape[1], scale=ss.Arrays(values.shape[1]))
    mechanism = plan.mechanism
    assert isinstance(mechanism, NoisySums)
    tally = mechanism.tally(encoding, SeededSource(seed))
    table = np.zeros(encoding.dimension, dtype=np.int64)
    tally.add(Values(values, 0, encoding.scale), table)
    return mechanism.decode(encoding, table + tally.noise(len(values)), len(values))


@pytest.mark.parametrize(("size", "epsilon"), [(1, 1.0), (1, 8.0), (20, 1.0), (500, 1.0)])
def test_squared_errors_are_as_predicted(size: int, epsilon: float) -> None:
    """5.5 standard errors of a mean square, whose kurtosis is below 10: less than 1e-6."""
    plan, count = planned(2000, size, epsilon=epsilon), 20_000
    values = np.random.default_rng(1).random((50, count))
    found = several(plan, values, 2)
    errors = found.mean - values.mean(axis=0)
    predicted = plan.mechanism.expected_error(Residues(1, scale=ss.Arrays(1)), 50).total
    assert found.variance("users")[0] == pytest.approx(predicted)
    off = 5.5 * math.sqrt(10 / count)
    assert abs(float(np.mean(errors**2)) / predicted - 1) < off
    assert abs(float(np.mean(errors))) < 5 * math.sqrt(predicted / count)
    assert off < 1 / 0.8 - 1  # with a fifth less noise it would fail


@pytest.mark.parametrize("size", [1, 7, 500])
@pytest.mark.parametrize("users", [1, 2, 5, 20, 100])
def test_intervals_hold_the_truth_as_often_as_they_say(size: int, users: int) -> None:
    plan, count = planned(10_000, size), 20_000
    values = np.random.default_rng(3).random((users, count))
    found, truth = several(plan, values, 4), values.mean(axis=0)
    for level in (0.5, 0.9, 0.99):
        low, high = found.interval((1 - level) / 2, "users")
        held = float(np.mean((low <= truth) & (truth <= high)))
        off = 5 * math.sqrt(level * (1 - level) / count)
        assert level - off < held < level + off + 0.02
        half = (high - low) / 4
        assert np.mean(np.abs(found.mean - truth) <= half) < level - off  # intervals of half the length do not


def test_intervals_of_a_population_hold_its_mean() -> None:
    plan, count, users = planned(10_000, 4, epsilon=4.0), 4000, 200
    for mean in (0.5, 0.2, 0.02):
        values = (np.random.default_rng(5).random((users, count)) < mean).astype(np.float64)
        found = several(plan, values, 6)
        low, high = found.interval(0.05, "population")
        held = float(np.mean((low <= mean) & (mean <= high)))
        assert (
            0.9 - 5 * math.sqrt(0.09 / count) < held < (0.97 if mean > 0.1 else 1.0)
        )  # the worst variance within reach
        assert np.all(found.variance("population") >= found.variance("users"))


def test_sums_of_entries_have_errors_of_their_own() -> None:
    plan, weights = planned(100, 6), np.array([1.0, -2.0, 0.5, 0.0, 3.0, 1.0])
    values = np.random.default_rng(3).random((100, 6))
    held, squares, truth = 0, [], float(values.mean(axis=0) @ weights)
    for seed in range(300):
        found = several(plan, values, seed).combine(weights, 0.05, "users")
        held += found.lower <= truth <= found.upper
        squares.append((found.value - truth) ** 2 / found.variance)
    assert held > 300 * 0.9 - 5 * math.sqrt(300 * 0.09)
    assert abs(np.mean(squares) - 1) < 5.5 * math.sqrt(4 / 300)


# ---- vectors of a bounded norm


def ball_of(size: int, levels: int) -> tuple[NoisySums, Residues]:
    return NoisySums("curator", levels, 1, (NoiseDistribution(2.0, 40.0, 300),), 1), Residues(size, clipping_norm=1.0)


@pytest.mark.parametrize("kind", ["axis", "even", "random"])
def test_vectors_are_rounded_without_bias_and_never_longer_than_certified(kind: str) -> None:
    mechanism, encoding = ball_of(16, 8)
    row = {"axis": np.eye(16)[3], "even": np.full(16, 0.25), "random": np.random.default_rng(1).normal(size=16)}[kind]
    row = row / np.linalg.norm(row) * (1 - 1e-9)
    most, largest, total, runs = mechanism.squared_norm(encoding), mechanism.largest(encoding), np.zeros(16), 3000
    for seed in range(runs):
        table = np.zeros(16, dtype=np.int64)
        mechanism.tally(encoding, SeededSource(seed)).add(Values(row[None], 0), table)
        vector = table - largest
        assert int(vector @ vector) <= most
        total += vector
    assert np.abs(total / runs - 8 * row).max() < 5.5 * 0.5 / math.sqrt(runs)


def test_a_vector_that_rounds_to_a_longer_one_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noisy_sums, "_STANDARD", -1.0)  # so that most are too long
    mechanism, encoding = ball_of(64, 16)
    values = np.full((500, 64), 0.8 / 8)
    most = mechanism.squared_norm(encoding)
    assert most < 16**2
    for seed in range(20):
        table = np.zeros(64, dtype=np.int64)
        mechanism.tally(encoding, SeededSource(seed)).add(Values(values[:1], 0), table)
        vector = table - mechanism.largest(encoding)
        assert int(vector @ vector) <= most
    table = np.zeros(64, dtype=np.int64)
    mechanism.tally(encoding, SeededSource(1)).add(Values(values, 0), table)
    assert abs((table / 500 - mechanism.largest(encoding)).mean() / 16 - 0.1) < 0.01  # everybody counts once


@pytest.mark.parametrize("wrong", [3.0, math.nan, math.inf, 1e300])
def test_what_is_far_too_long_is_refused_wherever_it_comes_from(wrong: float) -> None:
    mechanism, encoding = ball_of(4, 64)
    with refusal("out-of-bounds"):
        mechanism.tally(encoding, SeededSource(1)).add(
            Values(np.array([[0.1, 0.0, 0.0, 0.0], [wrong, 0.0, 0.0, 0.0]]), 0), np.zeros(4, dtype=np.int64)
        )


def test_the_plan_of_vectors_covers_the_norm_that_is_enforced() -> None:
    plan = ss.plan(users=1000, domain=ss.L2Ball(50, 3.0), **TARGET, noise_by="curator")
    mechanism = plan.mechanism
    assert isinstance(mechanism, NoisySums)
    accountant: Any = plan.privacy
    assert accountant.squared_shift == 4 * mechanism.squared_norm(plan.encoding)
    assert accountant.noise == mechanism.noise
    longer = dataclasses.replace(accountant, squared_shift=round(1.05 * accountant.squared_shift))
    assert longer.delta_upper(1.0) > 1e-6


def test_means_of_vectors_are_as_far_off_as_predicted() -> None:
    plan = ss.plan(users=300, domain=ss.L2Ball(64, 2.0), **TARGET, noise_by="curator")
    values = np.random.default_rng(1).normal(size=(300, 64))
    values *= 2 * (1 - 1e-9) / np.linalg.norm(values, axis=1, keepdims=True)
    truth, squares, held, within = values.mean(axis=0), [], 0, 0
    for seed in range(60):
        estimate: Any = ss.aggregate(values, plan=plan, source=SeededSource(seed))
        error = estimate.mean - truth
        squares.append(float(error @ error))
        low, high = estimate.confidence_interval(0.9)
        held += int(np.count_nonzero((low <= truth) & (truth <= high)))
        within += np.linalg.norm(error) <= estimate.error_norm(0.95)
    assert abs(np.mean(squares) / plan.expected_error.total - 1) < 5.5 * math.sqrt(2.2 / (60 * 64))
    assert held > 60 * 64 * (0.9 - 5 * math.sqrt(0.09 / (60 * 64)))
    assert within >= 50


# ---- plans


def test_it_is_what_one_process_takes_for_arrays_and_vectors() -> None:
    values = np.random.default_rng(1).random((100, 3))
    assert isinstance(ss.aggregate(values, **TARGET).plan.mechanism, NoisySums)
    assert isinstance(ss.aggregate(values[:, 0], **TARGET).plan.mechanism, NoisySums)
    moments = ss.moments(values, **TARGET)
    assert isinstance(moments.plan.mechanism, NoisySums)
    ball: Any = ss.aggregate(values, domain=ss.L2Ball(3, 2.0), **TARGET)
    assert isinstance(ball.plan.mechanism, NoisySums)


def test_nothing_can_be_sent_under_it() -> None:
    for choices in ({}, {"noise_by": "users"}, {"noise_by": "servers"}):
        with refusal(("impossible-combination", "conflicting-arguments"), "noisy-sums", "noise_by"):
            ss.plan(users=100, shape=2, mechanism="noisy-sums", **TARGET, **choices)  # type: ignore[arg-type]
    plan = planned(100, 2)
    with refusal("one-process-only"):
        Randomizer(plan)
    with refusal("one-process-only"):
        ss.Analyzer(plan)


def test_plans_come_back_from_files_as_they_were() -> None:
    for plan in (planned(100, 2), ss.plan(users=100, domain=ss.L2Ball(5, 1.0), **TARGET, noise_by="curator")):
        assert ss.Plan.from_json(plan.to_json()) == plan
        assert plan.mechanism == mechanism_from_json(mechanism_to_json(plan.mechanism))


def test_a_plan_that_claims_more_than_its_noise_gives_is_refused() -> None:
    plan = planned(100, 1)
    mechanism = plan.mechanism
    assert isinstance(mechanism, NoisySums)
    (noise,) = mechanism.noise
    for wrong in (
        dataclasses.replace(mechanism, noise=(dataclasses.replace(noise, scale=noise.scale * 0.98),)),
        dataclasses.replace(mechanism, noise=(dataclasses.replace(noise, half_length=noise.half_length - 3),)),
        dataclasses.replace(mechanism, step=mechanism.step // 2),  # a shift that is twice as large
    ):
        with refusal("claim-not-confirmed"):
            Tally(ss.Plan(plan.domain, wrong, plan.guarantee))


def test_one_row_moves_a_mean_by_no_more_than_its_bounds() -> None:
    assert planned(1000, 3, bounds=(-1.0, 4.0)).max_shift(10) == pytest.approx(0.05)
    plan = ss.plan(users=1000, domain=ss.L2Ball(3, 2.0), **TARGET, noise_by="curator")
    assert plan.max_shift(10) == pytest.approx(0.04, rel=0.01)


def test_more_users_than_sums_have_room_for_are_refused() -> None:
    mechanism, encoding = dataclasses.replace(ONE, levels=1 << 32, step=1 << 29), Residues(2, scale=ss.Arrays(2))
    most = mechanism.max_users(encoding)
    assert most * mechanism.levels + int(mechanism.most_drawn(encoding)[0]) < 1 << 63
    tally = mechanism.tally(encoding, SeededSource(1))
    tally.noise(most)
    with refusal("too-many-reports"):
        tally.noise(most + 1)
    assert planned(10**9, 1, delta=1e-10).mechanism.max_users(encoding) >= 10**9  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"noise_by": "users"}, "unknown-choice"),
        ({"levels": 0}, "out-of-range"),
        ({"levels": 1 << 33}, "out-of-range"),
        ({"step": 3}, "out-of-range"),
        ({"step": 1 << 11}, "out-of-range"),
        ({"levels": 1000}, "out-of-range"),
        ({"noise": ()}, "wrong-type"),
        ({"stride": 2}, "conflicting-arguments"),
    ],
    ids=str,
)
def test_impossible_parameters_are_refused(wrong: dict[str, Any], problem: str) -> None:
    with refusal(problem):
        dataclasses.replace(ONE, **wrong)


def test_noise_that_proves_nothing_is_refused() -> None:
    numbers, vectors = Residues(2, scale=ss.Arrays(2)), Residues(2, clipping_norm=1.0)
    short = dataclasses.replace(ONE, noise=(NoiseDistribution(1.0, 2.0, 7),))
    two = dataclasses.replace(ONE, noise=(ONE.noise[0], ONE.noise[0]), stride=3)
    for mechanism, encoding in ((short, numbers), (two, numbers), (ONE, vectors)):
        with refusal("out-of-range"):
            mechanism.check(encoding)


def test_a_span_has_errors_for_these_users_only() -> None:
    values = np.random.default_rng(1).random((200, 3))
    values[:, 2] = 0.0
    estimate: Any = ss.aggregate(values, shape=ss.Span(np.eye(3)[:2]), bounds=(-2.0, 2.0), **TARGET)
    assert isinstance(estimate.plan.mechanism, NoisySums)
    assert (estimate.coefficients.standard_error > 0).all()
    with refusal("impossible-combination"):
        estimate.standard_error_of("population")
