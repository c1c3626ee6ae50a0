"""The parameters of `add`, and where its answers are found: the truth in binary digits, and noise as further reports.

A value is rounded at random to one of 0..k, k = 2^J - 1; its user reports the cell coordinate x J + j for each binary
digit j that is 1, and each cell Binomial(trials_j, probability_j) times more, whatever its digit. A chosen label is a
digit, and users are counted in groups as one digit more; `layout.py` says which cells there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shufflesum._checks import check_number, check_size
from shufflesum.cells import MOST_CELLS
from shufflesum.domain import Box, Choices, Domain, Groups, Neighbours, as_box
from shufflesum.errors import ParameterError, PlanError
from shufflesum.mechanisms.add.accounting import AddAccounting
from shufflesum.mechanisms.add.attack import AddAttack
from shufflesum.mechanisms.add.decode import AddMeans
from shufflesum.mechanisms.add.decode_groups import AddGroupSums
from shufflesum.mechanisms.add.encode import AddEncoder
from shufflesum.mechanisms.add.layout import Layout
from shufflesum.mechanisms.add.tally import AddTally
from shufflesum.mechanisms.frequencies import Frequencies
from shufflesum.mechanisms.mechanism import ExpectedError, Floats, GroupSums, Means, Mechanism, Table
from shufflesum.privacy import Guarantee
from shufflesum.privacy.add import MOST_TRIALS
from shufflesum.randomness import RandomSource
from shufflesum.randomness.draws import PROBABILITY_BITS

__all__ = ["MOST_DIGITS", "Add"]

MOST_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Add(Mechanism):
    """Every user reports all binary digits of all coordinates, and for the cell of digit j binomial noise as well.

    Where users are counted in groups, the last of `trials` and `probabilities` is the noise of those counts.
    A user whose noise reports, over all cells, are more than `cap` draws them again; blanks fill up what is left of
    room. Without a cap nothing can be sent: such a plan is for one process, which draws each cell's noise once.
    """

    kind: ClassVar[str] = "add"
    word: ClassVar[str] = "add"

    digits: int
    trials: tuple[int, ...]
    probabilities: tuple[float, ...]
    cap: int | None

    def __post_init__(self) -> None:
        """Refuse what no domain could make sense of, and keep Python's own numbers: others read otherwise in JSON."""
        check_size("digits", self.digits, 1, MOST_DIGITS)
        for name, values in (("trials", self.trials), ("probabilities", self.probabilities)):
            if len(values) not in (self.digits, self.digits + 1) or len(values) != len(self.trials):
                raise ParameterError(
                    "conflicting-arguments",
                    f"{name} has {len(values)} entries; one for each of {self.digits} digits, and with groups one more",
                )
        for trials, probability in zip(self.trials, self.probabilities, strict=True):
            check_size("trials", trials, 1, MOST_TRIALS)
            check_number("probability", probability)
            if not 0 <= probability < 1 or not float(probability * 2.0**PROBABILITY_BITS).is_integer():
                raise ParameterError(
                    "out-of-range",
                    f"a probability is {probability!r}; it must be a multiple of 2**-53, at least 0 and below 1",
                )
        if self.cap is not None:
            check_size("cap", self.cap, 0, MOST_CELLS)
            object.__setattr__(self, "cap", int(self.cap))
        object.__setattr__(self, "digits", int(self.digits))
        object.__setattr__(self, "trials", tuple(map(int, self.trials)))
        object.__setattr__(self, "probabilities", tuple(map(float, self.probabilities)))

    @property
    def levels(self) -> int:
        """k = 2^J - 1: the largest number a value is rounded to."""
        return (1 << self.digits) - 1

    @property
    def noise_variances(self) -> Floats:
        """The variance of one user's noise in a cell of each class."""
        chances = np.array(self.probabilities)
        variances: Floats = np.array(self.trials, dtype=np.float64) * chances * (1 - chances)
        return variances

    @property
    def noise_means(self) -> Floats:
        """The mean of one user's noise in a cell of each class."""
        means: Floats = np.array(self.trials, dtype=np.float64) * np.array(self.probabilities)
        return means

    @property
    def weights(self) -> Floats:
        """What a report of each digit adds to a mean of values in [0, 1]: 2^j/k."""
        weights: Floats = 2.0 ** np.arange(self.digits) / self.levels
        return weights

    @property
    def noise_of_sum(self) -> float:
        """The variance that one user's noise brings to a coordinate's sum of values in [0, 1]."""
        return float(np.sum(self.weights**2 * self.noise_variances[: self.digits]))

    def layout(self, domain: Domain) -> Layout:
        """Which cells there are."""
        return Layout.of(self.digits, domain)

    def check(self, domain: Domain) -> None:
        """Refuse more cells than a report can number, and more reports than anybody could send."""
        layout = self.layout(domain)
        if layout.classes != len(self.trials):
            raise ParameterError(
                "conflicting-arguments",
                f"trials has {len(self.trials)} entries, but there are {layout.classes} kinds of cells",
            )
        if layout.cells > MOST_CELLS:
            raise ParameterError(
                "too-many-cells",
                f"dimension {domain.dimension} with {self.digits} digits needs {layout.cells} report cells; the "
                "report format has fewer than 2**32: lower the dimension or the digits",
            )
        if self.cap is not None and self.reports(domain) > MOST_CELLS:
            raise ParameterError(
                "too-many-reports",
                f"a user would send {self.reports(domain)} reports; fewer than 2**32 can be sent: lower the cap",
            )

    def cells(self, domain: Domain) -> int:
        """One for each digit of each coordinate, in each group, and one for each group's count."""
        return self.layout(domain).cells

    def reports(self, domain: Domain) -> int:
        """Room for all that is true and for as many noise reports as the cap allows, or as there are trials."""
        layout = self.layout(domain)
        most = sum(size * trials for size, trials in zip(layout.sizes, self.trials, strict=True))
        return layout.most_true + (most if self.cap is None else min(self.cap, most))

    def noise_reports(self, domain: Domain) -> float:
        """How many noise reports a user sends on average."""
        return float(np.dot(self.layout(domain).sizes, self.noise_means))

    def blanks(self, domain: Domain) -> float:
        """Half of what can be true is, on average over all values; noise is what it is; the rest is blank."""
        layout = self.layout(domain)
        true = (layout.most_true - layout.counted) / 2 + layout.counted
        return self.reports(domain) - true - self.noise_reports(domain)

    def encoder(self, domain: Domain, source: RandomSource) -> AddEncoder:
        """What is true of each user, noise and blanks."""
        if self.cap is None:
            raise PlanError(
                "one-process-only",
                "this plan is for one process, which draws the noise of all users at once; nothing can be sent under "
                "it: use aggregate or shufflesum run, or make a plan without one_process=True (--one-process)",
            )
        return AddEncoder(self, domain, source)

    def tally(self, domain: Domain, source: RandomSource) -> AddTally:
        """Sums of what is true, with each cell's noise drawn once."""
        return AddTally(self, domain, source)

    def decode(self, domain: Domain, table: Table, users: int) -> Means:
        """Digits added up, or choices counted, the mean of the noise taken off."""
        if isinstance(domain, Choices):
            return Frequencies(table, users, users * self.trials[0], self.probabilities[0])
        box = as_box(domain)
        return AddMeans(self, table.reshape(box.dimension, self.digits), users, box.structure.mixes)

    def decode_groups(self, domain: Domain, table: Table, users: int) -> GroupSums:
        """Digits added up and users counted in each group, the mean of the noise taken off."""
        return AddGroupSums(self, self.layout(domain), table, users)

    def expected_error(self, domain: Domain, users: int, spread: float | None = None) -> ExpectedError:
        """The noise is public and exact; rounding is charged at its worst; every user reports everything.

        Of groups it is the error of their means if all are equally large, with the worst that a noisy count can do.
        """
        if isinstance(domain, Choices):
            return ExpectedError(0.0, 0.0, noise=domain.dimension * float(self.noise_variances[0]) / users)
        box = _box(domain)
        groups = len(domain.labels) if isinstance(domain, Groups) else 1
        weight = groups**2 * float(np.sum(box.width**2)) / users
        # a mean is a sum over a count, and what is wrong with the count moves it by that part of it, at most a width
        count = float(self.noise_variances[self.digits]) if isinstance(domain, Groups) else 0.0
        return ExpectedError(
            sampling=0.0,
            rounding=weight / (4 * self.levels**2),
            noise=groups * weight * (self.noise_of_sum + count),
        )

    def accounting(self, neighbours: Neighbours, guarantee: Guarantee) -> AddAccounting:
        """The certified bounds of a table whose cells change by one, as many as neighbours can differ in."""
        return AddAccounting.of(self, neighbours, guarantee)

    def fewest_dishonest(self, domain: Domain, table: Table, blanks: int, rejected: int, users: int) -> int:
        """Whoever follows the protocol has all reports accepted and sends at most 1 + trials of them into a cell."""
        reports, layout = self.reports(domain), self.layout(domain)
        fewest = math.ceil(rejected / reports)
        for number, trials in enumerate(self.trials):
            count, most = int(table[layout.cells_of(number)].max()), 1 + trials
            if count > users * most:
                fewest = max(fewest, math.ceil((count - users * most) / max(1, reports - most)))
        return fewest

    def influence(self, domain: Domain, users: int, dishonest: int) -> float:
        """All reports of the dishonest in the top digit of one coordinate, where they held nothing otherwise.

        In one process nobody sends reports, and a row counts for no more than the width of its bounds. Groups are taken
        to be equally large.
        """
        share = dishonest / users * (len(domain.labels) if isinstance(domain, Groups) else 1)
        return share if self.cap is None else share * self.reports(domain) * float(self.weights[-1])

    def attack(self, domain: Domain, guarantee: Guarantee, scout: Callable[[Any], Table]) -> AddAttack:
        """The victim with as much as can be 1, or 0, elsewhere."""
        return AddAttack(self, domain, guarantee)

    def choices(self) -> dict[str, Any]:
        """The digits, and whether anything is sent."""
        return {"mechanism": self.word, "digits": self.digits, "one_process": self.cap is None}

    def describe(self, domain: Domain) -> str:
        """What a user sends."""
        noise = f"about {self.noise_reports(domain):,.3g} further reports that are pure noise"
        noise = f"and {noise}" if self.cap is None else f"{noise} (at most {self.cap:,}) and blanks"
        if isinstance(domain, Choices):
            return f"up to {domain.most} chosen labels, {noise}"
        where = f" and the group, one of {len(domain.labels):,}," if isinstance(domain, Groups) else ","
        digits = "the binary digit" if self.digits == 1 else f"{self.digits} binary digits"
        dimension = _box(domain).dimension
        own = f"the 1s among {digits} of {'one number' if dimension == 1 else f'each of {dimension:,} numbers'}"
        return f"{own}{where} {noise}"


def _box(domain: Domain) -> Box:
    """The bounds of the arrays."""
    return domain.box if isinstance(domain, Groups) else as_box(domain)
