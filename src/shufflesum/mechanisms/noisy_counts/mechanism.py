"""The parameters of `noisy-counts`, and where its answers are found: the truth in binary digits, and noise as further
reports.

A value is rounded at random to one of 0..k, k = 2^J - 1; its user reports the cell coordinate x J + j for each binary
digit j that is 1, and each cell Binomial(trials_j, probability_j) times more, whatever its digit. A chosen label is a
digit, and users are counted in groups as one digit more; `MultiHot` says which cells there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shufflesum._checks import check_choice, check_number, check_size
from shufflesum._search import GRID, bracket
from shufflesum.cells import MOST_CELLS
from shufflesum.encodings import Encoding, MultiHot
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.frequencies import BinomialNoise, Frequencies, ends_of, quantile, reach
from shufflesum.mechanisms.mechanism import (
    Candidate,
    Combined,
    CountTable,
    ExpectedError,
    Floats,
    GroupSums,
    Means,
    Mechanism,
    Search,
    Target,
)
from shufflesum.mechanisms.noisy_counts.attack import NoisyCountsAttack
from shufflesum.mechanisms.noisy_counts.randomize import NoisyCountsEncoder, NoisyCountsTally
from shufflesum.privacy import Guarantee
from shufflesum.privacy import noisy_counts as accounting
from shufflesum.privacy.engine.composition import check_delta
from shufflesum.privacy.engine.gaussian import gaussian_noise
from shufflesum.randomness import PROBABILITY_BITS, RandomSource

if TYPE_CHECKING:
    from shufflesum.encodings import MultiHot

MOST_DIGITS = 16


@dataclass(frozen=True, slots=True)
class NoisyCounts(Mechanism):
    """Every user reports all binary digits of all coordinates, and for the cell of digit j binomial noise as well.

    Where users are counted in groups, the last of `trials` and `probabilities` is the noise of those counts.
    A user whose dummy reports, over all cells, are more than `cap` draws them again; blanks fill up what is left of
    room.
    """

    kind: ClassVar[str] = "noisy-counts"
    family: ClassVar[str] = "noisy-counts"
    accepts: ClassVar[type[Encoding]] = MultiHot

    digits: int
    trials: tuple[int, ...]
    probabilities: tuple[float, ...]
    cap: int

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
            check_size("trials", trials, 1, accounting.MOST_TRIALS)
            check_number("probability", probability)
            if not 0 <= probability < 1 or not float(probability * 2.0**PROBABILITY_BITS).is_integer():
                raise ParameterError(
                    "out-of-range",
                    f"a probability is {probability!r}; it must be a multiple of 2**-53, at least 0 and below 1",
                )
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

    def layout(self, encoding: MultiHot) -> MultiHot:
        """Which cells there are; a label is chosen or not, which is one digit."""
        if encoding.scale is None and self.digits != 1:
            raise ParameterError("out-of-range", f"digits is {self.digits}; a label is chosen or not: one digit")
        return encoding.with_digits(self.digits)

    def check(self, encoding: MultiHot) -> None:
        """Refuse more cells than a report can number, and more reports than anybody could send."""
        layout = self.layout(encoding)
        if layout.classes != len(self.trials):
            raise ParameterError(
                "conflicting-arguments",
                f"trials has {len(self.trials)} entries, but there are {layout.classes} kinds of cells",
            )
        if layout.size > MOST_CELLS:
            raise ParameterError(
                "too-many-cells",
                f"dimension {encoding.dimension} with {self.digits} digits needs {layout.size} report cells; the "
                "report format has fewer than 2**32: lower the dimension or the digits",
            )
        if self.reports(encoding) > MOST_CELLS:
            raise ParameterError(
                "too-many-reports",
                f"a user would send {self.reports(encoding)} reports; fewer than 2**32 can be sent: lower the cap",
            )

    def cells(self, encoding: MultiHot) -> int:
        """One for each digit of each coordinate, in each group, and one for each group's count."""
        return self.layout(encoding).size

    def reports(self, encoding: MultiHot) -> int:
        """Room for all that is true and for as many dummy reports as the cap allows, or as there are trials."""
        layout = self.layout(encoding)
        most = sum(size * trials for size, trials in zip(layout.sizes, self.trials, strict=True))
        return layout.most_true + min(self.cap, most)

    def dummy_reports(self, encoding: MultiHot) -> float:
        """How many dummy reports a user sends on average."""
        return float(np.dot(self.layout(encoding).sizes, self.noise_means))

    def blanks(self, encoding: MultiHot) -> float:
        """Half of what can be true is, on average over all values; noise is what it is; the rest is blank."""
        layout = self.layout(encoding)
        true = (layout.most_true - layout.counted) / 2 + layout.counted
        return self.reports(encoding) - true - self.dummy_reports(encoding)

    def encoder(self, encoding: MultiHot, source: RandomSource) -> NoisyCountsEncoder:
        """What is true of each user, noise and blanks."""
        return NoisyCountsEncoder(self, encoding, source)

    def tally(self, encoding: MultiHot, source: RandomSource) -> NoisyCountsTally:
        """Sums of what is true, with each cell's noise drawn once."""
        return NoisyCountsTally(self, encoding, source)

    def decode(self, encoding: MultiHot, table: CountTable, users: int) -> Means:
        """Digits added up, or chosen labels counted, the mean of the noise taken off."""
        if encoding.scale is None:
            return Frequencies(table, users, BinomialNoise(users * self.trials[0], self.probabilities[0]))
        return NoisyCountsMeans(self, table.reshape(encoding.coordinates, self.digits), users, encoding.mixes)

    def decode_groups(self, encoding: MultiHot, table: CountTable, users: int) -> GroupSums:
        """Digits added up and users counted in each group, the mean of the noise taken off."""
        return NoisyCountsGroupSums(self, self.layout(encoding), table, users)

    def expected_error(self, encoding: MultiHot, users: int, assumed_std: float | None = None) -> ExpectedError:
        """The noise is public and exact; rounding is charged at its worst; every user reports everything.

        Of groups it is the error of their means if all are equally large, with the worst that a noisy count can do.
        """
        if encoding.scale is None:
            return ExpectedError(0.0, 0.0, noise=encoding.dimension * float(self.noise_variances[0]) / users)
        groups = encoding.groups
        weight = groups**2 * float(np.sum(encoding.scale.width**2)) / users
        # a mean is a sum over a count, and what is wrong with the count moves it by that part of it, at most a width
        count = float(self.noise_variances[self.digits]) if encoding.counted else 0.0
        return ExpectedError(
            sampling=0.0, rounding=weight / (4 * self.levels**2), noise=groups * weight * (self.noise_of_sum + count)
        )

    def user_noise(self, encoding: MultiHot) -> list[tuple[int, float]]:
        """The trials of one user's noise and their chances, all cells of a class together."""
        sizes = self.layout(encoding).sizes
        return [(size * q, p) for size, q, p in zip(sizes, self.trials, self.probabilities, strict=True)]

    def accountant(self, encoding: MultiHot, guarantee: Guarantee) -> accounting.NoisyCountsAccountant:
        """A table whose cells change by one, as many as the sensitivity says; only noise of honest users counts."""
        honest, rounds = guarantee.honest_users, guarantee.rounds
        exceeded = accounting.overflow_upper(self.user_noise(encoding), self.cap)
        changed = self.changed_counts(encoding, guarantee)
        return accounting.NoisyCountsAccountant(changed, min(1.0, rounds * honest * exceeded))

    def changed_counts(self, encoding: MultiHot, guarantee: Guarantee) -> tuple[accounting.ChangedCounts, ...]:
        """The counts that a user can change, all digits and rounds, as if nobody drew noise again for the cap."""
        honest, rounds = guarantee.honest_users, guarantee.rounds
        counts: list[accounting.ChangedCounts] = []
        classes = self.layout(encoding).sensitivity.classes
        for change, q, p in zip(classes, self.trials, self.probabilities, strict=True):
            if change.paired:
                counts += accounting.ChangedCounts.of_choices(
                    trials=honest * q,
                    probability=p,
                    labels=change.cells,
                    max_choices=change.changed // 2,
                    rounds=rounds,
                )
            else:
                counts.append(accounting.ChangedCounts(honest * q, p, change.changed * rounds, at_once=change.changed))
        return tuple(counts)

    def min_malicious(self, encoding: MultiHot, table: CountTable, blanks: int, rejected: int, users: int) -> int:
        """Whoever follows the protocol has all reports accepted and sends at most 1 + trials of them into a cell."""
        reports, layout = self.reports(encoding), self.layout(encoding)
        fewest = math.ceil(rejected / reports)
        for number, trials in enumerate(self.trials):
            count, most = int(table[layout.cells_of(number)].max()), 1 + trials
            if count > users * most:
                fewest = max(fewest, math.ceil((count - users * most) / max(1, reports - most)))
        return fewest

    def max_shift(self, encoding: MultiHot, users: int, malicious: int) -> float:
        """All reports of malicious users in the top digit of one coordinate, where they held nothing otherwise.

        Groups are taken to be equally large.
        """
        return malicious / users * encoding.groups * self.reports(encoding) * float(self.weights[-1])

    def attack(
        self, encoding: MultiHot, held: auditing.Held, guarantee: Guarantee, sample_table: Callable[[Any], CountTable]
    ) -> NoisyCountsAttack:
        """The victim with as much as can be 1, or 0, elsewhere."""
        return NoisyCountsAttack(self, encoding, held, guarantee)

    @dataclass(frozen=True, slots=True)
    class Options:
        """What a planner may be told: how many binary digits of each value are sent."""

        family: ClassVar[str] = "noisy-counts"
        digits: int | None = None

    @classmethod
    def candidates(cls, encoding: MultiHot, search: Search, options: Options | None = None) -> Iterator[Candidate]:
        """Every number of digits, at its smallest certified noise."""
        for found in candidates(encoding, search, getattr(options, "digits", None)):
            yield Candidate(found, encoding)

    @classmethod
    def alternatives(cls, encoding: MultiHot, search: Search) -> Iterator[Candidate]:
        """Those that are practical."""
        return cls.candidates(encoding, replace(search, only=False, max_reports=None))

    def options(self) -> Options | None:
        """The digits."""
        return NoisyCounts.Options(self.digits)

    def describe(self, encoding: MultiHot) -> str:
        """What a user sends."""
        noise = f"about {self.dummy_reports(encoding):,.3g} further reports that are pure noise"
        noise = f"{noise} (at most {self.cap:,}) and blanks"
        if encoding.scale is None:
            return f"up to {encoding.most_true} chosen labels, {noise}"
        where = f" and the group, one of {encoding.groups:,}," if encoding.counted else ","
        digits = "the binary digit" if self.digits == 1 else f"{self.digits} binary digits"
        numbers = "one number" if encoding.coordinates == 1 else f"each of {encoding.coordinates:,} numbers"
        return f"the 1s among {digits} of {numbers}{where} {noise}"


