from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm
from tests.estimate.decoded import hashed_estimate
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM

from shufflesum.domains import OpenVocabulary
from shufflesum.domains.open_vocabulary import estimate as vocabulary
from shufflesum.domains.open_vocabulary.estimate import ResidualDistribution, VocabularyEstimate
from shufflesum.errors import DataError, ParameterError
from shufflesum.mechanisms import NoisySlots
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.protocol import Tally
from shufflesum.release import release
from shufflesum.testing import SeededSource

Floats = Any
KEY = bytes(range(16))


@dataclass(frozen=True)
class Crowd:
    """Users of a Zipf law over words, under real hash functions, and dummy reports uniform over all cells."""

    words: list[str]
    counts: Floats
    estimate: VocabularyEstimate


def crowd(seed: int, users: int, words: int, buckets: int, functions: int, noise: float) -> Crowd:
    """`noise` is that of a word's cells together."""
    rng = np.random.default_rng(seed)
    domain = OpenVocabulary(buckets, functions, rng.bytes(16))
    law = 1 / np.arange(1, words + 1)
    counts = rng.multinomial(users, law / law.sum())
    names = [f"word {i}" for i in range(words)]
    labels = domain.texts(names)
    held = np.repeat(np.arange(words), counts)
    function = rng.integers(0, functions, users)
    block = 1 << 17
    cells = np.empty(users, dtype=np.int64)
    for first in range(0, words, block):
        buckets_of = domain.bucket_table(labels[first : first + block])
        here = np.flatnonzero((held >= first) & (held < first + block))
        cells[here] = function[here] * buckets + buckets_of[held[here] - first, function[here]]
    table = np.bincount(cells, minlength=functions * buckets)
    table += np.bincount(rng.integers(0, table.size, rng.poisson(noise * buckets)), minlength=table.size)
    return Crowd(names, counts, hashed_estimate(domain, table.reshape(functions, buckets), users))


def test_a_light_word_is_what_its_cells_hold_beyond_an_even_share() -> None:
    domain = OpenVocabulary(5, 3, KEY)
    table = np.random.default_rng(1).integers(0, 1000, (3, 5))
    found = hashed_estimate(domain, table, 100).counts_of(["some", "words"])
    for label, count in zip((b"some", b"words"), found.counts, strict=True):
        cells = domain.bucket_table([label])[0]
        held = sum(table[function, bucket] for function, bucket in enumerate(cells))
        assert count == pytest.approx((held - table.sum() / 5) / (1 - 1 / 5))


def test_without_noise_a_heavy_word_is_subtracted_from_the_cells_of_others() -> None:
    domain = OpenVocabulary(50, 40, KEY)
    words = [f"w{i}" for i in range(30)]
    buckets = domain.bucket_table(domain.texts(words))
    table = np.zeros((40, 50), dtype=np.int64)
    counts = np.array([400_000, 20_000, 4_000, *[0] * 27])
    for word in range(3):
        table[np.arange(40), buckets[word]] += counts[word] // 40  # each function by as many users
    estimate = hashed_estimate(domain, table, int(counts.sum()))
    found = estimate.counts_of(words)
    np.testing.assert_allclose(found.counts, counts, atol=20)
    alone = estimate.counts_of(words[1:])  # the heavy one is not named, and disturbs the others
    assert np.abs(alone.counts - counts[1:]).max() > 1000
    assert alone.count_standard_error.min() > 1000


def test_words_are_told_in_their_order_and_twice_if_named_twice() -> None:
    made = crowd(1, 5000, 50, 100, 8, 10.0)
    found = made.estimate.counts_of(["word 3", "word 0", " word 3 ", "word 7"])
    assert found.labels == found.names == ("word 3", "word 0", "word 3", "word 7")
    assert found.counts[0] == found.counts[2]
    assert found.top(3).labels == ("word 0", "word 3", "word 7")  # each has one place
    with refusal("out-of-range", "k", error=ParameterError):
        found.top(4)
    once = made.estimate.counts_of(["word 3", "word 0", "word 7"])
    np.testing.assert_allclose(found.counts[[0, 1, 3]], once.counts)
    np.testing.assert_allclose(found.frequencies, found.counts / 5000)
    np.testing.assert_allclose(found.standard_error, found.count_standard_error / 5000)
    assert (found.consistent_counts >= 0).all()
    np.testing.assert_allclose(found.consistent_frequencies, found.consistent_counts / 5000)
    for frequency, count in zip(found.confidence_interval(0.9), found.count_interval(0.9), strict=True):
        np.testing.assert_allclose(frequency * 5000, count)


