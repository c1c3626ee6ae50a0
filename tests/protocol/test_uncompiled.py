"""One row without a compiler: from the same random words kernels draw the same reports, compiled or not."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.mechanisms.cases import CASES
from tests.refusals import refusal

from shufflesum import Analyzer, Randomizer, Reports, shuffle
from shufflesum import _compiled as compiling
from shufflesum.cells import BLANK
from shufflesum.domains import Arrays, Categories, Domain, GroupBy, L2Ball, MultiChoice, OpenVocabulary
from shufflesum.errors import DataError, MissingExtraError
from shufflesum.mechanisms import NoisyCounts, NoisySlots, OneBit, RandomizedResponse
from shufflesum.mechanisms.mechanism import Mechanism
from shufflesum.mechanisms.noisy_counts.randomize import _add_noise
from shufflesum.plans import Plan
from shufflesum.randomness import bounded, successes
from shufflesum.testing import SeededSource, no_guarantee

USERS = 8
RNG = np.random.default_rng(7)
WORDS = RNG.choice(["here", "there", "anywhere"], USERS).tolist()
ODD = Arrays(70, (np.linspace(-1.0, 0.0, 70), np.linspace(0.1, 1e6, 70)))
ODD_ROWS = RNG.uniform(ODD.lower, ODD.lower + ODD.width, (USERS, 70))
ADD = NoisyCounts(4, (40, 20, 10, 5), (1 / 16, 0.125 + 2.0**-53, 0.5, 2.0**-53), 1500)
UPDATES = RNG.normal(size=(USERS, 1000))

MORE: dict[str, tuple[Mechanism, Domain, Any]] = {
    "randomized response, all coordinates": (RandomizedResponse(70, 3, 0.1875 + 2.0**-53), ODD, ODD_ROWS),
    "randomized response, some coordinates": (RandomizedResponse(9, 999, 0.5), ODD, ODD_ROWS),
    "randomized response, a subset": (RandomizedResponse(9, 2, 2.0**-30, "uniform"), ODD, ODD_ROWS),
    "randomized response, noise alone": (RandomizedResponse(70, 32, 1.0), ODD, ODD_ROWS.astype(np.float32)),
    "noisy-counts": (ADD, ODD, ODD_ROWS),
    "noisy counts, cap reached": (NoisyCounts(1, (3,), (0.5,), 105), ODD, ODD_ROWS),
    "noisy counts, single precision": (ADD, Arrays(70, (0.0, 1.0)), RNG.random((USERS, 70), dtype=np.float32)),
    "groups": (
        NoisyCounts(2, (9, 5, 3), (1 / 16, 0.25, 0.125), 900),
        GroupBy(6, Arrays(7, (0.0, 1.0))),
        (RNG.integers(0, 6, USERS), RNG.random((USERS, 7))),
    ),
    "slots": (NoisySlots(70, 0.125 + 2.0**-53), Categories(1000), RNG.integers(0, 1000, USERS)),
    "labels": (RandomizedResponse(1, 65, 0.75), Categories(66), RNG.integers(0, 66, USERS)),
    "words": (NoisySlots(4, 0.25), OpenVocabulary(5000, 16, bytes(range(16))), WORDS),
    "ball": (OneBit(3, 0.75, 2.6337890625), L2Ball(1000, clipping_norm=33.0, seed=bytes(16)), UPDATES),
    "ball, single precision": (
        OneBit(1, 1.0, 1.0),
        L2Ball(1000, clipping_norm=2.0, seed=bytes(16)),
        UPDATES.astype(np.float32),
    ),
}
EVERY = {name: (case.mechanism, case.domain, case.rows(1, USERS)) for name, case in CASES.items()} | MORE


every_case = pytest.mark.parametrize(("mechanism", "domain", "rows"), EVERY.values(), ids=EVERY.keys())


def drawn(mechanism: Mechanism, domain: Domain, rows: Any, *, compiled: bool) -> Any:
    clip = not isinstance(domain, MultiChoice | Categories | OpenVocabulary)
    plan = Plan(domain, mechanism, no_guarantee(USERS))
    return Randomizer(plan, clip=clip, source=SeededSource(3), compiled=compiled).randomize(rows).cells


@every_case
def test_without_compiling_the_same_words_give_the_same_reports(
    mechanism: Mechanism, domain: Domain, rows: Any
) -> None:
    assert np.array_equal(drawn(mechanism, domain, rows, compiled=False), drawn(mechanism, domain, rows, compiled=True))


def test_one_users_reports_beyond_sixteen_bits_are_the_same() -> None:
    """More digits than a 16-bit number counts: NumPy's single numbers wrap where compiled ones are widened."""
    domain, rows = Arrays(20_000, (0.0, 1.0)), np.ones((1, 20_000))
    mechanism = NoisyCounts(4, (1,) * 4, (0.0,) * 4, 5)
    found = drawn(mechanism, domain, rows, compiled=False)
    assert np.array_equal(found, drawn(mechanism, domain, rows, compiled=True))
    assert np.array_equal(found[:80_000], np.arange(80_000))


