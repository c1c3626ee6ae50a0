"""The parameters of noise that is drawn once for each cell of the table of counts, and where its answers are found.

Every user sends the truth: at each of the encoding's positions as many reports as everybody else. Who draws the noise
is in the plan: one process that holds all rows, or the shuffler as dummy reports, or the shuffler and the analyzer each
by itself (docs/privacy-noise.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from shufflesum._checks import check_choice, check_size
from shufflesum._format import counted
from shufflesum.cells import MOST_CELLS
from shufflesum.encodings import Encoding, Marginals, MultiHot, OneHot, Positions
from shufflesum.errors import ParameterError, PlanError, PrivacyError
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.frequencies import Frequencies
from shufflesum.mechanisms.mechanism import (
    Candidate,
    CountTable,
    ExpectedError,
    Floats,
    GroupSums,
    Means,
    Mechanism,
    NoiseBy,
    Search,
)
from shufflesum.mechanisms.noisy_table.decode import DigitNoise, NoisyTableGroupSums, NoisyTableMeans
from shufflesum.mechanisms.noisy_table.digits import (
    MOST_LEVELS,
    Digits,
    best_radices,
    error_weights,
    ratios,
    too_many,
)
from shufflesum.mechanisms.noisy_table.noise import TableNoise
from shufflesum.mechanisms.noisy_table.randomize import NoisyTableEncoder, NoisyTableTally
from shufflesum.mechanisms.noisy_table.sketch import sketch_error, sketch_sizes
from shufflesum.privacy import Guarantee, NoiseDistribution, NoiseDistributionAccountant, least_noises
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

    @property
    def draws(self) -> int:
        """How many independent draws are in a cell in the end."""
        return 2 if self.noise_by == "servers" else 1

    def positions(self, encoding: Table) -> Positions:
        """Where each of a user's reports goes."""
        return encoding.positions(self.radices)

    def check(self, encoding: Table) -> None:
        """Refuse noise that is not that of the encoding's cells, and more cells than a report can number."""
        numbers = isinstance(encoding, MultiHot) and encoding.scale is not None
        if numbers != bool(self.radices):
            raise ParameterError("conflicting-arguments", "radices are those of the digits of numbers, at least one")
        if math.prod(self.radices) > MOST_LEVELS + 1:
            raise ParameterError(
                "out-of-range",
                f"radices make {math.prod(self.radices)} numbers; at most {MOST_LEVELS + 1} are possible",
            )
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
        """Half of labels and binary digits, and of other digits with a blank value one in so many as they have."""
        positions = self.positions(encoding)
        if self.radices:
            coordinates = self._numbers(encoding).coordinates
            return coordinates * sum(1 / radix for radix in self.radices if radix == 2 or radix % 2)
        return float(positions.reports[positions.blank].sum()) / 2

    def encoder(self, encoding: Table, source: RandomSource) -> NoisyTableEncoder:
        """What is true of each user."""
        if self.noise_by == "curator":
            raise PlanError(
                "one-process-only",
                "this plan is for one process, which draws the noise; nothing can be sent under it: use aggregate or "
                "shufflesum run, or make a plan without noise_by='curator'",
            )
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

    def added_reports(self, encoding: Table) -> float:
        """The mean of all draws; where reports may be blank, always the largest there can be."""
        if self.noise_by == "curator":
            return 0.0
        positions, most = self.positions(encoding), self.most_drawn(encoding)
        return float(np.where(np.repeat(positions.blank, positions.sizes), most, most / 2).sum())

    def decode(self, encoding: Table, table: CountTable, users: int) -> Means:
        """Labels counted, or digits added up, the mean of the noise taken off."""
        if self.radices:
            numbers = self._numbers(encoding)
            return NoisyTableMeans(self._digit_noise, table.reshape(numbers.coordinates, -1), users, numbers.mixes)
        one_each = isinstance(encoding, OneHot) and encoding.names_cells
        return Frequencies(table, users, TableNoise(self.noise[0], self.draws), one_each)

    def decode_groups(self, encoding: MultiHot, table: CountTable, users: int) -> GroupSums:
        """Digits added up and users counted in each group, the mean of the noise taken off."""
        digits, counts = table[: -encoding.groups], table[-encoding.groups :]
        count_noise = TableNoise(self.noise[-1], self.draws)
        return NoisyTableGroupSums(self._digit_noise, count_noise, digits.reshape(encoding.coordinates, -1), counts)

    @property
    def _digit_noise(self) -> DigitNoise:
        digits = Digits(self.radices)
        return DigitNoise(digits, tuple(TableNoise(self.noise[j], self.draws) for j in range(len(self.radices))))

    @staticmethod
    def _numbers(encoding: Table) -> MultiHot:
        assert isinstance(encoding, MultiHot)  # as `check` has seen
        return encoding

    def expected_error(self, encoding: Table, users: int, assumed_std: float | None = None) -> ExpectedError:
        """The noise is public and exact, of marginals that of least squares; rounding is charged at its worst.

        Of groups it is the error of their means if all are equally large, with the worst that a noisy count can do.
        """
        if self.radices:
            numbers, digits = self._numbers(encoding), Digits(self.radices)
            assert numbers.scale is not None
            weight = float(np.sum(numbers.scale.width**2)) / users**2
            variances = np.array([self.draws * noise.variance for noise in self.noise])
            rounding = numbers.groups**2 * users / (4 * digits.levels**2)
            noise = float(error_weights(numbers, digits) @ variances)
            return ExpectedError(sampling=0.0, rounding=weight * rounding, noise=weight * noise)
        variance = self.draws * self.noise[0].variance
        if isinstance(encoding, OneHot) and not encoding.names_cells:
            return sketch_error(encoding, users, variance)
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

        A number moves by no more than its bounds allow. In groups, which are taken to be equally large, digits may be
        in one group and the count in another: a mean then moves by twice as much, and can leave its bounds. Of
        marginals a user counts once in each table, and reports may contradict each other.
        """
        if isinstance(encoding, Marginals):
            return malicious / users * encoding.largest_move
        positions, share = self.positions(encoding), malicious / users
        if self.radices:
            numbers = self._numbers(encoding)
            return share * numbers.groups * (2 if numbers.counted else 1)
        return share * int(positions.reports.max())

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

    def victims(self, encoding: Table, held: auditing.Held) -> tuple[Any, Any]:
        """Batches of one user each, who hold what is farthest apart, and nothing that is rounded by a coin."""
        if isinstance(encoding, OneHot):
            return [held.example(cells=[0])], [held.example(cells=[1])]
        if isinstance(encoding, Marginals):
            raise ParameterError("impossible-combination", "surveys are not audited; audit a plan for one question")
        if encoding.scale is None:
            most, cells = encoding.most_true, encoding.coordinates
            return [held.example(cells=range(most))], [held.example(cells=range(most, min(2 * most, cells)))]
        rows = []
        for group, values in ((0, encoding.scale.lower), (min(1, encoding.groups - 1), encoding.scale.upper)):
            row = held.example(cells=[group] if encoding.counted else (), values=values)
            rows.append(([row[0]], np.asarray([row[1]])) if encoding.counted else np.asarray([row]))
        return rows[0], rows[1]

    @dataclass(frozen=True, slots=True)
    class Options:
        """What a planner may be told: the radices of a number's digits, lowest first."""

        family: ClassVar[str] = "noisy-counts"
        radices: tuple[int, ...] | None = None

    def options(self) -> Options | None:
        """The radices."""
        return NoisyTable.Options(self.radices) if self.radices else None

    @classmethod
    def candidates(cls, encoding: Table, search: Search, options: Any = None) -> Iterator[Candidate]:
        """The least noise that is certified for the cells that a user can change, at the best radices or sizes."""
        if isinstance(encoding, OneHot) and None in (encoding.cells, encoding.tables):
            layouts: list[Table] = list(sketch_sizes(encoding, search))
        elif isinstance(encoding, Marginals):
            layouts = [*sorted(encoding.choices(), key=lambda choice: -len(choice.table_sizes))]
        else:
            layouts = [encoding]
        found = False
        for layout in layouts:  # the one with the fewest reports says why none is possible
            try:
                yield Candidate(planned(cls, layout, search, _wanted_radices(layout, options)), layout)
                found = True
            except (ParameterError, PrivacyError):
                if search.only and not found and layout is layouts[-1]:
                    raise

    def describe(self, encoding: Table) -> str:
        """What a user sends."""
        if isinstance(encoding, OneHot):
            return (
                "the label"
                if encoding.names_cells
                else f"the word's hash under each of {encoding.layout[0]:,} functions"
            )
        if isinstance(encoding, Marginals):
            return f"the cell of all answers in each of {counted(len(self.positions(encoding)), 'table')}"
        if self.radices:
            where = f" and the group, one of {encoding.groups:,}," if encoding.counted else ""
            digits = "the digit" if len(self.radices) == 1 else f"the {len(self.radices)} digits"
            kind = {2: "binary", 3: "ternary"}.get(self.radices[0]) if len(set(self.radices)) == 1 else None
            digits = (
                digits.replace("digit", f"{kind} digit") if kind else f"{digits} (of {_listed(self.radices)} values)"
            )
            numbers = "one number" if encoding.coordinates == 1 else f"each of {encoding.coordinates:,} numbers"
            return f"{digits} of {numbers}{where}"
        if len(self.positions(encoding)) > 1:
            return "for each label whether it is chosen"
        return f"up to {encoding.most_true} chosen labels, and blanks up to that number"


