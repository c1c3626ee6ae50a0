"""What somebody asks the explorer, and what it asks of the planner.

The planner's work runs in processes of its own, so that the page never waits for it.
"""

from __future__ import annotations

import math
import os
import signal
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shufflesum.domains import Arrays, Categories, Domain
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.planning import plan, plan_for_error
from shufflesum.plans import Plan
from shufflesum.privacy.engine.gaussian import curator_error
from shufflesum.statement import statement

DEFAULTS: Mapping[str, str] = {
    "users": "50000",
    "holds": "numbers",
    "shape": "100",
    "low": "0",
    "high": "1",
    "labels": "yes, no, unsure",
    "by": "epsilon",
    "epsilon": "1",
    "error": "0.01",
    "delta": "1e-6",
    "rounds": "1",
    "max_reports": "",
}
"""The form as it is first shown; every field of it is here."""

_MOST_SIZE = 1_000_000  # of an array, or labels
_LONGEST = 20_000  # letters of a field


@dataclass(frozen=True, slots=True)
class Question:
    """A question that can be asked of the planner; exactly one of epsilon and error is given.

    `error` is the root mean square error of a mean, or of a label's share, that is acceptable.
    """

    users: int
    domain: Domain
    epsilon: float | None
    error: float | None
    delta: float
    rounds: int
    max_reports: int | None

    @staticmethod
    def of(form: Mapping[str, str]) -> Question:
        """The question of a form; a ParameterError names the field that makes none."""
        long = [name for name in DEFAULTS if len(form.get(name, "")) > _LONGEST]
        if long:
            raise ParameterError("out-of-range", f"{long[0]} has more than {_LONGEST:,} letters; a number will do")
        by_error = _choice(form, "by", ("epsilon", "error")) == "error"
        labelled = _choice(form, "holds", ("numbers", "labels")) == "labels"
        cap = form.get("max_reports", "").strip()
        return Question(
            users=_whole(form, "users"),
            domain=_labels(form) if labelled else _numbers(form),
            epsilon=None if by_error else _number(form, "epsilon"),
            error=_positive(form, "error") if by_error else None,
            delta=_number(form, "delta"),
            rounds=_whole(form, "rounds"),
            max_reports=_whole(form, "max_reports") if cap else None,
        )

    @property
    def target_error(self) -> float:
        """The acceptable error as the planner wants it: squared, and summed over coordinates."""
        assert self.error is not None
        return self.error**2 * self.domain.dimension

    def arguments(self) -> dict[str, Any]:
        """The planner's arguments, without users and epsilon."""
        held: dict[str, Any] = {"domain": self.domain, "delta": self.delta, "rounds": self.rounds}
        return held if self.max_reports is None else held | {"max_reports": self.max_reports}

    @property
    def held(self) -> tuple[object, ...]:
        """All but users, epsilon and error: questions that agree in it are about the same collection."""
        return self.domain, self.delta, self.rounds, self.max_reports


def _text(form: Mapping[str, str], name: str) -> str:
    text = form.get(name, "").strip()
    if not text:
        raise ParameterError("missing-argument", f"{name} is empty; give one, such as {DEFAULTS[name] or 100}")
    return text


