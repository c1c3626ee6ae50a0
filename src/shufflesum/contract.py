"""Plan and guarantee: what randomizer, shuffler and analyzer must agree on, and how it is written down.

A plan's id is the SHA-256 of its canonical parameters. A plan read from a file is not believed: its id is computed
again, and so is the privacy it claims.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice, check_number, check_size
from shufflesum._documents import agree, decode_once
from shufflesum.accuracy import ExpectedError, coordinate_error
from shufflesum.domain import Domain
from shufflesum.errors import FileError, ParameterError, PlanError, ShufflesumError
from shufflesum.privacy import Setting, honest_users, local_epsilon
from shufflesum.privacy.replace import MOST_COMPOSITIONS, MOST_USERS

__all__ = [
    "MAX_CELLS",
    "MAX_LEVELS",
    "MAX_ROUNDS",
    "MAX_USERS",
    "REPORT_BYTES",
    "SEAL_BYTES",
    "Accountant",
    "Guarantee",
    "Plan",
    "Sampling",
]

Sampling = Literal["stratified", "uniform"]
Accountant = Literal["exact", "paper", "none"]

FORMAT = "shufflesum-plan-1"
MAX_CELLS = 1 << 32  # a report's cell, coordinate x (levels + 1) + value, fits 32 bits
MAX_USERS, MAX_ROUNDS = MOST_USERS, MOST_COMPOSITIONS
MAX_LEVELS = 32_766  # a value fits 15 bits
REPORT_BYTES = 6  # coordinate 4, value 2
SEAL_BYTES = 48  # an X25519 key and an AES-GCM tag


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Replacing one user's data changes no outcome's probability by more than a factor e^epsilon, plus delta.

    `accountant` says who vouches for it: `exact` (certified here), `paper` (the published formula), `none` (test
    plans).
    """

    epsilon: float
    delta: float
    accountant: Accountant

    def __post_init__(self) -> None:
        """Refuse what is no guarantee; a test plan claims none and is not asked."""
        check_number("epsilon", self.epsilon)
        check_number("delta", self.delta)
        _store_as(self, float, "epsilon", "delta")
        check_choice("accountant", self.accountant, get_args(Accountant))
        if self.accountant == "none":
            return
        if not 0 < self.epsilon < math.inf:
            raise ParameterError(f"epsilon is {self.epsilon}; it must be positive and finite")
        if not 0 < self.delta < 1:
            raise ParameterError(f"delta is {self.delta}; it must lie strictly between 0 and 1")


class _PlanFile(msgspec.Struct, forbid_unknown_fields=True):
    """The plan as JSON. What comes after `id` follows from the rest, for people and other programs, and must agree."""

    format: str
    structure: Any
    bounds: Any
    users: int
    reports: int
    levels: int
    noise_probability: float
    sampling: Sampling
    epsilon: float | None
    delta: float
    accountant: Accountant
    honest_fraction: float
    rounds: int
    id: str
    dimension: int
    expected_error: dict[str, float | None]
    local_epsilon: float | None
    bytes_per_user: dict[str, int]