_NEAR, _NEAR_ALONE = (
    1.05**2 - 1,
    0.01,
)  # of the least squared error: what fewer reports may cost, and where none are sent
_FEW_CHANGED = 50  # cells; there noise may be nearer to Laplace than to normal


def _wanted_radices(encoding: Table, options: Any) -> tuple[int, ...] | None:
    """What was asked for by options of this mechanism, or of the one where users draw the noise."""
    digits, radices = getattr(options, "digits", None), getattr(options, "radices", None)
    if digits is None and radices is None:
        return None
    if not isinstance(encoding, MultiHot) or encoding.scale is None:  # of the same family, for numbers
        raise ParameterError("impossible-combination", "digits are for numbers, not for labels; leave them out")
    if radices is not None:
        return tuple(map(int, radices))
    assert digits is not None
    check_size("digits", digits, 1, 16)
    return (2,) * int(digits)


def planned(kind: type[NoisyTable], encoding: Table, search: Search, radices: tuple[int, ...] | None) -> NoisyTable:
    """The least certified noise; of two ratios of variances, where few cells change, the better one."""
    guarantee, noise_by = search.guarantee, search.noise_by
    assert noise_by != "users"
    ratios_tried: list[Floats] = [np.ones(1)]
    if isinstance(encoding, MultiHot) and encoding.scale is not None:
        if radices is None:
            tolerance = _NEAR_ALONE if noise_by == "curator" else _NEAR
            draws = 2 if noise_by == "servers" else 1
            most = math.inf if noise_by == "curator" else search.max_dummies
            radices = best_radices(
                encoding, guarantee, draws, tolerance=tolerance, max_reports=search.max_reports, max_dummies=most
            )
        changed, weights = encoding.changed_by(radices), error_weights(encoding, Digits(radices))
        few = sum(changed) * guarantee.rounds <= _FEW_CHANGED and len(changed) > 1
        ratios_tried = [ratios(changed, weights, laplace=laplace) for laplace in ((False, True) if few else (False,))]
    else:
        changed, radices = encoding.positions().changed, ()
    found = []
    for tried in ratios_tried:
        pairs = tuple(zip(changed, tried.tolist(), strict=True))
        noise = least_noises(guarantee.epsilon, guarantee.delta, changed=pairs, rounds=guarantee.rounds)
        found.append(kind(noise_by, radices, noise))
    best = min(found, key=lambda one: one.expected_error(encoding, guarantee.users).total)
    reports = best.reports(encoding)
    if search.max_reports is not None and reports > search.max_reports:
        raise PrivacyError(
            "privacy-out-of-reach",
            f"max_reports is {search.max_reports}, but each user sends {reports} reports; raise it",
        )
    if (added := best.added_reports(encoding)) > search.max_dummies:
        raise PrivacyError("privacy-out-of-reach", too_many(added, search.max_dummies))
    return best


def _listed(radices: tuple[int, ...]) -> str:
    return ", ".join(map(str, radices[:-1])) + f" and {radices[-1]}" if len(radices) > 1 else str(radices[0])
