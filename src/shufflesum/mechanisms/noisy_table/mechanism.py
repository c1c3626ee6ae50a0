"""The parameters of noise that is drawn once for each cell of the table of counts, and where its answers are found.

Every user sends the truth: at each of the encoding's positions as many reports as everybody else. Who draws the noise
is in the plan: one process that holds all rows, or the shuffler as dummy reports, or the shuffler and the analyzer each
by itself (docs/privacy-noise.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from shufflesum._checks import check_choice, check_size
from shufflesum._format import counted
from shufflesum.cells import MOST_CELLS
from shufflesum.encodings import Encoding, Marginals, MultiHot, OneHot, Positions
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.frequencies import Frequencies
from shufflesum.mechanisms.mechanism import Candidate, CountTable, ExpectedError, Means, Mechanism, NoiseBy, Search
from shufflesum.mechanisms.noisy_table.noise import TableNoise
from shufflesum.mechanisms.noisy_table.randomize import NoisyTableEncoder, NoisyTableTally
from shufflesum.privacy import Guarantee, NoiseDistribution, NoiseDistributionAccountant, least_noise
from shufflesum.randomness import RandomSource, table_draws

DrawnBy = Literal["curator", "shuffler", "servers"]
MOST_RADIX = 1 << 16

Table = OneHot | MultiHot | Marginals


@dataclass(frozen=True, slots=True)
class NoisyTable(Mechanism):
    """The truth in a table of counts, and an independent draw in each cell: of shuffler and analyzer one each.

    `noise` has a distribution for each class of cells, `radices` those of the digits of numbers, lowest first.
    """

    kind: ClassVar[str] = "noisy-table"
    family: ClassVar[str] = "noisy-counts"
    accepts: ClassVar[tuple[type[Encoding], ...]] = (OneHot, MultiHot, Marginals)
    noise_options: ClassVar[tuple[NoiseBy, ...]] = get_args(DrawnBy)

    noise_by: DrawnBy = field()
    radices: tuple[int, ...]
    noise: tuple[NoiseDistribution, ...]

    def __post_init__(self) -> None:
        """Refuse what no encoding could make sense of, and keep Python's own numbers: others read otherwise in JSON."""
        check_choice("noise_by", self.noise_by, get_args(DrawnBy))
        for radix in self.radices:
            check_size("radix", radix, 2, MOST_RADIX)
        if not self.noise or not all(isinstance(each, NoiseDistribution) for each in self.noise):
            raise ParameterError("wrong-type", "noise must be a NoiseDistribution for each class of cells")
        object.__setattr__(self, "radices", tuple(map(int, self.radices)))
        object.__setattr__(self, "noise", tuple(self.noise))

    @classmethod
    def takes(cls, encoding: Encoding) -> bool:
        """Labels that have a cell each."""
        if isinstance(encoding, OneHot):
            return encoding.names_cells
        return isinstance(encoding, Marginals) or (isinstance(encoding, MultiHot) and encoding.scale is None)

    @property
    def draws(self) -> int:
        """How many independent draws are in a cell in the end."""
        return 2 if self.noise_by == "servers" else 1

    def positions(self, encoding: Table) -> Positions:
        """Where each of a user's reports goes."""
        return encoding.positions(self.radices)

    def check(self, encoding: Table) -> None:
        """Refuse noise that is not that of the encoding's cells, and more cells than a report can number."""
        positions = self.positions(encoding)
        if len(self.noise) != len(positions.changed):
            raise ParameterError(
                "conflicting-arguments",
                f"noise has {len(self.noise)} entries, but there are {len(positions.changed)} classes of cells",
            )
        if positions.cells > MOST_CELLS:
            raise ParameterError(
                "too-many-cells",
                f"{positions.cells} cells; the report format has fewer than 2**32: take fewer labels or digits",
            )

    def cells(self, encoding: Table) -> int:
        """Those of all positions."""
        return self.positions(encoding).cells

    def reports(self, encoding: Table) -> int:
        """At every position as many as everybody else."""
        return self.positions(encoding).each

    def blanks(self, encoding: Table) -> float:
        """Half of the reports that may be blank, if labels are held by half of those who may."""
        positions = self.positions(encoding)
        return float(positions.reports[positions.blank].sum()) / 2

    def encoder(self, encoding: Table, source: RandomSource) -> NoisyTableEncoder:
        """What is true of each user."""
        return NoisyTableEncoder(self, encoding, source)

    def tally(self, encoding: Table, source: RandomSource) -> NoisyTableTally:
        """What is true of all, and one draw for each cell; of the analyzer's draw its counts take care."""
        return NoisyTableTally(self, encoding, source)

    def draw(self, encoding: Table, source: RandomSource) -> CountTable:
        """An independent draw for each cell, exactly by its distribution."""
        classes = self.positions(encoding).class_of_cells
        drawn = np.empty(len(classes), dtype=np.int64)
        for number, noise in enumerate(self.noise):
            mine = classes == number
            drawn[mine] = table_draws(source, noise.thresholds, int(np.count_nonzero(mine)))
        return drawn

    def most_drawn(self, encoding: Table) -> CountTable:
        """Twice the half-length of its distribution."""
        most = np.array([2 * noise.half_length for noise in self.noise], dtype=np.int64)
        drawn: CountTable = most[self.positions(encoding).class_of_cells]
        return drawn

    def decode(self, encoding: Table, table: CountTable, users: int) -> Means:
        """Labels counted, the mean of the noise taken off."""
        return Frequencies(table, users, TableNoise(self.noise[0], self.draws), one_each=isinstance(encoding, OneHot))

    def expected_error(self, encoding: Table, users: int, assumed_std: float | None = None) -> ExpectedError:
        """The noise is public and exact; of marginals that of least squares over all tables."""
        variance = self.draws * self.noise[0].variance
        cells = encoding.error_per_variance if isinstance(encoding, Marginals) else encoding.dimension
        return ExpectedError(0.0, 0.0, noise=cells * variance / users**2)

    def accountant(self, encoding: Table, guarantee: Guarantee) -> NoiseDistributionAccountant:
        """One draw: of two independent ones each hides the user from whoever knows the other."""
        changed = self.positions(encoding).changed
        return NoiseDistributionAccountant(tuple(zip(self.noise, changed, strict=True)), guarantee.rounds)

    def min_malicious(self, encoding: Table, table: CountTable, blanks: int, rejected: int, users: int) -> int:
        """The guarantee counts on nobody's honesty, and a noisy table accuses nobody."""
        return 0

    def max_shift(self, encoding: Table, users: int, malicious: int) -> float:
        """A user counts once for a label, or where one position is for all labels, as often as there are reports.

        Of marginals a user counts once in each table, and reports may contradict each other.
        """
        if isinstance(encoding, Marginals):
            return malicious / users * encoding.largest_move
        positions = self.positions(encoding)
        return malicious / users * int(positions.reports.max())

    def attack(
        self,
        encoding: Table,
        held: auditing.Held,
        guarantee: Guarantee,
        sample_table: Callable[[Any], CountTable],
    ) -> auditing.Attack:
        """Users' reports show nothing of noise that others draw."""
        raise ParameterError(
            "impossible-combination",
            f"an audit looks at reports, but with noise by {self.noise_by!r} users draw none; plan with "
            "noise_by='users'",
        )

    @classmethod
    def candidates(cls, encoding: Table, search: Search, options: Any = None) -> Iterator[Candidate]:
        """The least noise that is certified for the cells that a user can change."""
        if getattr(options, "digits", None) is not None:  # of the same family, for numbers
            raise ParameterError("impossible-combination", "digits are for numbers, not for labels; leave them out")
        if not isinstance(encoding, Marginals):
            yield from cls._least_noise(encoding, search)
            return
        *others, smallest = sorted(encoding.choices(), key=lambda layout: -len(layout.table_sizes))
        found = False
        for layout in others:  # the one with the fewest reports says why none is possible
            for candidate in cls._least_noise(layout, replace(search, only=False)):
                found = True
                yield candidate
        yield from cls._least_noise(smallest, replace(search, only=search.only and not found))

    @classmethod
    def _least_noise(cls, encoding: Table, search: Search) -> Iterator[Candidate]:
        assert search.noise_by != "users"
        guarantee, positions = search.guarantee, encoding.positions()
        (changed,) = positions.changed
        if search.max_reports is not None and positions.each > search.max_reports:
            if search.only:
                raise PrivacyError(
                    "privacy-out-of-reach",
                    f"max_reports is {search.max_reports}, but each user sends {positions.each} reports; raise it",
                )
            return
        try:
            noise = least_noise(guarantee.epsilon, guarantee.delta, changed_cells=changed, rounds=guarantee.rounds)
        except (ParameterError, PrivacyError):
            if search.only:
                raise
            return
        yield Candidate(cls(search.noise_by, (), (noise,)), encoding)

    def describe(self, encoding: Table) -> str:
        """What a user sends."""
        if isinstance(encoding, OneHot):
            return "the label"
        if isinstance(encoding, Marginals):
            return f"the cell of all answers in each of {counted(len(self.positions(encoding)), 'table')}"
        if len(self.positions(encoding)) > 1:
            return "for each label whether it is chosen"
        return f"up to {encoding.most_true} chosen labels, and blanks up to that number"
