"""Numbers as digits with radices: which cells a value has, what they weigh, and which radices a planner takes.

A value in [0, 1] is rounded at random to one of 0..k and written with digits of radices r_0, r_1, ..., lowest first;
k + 1 is their product, and a digit j counts W_j = r_0 ... r_(j-1). One of its values is blank: 0 of a binary digit, the
middle one where there are an odd number; each other one has a cell. Digits but binary ones are counted from their
middle (docs/privacy-noise.md, section 8).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from shufflesum.encodings import MultiHot, digit_cells
from shufflesum.errors import PrivacyError
from shufflesum.mechanisms.mechanism import Floats
from shufflesum.privacy import Guarantee
from shufflesum.privacy.engine.gaussian import gaussian_noise

MOST_LEVELS = (1 << 16) - 1  # a value is rounded to so many at most


@dataclass(frozen=True)
class Digits:
    """Whole numbers from 0 to `levels`, by their digits."""

    radices: tuple[int, ...]

    @cached_property
    def levels(self) -> int:
        """k: the largest number a value is rounded to."""
        return math.prod(self.radices) - 1

    @cached_property
    def places(self) -> Floats:
        """W_j: what each digit counts."""
        places: Floats = np.cumprod(np.array([1.0, *self.radices[:-1]]))
        return places

    @cached_property
    def middles(self) -> Floats:
        """What each digit is counted from: 0 where it is binary."""
        return np.array([0.0 if radix == 2 else (radix - 1) / 2 for radix in self.radices])

    @cached_property
    def origin(self) -> float:
        """What all of a value's digits are counted from, as a part of `levels`."""
        return float(self.places @ self.middles) / self.levels

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many cells each digit has."""
        return tuple(map(digit_cells, self.radices))

    def weights(self, digit: int) -> Floats:
        """What a report of each cell of a digit adds to a value in [0, 1], counted from the origin."""
        weights: Floats = self._values(digit) * self.places[digit] / self.levels
        return weights

    @cached_property
    def squares(self) -> Floats:
        """S_j: the sum of the squared weights of a digit's cells, as if it counted 1."""
        return np.array([float(np.sum(self._values(digit) ** 2)) for digit in range(len(self.radices))])

    @cached_property
    def cell_of(self) -> NDArray[np.int64]:
        """(levels + 1, digits): the cell of each digit of each number, or -1 where it is blank."""
        found = np.empty((self.levels + 1, len(self.radices)), dtype=np.int64)
        left = np.arange(self.levels + 1)
        for digit, radix in enumerate(self.radices):
            left, value = np.divmod(left, radix)
            if radix == 2:
                found[:, digit] = value - 1
            elif radix % 2:
                middle = radix // 2
                found[:, digit] = np.where(value == middle, -1, value - (value > middle))
            else:
                found[:, digit] = value
        return found

    def _values(self, digit: int) -> Floats:
        radix = self.radices[digit]
        values = np.arange(radix) - self.middles[digit]
        found: Floats = values[1:] if radix == 2 else values[values != 0]
        return found


def error_weights(encoding: MultiHot, digits: Digits) -> Floats:
    """What one unit of variance in each class of cells adds to the squared error of a coordinate's mean, times users^2.

    Of groups it is that of all their means, if all are equally large: a mean is a sum over a count, and what is wrong
    with the count moves it by its distance from the origin.
    """
    found: Floats = digits.places**2 * digits.squares / digits.levels**2
    if encoding.counted:
        found = encoding.groups**3 * np.append(found, max(digits.origin, 1 - digits.origin) ** 2)
    return found


def ratios(changed: Sequence[int], weights: Floats, *, laplace: bool) -> Floats:
    """The ratios of variances that bring the least error, where noise is normal, or where it is discrete Laplace.

    The least of sum a_i V_i is at V_i ~ sqrt(c_i/a_i) if sum c_i/V_i is fixed, and at V_i ~ (c_i/a_i)^(2/3) if the sum
    of c_i/sqrt(V_i) is.
    """
    found = np.power(np.array(changed) / weights, 2 / 3 if laplace else 1 / 2)
    ratios: Floats = found / found.max()
    return ratios


