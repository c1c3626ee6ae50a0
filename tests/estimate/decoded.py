"""Plans whose tables say what a test wants them to say: estimates are judged apart from mechanisms."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.stats import binom, norm

from shufflesum.domains import Domain
from shufflesum.domains.counts import CountEstimate
from shufflesum.domains.group_by.estimate import GroupEstimate
from shufflesum.domains.open_vocabulary.estimate import VocabularyEstimate

__all__ = ["Frequencies", "Sums", "count_estimate", "group_estimate", "hashed_estimate", "plan_of"]

Floats = Any


@dataclass(frozen=True)
class Frequencies:
    """Counts with Binomial(trials, probability) noise in each."""

    table: Floats
    users: int
    trials: int
    probability: float

    @property
    def mean(self) -> Floats:
        return (self.table - self.trials * self.probability) / self.users

    @property
    def report_counts(self) -> Floats:
        return self.table

    def variance(self, target: str) -> Floats:
        noise = self.trials * self.probability * (1 - self.probability) / self.users**2
        return np.full(len(self.table), noise) + (0.25 / self.users if target == "population" else 0.0)

    def interval(self, tail: float, target: str) -> tuple[Floats, Floats]:
        if target == "population":
            reach = norm.isf(tail) * np.sqrt(self.variance(target))
            return self.mean - reach, self.mean + reach
        low, high = binom.ppf(tail, self.trials, self.probability), binom.isf(tail, self.trials, self.probability)
        return (self.table - high) / self.users, (self.table - low) / self.users


@dataclass(frozen=True)
class Sums:
    """Sizes and sums of groups with normal noise."""

    counts: Floats
    sums: Floats
    count_variance: float
    sum_variance: float
    rounding: float = 0.0
    origin: float = 0.0
    excess: float = 0.0

    def count_interval(self, tail: float) -> tuple[Floats, Floats]:
        reach = norm.isf(tail) * np.sqrt(self.count_variance)
        return self.counts - reach, self.counts + reach


def plan_of(domain: Domain, decoded: object) -> Any:
    return SimpleNamespace(
        domain=domain,
        encoding=domain.encodings()[0],
        encoding_of=lambda other: other.encodings()[0],
        shape=domain.shape,
        id="0123456789abcdef",
        mechanism=SimpleNamespace(noise_by="curator", decode=lambda *_: decoded, decode_groups=lambda *_: decoded),
        summary=lambda: {"domain": domain.to_json()},
        warnings=(),
        positions=None,
    )


def count_estimate(domain: Domain, table: Floats, users: int, trials: int = 0, probability: float = 0.5) -> Any:
    table = np.asarray(table)
    return CountEstimate(plan_of(domain, Frequencies(table, users, trials, probability)), users, 0, table)


def group_estimate(domain: Domain, sums: Sums, users: int = 100) -> GroupEstimate:
    return GroupEstimate(plan_of(domain, sums), users, 0, np.zeros(1, dtype=np.int64))


def hashed_estimate(domain: Domain, table: Floats, users: int) -> VocabularyEstimate:
    cells = table.reshape(-1)
    noise = max(int(cells.sum()) - users, 0)
    return VocabularyEstimate(plan_of(domain, Frequencies(cells, users, noise, 1 / cells.size)), users, 0, cells)