def _choice(form: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    text = _text(form, name)
    if text not in allowed:
        raise ParameterError("unknown-choice", f"{name} is {text[:40]!r}; it must be {' or '.join(allowed)}")
    return text


def _whole(form: Mapping[str, str], name: str) -> int:
    text = _text(form, name).replace(",", "").replace("_", "")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value == value // 1 and 1 <= value <= 1e12):
        raise ParameterError("wrong-type", f"{name} is {text[:40]!r}; it must be a whole number, at least 1")
    return int(value)


def _number(form: Mapping[str, str], name: str) -> float:
    text = _text(form, name)
    try:
        return float(text)
    except ValueError:
        raise ParameterError(
            "wrong-type", f"{name} is {text[:40]!r}; it must be a number such as 0.5 or 1e-6"
        ) from None


def _positive(form: Mapping[str, str], name: str) -> float:
    value = _number(form, name)
    if not 0 < value < math.inf:
        raise ParameterError("out-of-range", f"{name} is {value}; it must be positive and finite")
    return value


def _numbers(form: Mapping[str, str]) -> Arrays:
    text = _text(form, "shape")
    try:
        shape = tuple(int(size) for size in text.replace("x", ",").split(","))
    except ValueError:
        raise ParameterError("wrong-type", f"shape is {text[:40]!r}; write 100, or 28, 28") from None
    if not shape or min(shape) < 1 or math.prod(shape) > _MOST_SIZE:
        raise ParameterError("out-of-range", f"shape is {text[:40]!r}; it must have 1 to {_MOST_SIZE:,} numbers")
    return Arrays(shape, (_number(form, "low"), _number(form, "high")))


def _labels(form: Mapping[str, str]) -> Categories:
    text = _text(form, "labels")
    if not text.isdecimal():
        return Categories([label.strip() for label in text.split(",") if label.strip()])
    if not 2 <= int(text) <= _MOST_SIZE:
        raise ParameterError("out-of-range", f"labels is {text[:40]}; there may be 2 to {_MOST_SIZE:,} of them")
    return Categories(int(text))


PAPER, CURATOR = "the paper's formula", "trusted curator"
FORMULAS = (PAPER, CURATOR)  # a fraction of a millisecond each; the others are searches
LINES = ("noisy-counts", "randomized-response", *FORMULAS)
_MARGIN, _TRIES = 1.01, 3  # a first answer's epsilon, above what the error of a near plan makes of it
_NICE = 5


Card = Callable[[Plan], str]
"""A plan as text for a person; a function that another process can import."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with its card and its privacy statement."""

    plan: Plan
    card: str
    statement: str


def begin() -> None:
    """A process begins: an interrupt is its parent's to handle, and notes on plans are shown on the page."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")


def begin_behind() -> None:
    """The same, for work that makes room for whatever somebody waits for."""
    begin()
    os.nice(_NICE)


def warm_up(card: Card) -> None:
    """Load, or compile, all that a first answer needs, before there is a question."""
    for holds in ("numbers", "labels"):
        full_plan(Question.of({**DEFAULTS, "holds": holds}), card)


def error_of(total: float, dimension: int) -> float:
    """The root mean square error of one of so many numbers, from the squared error of all."""
    return math.sqrt(total / dimension)


def full_plan(question: Question, card: Card) -> Planned:
    """The planner's answer."""
    if question.error is None:
        assert question.epsilon is not None
        found = plan(users=question.users, epsilon=question.epsilon, **question.arguments())
    else:
        found = plan_for_error(question.target_error, users=question.users, **question.arguments())
    return Planned(found, card(found), statement(found))


def near_plan(question: Question, card: Card, known: Plan) -> Planned | None:
    """A certified plan at once: one that reports as a known plan does, which spares the search; None if it fails."""
    try:
        found = _near(question, known)
    except (ParameterError, PrivacyError):
        return None
    return None if found is None else Planned(found, card(found), statement(found))


def _near(question: Question, known: Plan) -> Plan | None:
    options = known.mechanism.options()
    fixed: Mapping[str, Any] = {} if options is None else {"mechanism": options}

    def at(epsilon: float) -> Plan:
        return plan(users=question.users, epsilon=epsilon, **question.arguments(), **fixed)

    if question.epsilon is not None:
        return at(question.epsilon)
    found = known
    for _ in range(_TRIES):
        # The error falls about as 1 / (users epsilon).
        times = math.sqrt(found.expected_error.total / question.target_error) * found.users / question.users
        found = at(_MARGIN * times * found.epsilon)
        if found.expected_error.total <= question.target_error:
            return found
    return None


def point(question: Question, line: str, users: int, epsilon: float) -> float | None:
    """The error of a number on one line of the pictures; None where the line has nothing to offer."""
    given = question.arguments()
    try:
        if line == CURATOR:
            weights = question.domain.central_sensitivity
            total = curator_error(users, weights, epsilon, question.delta, question.rounds)
        elif line == PAPER:
            total = _published(users, epsilon, given)
        else:
            total = plan(users=users, epsilon=epsilon, **given | {"mechanism": line}).expected_error.total
    except (ParameterError, PrivacyError):
        return None
    return error_of(total, question.domain.dimension) if math.isfinite(total) else None


def _published(users: int, epsilon: float, given: Mapping[str, Any]) -> float:
    """The published constants jump at epsilon = 1, so that above it the formula just below 1 may be better."""
    found, refusal = [], None
    for target in {epsilon, min(epsilon, math.nextafter(1.0, 0.0))}:
        try:
            found.append(plan(users=users, epsilon=target, **{**given, "accountant": "paper"}).expected_error.total)
        except (ParameterError, PrivacyError) as error:
            refusal = error
    if refusal is not None and not found:
        raise refusal
    return min(found)
