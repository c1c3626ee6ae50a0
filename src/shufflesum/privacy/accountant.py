"""The accountant of a mechanism: its privacy profile from above and from below, and its privacy loss distribution.

Adjacent data sets differ in the data of one user, in all rounds; the number of users is public. Every subclass answers
for one mechanism. An upper bound holds for every pair of adjacent data sets; a lower bound is what a concrete pair
shows, so no analysis can do better. Rounding errors can only widen the interval between them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from shufflesum._checks import check_choice, check_number, check_size
from shufflesum._format import upwards
from shufflesum.errors import ParameterError, PlanError
from shufflesum.privacy.engine.composition import MOST_COMPOSITIONS
from shufflesum.privacy.engine.pld import PrivacyLossDistribution, check_interval, to_dp_accounting

if TYPE_CHECKING:
    from dp_accounting.pld import privacy_loss_distribution


class PrivacyAccountant(ABC):
    """The privacy of a mechanism for given users, sensitivity and rounds, all rounds together."""

    __slots__ = ()

    @abstractmethod
    def delta_upper(self, epsilon: float) -> float:
        """A delta for which everything together is certainly (epsilon, delta)-private."""

    @abstractmethod
    def delta_lower(self, epsilon: float) -> float:
        """A delta below which (epsilon, delta)-privacy certainly fails for some adjacent data sets."""

    @abstractmethod
    def epsilon_upper(self, delta: float) -> float:
        """An epsilon for which everything together is certainly (epsilon, delta)-private; may be infinite."""

    @abstractmethod
    def epsilon_lower(self, delta: float) -> float:
        """An epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""

    @abstractmethod
    def pld(self, interval: float) -> PrivacyLossDistribution:
        """A symmetric PLD, on a grid of `interval` x a power of two, that dominates all rounds."""

    def dominating_gaussian(self, delta: float) -> tuple[float, float] | None:
        """A mu and a chance: N(mu, 1) against N(0, 1) dominates all rounds up to that chance, for a plan of this delta.

        None where no such pair is known without looking at the PLD.
        """
        return None

    @property
    def local_epsilon(self) -> float | None:
        """What is left for a user if shuffler and analyzer collude, over all reports and rounds; None: nothing."""
        return None

    def delta(self, epsilon: float) -> Interval:
        """The delta that goes with epsilon: the hockey-stick divergence of order e^epsilon, bounded on both sides."""
        check_number("epsilon", epsilon)
        return Interval(self.delta_upper(epsilon), self.delta_lower(epsilon))

    def epsilon(self, delta: float) -> Interval:
        """The epsilon that goes with delta."""
        check_number("delta", delta)
        return Interval(self.epsilon_upper(delta), self.epsilon_lower(delta))

    def to_dp_accounting(
        self, *, value_discretization_interval: float = 1e-4
    ) -> privacy_loss_distribution.PrivacyLossDistribution:
        """The PLD as a pessimistic one of `dp_accounting`, to compose with other mechanisms.

        Distributions compose only on the same discretization interval; 1e-4 is the default of that library too. It
        convolves by plain FFT: after composing there, a delta below about 1e-12 means nothing.
        """
        interval = check_interval(value_discretization_interval)
        return to_dp_accounting(self.pld(interval), interval)

    def check_claim(self, guarantee: Guarantee) -> None:
        """Refuse, with a `PlanError`, a guarantee that its accountant, certified or published, does not confirm."""
        match guarantee.accountant:
            case "none":
                raise PlanError(
                    "no-guarantee", "this plan has no privacy guarantee (accountant 'none'); it is for tests only"
                )
            case "paper":
                finding = self._published_objection(guarantee)
            case "exact":
                certified = self.delta_upper(guarantee.epsilon)
                finding = None if certified <= guarantee.delta else f"with its noise delta is up to {certified:.6g}"
        if finding is not None:
            raise PlanError(
                "claim-not-confirmed",
                f"this plan claims epsilon = {guarantee.epsilon!r}, delta = {guarantee.delta!r}, but {finding}; make a "
                "new plan",
            )

    def _published_objection(self, guarantee: Guarantee) -> str | None:
        """Why the published formulas do not confirm a guarantee; None where they do."""
        return "the published formulas say nothing about this mechanism"


