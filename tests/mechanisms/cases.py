"""Mechanisms on domains that they carry: whoever adds one adds it to `SOME`, `PARAMETERS` and `CASES` here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from hypothesis import strategies as st

from shufflesum.cells import BLANK, MOST_CELLS
from shufflesum.domain import Ball, Box, Categories, Choices, Domain
from shufflesum.mechanisms import Add, AddSlots, Mechanism, Replace, ReplaceBits, Sampling
from shufflesum.mechanisms.add import MOST_DIGITS
from shufflesum.mechanisms.add_slots.mechanism import MOST_SLOTS
from shufflesum.mechanisms.replace import MAX_LEVELS
from shufflesum.mechanisms.replace_bits import MOST_BITS
from shufflesum.privacy import Guarantee
from shufflesum.privacy.add import MOST_TRIALS
from shufflesum.testing import SeededSource

__all__ = [
    "BALL",
    "BOX",
    "CASES",
    "GUARANTEE",
    "PARAMETERS",
    "SOME",
    "Case",
    "sent_by",
    "some_labels",
    "some_rows",
    "table_of",
]

SOME: dict[str, Mechanism] = {
    "replace": Replace(2, 3, 0.25),
    "add": Add(3, (40, 20, 10), (1 / 16, 1 / 16, 3 / 64), 60),
    "add-slots": AddSlots(3, 0.25),
    "replace-bits": ReplaceBits(8, 0.5, 2.0),
}
PARAMETERS: dict[str, st.SearchStrategy[Mechanism]] = {
    "replace": st.builds(
        Replace,
        coordinates=st.integers(1, MOST_CELLS),
        levels=st.integers(1, MAX_LEVELS),
        noise_probability=st.integers(0, 2**53).map(lambda numerator: numerator / 2**53),
        sampling=st.sampled_from(get_args(Sampling)),
    ),
    "add": st.integers(1, MOST_DIGITS).flatmap(
        lambda digits: st.builds(
            Add,
            digits=st.just(digits),
            trials=st.tuples(*[st.integers(1, MOST_TRIALS)] * digits),
            probabilities=st.tuples(*[st.integers(0, 2**53 - 1).map(lambda numerator: numerator / 2**53)] * digits),
            cap=st.none() | st.integers(0, MOST_CELLS),
        )
    ),
    "add-slots": st.builds(
        AddSlots,
        slots=st.integers(1, MOST_SLOTS),
        chance=st.integers(0, 2**53 - 1).map(lambda numerator: numerator / 2**53),
    ),
    "replace-bits": st.builds(
        ReplaceBits,
        bits=st.integers(1, MOST_BITS),
        amplitude=st.integers(1, 2**31).map(lambda numerator: numerator / 2**31),
        tau=st.floats(1.0, 100.0),
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


BOX = Box.of((2, 2), (-1.0, 1.0))
BALL = Ball((2, 2), radius=2.0, seed=bytes(range(16)))
CASES: dict[str, Case] = {
    "replace, box": Case(SOME["replace"], BOX, some_rows, lambda rows: (rows.mean(axis=0).reshape(-1) + 1) / 2),
    "replace, categories": Case(Replace(1, 3, 0.25), Categories(4), some_labels, frequencies),
    "add, box": Case(SOME["add"], BOX, some_rows, lambda rows: (rows.mean(axis=0).reshape(-1) + 1) / 2),
    "add, choices": Case(
        Add(1, (40,), (1 / 16,), 60), Choices(4, most=4), some_choices, lambda rows: rows.mean(axis=0)
    ),
    "add-slots, categories": Case(SOME["add-slots"], Categories(4), some_labels, frequencies),
    "replace-bits, ball": Case(
        SOME["replace-bits"], BALL, some_rows, lambda rows: rows.mean(axis=0).reshape(-1) / BALL.radius
    ),
}


def sent_by(case: Case, rows: Any, seed: int) -> Any:
    return case.mechanism.encoder(case.domain, SeededSource(seed)).encode(
        case.domain.prepare(case.domain.rows(rows)), 0
    )


def table_of(case: Case, sent: Any) -> Any:
    return np.bincount(sent[sent != BLANK], minlength=case.mechanism.cells(case.domain))