_SENT = 1 / 24  # the chance of a trial at most: dummy reports then are hardly more than the variance they bring
_CHARGED = 0.01  # the part of delta that the cap may cost
_FINE = 0.01  # rounding at so small a part of the noise asks for no further digit
_FEW_COUNTS = 20  # a cell with a smaller variance is far from normal
_MOST_REPORTS = 1 << 20  # of a user, before a planner chooses something else unasked: 54 MB, sealed
_DOUBLINGS = 8  # of the trials, where the guess was far too low
_TOLERANCE = 1e-4  # relative, of the noise


def candidates(encoding: MultiHot, search: Search, digits: int | None) -> Iterator[NoisyCounts]:
    """From one digit on, until rounding hardly matters beside the noise; or as many as were asked for.

    They end where no more can be sent, or where another mechanism serves better unasked.
    """
    if digits is not None:
        check_size("digits", digits, 1, MOST_DIGITS)
    certifier = _Certifier(encoding, search)
    found = False
    try:
        for count in (digits or 1,) if digits or encoding.scale is None else range(1, MOST_DIGITS + 1):
            mechanism = certifier.certified(count)
            if not search.only and not certifier.is_practical(mechanism):
                return
            reports = mechanism.reports(encoding)
            if search.max_reports is not None and reports > search.max_reports:
                if search.only and not found:
                    numbers = encoding.scale is not None and not encoding.counted
                    other = ", or plan with mechanism 'randomized-response'" if numbers else ""
                    raise PrivacyError(
                        "privacy-out-of-reach",
                        f"max_reports is {search.max_reports}, but mechanism 'noisy-counts' with {count} digits needs "
                        f"{reports} reports of a user; raise max_reports, users or epsilon{other}",
                    )
                return
            yield mechanism
            found = True
            error = mechanism.expected_error(encoding, search.guarantee.users)
            if error.rounding < _FINE * error.noise:
                return
    except (ParameterError, PrivacyError):
        if search.only and not found:
            raise


