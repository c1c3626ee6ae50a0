"""What somebody asks the explorer: users, what they hold, delta, and epsilon or an error that is acceptable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shufflesum.domain import Categories
from shufflesum.errors import ParameterError

__all__ = ["DEFAULTS", "Question"]

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
    shape: tuple[int, ...] | Categories
    bounds: tuple[float, float]
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
            shape=_labels(form) if labelled else _shape(form),
            bounds=(0.0, 1.0) if labelled else (_number(form, "low"), _number(form, "high")),
            epsilon=None if by_error else _number(form, "epsilon"),
            error=_positive(form, "error") if by_error else None,
            delta=_number(form, "delta"),
            rounds=_whole(form, "rounds"),
            max_reports=_whole(form, "max_reports") if cap else None,
        )

    @property
    def dimension(self) -> int:
        """How many numbers are estimated."""
        return self.shape.dimension if isinstance(self.shape, Categories) else math.prod(self.shape)

    @property
    def target_error(self) -> float:
        """The acceptable error as the planner wants it: squared, and summed over coordinates."""
        assert self.error is not None
        return self.error**2 * self.dimension

    def arguments(self) -> dict[str, Any]:
        """The planner's arguments, without users and epsilon."""
        held: dict[str, Any] = {"shape": self.shape, "delta": self.delta, "rounds": self.rounds}
        if not isinstance(self.shape, Categories):
            held["bounds"] = self.bounds
        return held if self.max_reports is None else held | {"max_reports": self.max_reports}

    @property
    def held(self) -> tuple[object, ...]:
        """All but users, epsilon and error: questions that agree in it are about the same collection."""
        return self.shape, self.bounds, self.delta, self.rounds, self.max_reports


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


def _shape(form: Mapping[str, str]) -> tuple[int, ...]:
    text = _text(form, "shape")
    try:
        shape = tuple(int(size) for size in text.replace("x", ",").split(","))
    except ValueError:
        raise ParameterError("wrong-type", f"shape is {text[:40]!r}; write 100, or 28, 28") from None
    if not shape or min(shape) < 1 or math.prod(shape) > _MOST_SIZE:
        raise ParameterError("out-of-range", f"shape is {text[:40]!r}; it must have 1 to {_MOST_SIZE:,} numbers")
    return shape


def _labels(form: Mapping[str, str]) -> Categories:
    text = _text(form, "labels")
    if not text.isdecimal():
        return Categories([label.strip() for label in text.split(",") if label.strip()])
    if not 2 <= int(text) <= _MOST_SIZE:
        raise ParameterError("out-of-range", f"labels is {text[:40]}; there may be 2 to {_MOST_SIZE:,} of them")
    return Categories(int(text))