def test_the_most_frequent_among_a_list_are_found() -> None:
    made = crowd(2, 50_000, 2000, 2000, 32, 42.7)
    top = made.estimate.top(5, among=made.words[::-1])
    assert top.labels == tuple(made.words[:5])
    assert top.rows[0].rank_certain
    assert top.rows[0].lower <= made.counts[0] <= top.rows[0].upper
    assert "Rank" in top.statement


def test_users_of_no_listed_word_have_an_interval_whatever_words_errors_have_to_do_with_each_other() -> None:
    found = crowd(5, 100_000, 30, 256, 8, 100.0).estimate.counts_of(["word 1", "word 2", "word 3", "word 2"])
    left, low, high = found.not_listed(0.9)
    assert left == pytest.approx(100_000 - found.counts[:3].sum())
    assert high - low == pytest.approx(2 * norm.ppf(0.95) * found.count_standard_error[:3].sum())
    assert any("not on this list" in remark for remark in found.remarks())
    nobody = crowd(5, 1000, 1, 256, 8, 100.0).estimate.counts_of(["word 0"])
    assert nobody.not_listed()[1] == 0


def test_no_words_and_a_single_text_are_refused() -> None:
    estimate = hashed_estimate(OpenVocabulary(5, 3, KEY), np.ones((3, 5), dtype=np.int64), 10)
    np.testing.assert_array_equal(estimate.report_counts, np.ones((3, 5)))
    with refusal("wrong-type", "'word'", error=ParameterError):
        estimate.counts_of("word")
    with refusal("no-rows", error=DataError):
        estimate.counts_of([])


def test_long_lists_are_hashed_again_instead_of_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = crowd(3, 20_000, 1000, 500, 16, 20.0)
    expected = made.estimate.counts_of(made.words)
    monkeypatch.setattr("shufflesum.domains.open_vocabulary.estimate._BLOCK", 128)
    monkeypatch.setattr("shufflesum.domains.open_vocabulary.estimate._KEPT", 300 * 16 * 4)
    found = made.estimate.counts_of(made.words)
    np.testing.assert_allclose(found.counts, expected.counts)
    np.testing.assert_allclose(found.count_interval(), expected.count_interval())


def test_the_law_of_what_is_left_is_the_convolution_of_its_rows() -> None:
    """All sums of small tables, one by one."""
    residual = np.array([[0.0, 0.0, 1.0, 7.0], [0.0, 2.0, 2.0, 4.0], [1.0, 1.0, 1.0, 9.0]])
    centred = residual - residual.mean(axis=1, keepdims=True)
    sums = (centred[0][:, None, None] + centred[1][None, :, None] + centred[2][None, None, :]).reshape(-1)
    law = ResidualDistribution.of(residual, np.ones_like(residual, dtype=bool))
    for tail in (0.01, 0.1, 0.3):
        less, more = law.ends(tail)
        slack = 0.2  # grid points beside each value
        assert (sums < -less - slack).mean() <= tail < (sums <= -less + slack).mean() + 1e-9
        assert (sums > more + slack).mean() <= tail < (sums >= more - slack).mean() + 1e-9


def test_a_table_that_is_even_leaves_no_doubt() -> None:
    estimate = hashed_estimate(OpenVocabulary(5, 3, KEY), np.full((3, 5), 4), 60)
    found = estimate.counts_of(["some", "words"])
    np.testing.assert_allclose(found.counts, 0)
    low, high = found.count_interval(0.99)
    assert (low <= 0).all()
    assert (high >= 0).all()


LEVELS = (0.8, 0.95, 0.999)