WRONG: dict[str, tuple[Any, Callable[..., Any], str]] = {
    "a little less noise": (
        successes,
        lambda right, words, used, numerator, wanted: right(
            words, used, numerator - numerator // np.uint64(32), wanted
        ),
        "noisy-counts",
    ),
    "noise beyond the cap cut off": (
        _add_noise,
        lambda right, *given: max(found := right(*given), (given[5].size, found[1])),
        "noisy counts, cap reached",
    ),
    "a modulo": (
        bounded,
        lambda right, word, bound: np.int64(word % np.uint32(bound)),
        "randomized response, some coordinates",
    ),
}


@pytest.mark.parametrize(("kernel", "twin", "case"), WRONG.values(), ids=WRONG.keys())
def test_a_function_that_draws_otherwise_is_seen(
    kernel: Any, twin: Callable[..., Any], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = drawn(*EVERY[case], compiled=True)
    original = kernel._function
    monkeypatch.setattr(kernel, "_function", lambda *given: twin(original, *given))
    assert not np.array_equal(drawn(*EVERY[case], compiled=False), right)


@pytest.mark.parametrize("wrong", [1.001, -1e-3, math.nan, math.inf, -1e300])
@pytest.mark.parametrize(
    "mechanism",
    [ADD, RandomizedResponse(2, 3, 0.25), RandomizedResponse(1, 3, 0.25)],
    ids=["noisy-counts", "all", "one"],
)
def test_values_out_of_bounds_are_refused_with_their_row(wrong: float, mechanism: Mechanism) -> None:
    rows = np.full((3, 2), 0.5)
    rows[2, 1] = wrong
    with refusal("out-of-bounds" if not math.isnan(wrong) else "missing-value", "row 2", error=DataError):
        Randomizer(Plan(Arrays(2, (0.0, 1.0)), mechanism, no_guarantee(3)), compiled=False).randomize(rows)


@every_case
def test_users_of_both_kinds_are_counted_in_one_batch(mechanism: Mechanism, domain: Domain, rows: Any) -> None:
    """Every other piece of the batch is drawn without compiling; the table is that of the same words, compiled."""
    plan = Plan(domain, mechanism, no_guarantee(2 * USERS))
    cells = [drawn(mechanism, domain, rows, compiled=way) for way in (False, True)]
    analyzer = Analyzer(plan)
    analyzer.add(shuffle(Reports(plan.id, np.concatenate(cells)), plan=plan))
    assert analyzer._counts.users == 2 * USERS
    assert analyzer._counts.rejected == 0
    twice = np.bincount(cells[1][cells[1] != BLANK], minlength=plan.cells) * 2
    if plan.positions is None:
        assert np.array_equal(analyzer._counts.table, twice)
    else:  # the shuffler's noise came to it
        added = analyzer._counts.table - twice
        assert ((added >= 0) & (added <= mechanism.most_drawn(plan.encoding))).all()


def test_where_numba_is_missing_rows_are_randomized_and_the_rest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    one_more = compiling.kernel(lambda number: number + 1)
    for cached in (compiling.can_compile, compiling._njit):
        cached.cache_clear()
    try:
        plan = Plan(ODD, MORE["randomized response, all coordinates"][0], no_guarantee(USERS))
        assert not Randomizer(plan).compiled
        assert len(Randomizer(plan).randomize(ODD_ROWS)) == USERS * 70
        with refusal("missing-extra", "shufflesum[compiled]", error=MissingExtraError):
            one_more(1)
        with compiling.uncompiled():
            assert one_more(1) == 2
    finally:
        for cached in (compiling.can_compile, compiling._njit):
            cached.cache_clear()
