"""What the planner may try under `add`: how many digits, each number at its smallest certified noise.

Privacy costs about sum_j 1/V_j, V_j the variance of a cell's noise, and the error is sum_j 4^j V_j / k^2: the best
split is V_j proportional to 2^-j. One number is left, how much noise in all, and that is searched for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from shufflesum._search import GRID, bracket
from shufflesum.domain import Choices, Domain, EveryCoordinate, Groups, SomeCells, TwoGroups
from shufflesum.errors import PrivacyError
from shufflesum.mechanisms.add.accounting import user_noise
from shufflesum.mechanisms.add.layout import Layout
from shufflesum.mechanisms.add.mechanism import MOST_DIGITS, Add
from shufflesum.privacy import Guarantee
from shufflesum.privacy.add import MOST_TRIALS, smallest_cap
from shufflesum.privacy.curator import gaussian_noise
from shufflesum.privacy.engine.composition import check_delta

__all__ = ["AddMoves"]

_SENT = 1 / 24  # the chance of a trial at most: noise reports then are hardly more than the variance they bring
_DRAWN = 1 / 3  # in one process, where trials cost bits, and nobody sends reports
_CHARGED = 0.01  # the part of delta that the cap may cost
_FINE = 0.01  # rounding at so small a part of the noise asks for no further digit
_FEW_COUNTS = 20  # a cell with a smaller variance is far from normal
_MOST_REPORTS = 1 << 20  # of a user, before a planner chooses something else unasked: 54 MB, sealed
_SPARE_BITS = 1 << 33  # a gigabyte of random bits takes less than a second
_DOUBLINGS = 8  # of the trials, where the guess was far too low
_TOLERANCE = 1e-4  # relative, of the noise


@dataclass
class AddMoves:
    """All numbers of digits; each is certified once, when it is first asked for."""

    domain: Domain
    guarantee: Guarantee
    digits: int | None = None
    one_process: bool = False
    spread: float | None = None
    _certified: dict[int, Add] = field(default_factory=dict)

    def starts(self) -> Iterator[Add]:
        """From one digit on, until rounding hardly matters beside the noise; or as many as were asked for."""
        if self.digits is not None or isinstance(self.domain, Choices):
            yield self.certified(self.digits or 1)
            return
        for digits in range(1, MOST_DIGITS + 1):
            mechanism = self.certified(digits)
            yield mechanism
            error = mechanism.expected_error(self.domain, self.guarantee.users)
            if error.rounding < _FINE * error.noise:
                return

    def certified(self, digits: int) -> Add:
        """So many digits, at the smallest noise that is certified for the guarantee, and the cap that it needs."""
        if digits not in self._certified:
            self._certified[digits] = self._smallest(digits)
        return self._certified[digits]

    def worth_it(self, mechanism: Add) -> bool:
        """Whether a planner should choose so much noise unasked: a small crowd needs many noise reports of each user.

        In one process noise must not take much longer to draw than the values take to round.
        """
        dimension, users = self.domain.dimension, self.guarantee.users
        if self.one_process:
            return 2 * users * dimension * sum(mechanism.trials) <= 16 * users * dimension + _SPARE_BITS
        return mechanism.reports(self.domain) <= _MOST_REPORTS

    @property
    def _changed(self) -> float:
        """In how many counts of a digit neighbours differ; and what a group's own count costs as well."""
        match self.domain.neighbours:
            case EveryCoordinate(dimension):
                return dimension
            case SomeCells(_, most):
                return 2 * most
            case TwoGroups(_, dimension):
                return 2 * (dimension + math.sqrt(dimension))
        raise AssertionError(self.domain)  # `Layout.of` lets no other pass

    def _smallest(self, digits: int) -> Add:
        """The best of a few splits: where few counts hide a user, an empty cell costs more than the rule knows."""
        guarantee = self.guarantee
        Layout.of(digits, self.domain)  # refuses what cannot be carried
        check_delta(guarantee.delta)
        # As if losses were normal: the sum of 1/V_j over all cells and rounds is that of Gaussian noise.
        noise = gaussian_noise(guarantee.epsilon, guarantee.delta) ** 2 * self._changed * guarantee.rounds
        few = noise < _FEW_COUNTS
        ratios = (2.0, 1.4) if few and digits > 1 else (2.0,)
        found = [self._with_split(digits, noise, ratio) for ratio in ratios]
        best = min(found, key=lambda mechanism: mechanism.expected_error(self.domain, guarantee.users).noise)
        if self.one_process:
            return best
        growth = 1 + math.exp(min(guarantee.epsilon, 700.0))
        most = _CHARGED * guarantee.delta / (growth * guarantee.rounds * guarantee.honest_users)
        return replace(best, cap=smallest_cap(user_noise(best, self.domain.neighbours), most * (1 - 1e-9)))

    def _with_split(self, digits: int, noise: float, ratio: float) -> Add:
        """The smallest noise whose variance falls by this ratio from digit to digit, before the cap."""
        guarantee = self.guarantee
        honest, chance = guarantee.honest_users, _DRAWN if self.one_process else _SENT
        target = guarantee.delta * (1.0 if self.one_process else 1.0 - _CHARGED)
        guess = [noise * sum(ratio**i for i in range(digits)) * ratio**-j for j in range(digits)]
        if isinstance(self.domain, Groups):
            # A count's noise moves all means of its group, by a width at most, and costs as much privacy as a digit's:
            # with variances V of a sum and C of a count, d (V + C) is least at equal d/V + 1/C where C = V/sqrt(d).
            guess.append(noise / math.sqrt(self.domain.box.dimension))
        trials = [max(1, math.ceil(1.02 * variance / (honest * chance * (1 - chance)))) for variance in guess]

        def scaled(scale: float) -> Add:
            """With `scale` times the guessed variances, chances rounded up to what can be drawn."""
            each = [scale * variance / (honest * q) for variance, q in zip(guess, trials, strict=True)]
            chances = [0.5 * (1.0 - math.sqrt(max(0.0, 1.0 - 4.0 * variance))) for variance in each]
            return Add(digits, tuple(trials), tuple(max(1, math.ceil(p * GRID)) / GRID for p in chances), None)

        def delta(scale: float) -> float:
            accounting = scaled(scale).accounting(self.domain.neighbours, guarantee)
            return accounting.cells.delta_upper(guarantee.epsilon)

        for _ in range(_DOUBLINGS):
            if honest * max(trials) > MOST_TRIALS:
                break
            highest = min(0.2499 * honest * q / variance for variance, q in zip(guess, trials, strict=True))
            _, enough = bracket(delta, target, guess=1.01, highest=highest, tolerance=_TOLERANCE, spread=1.02)
            if enough < math.inf:
                return scaled(enough)
            trials = [2 * q for q in trials]
        raise PrivacyError(
            "privacy-out-of-reach",
            f"no noise is certified for epsilon = {guarantee.epsilon}, delta = {guarantee.delta} with "
            f"{honest} honest users under mechanism 'add'; raise users, epsilon or delta",
        )