@pytest.mark.long
def test_intervals_of_words_hold_with_all_words_named_and_with_the_heaviest_left_out() -> None:
    """60 keys: the mean part of words held falls short once in 10^6; with the noise alone it falls far short."""
    held: dict[tuple[float, str], list[float]] = {}
    for seed in range(60):
        made = crowd(100 + seed, 20_000, 2000, 1000, 16, 42.7)
        for name, first in (("all", 0), ("but the heaviest", 5)):
            found = made.estimate.counts_of(made.words[first:])
            truth = made.counts[first:]
            assert found.count_standard_error.min() >= np.sqrt(42.7) * 0.9
            for level in LEVELS:
                low, high = found.count_interval(level)
                held.setdefault((level, name), []).append(float(((low <= truth) & (truth <= high)).mean()))
            reach = norm.isf(0.025) * np.sqrt(42.7)
            held.setdefault((0.95, f"noise alone, {name}"), []).append(
                float((np.abs(found.counts - truth) <= reach).mean())
            )
    for (level, name), parts in held.items():
        error = np.std(parts, ddof=1) / np.sqrt(len(parts))
        score = (np.mean(parts) - level) / max(error, 1e-12)
        if "noise" in name:
            assert norm.cdf(score) < FALSE_ALARM, name
        else:
            assert norm.cdf(score) > FALSE_ALARM, (name, level, np.mean(parts))


@pytest.mark.parametrize(
    ("buckets", "functions", "noise", "unnamed"),
    [(2, 8, 500.0, 0), (50, 4, 200.0, 1), (500, 1, 42.7, 3), (100, 16, 50.0, 0), (20, 8, 200.0, 1)],
)
def test_intervals_hold_with_few_functions_or_buckets(buckets: int, functions: int, noise: float, unnamed: int) -> None:
    """The mean part of words held falls short once in 10^6; narrower intervals, by a third, fall far short."""
    parts, narrower, together, certain = [], [], 0, 0
    for seed in range(40):
        made = crowd(300 + seed, 20_000, 300, buckets, functions, noise)
        found, truth = made.estimate.counts_of(made.words[unnamed:]), made.counts[unnamed:]
        low, high = found.count_interval(0.9)
        parts.append(float(((low <= truth) & (truth <= high)).mean()))
        cut = (high - low) / 6
        narrower.append(float(((low + cut <= truth) & (truth <= high - cut)).mean()))
        low, high = found.count_interval(0.9, simultaneous=True)
        together += bool(((low <= truth) & (truth <= high)).all())
        truth_of = dict(zip(found.labels, truth, strict=True))
        rows = found.top(5, 0.9).rows
        certain += any(row.certain and (truth > truth_of[str(row.label)]).sum() >= 5 for row in rows)

    def score(held: list[float]) -> float:
        return float((np.mean(held) - 0.9) / max(np.std(held, ddof=1) / np.sqrt(len(held)), 1e-12))

    assert norm.cdf(score(parts)) > FALSE_ALARM, np.mean(parts)
    if functions > 1:  # a single bucket says little, and its intervals are wide
        assert norm.cdf(score(narrower)) < FALSE_ALARM, np.mean(narrower)
    assert binom.cdf(together, 40, 0.9) > FALSE_ALARM, together
    assert binom.sf(certain - 1, 40, 0.1) > FALSE_ALARM, certain


def test_an_interval_holds_over_the_rounds_of_one_plan_and_would_not_under_one_set_of_functions() -> None:
    """A word that shares buckets with an unnamed heavy one in round 1: 200 rounds, with and without new functions.

    If the interval holds in each round with probability 90 %, it falls so far short once in 10^6.
    """
    domain, rounds, users = OpenVocabulary(20, 8, KEY), 200, 1000
    plan = Plan(domain, NoisySlots(1, 0.25), Guarantee(float("inf"), 1.0, users, rounds=rounds, accountant="none"))
    names = [f"word {i}" for i in range(500)]
    shared = domain.bucket_table(domain.texts(names)) == domain.bucket_table([b"heavy"])
    unlucky = names[int(shared.sum(axis=1).argmax())]
    rows = ["heavy"] * 401 + [unlucky] * 99 + names

    def held(round_number: int, seed: int) -> bool:
        tally = Tally(plan, source=SeededSource(seed), round_number=round_number)
        tally.add(rows)
        estimate = release(tally.counts())
        assert isinstance(estimate, VocabularyEstimate)
        low, high = estimate.counts_of([unlucky]).count_interval(0.9)
        return bool(low[0] <= 100 <= high[0])

    assert binom.cdf(sum(held(number, number) for number in range(1, rounds + 1)), rounds, 0.9) > FALSE_ALARM
    assert binom.cdf(sum(held(1, number) for number in range(1, rounds + 1)), rounds, 0.9) < FALSE_ALARM