@dataclass(frozen=True, slots=True)
class _Certifier:
    """Finds the smallest certified noise for so many digits."""

    encoding: MultiHot
    search: Search

    def is_practical(self, mechanism: NoisyCounts) -> bool:
        """Whether a planner should choose so much noise unasked: each of few users sends many dummy reports."""
        return mechanism.reports(self.encoding) <= _MOST_REPORTS

    @property
    def _changed(self) -> float:
        """In how many counts of a digit neighbours differ; and what a group's own count costs as well."""
        changed = self.encoding.sensitivity.classes[0].changed
        return changed + 2 * math.sqrt(self.encoding.coordinates) if self.encoding.counted else changed

    def certified(self, digits: int) -> NoisyCounts:
        """The best of a few splits: where few counts hide a user, an empty cell costs more than the rule knows."""
        guarantee = self.search.guarantee
        check_delta(guarantee.delta)
        # As if losses were normal: the sum of 1/V_j over all cells and rounds is that of Gaussian noise.
        noise = gaussian_noise(guarantee.epsilon, guarantee.delta) ** 2 * self._changed * guarantee.rounds
        few = noise < _FEW_COUNTS
        ratios = (2.0, 1.4) if few and digits > 1 else (2.0,)
        found = [self._with_split(digits, noise, ratio) for ratio in ratios]
        best = min(found, key=lambda mechanism: mechanism.expected_error(self.encoding, guarantee.users).noise)
        growth = 1 + math.exp(min(guarantee.epsilon, 700.0))
        most = _CHARGED * guarantee.delta / (growth * guarantee.rounds * guarantee.honest_users)
        return replace(best, cap=accounting.smallest_cap(best.user_noise(self.encoding), most * (1 - 1e-9)))

    def _with_split(self, digits: int, noise: float, ratio: float) -> NoisyCounts:
        """The smallest noise whose variance falls by this ratio from digit to digit, before the cap."""
        guarantee = self.search.guarantee
        honest, chance = guarantee.honest_users, _SENT
        target = guarantee.delta * (1.0 - _CHARGED)
        guess = [noise * sum(ratio**i for i in range(digits)) * ratio**-j for j in range(digits)]
        if self.encoding.counted:
            # A count's noise moves all means of its group, by a width at most, and costs as much privacy as a digit's:
            # with variances V of a sum and C of a count, d (V + C) is least at equal d/V + 1/C where C = V/sqrt(d).
            guess.append(noise / math.sqrt(self.encoding.coordinates))
        trials = [max(1, math.ceil(1.02 * variance / (honest * chance * (1 - chance)))) for variance in guess]

        def scaled(scale: float) -> NoisyCounts:
            """With `scale` times the guessed variances, chances rounded up to what can be drawn."""
            each = [scale * variance / (honest * q) for variance, q in zip(guess, trials, strict=True)]
            chances = [0.5 * (1.0 - math.sqrt(max(0.0, 1.0 - 4.0 * variance))) for variance in each]
            return NoisyCounts(
                digits, tuple(trials), tuple(max(1, math.ceil(p * GRID)) / GRID for p in chances), MOST_CELLS
            )

        def delta(scale: float) -> float:
            counts = scaled(scale).changed_counts(self.encoding, guarantee)
            return accounting.NoisyCountsAccountant(counts).delta_upper(guarantee.epsilon)

        for _ in range(_DOUBLINGS):
            if honest * max(trials) > accounting.MOST_TRIALS:
                break
            highest = min(0.2499 * honest * q / variance for variance, q in zip(guess, trials, strict=True))
            _, enough = bracket(delta, target, guess=1.01, highest=highest, tolerance=_TOLERANCE, first_factor=1.02)
            if enough < math.inf:
                return scaled(enough)
            trials = [2 * q for q in trials]
        raise PrivacyError(
            "privacy-out-of-reach",
            f"no noise is certified for epsilon = {guarantee.epsilon}, delta = {guarantee.delta} with "
            f"{honest} honest users under mechanism 'noisy-counts'; raise users, epsilon or delta",
        )


