"""The parameters of `add`, and where its answers are found: the truth in binary digits, and noise as further reports.

A value is rounded at random to one of 0..k, k = 2^J - 1; its user reports the cell coordinate x J + j for each binary
digit j that is 1, and each cell Binomial(trials_j, probability_j) times more, whatever its digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shufflesum._checks import check_number, check_size
from shufflesum.cells import MOST_CELLS
from shufflesum.domain import Domain, Neighbours
from shufflesum.errors import ParameterError, PlanError
from shufflesum.mechanisms.add.accounting import AddAccounting
from shufflesum.mechanisms.add.attack import AddAttack
from shufflesum.mechanisms.add.decode import AddMeans
from shufflesum.mechanisms.add.encode import AddEncoder
from shufflesum.mechanisms.add.tally import AddTally
from shufflesum.mechanisms.mechanism import ExpectedError, Floats, Mechanism, Table
from shufflesum.privacy import Guarantee
from shufflesum.privacy.add import MOST_TRIALS
from shufflesum.randomness import RandomSource
from shufflesum.randomness.draws import PROBABILITY_BITS

__all__ = ["MOST_DIGITS", "Add"]

MOST_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Add(Mechanism):
    """Every user reports all binary digits of all coordinates, and for the cell of digit j binomial noise as well.

    A user whose noise reports, over all cells, are more than `cap` draws them again; blanks fill up what is left of
    room. Without a cap nothing can be sent: such a plan is for one process, which draws each cell's noise once.
    """

    kind: ClassVar[str] = "add"

    digits: int
    trials: tuple[int, ...]
    probabilities: tuple[float, ...]
    cap: int | None

    def __post_init__(self) -> None:
        """Refuse what no domain could make sense of, and keep Python's own numbers: others read otherwise in JSON."""
        check_size("digits", self.digits, 1, MOST_DIGITS)
        for name, values in (("trials", self.trials), ("probabilities", self.probabilities)):
            if len(values) != self.digits:
                raise ParameterError(
                    "conflicting-arguments", f"{name} has {len(values)} entries; one for each of {self.digits} digits"
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
        """The variance of one user's noise in a cell of each digit."""
        chances = np.array(self.probabilities)
        variances: Floats = np.array(self.trials, dtype=np.float64) * chances * (1 - chances)
        return variances

    @property
    def noise_means(self) -> Floats:
        """The mean of one user's noise in a cell of each digit."""
        means: Floats = np.array(self.trials, dtype=np.float64) * np.array(self.probabilities)
        return means

    @property
    def weights(self) -> Floats:
        """What a report of each digit adds to a mean of values in [0, 1]: 2^j/k."""
        weights: Floats = 2.0 ** np.arange(self.digits) / self.levels
        return weights

    def check(self, domain: Domain) -> None:
        """Refuse more cells than a report can number, and more reports than anybody could send."""
        if self.cells(domain) > MOST_CELLS:
            raise ParameterError(
                "too-many-cells",
                f"dimension {domain.dimension} with {self.digits} digits needs {self.cells(domain)} report cells; the "
                "report format has fewer than 2**32: lower the dimension or the digits",
            )
        if self.cap is not None and self.reports(domain) > MOST_CELLS:
            raise ParameterError(
                "too-many-reports",
                f"a user would send {self.reports(domain)} reports; fewer than 2**32 can be sent: lower the cap",
            )

    def cells(self, domain: Domain) -> int:
        """One for each digit of each coordinate."""
        return domain.dimension * self.digits

    def reports(self, domain: Domain) -> int:
        """Room for every digit and for as many noise reports as the cap allows, or as there are trials."""
        most = domain.dimension * sum(self.trials)
        return self.cells(domain) + (most if self.cap is None else min(self.cap, most))

    def blanks(self, domain: Domain) -> float:
        """Half of the digits are 1 on average over all values; noise is what it is; the rest is blank."""
        sent = domain.dimension * (self.digits / 2 + float(np.sum(self.noise_means)))
        return self.reports(domain) - sent

    def encoder(self, domain: Domain, source: RandomSource) -> AddEncoder:
        """Digits, noise and blanks of each user."""
        if self.cap is None:
            raise PlanError(
                "one-process-only",
                "this plan is for one process, which draws the noise of all users at once; nothing can be sent under "
                "it: use aggregate or shufflesum run, or make a plan without one_process=True (--one-process)",
            )
        return AddEncoder(self, domain, source)

    def tally(self, domain: Domain, source: RandomSource) -> AddTally:
        """Sums of digits, with each cell's noise drawn once."""
        return AddTally(self, domain, source)

    def decode(self, domain: Domain, table: Table, users: int) -> AddMeans:
        """Digits added up, the mean of the noise taken off."""
        return AddMeans(self, table.reshape(domain.dimension, self.digits), users, domain.structure.mixes)

    def expected_error(self, domain: Domain, users: int, spread: float | None = None) -> ExpectedError:
        """The noise is public and exact; rounding is charged at its worst; every user reports every coordinate."""
        weight = float(np.sum(domain.width**2)) / users
        noise = float(np.sum(self.weights**2 * self.noise_variances))
        return ExpectedError(sampling=0.0, rounding=weight / (4 * self.levels**2), noise=weight * noise)

    def accounting(self, neighbours: Neighbours, guarantee: Guarantee) -> AddAccounting:
        """The certified bounds of a table whose cells all change by one."""
        return AddAccounting.of(self, neighbours, guarantee)

    def fewest_dishonest(self, domain: Domain, table: Table, blanks: int, rejected: int, users: int) -> int:
        """Whoever follows the protocol has all reports accepted and sends at most 1 + trials of them into a cell."""
        reports = self.reports(domain)
        fewest = math.ceil(rejected / reports)
        most_each = 1 + np.array(self.trials, dtype=object)  # without overflow
        for count, most in zip(table.reshape(-1, self.digits).max(axis=0), most_each, strict=True):
            if int(count) > users * most:
                fewest = max(fewest, math.ceil((int(count) - users * most) / max(1, reports - most)))
        return fewest

    def influence(self, domain: Domain, users: int, dishonest: int) -> float:
        """All reports of the dishonest in the top digit of one coordinate, where they held nothing otherwise.

        In one process nobody sends reports, and a row counts for no more than the width of its bounds.
        """
        if self.cap is None:
            return dishonest / users
        return dishonest * self.reports(domain) * float(self.weights[-1]) / users

    def attack(self, domain: Domain, guarantee: Guarantee, scout: Callable[[Floats], Table]) -> AddAttack:
        """The victim with all digits 0 or all digits 1, among users with all digits 0."""
        return AddAttack(self, domain, guarantee)

    def choices(self) -> dict[str, Any]:
        """The digits, and whether anything is sent."""
        return {"mechanism": self.kind, "digits": self.digits, "one_process": self.cap is None}

    def describe(self, domain: Domain) -> str:
        """What a user sends."""
        noise = domain.dimension * float(np.sum(self.noise_means))
        room = "" if self.cap is None else f" (at most {self.cap:,}) and blanks"
        return (
            f"the {self.digits} binary digits of all {domain.dimension:,} coordinates that are 1, "
            f"about {noise:,.3g} further reports that are pure noise{room}"
        )