@pytest.mark.long
@pytest.mark.slow
def test_intervals_of_heavy_words_hold() -> None:
    """The 20 heaviest words under 60 keys: the mean part held falls short once in 10^6."""
    parts = []
    for seed in range(60):
        made = crowd(200 + seed, 20_000, 2000, 1000, 16, 42.7)
        low, high = made.estimate.counts_of(made.words).count_interval(0.9)
        parts.append(float(((low <= made.counts) & (made.counts <= high))[:20].mean()))
    score = (np.mean(parts) - 0.9) / (np.std(parts, ddof=1) / np.sqrt(len(parts)))
    assert norm.cdf(score) > FALSE_ALARM, np.mean(parts)


@pytest.mark.slow
def test_a_million_words_of_a_million_users_within_ten_counts() -> None:
    """All of it costs little more than hashing the words, which nobody can spare: some ten seconds."""
    made = crowd(1, 1_000_000, 1_000_000, 50_000, 64, 42.7)
    made.estimate.counts_of(made.words[:100])  # compiled
    domain = made.estimate.plan.domain
    assert isinstance(domain, OpenVocabulary)
    start = time.process_time()
    for first in range(0, len(made.words), 1 << 16):
        domain.bucket_table(domain.texts(made.words[first : first + (1 << 16)]))
    hashed = time.process_time()
    found = made.estimate.counts_of(made.words)
    assert time.process_time() - hashed < 3 * (hashed - start)
    errors = found.counts - made.counts
    assert np.sqrt(np.mean(errors**2)) < 10
    assert np.sqrt(np.mean(errors[:100] ** 2)) < 20
    low, high = found.count_interval(0.95)
    assert ((low <= made.counts) & (made.counts <= high)).mean() > 0.95
    low, high = found.count_interval(0.95, simultaneous=True)
    assert ((low <= made.counts) & (made.counts <= high)).all()


def test_no_more_words_are_subtracted_than_cells_can_tell_apart() -> None:
    """Five words, alone in their cells, and two that may be fitted: the first two."""
    table = np.zeros((8, 10))
    buckets = np.tile(np.arange(5, dtype=np.uint32)[:, None], (1, 8))
    table[:, :5] = 100.0
    residual, own = table.copy(), np.zeros(5)
    vocabulary._subtract(residual, table, buckets, own, float(table.sum()), 1.0, 3.0, 2, 1.0)
    assert (own > 0).tolist() == [True, True, False, False, False]


def test_what_fitted_words_took_in_of_all_else_is_undone() -> None:
    """1/(1 - 2/9) for two words of a table of three functions and four buckets; the noise is the least it can be."""
    residual = np.array([[4.0, 0.0, 2.0, 2.0], [1.0, 5.0, 1.0, 1.0], [0.0, 3.0, 3.0, 2.0]])
    spread = float(residual.var(axis=1).sum()) - 8 / 4
    for noise in (0.0, 100.0):
        state = vocabulary._Subtraction(residual, residual, noise, None, np.array([5.0, 0.0, 3.0]))  # type: ignore[arg-type]
        fitted = 9 / 7
        assert state._rest == pytest.approx((4 / 3) ** 2 * fitted * max(fitted * spread, noise))


@pytest.mark.parametrize("own", [5.0, 31.0, 60.0])
def test_a_count_is_what_was_subtracted_and_all_that_is_left_of_it(own: float) -> None:
    """Of a word that 47 users hold, in cells that are even but for it, however much was subtracted before."""
    hashes, wide, functions = OpenVocabulary(40, 6, bytes(16)), 40, 6
    candidates = vocabulary._Candidates(hashes, [b"owl"])
    ((block, buckets),) = candidates.blocks()
    cells = np.arange(functions), buckets[0]
    table = np.full((functions, wide), 9.0)
    table[cells] += 47.0 / functions
    residual = table.copy()
    residual[cells] -= own / functions
    state = vocabulary._Subtraction(table, residual, 1.0, candidates, np.array([own]))
    assert state._score(block, buckets)[0] == pytest.approx([47.0])


