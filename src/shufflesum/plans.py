"""The plan: what randomizer, shuffler and analyzer must agree on, and how it is written down.

A plan is a domain (what a user holds), a mechanism (how noise enters) and a guarantee. Its id is the SHA-256 of these
in canonical form. A plan is not believed, whether it was read from a file or altered in memory: its id is computed
again, and so is the privacy it claims, once for each id.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import MethodType
from typing import Any

import msgspec
import numpy as np

from shufflesum._checks import check_number, check_size, shown
from shufflesum._documents import agree, decode_once, problem_of, read_file
from shufflesum._format import Shown, counted
from shufflesum.cautions import ShufflesumWarning, of_columns, of_guarantee
from shufflesum.cells import REPORT_BYTES
from shufflesum.domains import Domain, domain_from_json
from shufflesum.encodings import Positions
from shufflesum.errors import MissingExtraError, ParameterError, PlanError, ShufflesumError
from shufflesum.mechanisms import MECHANISMS, mechanism_from_json, mechanism_to_json
from shufflesum.mechanisms.mechanism import ExpectedError, Mechanism, NoiseBy
from shufflesum.privacy import Accountant, Guarantee, PrivacyAccountant
from shufflesum.privacy.engine.gaussian import curator_error

FORMAT = "shufflesum-plan-2"
SEAL_BYTES = 48  # an X25519 key and an AES-GCM tag

_verified: set[str] = set()  # the ids of plans whose guarantee was computed again in this process


class _GuaranteeFile(msgspec.Struct, forbid_unknown_fields=True):
    epsilon: float | None
    delta: float
    users: int
    honest_fraction: float
    rounds: int
    accountant: Accountant


class _PlanFile(msgspec.Struct, forbid_unknown_fields=True):
    """The plan as JSON. What comes after `id` follows from the rest, for people and other programs, and must agree."""

    format: str
    domain: Any
    mechanism: Any
    guarantee: _GuaranteeFile
    id: str
    dimension: int
    cells: int
    reports: int
    expected_error: dict[str, float | None]
    local_epsilon: float | None
    bytes_per_user: dict[str, int]


@dataclass(frozen=True)
class Plan:
    """Everything public about one collection: domain, mechanism and guarantee.

    Plans come from `shufflesum.plan(...)` or from a file. Constructing one by hand checks ranges and the report format;
    `verify` checks the privacy claim. Loading a plan does so, and so does everybody who draws, counts or releases
    under it.
    """

    domain: Domain
    mechanism: Mechanism
    guarantee: Guarantee

    def __post_init__(self) -> None:
        """Refuse what the mechanism or the report format cannot carry."""
        encoding = self.encoding
        self.domain.check_complete()
        self.mechanism.check(encoding)
        if self.noise_by != "users" and self.honest_fraction != 1:
            raise ParameterError(
                "impossible-combination",
                f"honest_fraction is {self.honest_fraction}, but with noise by {self.noise_by!r} it means nothing: the "
                "guarantee counts on no user; leave it out, or plan with noise_by='users'",
            )

    def __str__(self) -> str:
        """Who sends what, what is guaranteed, what error to expect: the same as a notebook shows."""
        return self._shown().text()

    def _repr_html_(self) -> str:
        return self._shown().html()

    def _shown(self) -> Shown:
        sent = (
            "nothing is sent"
            if self.noise_by == "curator"
            else f"{counted(self.reports, 'report')}, {self.bytes_per_user['raw']:,} bytes in all"
        )
        margins = [f"± {wide} in {what}" for what, wide in self.domain.wording.margins(self).items()]
        facts = [
            f"collects: {type(self.domain).__name__} of shape {self.shape}{self.domain.bounds_text()}, from at least "
            f"{counted(self.users, 'user')}",
            f"each user and round: {self.mechanism.describe(self.encoding)} ({sent})",
            f"guarantee for one user: {self.guarantee.describe()} ({self.accountant} accountant)",
            f"error to expect: {', '.join(margins)} (95 %, worst data)",
        ]
        return Shown(f"Plan {self.id[:12]}", facts, notes=[str(warning) for warning in self.warnings])

    @property
    def warnings(self) -> tuple[ShufflesumWarning, ...]:
        """What is weak about the guarantee, though it holds, and columns that are no quantities by their names."""
        numbers = self.domain.numbers
        claimed = () if self.accountant == "none" else of_guarantee(self.epsilon, self.delta, self.users)
        return *claimed, *of_columns(None if numbers is None else numbers.columns)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is estimated: of one user's array, or one number for each label."""
        return self.domain.shape

    @property
    def dimension(self) -> int:
        """How many numbers are estimated: the coordinates of a user's array, or the labels."""
        return self.domain.dimension

    @property
    def users(self) -> int:
        """The users that were planned for; the smallest batch that may be released where users draw the noise."""
        return self.guarantee.users

    @property
    def smallest_batch(self) -> int:
        """The fewest users of whom anything may be released: 1 where no user's noise is counted on."""
        return self.users if self.noise_by == "users" else 1

    @property
    def honest_users(self) -> int:
        """The users whose noise the guarantee counts on."""
        return self.guarantee.honest_users

    @property
    def honest_fraction(self) -> float:
        """The part of the users that follows the protocol."""
        return self.guarantee.honest_fraction

    @property
    def rounds(self) -> int:
        """How many rounds the guarantee covers."""
        return self.guarantee.rounds

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

    @cached_property
    def encoding(self) -> Any:
        """How users' data is encoded for the mechanism, in the first round."""
        return self.encoding_of(self.domain)

    def encoding_of(self, domain: Domain) -> Any:
        """The encoding of a round's domain that the mechanism takes."""
        return encoding_for(domain, type(self.mechanism))

    @cached_property
    def positions(self) -> Positions | None:
        """Where each of a user's reports goes if servers, or one process, draw the noise of cells; None if users do."""
        return self.mechanism.positions(self.encoding)

    @cached_property
    def cells(self) -> int:
        """How many different reports there are, blanks not counted."""
        return self.mechanism.cells(self.encoding)

    @cached_property
    def reports(self) -> int:
        """How many reports each user sends in a round, blanks included."""
        return self.mechanism.reports(self.encoding)

    @property
    def noise_by(self) -> NoiseBy:
        """Who draws the noise; with "curator" one process holds all rows, and nothing can be sent."""
        return self.mechanism.noise_by

    def check_round(self, number: int) -> None:
        """Refuse a round that the guarantee does not cover; rounds are numbered from 1."""
        check_size("round_number", number, 1, self.rounds)

    def check_sending(self) -> None:
        """Refuse a plan under which no reports can have been sent."""
        if self.noise_by == "curator":
            raise PlanError(
                "one-process-only",
                "this plan is for one process: nothing can be sent under it; make a plan without noise_by='curator' "
                "(--noise-by curator)",
            )

    def check_carried(self) -> None:
        """Refuse a plan whose reports files do not carry: servers draw noise in memory and in the service alone."""
        self.check_sending()
        if self.positions is not None:
            raise PlanError(
                "impossible-combination",
                f"noise by {self.noise_by!r} is not drawn for files of reports yet; plan with noise_by='users', or run "
                "the servers",
            )

    @property
    def least_reports(self) -> int:
        """The reports without which nothing is released."""
        return self.smallest_batch * self.reports

    @property
    def privacy(self) -> PrivacyAccountant:
        """What this plan guarantees at any epsilon or delta, from above and from below."""
        return self.mechanism.accountant(self.encoding, self.guarantee)

    @property
    def local_epsilon(self) -> float | None:
        """What is left for a user if the shuffler colludes with the analyzer, over all reports and rounds."""
        return self.privacy.local_epsilon

    @cached_property
    def added_reports(self) -> float:
        """How many reports the shuffler adds to a batch, on average: dummy reports, and blanks that hide how many."""
        return self.mechanism.added_reports(self.encoding)

    @property
    def bytes_per_user(self) -> dict[str, int]:
        """What a user sends in one round: reports alone, and each sealed by itself for the analyzer."""
        return {"raw": self.reports * REPORT_BYTES, "sealed": self.reports * (REPORT_BYTES + SEAL_BYTES)}

    @cached_property
    def expected_error(self) -> ExpectedError:
        """Squared error of the mean, summed over coordinates, in the user's units, for the worst data.

        For `Span` it is the error of the coefficients, for labels that of their frequencies, for groups that of their
        means if all are equally large.
        """
        return self.mechanism.expected_error(self.encoding, self.users)

    def error_at_std(self, assumed_std: float) -> ExpectedError:
        """The same for the worst data whose users differ by so much: their standard deviation in every coordinate."""
        check_number("assumed_std", assumed_std, least=0, below=math.inf)
        return self.mechanism.expected_error(self.encoding, self.users, assumed_std)

    @cached_property
    def curator_error(self) -> float:
        """The same from a trusted curator with Gaussian or Laplace noise, whichever is better, at this guarantee."""
        return curator_error(self.users, self.domain.central_sensitivity, self.epsilon, self.delta, self.rounds)

    @cached_property
    def error_in_widths(self) -> ExpectedError:
        """The expected error with each number in widths of its bounds; of what has no bounds as it is."""
        return self.mechanism.expected_error(self.encoding_of(self.domain.in_units()), self.users)

    @cached_property
    def times_curator(self) -> float:
        """How many times a trusted curator's squared error the expected one is, each number in widths of its bounds.

        In the users' units a sum over columns would be that of the widest alone, and a curator who makes it least would
        give all others up.
        """
        weights = self.domain.in_units().central_sensitivity
        theirs = curator_error(self.users, weights, self.epsilon, self.delta, self.rounds)
        return self.error_in_widths.total / theirs

    @property
    def blanks(self) -> float:
        """How many of a user's reports are blank, on average over all values."""
        return self.mechanism.blanks(self.encoding)

    def max_shift(self, malicious: int = 1) -> float:
        """By how much so many users who send what they like can move a mean at most, in the user's units.

        Out of the plan's users, in the coordinate with the widest bounds; for `Span`, in a coefficient; for labels, in
        a frequency.
        """
        check_size("malicious", malicious, 0, self.users)
        return self.mechanism.max_shift(self.encoding, self.users, malicious) * self.domain.unit

    @property
    def worse_than_guessing(self) -> bool:
        """Whether the middle of what can be would be a better guess than the estimate, at the worst data for both."""
        return self.expected_error.total > self.domain.trivial_mse

    @cached_property
    def id(self) -> str:
        """SHA-256 of the canonical parameters, in hexadecimal."""
        return hashlib.sha256(_canonical(self._parameters()).encode()).hexdigest()

    def verify(self) -> None:
        """Compute the guarantee again at the noise really drawn; refuse a claim that does not hold.

        What was confirmed once in this process is not computed again.
        """
        _confirm(check_unaltered(self))

    def _parameters(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "domain": self.domain.to_json(),
            "mechanism": mechanism_to_json(self.mechanism),
            "guarantee": {**asdict(self.guarantee), "epsilon": _finite_or_none(self.epsilon)},
        }

    def _derived(self) -> dict[str, Any]:
        error = self.expected_error
        return {
            "dimension": self.dimension,
            "cells": self.cells,
            "reports": self.reports,
            "expected_error": {
                name: _finite_or_none(getattr(error, name)) for name in ("sampling", "rounding", "noise", "total")
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
            file = decode_once(text, _PlanFile, FORMAT)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise PlanError(
                problem_of(error, "malformed"),
                f"not a plan: {error}; make one with shufflesum plan -o FILE, or shufflesum.plan(...)",
            ) from error
        claimed = msgspec.structs.asdict(file.guarantee)
        try:
            plan = Plan(
                domain=domain_from_json(file.domain),
                mechanism=mechanism_from_json(file.mechanism),
                guarantee=Guarantee(**claimed | {"epsilon": _infinite_if_none(file.guarantee.epsilon)}),
            )
            derived = plan._derived()
        except ShufflesumError as error:
            raise PlanError(error.problem, f"not a valid plan: {error}") from error
        if plan.id != file.id:
            raise PlanError(
                "changed-afterwards",
                f"this plan was changed after it was made: it says id {file.id[:12]}, but its parameters have id "
                f"{plan.id[:12]}; make a new plan instead of editing one",
            )
        for name, value in derived.items():
            if not agree(getattr(file, name), value):
                raise PlanError(
                    "changed-afterwards",
                    f"this plan was changed after it was made: it says {name} {getattr(file, name)!r}, but its "
                    f"parameters give {value!r}; make a new plan instead of editing one",
                )
        return plan

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan file; see `from_json`."""
        text = read_file(path, "plan")
        try:
            return Plan.from_json(text)
        except PlanError as error:
            raise error.at(path) from error


def check_plan(plan: Plan) -> Plan:
    """Refuse what is no plan, was altered, or claims a guarantee that does not hold; for all who act under a plan.

    The guarantee is computed once for each plan. A test plan, of accountant `none`, claims nothing. Gives what
    `check_unaltered` does.
    """
    described = check_unaltered(plan)
    if described.accountant == "none":
        return described
    try:
        _confirm(described)
    except MissingExtraError as error:
        raise error.ending(
            "or send with shufflesum.service.Client, which believes a task that was read with verify=False"
        ) from error
    return described


def check_unaltered(plan: Plan) -> Plan:
    """Refuse what is no plan, or one of which any part or remembered value is not what its parameters describe.

    Gives the plan that they do describe, made anew. Subclasses are refused, of plans, of their parts and of numbers and
    texts in these: they may answer otherwise than they are written.
    """
    if type(plan) is not Plan:
        raise ParameterError(
            "wrong-type", f"a plan is expected, from shufflesum.plan or Plan.load, not {type(plan).__name__}"
        )
    try:
        described = _described(_canonical(plan._parameters()))
        difference = _difference(plan, described, "plan")
    except (TypeError, ValueError, AttributeError) as error:
        raise _altered(str(error)) from error
    if difference is not None:
        raise _altered(difference)
    return described


def _confirm(plan: Plan) -> None:
    if plan.id in _verified:
        return
    try:
        plan.privacy.check_claim(plan.guarantee)
    except (PlanError, MissingExtraError):
        raise
    except ShufflesumError as error:
        raise PlanError(error.problem, f"this plan's guarantee cannot be confirmed: {error}") from error
    _verified.add(plan.id)


@lru_cache(maxsize=16)
def _described(canonical: str) -> Plan:
    """The plan that these parameters describe, as a file of it would be read."""
    parameters = json.loads(canonical)
    guarantee = parameters["guarantee"]
    return Plan(
        domain_from_json(parameters["domain"]),
        mechanism_from_json(parameters["mechanism"]),
        Guarantee(**guarantee | {"epsilon": _infinite_if_none(guarantee["epsilon"])}),
    )


_PLAIN = {int, float, bool, str, bytes, range, type(None)}


def _difference(given: Any, true: Any, name: str) -> str | None:
    """Where two values are not the same all through, types and remembered values included; None where they are."""
    kind = type(true)
    if type(given) is not kind:
        return f"{name} is of type {type(given).__name__}, not {kind.__name__}"
    if is_dataclass(kind):
        own = {field.name for field in fields(kind)}
        # a class answers for its values: what one of them has of its own can only be what the class remembers there
        remembered = set(getattr(given, "__dict__", ())) - own
        for part in sorted(remembered):
            if not isinstance(getattr(kind, part, None), cached_property):
                return f"{name} has {part} of its own"
        pairs = [(getattr(given, part), getattr(true, part), f"{name}.{part}") for part in (*own, *remembered)]
    elif kind is dict:
        pairs = [(tuple(given), tuple(true), name), (tuple(given.values()), tuple(true.values()), name)]
    elif kind in (tuple, list) and len(given) == len(true) and not set(map(type, true)) <= _PLAIN:
        pairs = [(one, other, f"{name}[{index}]") for index, (one, other) in enumerate(zip(given, true, strict=True))]
    elif kind is MethodType:
        pairs = [(given.__func__, true.__func__, name), (given.__self__, true.__self__, name)]
    else:
        same = np.array_equal(given, true) and given.dtype == true.dtype if kind is np.ndarray else given == true
        if kind in (tuple, list):
            same = same and list(map(type, given)) == list(map(type, true))
        return None if same else f"{name} is {shown(given)}, but its parameters give {shown(true)}"
    return next((found for pair in pairs if (found := _difference(*pair)) is not None), None)


def _altered(why: str) -> PlanError:
    return PlanError(
        "changed-afterwards",
        f"this plan was changed after it was made: {why}; make a new plan with shufflesum.plan(...)",
    )


def _canonical(parameters: dict[str, Any]) -> str:
    return json.dumps(parameters, sort_keys=True, separators=(",", ":"), allow_nan=False)


def encoding_for(domain: Domain, mechanism: type[Mechanism]) -> Any:
    """The encoding of a domain, of the type `mechanism.accepts`; a mechanism that takes none of them is refused."""
    for encoding in domain.encodings():
        if mechanism.takes(encoding):
            return encoding
    carried = ", ".join(kind.family for kind in MECHANISMS.values() if encodes(domain, kind))
    raise ParameterError(
        "impossible-combination", f"mechanism {mechanism.kind!r} does not carry {type(domain).__name__}; use {carried}"
    )


def encodes(domain: Domain, mechanism: type[Mechanism]) -> bool:
    """Whether a mechanism takes one of the domain's encodings."""
    return any(mechanism.takes(encoding) for encoding in domain.encodings())


def _finite_or_none(value: float | None) -> float | None:
    """JSON has no infinity."""
    return value if value is not None and math.isfinite(value) else None


def _infinite_if_none(value: float | None) -> float:
    return math.inf if value is None else value
