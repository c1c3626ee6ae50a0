"""The parameters of `replace`, and where its answers are found: a user reports t of d coordinates, one cell each.

A value is rounded at random to one of K = levels + 1 values; the cell of a report is coordinate x K + value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice, check_number, check_size
from shufflesum._rounding import downwards
from shufflesum.cells import MOST_CELLS
from shufflesum.domain import Box, Categories, Domain, Neighbours, as_box
from shufflesum.errors import ParameterError
from shufflesum.mechanisms.mechanism import ExpectedError, Floats, Mechanism, Table
from shufflesum.mechanisms.replace.accounting import ReplaceAccounting
from shufflesum.mechanisms.replace.attack import ReplaceAttack
from shufflesum.mechanisms.replace.decode import ReplaceMeans
from shufflesum.mechanisms.replace.encode import ReplaceEncoder
from shufflesum.mechanisms.replace.error import coordinate_error
from shufflesum.mechanisms.replace.labels import ReplaceFrequencies, ReplaceLabelsEncoder, labels_error
from shufflesum.mechanisms.tally import EncodedTally
from shufflesum.privacy import Guarantee
from shufflesum.privacy.replace import Sampling
from shufflesum.randomness import RandomSource
from shufflesum.randomness.draws import PROBABILITY_BITS

__all__ = ["MAX_LEVELS", "Replace", "Sampling", "on_grid"]

MAX_LEVELS = 32_766  # a rounded value fits 15 bits, as the drawing kernels need


def on_grid(noise_probability: float) -> float:
    """The least noise probability that can be drawn with and is not below this one; what is none stays as it is."""
    if not 0 <= noise_probability <= 1:
        return noise_probability
    return math.ceil(noise_probability * 2.0**PROBABILITY_BITS) * 2.0**-PROBABILITY_BITS


@dataclass(frozen=True, slots=True)
class Replace(Mechanism):
    """Every user reports `coordinates` of the d coordinates, each replaced by a uniform value with some probability.

    `stratified` sampling draws one coordinate from each of as many public blocks, `uniform` any subset.
    """

    kind: ClassVar[str] = "replace"
    word: ClassVar[str] = "replace"

    coordinates: int
    levels: int
    noise_probability: float
    sampling: Sampling = "stratified"

    def __post_init__(self) -> None:
        """Refuse what no domain could make sense of, and keep Python's own numbers: others read otherwise in JSON."""
        check_size("coordinates", self.coordinates, 1, MOST_CELLS)
        check_size("levels", self.levels, 1, MOST_CELLS)
        check_choice("sampling", self.sampling, get_args(Sampling))
        check_number("noise_probability", self.noise_probability)
        numerator = self.noise_probability * 2.0**PROBABILITY_BITS
        if not 0 <= self.noise_probability <= 1 or not float(numerator).is_integer():
            raise ParameterError(
                "out-of-range",
                f"noise_probability is {self.noise_probability!r}; it must be a multiple of 2**-53 between 0 and 1",
            )
        for name, number in (("coordinates", int), ("levels", int), ("noise_probability", float)):
            object.__setattr__(self, name, number(getattr(self, name)))

    @property
    def values(self) -> int:
        """K: how many values a coordinate is rounded to."""
        return self.levels + 1

    def places(self, domain: Domain) -> int:
        """How many coordinates there are to sample from; a label is one, with a value for each label."""
        if isinstance(domain, Box):
            return domain.dimension
        if isinstance(domain, Categories):
            return 1
        raise ParameterError(
            "impossible-combination",
            f"mechanism 'replace' is for arrays and for one label of each user, not for {type(domain).__name__}; "
            "plan with mechanism 'add'",
        )

    def check(self, domain: Domain) -> None:
        """Refuse more coordinates than there are, and more cells than a report can number."""
        check_size("coordinates", self.coordinates, 1, self.places(domain))
        if isinstance(domain, Categories):
            check_size("levels", self.levels, domain.cells - 1, domain.cells - 1)
            return
        check_size("levels", self.levels, 1, MAX_LEVELS)
        if self.cells(domain) > MOST_CELLS:
            raise ParameterError(
                "too-many-cells",
                f"dimension {domain.dimension} with {self.levels} levels needs {self.cells(domain)} report cells; the "
                "report format has fewer than 2**32: lower the dimension or the levels",
            )

    def cells(self, domain: Domain) -> int:
        """K for each coordinate; one for each label."""
        return self.places(domain) * self.values

    def reports(self, domain: Domain) -> int:
        """One for each sampled coordinate, never a blank."""
        return self.coordinates

    def block_starts(self, domain: Domain) -> NDArray[np.int64]:
        """Where the public blocks of stratified sampling begin: one report of every user falls into each."""
        return np.arange(self.coordinates) * self.places(domain) // self.coordinates

    def sampling_probabilities(self, domain: Domain) -> Floats:
        """For each coordinate, the chance that a given user reports it."""
        if self.sampling == "uniform":
            return np.full(self.places(domain), self.coordinates / self.places(domain))
        sizes = np.diff(self.block_starts(domain), append=self.places(domain))
        return np.repeat(1 / sizes, sizes)

    def encoder(self, domain: Domain, source: RandomSource) -> ReplaceEncoder | ReplaceLabelsEncoder:
        """Algorithm 1 of the paper, on the coordinates that Algorithm 2 samples, or on labels."""
        if isinstance(domain, Categories):
            return ReplaceLabelsEncoder(domain, self.noise_probability, source)
        return ReplaceEncoder(self, as_box(domain), source)

    def tally(self, domain: Domain, source: RandomSource) -> EncodedTally:
        """Every user's reports, counted."""
        return EncodedTally(self.encoder(domain, source), self.cells(domain))

    def blanks(self, domain: Domain) -> float:
        """None."""
        return 0.0

    def decode(self, domain: Domain, table: Table, users: int) -> ReplaceMeans | ReplaceFrequencies:
        """Algorithm 3 of the paper, with error bars."""
        if self.noise_probability == 1:
            raise ParameterError(
                "nothing-but-noise",
                "noise_probability is 1: every report is noise and says nothing about the users; "
                "plan with more users or a larger epsilon",
            )
        if isinstance(domain, Categories):
            return ReplaceFrequencies(table, users, self.noise_probability)
        return ReplaceMeans(
            table=table.reshape(domain.dimension, self.values),
            users=users,
            coordinates=self.coordinates,
            noise_probability=self.noise_probability,
            sampling_probabilities=self.sampling_probabilities(domain),
            mixes=as_box(domain).structure.mixes,
        )

    def expected_error(self, domain: Domain, users: int, spread: float | None = None) -> ExpectedError:
        """The sum over coordinates of `coordinate_error`, each in its own units; of labels, over their frequencies."""
        if isinstance(domain, Categories):
            return labels_error(domain.cells, self.noise_probability, users)
        total = ExpectedError(0.0, 0.0, 0.0)
        sampled, width = self.sampling_probabilities(domain), as_box(domain).width
        for probability in np.unique(sampled):
            alike = width[sampled == probability]
            weight = float(np.sum(alike**2))
            # In units of the width; within their bounds users differ by no more than half of it.
            apart = None if spread is None else min(spread * math.sqrt(len(alike) / weight), 0.5)
            error = coordinate_error(users, float(probability), self.levels, self.noise_probability, apart)
            total += error * weight
        return total

    def accounting(self, neighbours: Neighbours, guarantee: Guarantee) -> ReplaceAccounting:
        """The certified bounds of the sampled coordinates, or the published ones."""
        return ReplaceAccounting.of(self, neighbours, guarantee)

    def fewest_dishonest(self, domain: Domain, table: Table, blanks: int, rejected: int, users: int) -> int:
        """Whoever follows the protocol sends no blanks, has all reports accepted, one in each block, or none twice.

        A user who does not can leave a block out, or put all reports into one place.
        """
        fewest = math.ceil((blanks + rejected) / self.coordinates)
        places = table.reshape(self.places(domain), self.values).sum(axis=1)
        if self.sampling == "stratified":
            places = np.add.reduceat(places, self.block_starts(domain))
        if len(places) == self.coordinates:
            fewest = max(fewest, users - int(places.min()))
        if self.coordinates > 1:
            fewest = max(fewest, math.ceil((int(places.max()) - users) / (self.coordinates - 1)))
        return fewest

    def influence(self, domain: Domain, users: int, dishonest: int) -> float:
        """All reports of the dishonest in one coordinate, at the value that everybody else is farthest from.

        Of m reports of theirs and c of others, the mean moves by m/(m + c) of a debiased report's range. Where c is
        left to chance, it is taken five deviations below its mean.
        """
        if dishonest == 0:
            return 0.0
        sent, chance = dishonest * self.coordinates, float(np.min(self.sampling_probabilities(domain)))
        mean = (users - dishonest) * chance
        others = max(0.0, mean - 5 * math.sqrt(mean * (1 - chance)))
        return sent / (sent + others) / (1 - self.noise_probability)

    def attack(self, domain: Domain, guarantee: Guarantee, scout: Callable[[Any], Table]) -> ReplaceAttack:
        """The victim at one value or another in every coordinate, all others at a third."""
        return ReplaceAttack.of(self, domain, guarantee, scout)

    def choices(self) -> dict[str, Any]:
        """Coordinates, levels and how they are sampled."""
        return {"coordinates": self.coordinates, "levels": self.levels, "sampling": self.sampling}

    def describe(self, domain: Domain) -> str:
        """What a user sends."""
        if isinstance(domain, Categories):
            return f"the label, replaced by a random one with probability {downwards(self.noise_probability, 5)}"
        return (
            f"{self.coordinates:,} of {domain.dimension:,} coordinates ({self.sampling}), in {self.values} values, "
            f"each replaced by a random one with probability {downwards(self.noise_probability, 5)}"
        )