# ---- Counts to means, or to sums and counts of groups, with error bars (docs/accuracy.md).
#
# Y_j counts the digit j of a coordinate: users whose digit is 1, and Binomial(users q_j, p_j) noise. The mean of the
# coordinate, in [0, 1], is sum_j 2^j (Y_j - users q_j p_j) / (k users); the distribution of its noise is public,
# and noise is independent from cell to cell.


@dataclass(frozen=True, slots=True, eq=False)
class NoisyCountsMeans:
    """The mean of each coordinate, in the unit interval, from the (d, J) table of a batch.

    `mixes` says that entries of the user's array are sums over several coordinates, whose errors must then add up.
    """

    mechanism: NoisyCounts
    table: CountTable
    users: int
    mixes: bool

    @property
    def mean(self) -> Floats:
        """Digits added up, less the mean of the noise."""
        excess = self.table - self.users * self.mechanism.noise_means
        mean: Floats = excess @ self.mechanism.weights / self.users
        return mean

    @property
    def report_counts(self) -> CountTable:
        """Accepted reports of each coordinate, digits and noise together."""
        counts: CountTable = self.table.sum(axis=1)
        return counts

    def variance(self, target: Target) -> Floats:
        """The squared standard error: noise as it is, rounding and the variance of a population at their worst."""
        return np.full(len(self.table), self._noise(2)) + self._further_variance(target)

    def interval(self, tail: float, target: Target) -> tuple[Floats, Floats]:
        """Quantiles of a sum that is nearly normal, corrected for the noise's third and fourth cumulants."""
        deviation = np.sqrt(self.variance(target))
        z = quantile(tail)
        skewness, excess = self._noise(3) / deviation**3, np.maximum(self._noise(4), 0) / deviation**4
        # Cornish and Fisher's expansion. Noise that is skewed to the right puts the truth farther to the left.
        even = (z**2 - 1) * skewness / 6
        odd = z + np.maximum((z**3 - 3 * z) * excess / 24, 0) + z * skewness**2 / 36
        mean, half_step = self.mean, self.mechanism.weights[0] / (2 * self.users)  # a sum of whole numbers: continuity
        return mean - deviation * (odd + even) - half_step, mean + deviation * np.maximum(odd - even, 0) + half_step

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """Noise is independent from coordinate to coordinate, and so are the coins that round.

        How a population's coordinates vary together no table shows: as if they did so fully, at the worst.
        """
        further, size = replace(self, mixes=False)._further_variance(target), np.abs(weights)
        by_users = float(weights**2 @ further) if target == "users" else float(size @ np.sqrt(further)) ** 2
        variance = float(weights @ weights) * self._noise(2) + by_users
        top = float(size.max(initial=0.0) * self.mechanism.weights[-1] if target == "users" else size.sum())
        value, off = float(weights @ self.mean), reach(variance, top / self.users, tail)
        return Combined(value, variance, value - off, value + off)

    def _noise(self, order: int) -> float:
        """The cumulant of this order of a mean's noise: weighted binomials of all users."""
        q, p = np.array(self.mechanism.trials, dtype=np.float64), np.array(self.mechanism.probabilities)
        variance = q * p * (1 - p)
        each = {2: variance, 3: variance * (1 - 2 * p), 4: variance * (1 - 6 * p * (1 - p))}[order]
        return float(np.sum(self.mechanism.weights**order * each) / float(self.users) ** (order - 1))

    def _further_variance(self, target: Target) -> Floats:
        """Rounding for these users; for a population, rounding and its own variance, m (1 - m) at most for a mean m."""
        check_choice("target", target, ("users", "population"))
        if target == "users":
            return np.full(len(self.table), 1 / (4 * self.mechanism.levels**2 * self.users))
        if self.mixes:
            raise ParameterError(
                "impossible-combination",
                "target='population' is not possible for a Span under 'noisy-counts': its coefficients vary together "
                "from user to user, which the table of counts does not show; use target='users', or plan with "
                "coordinates=1",
            )
        # The mean is not known exactly: the largest variance that any within two deviations has.
        reach = 2 * np.sqrt(self._noise(2) + 1 / (4 * self.users))
        nearest = np.clip(0.5, self.mean - reach, self.mean + reach)
        further: Floats = np.maximum(nearest * (1 - nearest), 0) / self.users
        return further