def test_what_may_miss_at_both_ends_together_is_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = crowd(1, 500, 9, 20, 8, 30.0).estimate.counts_of(["word 3"]), list[float]()

    def noted(usual: Callable[[ResidualDistribution, float], Any]) -> Callable[[ResidualDistribution, float], Any]:
        def ask(law: ResidualDistribution, tail: float) -> Any:
            asked.append(tail)
            return usual(law, tail)

        return ask

    monkeypatch.setattr(ResidualDistribution, "ends", noted(ResidualDistribution.ends))
    monkeypatch.setattr(ResidualDistribution, "filled", noted(ResidualDistribution.filled))
    found.count_interval(0.9)
    assert sum(asked) == pytest.approx(0.05)


def test_the_noise_of_a_words_cells_is_that_of_all_functions() -> None:
    estimate = hashed_estimate(OpenVocabulary(5, 3, KEY), np.arange(15).reshape(3, 5), 20)
    assert estimate._noise == pytest.approx(3 * 85 * (1 / 15) * (14 / 15))  # 85 dummy reports over 15 cells


def test_a_table_of_buckets_tells_the_users_of_each() -> None:
    estimate = hashed_estimate(OpenVocabulary(5, 3, KEY), np.arange(15).reshape(3, 5), 20)
    rows = estimate.to_table()
    np.testing.assert_allclose(rows.value, np.arange(15) - 85 / 15)
    np.testing.assert_allclose(rows.further["share"], rows.value / 20)
    np.testing.assert_allclose(rows.std_error, np.sqrt(85 * (1 / 15) * (14 / 15)))


def test_a_value_between_grid_points_is_divided_so_that_the_mean_stays() -> None:
    residual = np.array([[0.0, 0.3, 1.0, 7.1], [0.0, 2.0, 2.2, 4.9], [1.0, 1.0, 1.7, 9.0]])
    law = ResidualDistribution.of(residual, np.ones_like(residual, dtype=bool))
    chances = np.diff(law.below, prepend=0.0)
    assert chances @ law.values == pytest.approx(0.0, abs=1e-9)
    variance = float(residual.var(axis=1).sum())
    assert variance <= chances @ law.values**2 <= variance * (1 + 3 * 0.01**2)


def test_the_upper_end_of_a_count_grows_by_what_its_own_reports_may_fill() -> None:
    """8 functions and 100 buckets: its own cells are met once at most, but for less than a tenth of the tail."""
    found = crowd(1, 500, 9, 100, 8, 30.0).estimate.counts_of(["word 3"])
    even = ResidualDistribution(
        np.array([-10.0, 0.0, 10.0]), np.array([0.01, 0.99, 1.0]), np.array([1.0, 0.99, 0.01]), 8, 100, 5.0, 1.1
    )
    assert binom.sf(1, 8, 0.01) < 0.1 * 0.05 < binom.sf(0, 8, 0.01)
    none = np.zeros(1)
    low, high = replace(found, others=even, counts=none + 40, subtracted=none, heavier=none).count_interval(0.9)
    np.testing.assert_allclose(low, (40 - 10) / 1.1)
    np.testing.assert_allclose(high, (40 + 10) / (1.1 * (1 - 1 / 8)))


def test_what_was_subtracted_for_a_word_itself_disturbs_it_not() -> None:
    """Ten users, alone in their cells and subtracted before: three times the root of the rest is enough again."""
    table = np.zeros((8, 10))
    table[:, 0] = 10 / 8
    buckets, own, residual = np.zeros((1, 8), dtype=np.uint32), np.array([10.0]), np.zeros((8, 10))
    vocabulary._subtract(residual, table, buckets, own, float(table.sum()), 1.0, 3.0, 2, 1.0)
    assert own == pytest.approx([10.0])
