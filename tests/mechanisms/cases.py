"""Mechanisms on domains that they carry: whoever adds one adds it to `SOME`, `PARAMETERS` and `CASES` here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from hypothesis import strategies as st

from shufflesum.cells import BLANK, MOST_CELLS
from shufflesum.domains import Arrays, Categories, Domain, L2Ball, MultiChoice
from shufflesum.mechanisms import (
    NoisyCounts,
    NoisySlots,
    NoisySums,
    NoisyTable,
    OneBit,
    PartitionSelection,
    RandomizedResponse,
)
from shufflesum.mechanisms.mechanism import Mechanism
from shufflesum.mechanisms.noisy_counts import MOST_DIGITS
from shufflesum.mechanisms.noisy_slots import MOST_SLOTS
from shufflesum.mechanisms.noisy_table.mechanism import MOST_RADIX, DrawnBy
from shufflesum.mechanisms.one_bit import MOST_BITS
from shufflesum.mechanisms.randomized_response.mechanism import MAX_LEVELS
from shufflesum.plans import encoding_for
from shufflesum.privacy import Guarantee, NoiseDistribution
from shufflesum.privacy.noisy_counts import MOST_TRIALS
from shufflesum.privacy.randomized_response.accountant import Sampling
from shufflesum.testing import SeededSource

__all__ = [
    "BALL",
    "BOX",
    "CASES",
    "GUARANTEE",
    "PARAMETERS",
    "SENDING",
    "SOME",
    "Case",
    "sent_by",
    "some_labels",
    "some_rows",
    "table_of",
]

SOME: dict[str, Mechanism] = {
    "randomized-response": RandomizedResponse(2, 3, 0.25),
    "noisy-counts": NoisyCounts(3, (40, 20, 10), (1 / 16, 1 / 16, 3 / 64), 60),
    "noisy-slots": NoisySlots(3, 0.25),
    "noisy-table": NoisyTable("shuffler", (), (NoiseDistribution(1.0, 2.0, 29),)),
    "noisy-sums": NoisySums("curator", 1 << 10, 1 << 7, (NoiseDistribution(1.0, 8.0, 124),), 1),
    "one-bit": OneBit(8, 0.5, 2.0),
    "partition-selection": PartitionSelection(NoiseDistribution(1.0, 2.5, 29), NoiseDistribution(1.5, 10.0, 90)),
}
SENDING = SOME.keys() - {"partition-selection", "noisy-sums"}
"""Those under which reports are sent, or counted as if they were."""

PARAMETERS: dict[str, st.SearchStrategy[Mechanism]] = {
    "randomized-response": st.builds(
        RandomizedResponse,
        coordinates=st.integers(1, MOST_CELLS),
        levels=st.integers(1, MAX_LEVELS),
        noise_probability=st.integers(0, 2**53).map(lambda numerator: numerator / 2**53),
        sampling=st.sampled_from(get_args(Sampling)),
    ),
    "noisy-counts": st.integers(1, MOST_DIGITS).flatmap(
        lambda digits: st.builds(
            NoisyCounts,
            digits=st.just(digits),
            trials=st.tuples(*[st.integers(1, MOST_TRIALS)] * digits),
            probabilities=st.tuples(*[st.integers(0, 2**53 - 1).map(lambda numerator: numerator / 2**53)] * digits),
            cap=st.integers(0, MOST_CELLS),
        )
    ),
    "noisy-slots": st.builds(
        NoisySlots,
        slots=st.integers(1, MOST_SLOTS),
        chance=st.integers(0, 2**53 - 1).map(lambda numerator: numerator / 2**53),
    ),
    "noisy-table": st.builds(
        NoisyTable,
        noise_by=st.sampled_from(get_args(DrawnBy)),
        radices=st.lists(st.integers(2, MOST_RADIX)).map(tuple),
        noise=st.lists(
            st.builds(
                NoiseDistribution,
                shape=st.floats(1.0, 2.0),
                scale=st.floats(1.0, 10.0),
                half_length=st.integers(1, 8),
            ),
            min_size=1,
        ).map(tuple),
    ),
    "noisy-sums": st.builds(
        NoisySums,
        noise_by=st.just("curator"),
        levels=st.integers(5, 32).map(lambda bits: 1 << bits),
        step=st.integers(0, 5).map(lambda bits: 1 << bits),
        noise=st.tuples(st.builds(NoiseDistribution, st.floats(1.0, 2.0), st.floats(1.0, 10.0), st.integers(1, 8))),
        stride=st.just(1),
    ),
    "one-bit": st.builds(
        OneBit,
        bits=st.integers(1, MOST_BITS),
        amplitude=st.integers(1, 2**31).map(lambda numerator: numerator / 2**31),
        tau=st.floats(1.0, 100.0),
    ),
    "partition-selection": st.builds(
        PartitionSelection,
        *[st.builds(NoiseDistribution, st.floats(1.0, 2.0), st.floats(1.0, 10.0), st.integers(1, 8))] * 2,
    ),
}
GUARANTEE = Guarantee(1.0, 1e-6, users=500)


@dataclass(frozen=True)
class Case:
    """A mechanism on a domain that it carries; rows of so many users by a seed, and what their means are."""

    mechanism: Mechanism
    domain: Domain
    rows: Callable[[int, int], Any]
    truth: Callable[[Any], Any]

    @property
    def encoding(self) -> Any:
        return encoding_for(self.domain, type(self.mechanism))


def some_rows(seed: int, users: int) -> Any:
    return (
        np.random.default_rng(seed).uniform((-1.0, -0.5, 0.0, 0.9), (0.0, 0.5, 1.0, 1.0), (users, 4)).reshape(-1, 2, 2)
    )


def some_labels(seed: int, users: int) -> Any:
    return np.random.default_rng(seed).choice(4, users, p=[0.1, 0.2, 0.3, 0.4])


def some_choices(seed: int, users: int) -> Any:
    return np.random.default_rng(seed).uniform(0, 1, (users, 4)) < [0.1, 0.3, 0.6, 0.9]


def frequencies(labels: Any) -> Any:
    return np.bincount(labels, minlength=4) / len(labels)


BOX = Arrays((2, 2), (-1.0, 1.0))
BALL = L2Ball((2, 2), clipping_norm=2.0, seed=bytes(range(16)))
CASES: dict[str, Case] = {
    "randomized response, arrays": Case(
        SOME["randomized-response"], BOX, some_rows, lambda rows: (rows.mean(axis=0).reshape(-1) + 1) / 2
    ),
    "randomized response, categories": Case(RandomizedResponse(1, 3, 0.25), Categories(4), some_labels, frequencies),
    "noisy counts, arrays": Case(
        SOME["noisy-counts"], BOX, some_rows, lambda rows: (rows.mean(axis=0).reshape(-1) + 1) / 2
    ),
    "noisy counts, multi-choice": Case(
        NoisyCounts(1, (40,), (1 / 16,), 60),
        MultiChoice(4, max_choices=4),
        some_choices,
        lambda rows: rows.mean(axis=0),
    ),
    "add-slots, categories": Case(SOME["noisy-slots"], Categories(4), some_labels, frequencies),
    "noisy table, categories": Case(SOME["noisy-table"], Categories(4), some_labels, frequencies),
    "noisy table, multi-choice": Case(
        SOME["noisy-table"], MultiChoice(4, max_choices=4), some_choices, lambda rows: rows.mean(axis=0)
    ),
    "replace-bits, ball": Case(
        SOME["one-bit"], BALL, some_rows, lambda rows: rows.mean(axis=0).reshape(-1) / BALL.clipping_norm
    ),
}


def sent_by(case: Case, rows: Any, seed: int) -> Any:
    return case.mechanism.encoder(case.encoding, SeededSource(seed)).encode(case.domain.block(case.domain.rows(rows)))


def table_of(case: Case, sent: Any, seed: int = 0) -> Any:
    """The table of what was sent, with the noise in it that others than users draw."""
    counted = np.bincount(sent[sent != BLANK], minlength=case.mechanism.cells(case.encoding))
    if case.mechanism.noise_by == "users":
        return counted
    return counted + case.mechanism.draw(case.encoding, SeededSource(1000 + seed))
