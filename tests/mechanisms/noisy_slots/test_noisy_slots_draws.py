"""What is drawn under `noisy-counts` with slots, by each user and in one process, against its law; wrong twins are
refused.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from tests.plan_builders import encoding_for
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum.cells import BLANK
from shufflesum.domains import Categories, OpenVocabulary
from shufflesum.errors import DataError, ParameterError
from shufflesum.mechanisms import NoisySlots
from shufflesum.plans import Plan
from shufflesum.protocol import Randomizer, Tally
from shufflesum.randomness import uniform_or_blank
from shufflesum.testing import SeededSource, no_guarantee

USERS = 200_000
SLOTS, CHANCE, CELLS = 2, 3 / 16, 3
MECHANISM = NoisySlots(SLOTS, CHANCE)
LABELS = Categories(CELLS)
ENCODING = encoding_for(LABELS, NoisySlots)


def sent(labels: np.ndarray, seed: int = 1) -> np.ndarray:
    reports = MECHANISM.encoder(ENCODING, SeededSource(seed)).encode(LABELS.block(labels)).reshape(-1, 1 + SLOTS)
    return np.where(reports == BLANK, CELLS, reports).astype(np.int64)


def slot_law(chance: float = CHANCE, cells: int = CELLS) -> np.ndarray:
    return np.array([chance / cells] * cells + [1 - chance])


@pytest.mark.usefixtures("both_kernels")
def test_both_slots_are_a_uniform_cell_or_blank_and_independent() -> None:
    """Chi-square over both slots at once, false alarm 1e-6; 5 % less noise, or one cell favoured, is refused."""
    reports = sent(np.ones(USERS, dtype=np.int64))
    joint = np.bincount((CELLS + 1) * reports[:, 1] + reports[:, 2], minlength=(CELLS + 1) ** 2)
    assert chi_square(joint, np.outer(slot_law(), slot_law())) > FALSE_ALARM
    assert chi_square(joint, np.outer(slot_law(0.95 * CHANCE), slot_law())) < FALSE_ALARM
    favoured = np.array([1.1, 0.95, 0.95, 1.0]) * slot_law()
    assert chi_square(joint, np.outer(slot_law(), favoured)) < FALSE_ALARM


@pytest.mark.usefixtures("both_kernels")
def test_noise_says_nothing_of_the_label_nor_of_the_next_user() -> None:
    labels = np.random.default_rng(1).integers(0, CELLS, USERS)
    reports = sent(labels)
    assert np.array_equal(reports[:, 0], labels)
    joint = np.bincount((CELLS + 1) * labels + reports[:, 1], minlength=CELLS * (CELLS + 1))
    assert chi_square(joint, np.outer(np.bincount(labels) / USERS, slot_law())) > FALSE_ALARM
    neighbours = np.bincount((CELLS + 1) * reports[::2, 1] + reports[1::2, 1], minlength=(CELLS + 1) ** 2)
    assert chi_square(neighbours, np.outer(slot_law(), slot_law())) > FALSE_ALARM
    copied = np.bincount((CELLS + 2) * reports[:, 1], minlength=(CELLS + 1) ** 2)
    assert chi_square(copied, np.outer(slot_law(), slot_law()) + 0) < FALSE_ALARM


@pytest.mark.long
@pytest.mark.usefixtures("both_kernels")
def test_one_user_at_a_time_follows_the_same_law() -> None:
    encoder = MECHANISM.encoder(ENCODING, SeededSource(3))
    one = LABELS.block(np.array([2]))
    slots = np.stack([encoder.encode(one) for _ in range(20_000)])[:, 1:].reshape(-1)
    counts = np.bincount(np.where(slots == BLANK, CELLS, slots), minlength=CELLS + 1)
    assert chi_square(counts, slot_law()) > FALSE_ALARM


@pytest.mark.parametrize("cells", [2, 1000, 3_000_000_000], ids=["two", "a thousand", "most words rejected"])
@pytest.mark.parametrize("chance", [2.0**-53, 1 / 3 - 2.0**-53 / 3, 1 - 2.0**-53, 1.0])
def test_draws_are_uniform_or_blank_whatever_their_chance_and_number(cells: int, chance: float) -> None:
    """How many are not blank, and in which quarter of the cells: where words run out nothing is drawn twice."""
    chance = np.floor(chance * 2.0**53) / 2.0**53
    size = 300_000
    drawn = uniform_or_blank(SeededSource(4), size, chance, cells)
    kept = drawn[drawn != BLANK].astype(np.int64)
    assert (kept < cells).all()
    tail = binom.sf(len(kept) - 1, size, chance), binom.cdf(len(kept), size, chance)
    assert min(tail) > FALSE_ALARM
    if len(kept) > 1000:
        quarters = np.bincount(kept * 4 // cells, minlength=4)
        edges = np.array([-(-part * cells // 4) for part in range(5)])
        law = np.diff(edges) / cells
        assert chi_square(quarters[law > 0], law[law > 0]) > FALSE_ALARM


@pytest.mark.long
def test_in_one_process_noise_is_a_binomial_number_of_uniform_cells() -> None:
    """All tables of three users' noise, by the multinomial law that their slots have; half the users is refused."""
    users, tables = 3, 60_000
    tally = MECHANISM.tally(ENCODING, SeededSource(5))
    totals = np.bincount([int(tally.noise(users).sum()) for _ in range(tables)], minlength=7)
    assert chi_square(totals[:5], _tail(binom.pmf(range(7), users * SLOTS, CHANCE))) > FALSE_ALARM
    assert chi_square(totals[:5], _tail(binom.pmf(range(7), users * SLOTS, 0.95 * CHANCE))) < FALSE_ALARM
    cells = sum(tally.noise(50) for _ in range(4000))
    assert chi_square(np.asarray(cells), np.full(CELLS, 1 / CELLS)) > FALSE_ALARM