@dataclass(frozen=True, slots=True, eq=False)
class NoisyCountsGroupSums:
    """Users and sums of each group, values as fractions of the width of their bounds."""

    mechanism: NoisyCounts
    layout: MultiHot
    table: CountTable
    users: int

    origin: float = 0.0
    excess: float = 0.0

    @property
    def counts(self) -> Floats:
        """Unbiased numbers of users."""
        return self._grouped[:, -1].astype(np.float64) - self.users * float(self.mechanism.noise_means[-1])

    @property
    def sums(self) -> Floats:
        """Digits added up, less the mean of the noise."""
        digits = self._grouped[:, :-1].reshape(self.layout.groups, self.layout.coordinates, self.layout.digits)
        sums: Floats = (digits - self.users * self.mechanism.noise_means[:-1]) @ self.mechanism.weights
        return sums

    @property
    def count_variance(self) -> float:
        """Public and exact."""
        return self.users * float(self.mechanism.noise_variances[-1])

    @property
    def sum_variance(self) -> float:
        """Public and exact."""
        return self.users * self.mechanism.noise_of_sum

    @property
    def rounding(self) -> float:
        """A coin between two neighbours on the scale of whole numbers."""
        return 1 / (4 * self.mechanism.levels**2)

    def count_interval(self, tail: float) -> tuple[Floats, Floats]:
        """What is left of a count when the noise is as small or as large as it is with this chance: exact."""
        low, high = ends_of((self.users * self.mechanism.trials[-1], self.mechanism.probabilities[-1]), tail)
        counted = self._grouped[:, -1]
        return (counted - high).astype(np.float64), (counted - low).astype(np.float64)

    @property
    def _grouped(self) -> CountTable:
        return self.table.reshape(self.layout.groups, self.layout.group_cells)
