"""What an audit attacks under `add`: a victim whose digits are all 1 or all 0, among users whose digits are all 0.

Crowds of users with known digits show how much noise each digit's cells get: what is reported beyond the digits. Where
noise is binomial, as many trials for a user as the plan says, at whatever chance, the chances in an enclosure of the
observed ones tell what the running randomizer reveals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain import Domain
from shufflesum.mechanisms.mechanism import Enclosure, ExpectedCounts, Floats, Revealed, Table
from shufflesum.privacy import Guarantee
from shufflesum.privacy.add import Cells, Group

if TYPE_CHECKING:
    from shufflesum.mechanisms.add.mechanism import Add

__all__ = ["AddAttack"]

_NOISY_REPORTS = 400_000  # of each digit; then chances are known within one per cent
_LEAST_DELTA = 1e-12  # what composition covers; epsilon at a larger delta is a lower bound, too
_POINTS = 5  # of an enclosure, at which epsilon is looked at: it falls with more noise but for single counts' steps


@dataclass(frozen=True)
class AddAttack:
    """Crowds with all digits 0, with all digits 1, and one whose coordinates differ, so that these are told apart."""

    mechanism: Add
    domain: Domain
    guarantee: Guarantee

    @cached_property
    def _held(self) -> list[NDArray[np.int64]]:
        """The number on the scale that each crowd holds in each coordinate."""
        top, dimension = self.mechanism.levels, self.domain.dimension
        mixed = np.unique(np.linspace(0, top, min(dimension, top + 1)).astype(np.int64))
        return [np.zeros(dimension, np.int64), np.full(dimension, top), mixed[np.arange(dimension) % len(mixed)]]

    @property
    def crowds(self) -> tuple[Floats, ...]:
        """What each crowd holds."""
        lower, upper = self.domain.lower, self.domain.upper
        return tuple(
            np.clip(lower + (upper - lower) * (held / self.mechanism.levels), lower, upper) for held in self._held
        )

    @property
    def victims(self) -> tuple[Floats, Floats]:
        """All digits 1, and all digits 0."""
        return self.crowds[1], self.crowds[0]

    @property
    def others(self) -> Floats:
        """All digits 0."""
        return self.crowds[0]

    @property
    def samples(self) -> int:
        """Enough users to see the noise of each digit often, times what they send."""
        rarest = self.domain.dimension * float(np.min(self.mechanism.noise_means))
        return int(3 * _NOISY_REPORTS / rarest + 1) * self.mechanism.reports(self.domain)

    @property
    def lower_bound_known(self) -> bool:
        """Always: whatever noise was seen, the table of a batch is a product over cells."""
        return True

    def kinds(self, tables: Sequence[Table], users: Sequence[int]) -> tuple[Table, Table]:
        """The noise reports of each digit, of all crowds together, and the trials behind them."""
        seen = sum((self._noise(table, held, count).sum(axis=0) for table, held, count in self._of(tables, users)))
        trials = [sum(users) * self.domain.dimension * each for each in self.mechanism.trials]
        return np.maximum(np.asarray(seen)[None], 0), np.array(trials)[None]

    def reveals(self, chances: Enclosure) -> Revealed:
        """What a batch shows at least at any chances in the enclosure: all of them low, all high, or between."""
        lows, highs = chances.lower[0], chances.upper[0]
        delta = max(self.guarantee.delta, _LEAST_DELTA)
        found = []
        for part in np.linspace(0.0, 1.0, _POINTS):
            at = np.clip((1 - part) * lows + part * highs, 1e-12, 1 - 2.0**-53)
            groups = tuple(
                Group(self.guarantee.honest_users * q, float(p), self.domain.dimension * self.guarantee.rounds)
                for q, p in zip(self.mechanism.trials, at, strict=True)
            )
            found.append(Cells(groups).epsilon_lower(delta))
        return Revealed(float(np.max(highs / np.array(self.mechanism.probabilities))), min(found))

    def score(self, table: Table) -> float:
        """How much likelier a table is with the victim's digits all 1: the sum of log(y (1 - p) / ((M - y + 1) p))."""
        counts = table.reshape(-1, self.mechanism.digits).astype(np.float64)
        trials = self.guarantee.honest_users * np.array(self.mechanism.trials, dtype=np.float64)
        p = np.array(self.mechanism.probabilities)
        tiny = np.finfo(np.float64).tiny  # an empty cell must not stop the attack
        ratios = np.maximum(counts * (1 - p), tiny) / np.maximum((trials - counts + 1) * p, tiny)
        return float(np.sum(np.log(ratios)))

    def expected(self, tables: Sequence[Table], users: Sequence[int]) -> list[list[ExpectedCounts]]:
        """Noise of each digit, of each coordinate and of each cell, beyond the digits held."""
        digits, coordinates, cells = [], [], []
        q, p = np.array(self.mechanism.trials), np.array(self.mechanism.probabilities)
        dimension = self.domain.dimension
        for table, held, count in self._of(tables, users):
            noise = self._noise(table, held, count)
            for j in range(self.mechanism.digits):
                name = f"noise in digit {j}" + " of coordinate {}"
                cells.append(ExpectedCounts(name, noise[:, j], count * int(q[j]), np.full(dimension, p[j])))
                total = np.array([noise[:, j].sum()])
                digits.append(ExpectedCounts(f"noise in digit {j}", total, count * dimension * int(q[j]), p[j : j + 1]))
            # trials of several chances vary less than as many of their mean chance
            mean = np.full(dimension, float(q @ p) / float(q.sum()))
            coordinates.append(ExpectedCounts("noise in coordinate {}", noise.sum(axis=1), count * int(q.sum()), mean))
        return [digits, coordinates, cells]

    def _of(self, tables: Sequence[Table], users: Sequence[int]) -> list[tuple[Table, NDArray[np.int64], int]]:
        return list(zip(tables, self._held, users, strict=True))

    def _noise(self, table: Table, held: NDArray[np.int64], users: int) -> Table:
        """(d, J): what was reported beyond the digits that these users hold."""
        digits = (held[:, None] >> np.arange(self.mechanism.digits)) & 1
        return np.asarray(table.reshape(-1, self.mechanism.digits) - users * digits)
