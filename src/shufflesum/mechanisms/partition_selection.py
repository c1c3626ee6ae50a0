"""Counts of labels that nobody listed, and which of them are listed in the end, by one process that holds all rows.

The count of each label that somebody holds gets the noise of a public distribution on 0..2L. It is listed where the
noisy count exceeds 2L: noise alone is never as much, so nothing is listed that nobody holds. The number of users who
hold something that is not listed gets noise of its own (docs/privacy-discovery.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_size
from shufflesum.encodings import Encoding, UnlistedCells
from shufflesum.errors import ParameterError
from shufflesum.mechanisms.mechanism import (
    Candidate,
    CountTable,
    Encoder,
    ExpectedError,
    Floats,
    Means,
    Mechanism,
    NoiseBy,
    Search,
    Tally,
)
from shufflesum.privacy import Guarantee, NoiseDistribution
from shufflesum.privacy.noise_distribution import WEIGHT_BITS
from shufflesum.privacy.partition_selection import MOST_ITEMS, PartitionSelectionAccountant, selection_noise
from shufflesum.randomness import RandomSource, table_draws

if TYPE_CHECKING:
    from shufflesum.mechanisms.auditing import Attack, Held


@dataclass(frozen=True, slots=True)
class PartitionSelection(Mechanism):
    """Noise for the count of each label, and for that of the rest.

    One process draws it, and nothing is sent. `shufflesum.discover` is what counts under it.
    """

    kind: ClassVar[str] = "partition-selection"
    family: ClassVar[str] = "partition-selection"
    accepts: ClassVar[type[Encoding]] = UnlistedCells
    noise_options: ClassVar[tuple[NoiseBy, ...]] = ("curator",)

    noise: NoiseDistribution
    """Of each label's count."""
    rest_noise: NoiseDistribution
    """Of the number of users who hold something not listed."""

    def __post_init__(self) -> None:
        """Refuse what is no noise."""
        for name in ("noise", "rest_noise"):
            if not isinstance(getattr(self, name), NoiseDistribution):
                raise ParameterError("wrong-type", f"{name} must be a NoiseDistribution")

    @property
    def noise_by(self) -> NoiseBy:
        """Nothing can be sent: a device does not know which labels others hold."""
        return "curator"

    @property
    def threshold(self) -> int:
        """The least noisy count that is listed: one more than noise alone can be."""
        return self.noise.half_length + 1

    def found_from(self, probability: float) -> int:
        """The least number of users from which on a label is listed with this probability."""
        return int(np.argmax(_tails(self.noise)[::-1] >= probability))

    # ---- counting

    def listed(self, counts: NDArray[np.int64], source: RandomSource) -> tuple[NDArray[np.int64], CountTable]:
        """Which of these labels are listed, and their counts with noise on 0..2L added, the mean L not yet taken off.

        `counts` are of all labels that anybody holds. Those that nobody holds would never be listed.
        """
        noisy = counts + table_draws(source, self.noise.thresholds, len(counts))
        places = np.flatnonzero(noisy > 2 * self.noise.half_length)
        return places, noisy[places]

    def noisy_rest(self, users: int, source: RandomSource) -> int:
        """The number of users who hold something not listed, with its noise; drawn once the list is made."""
        return users + int(table_draws(source, self.rest_noise.thresholds, 1)[0])

    # ---- what the released numbers tell

    def label_interval(self, noisy: CountTable, tail: float, users: int) -> tuple[Floats, Floats]:
        """Ends that the true count of a label lies beyond with probability at most `tail`, each, given it is listed.

        A label is seen because its noise was large enough, which plain intervals would not account for. Of all counts
        the ends leave out those under which noise that gets a label listed is seldom as large, or as small, as it must
        have been.
        """
        tails, most = _tails(self.noise), 2 * self.noise.half_length

        def as_large(count: NDArray[np.int64]) -> Floats:
            found: Floats = tails[np.maximum(noisy - count, 0)] / tails[np.maximum(most + 1 - count, 0)]
            return found

        def as_small(count: NDArray[np.int64]) -> Floats:
            found: Floats = 1.0 - tails[np.maximum(noisy - count + 1, 0)] / tails[np.maximum(most + 1 - count, 0)]
            return found

        least, largest = np.maximum(noisy - most, 1), np.minimum(noisy, users)
        least = np.minimum(least, largest)
        lower = _first(least, largest, lambda count: as_large(count) > tail)
        upper = _first(least, largest, lambda count: as_small(count) <= tail)
        upper = np.where(as_small(upper) <= tail, np.maximum(upper - 1, lower), upper)
        return lower.astype(np.float64), upper.astype(np.float64)

    def rest_interval(self, noisy: int, tail: float, users: int) -> tuple[float, float]:
        """Ends that the number of users who hold something not listed lies beyond with this probability, each."""
        tails = _tails(self.rest_noise)
        smallest = int(np.argmax(tails[-2::-1] > tail))  # noise is seldom below it, and by symmetry as seldom above
        ends = noisy - (len(tails) - 2 - smallest), noisy - smallest
        lower, upper = (float(min(max(end, 0), users)) for end in ends)
        return lower, upper

    # ---- what every mechanism answers

    def check(self, encoding: UnlistedCells) -> None:
        """Refuse more labels for each user than can be certified."""
        check_size("max_items", encoding.max_true, 1, MOST_ITEMS)

    def cells(self, encoding: UnlistedCells) -> int:
        """The one that is there in any case: users who hold something that is not listed."""
        return 1

    def reports(self, encoding: UnlistedCells) -> int:
        """As if each user sent one."""
        return 1

    def blanks(self, encoding: UnlistedCells) -> float:
        """Nothing is sent."""
        return 0.0

    def encoder(self, encoding: UnlistedCells, source: RandomSource) -> Encoder:
        """Nothing is sent."""
        _refuse()

    def tally(self, encoding: UnlistedCells, source: RandomSource) -> Tally:
        """There is no table before labels are found."""
        _refuse()

    def decode(self, encoding: UnlistedCells, table: CountTable, users: int) -> Means:
        """There is no table before labels are found."""
        _refuse()

    def attack(
        self, encoding: UnlistedCells, held: Held, guarantee: Guarantee, sample_table: Callable[[Any], CountTable]
    ) -> Attack:
        """There is no table before labels are found."""
        _refuse()

    def expected_error(self, encoding: UnlistedCells, users: int, assumed_std: float | None = None) -> ExpectedError:
        """Of the share of users who hold a label that is listed whatever its noise."""
        return ExpectedError(0.0, 0.0, self.noise.variance / users**2)

    def accountant(self, encoding: UnlistedCells, guarantee: Guarantee) -> PartitionSelectionAccountant:
        """The counts of labels, and that of the rest."""
        return PartitionSelectionAccountant(self.noise, self.rest_noise, encoding.max_true, guarantee.rounds)

    def min_malicious(self, encoding: UnlistedCells, table: CountTable, blanks: int, rejected: int, users: int) -> int:
        """Nobody sends anything."""
        return 0

    def max_shift(self, encoding: UnlistedCells, users: int, malicious: int) -> float:
        """Each counts once for a label."""
        return malicious / users

    @classmethod
    def candidates(cls, encoding: UnlistedCells, search: Search, options: Any = None) -> Iterator[Candidate]:
        """The least noise, and the shortest, for one process that holds all rows."""
        guarantee = search.guarantee
        noise = selection_noise(
            guarantee.epsilon, guarantee.delta, max_items=encoding.max_true, rounds=guarantee.rounds
        )
        yield Candidate(cls(*noise), encoding)

    def describe(self, encoding: UnlistedCells) -> str:
        """What is listed."""
        return f"nothing; a label is listed where its count with noise is at least {self.threshold:,}"


def _refuse() -> NoReturn:
    raise ParameterError(
        "one-process-only",
        "labels that nobody listed are not sent and have no table of cells; shufflesum.discover counts them, in one "
        "process that holds all rows",
    )


def _tails(distribution: NoiseDistribution) -> Floats:
    """The chances that noise is at least 0, 1, ..., 2L, 2L + 1."""
    weights = np.array([float(weight) for weight in distribution.weights]) * 2.0**-WEIGHT_BITS
    tails: Floats = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    tails[0] = 1.0  # a sum of rounded numbers may be a little less
    return tails


def _first(
    low: NDArray[np.int64], high: NDArray[np.int64], holds: Callable[[NDArray[np.int64]], NDArray[np.bool_]]
) -> NDArray[np.int64]:
    """The first number from `low` on for which it holds, as it then does for all that follow; `high` if for none."""
    low, high = low.copy(), high.copy()
    while (low < high).any():
        middle = (low + high) // 2
        found = holds(middle)
        low, high = np.where(found, low, np.minimum(middle + 1, high)), np.where(found, middle, high)
    return low
