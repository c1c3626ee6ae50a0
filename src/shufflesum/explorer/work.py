"""What the explorer asks of the planner; it runs in processes of its own, so that the page never waits for it."""

from __future__ import annotations

import math
import os
import signal
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.explorer.question import DEFAULTS, Question
from shufflesum.planning import plan, plan_for_error
from shufflesum.planning.planner import domain_of
from shufflesum.plans import Plan
from shufflesum.privacy.curator import curator_error
from shufflesum.statement import statement

__all__ = [
    "CURATOR",
    "FORMULAS",
    "LINES",
    "PAPER",
    "Card",
    "Planned",
    "begin",
    "begin_behind",
    "error_of",
    "full_plan",
    "near_plan",
    "point",
    "warm_up",
]

PAPER, CURATOR = "the paper's formula", "trusted curator"
FORMULAS = (PAPER, CURATOR)  # a fraction of a millisecond each; the others are searches
LINES = ("add", "replace", *FORMULAS)
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
    fixed: Mapping[str, Any] = known.mechanism.choices()

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
            weights = domain_of(question.shape, given.get("bounds"), None).curator_weights
            total = curator_error(users, weights, epsilon, question.delta, question.rounds)
        elif line == PAPER:
            total = _published(users, epsilon, given)
        else:
            total = plan(users=users, epsilon=epsilon, **given | {"mechanism": line}).expected_error.total
    except (ParameterError, PrivacyError):
        return None
    return error_of(total, question.dimension) if math.isfinite(total) else None


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