def _tail(law: np.ndarray) -> np.ndarray:
    """Of 0 to 4; more are rare, and left out on both sides."""
    return np.asarray(law[:5] / law[:5].sum())


@pytest.mark.usefixtures("both_kernels")
def test_words_are_reported_in_their_bucket_of_a_uniform_function() -> None:
    domain = OpenVocabulary(50, 8, bytes(range(16)))
    words = ["here", "there"] * 40_000
    mechanism, encoding, block = NoisySlots(1, 0.125), encoding_for(domain, NoisySlots), domain.block(words)
    reports = mechanism.encoder(encoding, SeededSource(6)).encode(block).reshape(-1, 2)
    buckets = domain.bucket_table(domain.texts(["here", "there"]))
    for word in range(2):
        functions, found = np.divmod(reports[word::2, 0].astype(np.int64), 50)
        assert np.array_equal(found, buckets[word][functions])
        assert chi_square(np.bincount(functions, minlength=8), np.full(8, 1 / 8)) > FALSE_ALARM
    noise = reports[:, 1][reports[:, 1] != BLANK]
    assert chi_square(np.bincount(noise // 50, minlength=8), np.full(8, 1 / 8)) > FALSE_ALARM
    table = np.zeros(400, dtype=np.int64)
    mechanism.tally(encoding, SeededSource(7)).add(block, table)
    own = np.unique(np.arange(8) * 50 + buckets)
    assert table.sum() == len(words) == table[own].sum()


def plan_of(domain: Categories) -> Plan:
    return Plan(domain, MECHANISM, no_guarantee(users=3))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64])
def test_integers_of_any_type_are_counted_and_those_outside_refused_with_their_row(dtype: type) -> None:
    labels: np.ndarray = np.array([0, 1, 2, 1], dtype=dtype)
    for take in (
        lambda rows: Randomizer(plan_of(LABELS)).randomize(rows),
        lambda rows: Tally(plan_of(LABELS)).add(rows),
    ):
        take(labels)
        for wrong in (3, 100, *([-1] if np.issubdtype(dtype, np.signedinteger) else [])):
            with refusal("unknown-label", "row 3", str(wrong), error=DataError):
                take(np.array([0, 1, 2, wrong], dtype=dtype))


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"slots": 0}, "out-of-range"), ({"slots": 1.5}, "wrong-type"), ({"chance": 1.0}, "out-of-range"),
     ({"chance": -0.5}, "out-of-range"), ({"chance": 1 / 3}, "out-of-range"),
     ({"chance": float("nan")}, "out-of-range"), ({"chance": "1"}, "wrong-type")],
)  # fmt: skip
def test_what_is_no_slot_or_no_chance_is_refused(change: dict[str, object], problem: str) -> None:
    parameters: dict[str, object] = {"slots": 2, "chance": 0.5}
    with refusal(problem, error=ParameterError):
        NoisySlots(**(parameters | change))  # type: ignore[arg-type]


def test_who_sends_nothing_but_blanks_is_found() -> None:
    """One of 1,000 users who sends no label; and blanks of others hide nobody."""
    labels = np.random.default_rng(8).integers(0, CELLS, 1000)
    table = np.bincount(sent(labels).reshape(-1), minlength=CELLS + 1)[:CELLS]
    assert MECHANISM.min_malicious(ENCODING, table, 0, 0, 1000) == 0
    silent = np.array([400, 300, 290])
    assert MECHANISM.min_malicious(ENCODING, silent, 2010, 0, 1000) == 10