def rough_noise(changed: Sequence[int], weights: Floats, guarantee: Guarantee) -> float:
    """About the least error that noise brings, as `error_weights` counts it."""
    cells, rounds = np.array(changed, dtype=np.float64), guarantee.rounds
    normal = float(np.sum(np.sqrt(weights * cells))) ** 2 * rounds
    laplace = 2 * float(np.sum(np.cbrt(weights * cells**2))) ** 3 * rounds**2 / guarantee.epsilon**2
    return min(normal * gaussian_noise(guarantee.epsilon, guarantee.delta) ** 2, laplace)


_LENGTH = 6.6  # about half-lengths of distributions, in deviations, where many cells change


def rough_added(encoding: MultiHot, radices: tuple[int, ...], guarantee: Guarantee) -> float:
    """About how many reports a shuffler adds: half-lengths of all cells, twice as many where reports may be blank."""
    changed = encoding.changed_by(radices)
    sizes = ratios(changed, error_weights(encoding, Digits(radices)), laplace=False)
    normal = gaussian_noise(guarantee.epsilon, guarantee.delta) ** 2 * guarantee.rounds
    deviations = np.sqrt(sizes * float(np.sum(np.array(changed) / sizes)) * normal)
    each = [digit_cells(radix) * (2 if radix == 2 or radix % 2 else 1) for radix in radices]
    cells = encoding.groups * np.array([encoding.coordinates * one for one in each] + [1] * encoding.counted)
    return float(_LENGTH * cells @ deviations)


def too_many(added: float, most: float) -> str:
    """Why a plan is refused under which a shuffler would add so many reports."""
    return (
        f"the shuffler would add about {added:,.0f} reports to a batch, and max_dummies is {most:,.0f}; raise "
        "max_dummies or epsilon, collect fewer numbers, labels or buckets, or plan with noise_by='users'"
    )


_MOST_DIGITS = 10
_LOWEST = (2, 3, 4, 5, 6, 7, 9, 11, 13, 15)  # of the lowest digit, where coarse noise costs little


def _all_radices() -> Iterator[tuple[int, ...]]:
    """Digits alike, binary or ternary, and a lowest one that is larger."""
    for count, rest in product(range(_MOST_DIGITS), (2, 3)):
        for lowest in _LOWEST:
            radices = (lowest, *(rest,) * count)
            if lowest >= rest and (count or rest == 2) and math.prod(radices) <= MOST_LEVELS + 1:
                yield radices


def best_radices(
    encoding: MultiHot,
    guarantee: Guarantee,
    draws: int,
    *,
    tolerance: float,
    max_reports: int | None,
    max_dummies: float = math.inf,
) -> tuple[int, ...]:
    """Of those whose squared error is within `tolerance` of the least, the ones with the fewest reports."""
    found: list[tuple[int, float, tuple[int, ...]]] = []
    fewest_added = math.inf
    for radices in _all_radices():
        digits, reports = Digits(radices), encoding.coordinates * len(radices) + encoding.counted
        added = rough_added(encoding, radices, guarantee) if max_dummies < math.inf else 0.0
        fewest_added = min(fewest_added, added)
        if (max_reports is None or reports <= max_reports) and added <= max_dummies:
            noise = rough_noise(encoding.changed_by(radices), error_weights(encoding, digits), guarantee)
            rounding = encoding.groups**2 * guarantee.users / (4 * digits.levels**2)
            found.append((reports, draws * noise + rounding, radices))
    if fewest_added > max_dummies:
        raise PrivacyError("privacy-out-of-reach", too_many(fewest_added, max_dummies))
    if not found:
        raise PrivacyError(
            "privacy-out-of-reach",
            f"max_reports is {max_reports}, but each user sends at least {encoding.coordinates + encoding.counted} "
            "reports, one for each number; raise it",
        )
    most = (1 + tolerance) * min(error for _, error, _ in found)
    return min(one for one in found if one[1] <= most)[2]