def local_epsilon(*, levels: int, noise_probability: float, coordinates: int = 1, rounds: int = 1) -> float:
    """The epsilon that is left of randomized response without the shuffler: t*T*eps0, rounded up.

    eps0 = ln(1 + K(1 - gamma)/gamma), K = levels + 1, is the largest log-ratio of the probabilities of one report under
    two values; a user's reports, and their rounds, add up. Without noise (gamma = 0) nothing is left: infinity. Pure
    noise (gamma = 1) gives 0.
    """
    for name, count in (("levels", levels), ("coordinates", coordinates), ("rounds", rounds)):
        if count < 1:
            raise ParameterError("out-of-range", f"{name} = {count}: must be at least 1; raise {name}")
    if not 0.0 <= noise_probability <= 1.0:
        raise ParameterError(
            "out-of-range", f"noise_probability = {noise_probability}: must lie in [0, 1]; change noise_probability"
        )
    if noise_probability == 0.0:
        return math.inf
    if noise_probability == 1.0:
        return 0.0
    odds = (levels + 1) * (1.0 - noise_probability) / noise_probability
    if odds == math.inf:
        return math.inf
    # three roundings and a logarithm: well below eight units in the last place of odds and of the result
    total = coordinates * rounds * math.log1p(odds * (1.0 + 2.0**-50)) * (1.0 + 2.0**-50)
    return math.nextafter(total, math.inf)


# ---- What is guaranteed, and who must keep to the protocol for it.

Accountant = Literal["exact", "paper", "none"]

MOST_USERS = 10**10


@dataclass(frozen=True, slots=True)
class Interval:
    """A certified upper bound, and a lower bound nobody can beat (0 where none is known)."""

    upper: float
    lower: float


def honest_users(users: int, honest_fraction: float) -> int:
    """The users whose noise counts: the exact floor of users x honest_fraction, at least 1."""
    check_number("honest_fraction", honest_fraction)
    if not 0 < honest_fraction <= 1:
        raise ParameterError("out-of-range", f"honest_fraction is {honest_fraction}; it must lie in (0, 1]")
    # a product of floats may round up to the next whole number
    numerator, denominator = float(honest_fraction).as_integer_ratio()
    return max(1, int(users) * numerator // denominator)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Replacing one user's data changes no outcome's probability by more than a factor e^epsilon, plus delta.

    It is for batches of at least `users` users, of whom `honest_fraction` follow the protocol, and covers all `rounds`
    together. `accountant` says who vouches for it: `exact` (certified here), `paper` (the published formula), `none`
    (test plans).
    """

    epsilon: float
    delta: float
    users: int
    honest_fraction: float = 1.0
    rounds: int = 1
    accountant: Accountant = "exact"

    def __post_init__(self) -> None:
        """Refuse what is no guarantee; a test plan claims no epsilon and is not asked for one."""
        check_number("epsilon", self.epsilon)
        check_number("delta", self.delta)
        check_size("users", self.users, 1, MOST_USERS)
        check_size("rounds", self.rounds, 1, MOST_COMPOSITIONS)
        honest_users(self.users, self.honest_fraction)
        check_choice("accountant", self.accountant, get_args(Accountant))
        # Python's own numbers: NumPy's, or 1 for 1.0, read otherwise in JSON and would give another id.
        for name, number in (
            ("epsilon", float),
            ("delta", float),
            ("honest_fraction", float),
            ("users", int),
            ("rounds", int),
        ):
            object.__setattr__(self, name, number(getattr(self, name)))
        if self.accountant == "none":
            return
        if not 0 < self.epsilon < math.inf:
            raise ParameterError("out-of-range", f"epsilon is {self.epsilon}; it must be positive and finite")
        if not 0 < self.delta < 1:
            raise ParameterError("out-of-range", f"delta is {self.delta}; it must lie strictly between 0 and 1")

    @property
    def honest_users(self) -> int:
        """The users whose noise the guarantee counts on."""
        return honest_users(self.users, self.honest_fraction)

    def describe(self) -> str:
        """Never without the conditions it rests on, where they are not the usual ones."""
        if self.accountant == "none":
            return "none"
        rounds = "" if self.rounds == 1 else f" over {self.rounds:,} rounds"
        honest = "" if self.honest_fraction == 1 else f" if {self.honest_users:,} users are honest"
        return f"epsilon {upwards(self.epsilon)}, delta {upwards(self.delta)}{rounds}{honest}"