@dataclass(frozen=True)
class Plan:
    """Everything public about one collection: protocol parameters, domain and guarantee.

    Plans come from `shufflesum.plan(...)` or from a file. Constructing one by hand checks ranges and the report format;
    `verify` checks the privacy claim, and loading a plan always does.
    """

    users: int
    domain: Domain
    reports: int
    levels: int
    noise_probability: float
    sampling: Sampling
    guarantee: Guarantee
    honest_fraction: float = 1.0
    rounds: int = 1

    def __post_init__(self) -> None:
        """Refuse what the protocol or the report format cannot carry."""
        check_size("users", self.users, 1, MAX_USERS)
        check_size("levels", self.levels, 1, MAX_LEVELS)
        check_size("rounds", self.rounds, 1, MAX_ROUNDS)
        if self.dimension * (self.levels + 1) >= MAX_CELLS:
            raise ParameterError(
                f"dimension {self.dimension} with {self.levels} levels needs "
                f"{self.dimension * (self.levels + 1)} report cells; the report format has fewer than 2**32: "
                "lower the dimension or the levels"
            )
        check_size("reports", self.reports, 1, self.dimension)
        check_choice("sampling", self.sampling, get_args(Sampling))
        check_number("honest_fraction", self.honest_fraction)
        check_number("noise_probability", self.noise_probability)
        if not 0 < self.honest_fraction <= 1:
            raise ParameterError(f"honest_fraction is {self.honest_fraction}; it must lie in (0, 1]")
        if not 0 <= self.noise_probability <= 1 or not float(self.noise_probability * 2.0**53).is_integer():
            raise ParameterError(
                f"noise_probability is {self.noise_probability!r}; it must be a multiple of 2**-53 between 0 and 1"
            )
        _store_as(self, int, "users", "reports", "levels", "rounds")
        _store_as(self, float, "noise_probability", "honest_fraction")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one user's array."""
        return self.domain.shape

    @property
    def dimension(self) -> int:
        """How many coordinates a user's array has."""
        return self.domain.dimension

    @property
    def epsilon(self) -> float:
        """The guarantee's epsilon."""
        return self.guarantee.epsilon

    @property
    def delta(self) -> float:
        """The guarantee's delta."""
        return self.guarantee.delta

    @property
    def accountant(self) -> Accountant:
        """Who vouches for the guarantee."""
        return self.guarantee.accountant

    @property
    def honest_users(self) -> int:
        """The users whose noise the guarantee counts on."""
        return honest_users(self.users, self.honest_fraction)

    @property
    def least_reports(self) -> int:
        """The reports without which nothing is released."""
        return self.users * self.reports

    @property
    def local_epsilon(self) -> float:
        """What is left for a user if the shuffler colludes with the analyzer, over all reports and rounds."""
        return local_epsilon(
            levels=self.levels, noise_probability=self.noise_probability, coordinates=self.reports, rounds=self.rounds
        )

    @property
    def privacy(self) -> Setting:
        """What the guarantee depends on besides the noise."""
        return Setting(
            users=self.users,
            levels=self.levels,
            coordinates=self.reports,
            rounds=self.rounds,
            dimension=self.dimension,
            sampling=self.sampling,
            honest_fraction=self.honest_fraction,
        )

    @property
    def bytes_per_user(self) -> dict[str, int]:
        """What a user sends in one round: reports alone, and each sealed by itself for the analyzer."""
        return {
            "raw": self.reports * REPORT_BYTES,
            "sealed": self.reports * (REPORT_BYTES + SEAL_BYTES),
        }

    @property
    def block_starts(self) -> NDArray[np.int64]:
        """Where the public blocks of stratified sampling begin: one report of every user falls into each."""
        return np.arange(self.reports) * self.dimension // self.reports

    @cached_property
    def sampling_probabilities(self) -> NDArray[np.float64]:
        """For each coordinate, the chance that a given user reports it."""
        if self.sampling == "uniform":
            return np.full(self.dimension, self.reports / self.dimension)
        sizes = np.diff(self.block_starts, append=self.dimension)
        return np.repeat(1 / sizes, sizes)

    @cached_property
    def expected_error(self) -> ExpectedError:
        """Squared error of the mean, summed over coordinates, in the user's units, for the worst data.

        For `Span` it is the error of the coefficients.
        """
        return self._error(None)

    def error_at_spread(self, spread: float) -> ExpectedError:
        """The same for the worst data whose users differ by so much: their standard deviation in every coordinate."""
        check_number("spread", spread)
        if not 0 <= spread < math.inf:
            raise ParameterError(f"spread is {spread}; it must be a standard deviation, at least 0 and finite")
        return self._error(spread)

    def _error(self, spread: float | None) -> ExpectedError:
        total = ExpectedError(0.0, 0.0, 0.0)
        for probability in np.unique(self.sampling_probabilities):
            width = self.domain.width[self.sampling_probabilities == probability]
            weight = float(np.sum(width**2))
            # In units of the width; within their bounds users differ by no more than half of it.
            apart = None if spread is None else min(spread * math.sqrt(len(width) / weight), 0.5)
            error = coordinate_error(self.users, float(probability), self.levels, self.noise_probability, apart)
            total += error * weight
        return total

    @property
    def worse_than_guessing(self) -> bool:
        """Whether the middle of the bounds would be a better guess than the estimate, at the worst data for both."""
        return self.expected_error.total > float(np.sum(self.domain.width**2)) / 4

    @cached_property
    def id(self) -> str:
        """SHA-256 of the canonical parameters, in hexadecimal."""
        canonical = json.dumps(self._parameters(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def verify(self) -> None:
        """Compute the guarantee again at the noise probability really used; refuse a claim that does not hold."""
        if self.accountant == "none":
            raise PlanError("this plan has no privacy guarantee (accountant 'none'); it is for tests only")
        try:
            self.privacy.check_claim(self.accountant, self.noise_probability, self.epsilon, self.delta)
        except PlanError:
            raise
        except ShufflesumError as error:
            raise PlanError(f"this plan's guarantee cannot be confirmed: {error}") from error

    def _parameters(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            **self.domain.to_json(),
            "users": self.users,
            "reports": self.reports,
            "levels": self.levels,
            "noise_probability": self.noise_probability,
            "sampling": self.sampling,
            "epsilon": _finite_or_none(self.epsilon),
            "delta": self.delta,
            "accountant": self.accountant,
            "honest_fraction": self.honest_fraction,
            "rounds": self.rounds,
        }

    def _derived(self) -> dict[str, Any]:
        error = self.expected_error
        return {
            "dimension": self.dimension,
            "expected_error": {
                "sampling": _finite_or_none(error.sampling),
                "rounding": _finite_or_none(error.rounding),
                "noise": _finite_or_none(error.noise),
                "total": _finite_or_none(error.total),
            },
            "local_epsilon": _finite_or_none(self.local_epsilon),
            "bytes_per_user": self.bytes_per_user,
        }

    def summary(self) -> dict[str, Any]:
        """The plan as a dictionary ready for JSON: the parameters, the id, and what follows from them."""
        return {**self._parameters(), "id": self.id, **self._derived()}

    def to_json(self) -> str:
        """The plan as JSON text; `from_json` gives back an equal plan, to the last bit."""
        return json.dumps(self.summary(), indent=2, allow_nan=False)

    @staticmethod
    def from_json(text: str | bytes) -> Plan:
        """Read a plan, recompute its id and its guarantee, and refuse it where either does not hold."""
        plan = Plan.decode_unverified(text)
        plan.verify()
        return plan

    @staticmethod
    def decode_unverified(text: str | bytes) -> Plan:
        """Read a plan whose guarantee somebody else verifies; all the rest must agree."""
        try:
            file = decode_once(text, _PlanFile)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise PlanError(
                f"not a plan: {error}; make one with shufflesum plan -o FILE, or shufflesum.plan(...)"
            ) from error
        if file.format != FORMAT:
            raise PlanError(f"plan format {file.format!r} is not known; this version reads {FORMAT!r}")
        try:
            plan = Plan(
                users=file.users,
                domain=Domain.from_json({"structure": file.structure, "bounds": file.bounds}),
                reports=file.reports,
                levels=file.levels,
                noise_probability=file.noise_probability,
                sampling=file.sampling,
                guarantee=Guarantee(math.inf if file.epsilon is None else file.epsilon, file.delta, file.accountant),
                honest_fraction=file.honest_fraction,
                rounds=file.rounds,
            )
        except ShufflesumError as error:
            raise PlanError(f"not a valid plan: {error}") from error
        if plan.id != file.id:
            raise PlanError(
                f"this plan was changed after it was made: it says id {file.id[:12]}, but its parameters have id "
                f"{plan.id[:12]}; make a new plan instead of editing one"
            )
        for name, value in plan._derived().items():
            if not agree(getattr(file, name), value):
                raise PlanError(
                    f"this plan was changed after it was made: it says {name} {getattr(file, name)!r}, but its "
                    f"parameters give {value!r}; make a new plan instead of editing one"
                )
        return plan

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan file; see `from_json`."""
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise FileError(f"cannot read plan {path}: {error.strerror or error}") from error
        try:
            return Plan.from_json(text)
        except PlanError as error:
            raise PlanError(f"{path}: {error}") from error


def _store_as(value: object, kind: type[int | float], *names: str) -> None:
    """Keep Python's own numbers: NumPy's, or 1 for 1.0, read otherwise in JSON and would give another id."""
    for name in names:
        object.__setattr__(value, name, kind(getattr(value, name)))


def _finite_or_none(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None
