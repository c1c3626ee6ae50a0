"""What is guaranteed, and who must keep to the protocol for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from shufflesum._checks import check_choice, check_number, check_size
from shufflesum._format import upwards
from shufflesum.errors import ParameterError
from shufflesum.privacy.engine.composition import MOST_COMPOSITIONS

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
