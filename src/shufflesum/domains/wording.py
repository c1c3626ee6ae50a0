"""Nouns and sentences about a domain, for plan cards, privacy statements and pages; each domain has its own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from shufflesum._format import counted as plural
from shufflesum._format import margin, plain, upwards

if TYPE_CHECKING:
    from shufflesum.domains.base import Domain
    from shufflesum.plans import Plan

_D = TypeVar("_D", bound="Domain")

_LISTED = 20  # of more labels only so many are named
_LONGEST = 60  # characters of a name


class Wording(ABC, Generic[_D]):
    """What is said of one domain. Sentences are plain text without a line break."""

    public: ClassVar[str]
    """What was chosen in public besides the plan: the subject of a sentence."""
    clipped: ClassVar[str] = "values beyond the bounds were moved to the nearest one"
    """What clipping does, as a clause."""
    counted: ClassVar[str] = "label"
    """What users are counted for; of means nothing."""

    def __init__(self, domain: _D) -> None:
        self.domain = domain

    @abstractmethod
    def collected(self) -> str:
        """What is estimated; of many labels the first ones are named."""

    def bounds(self) -> str:
        """The public bounds and the columns they come from, as a sentence; nothing where there are none."""
        return ""

    def margins(self, plan: Plan) -> dict[str, str]:
        """The error to expect on either side at 95 %, by what it is of."""
        return {f"the count of each {self.counted}": margin_of_users(root_mean_square(plan) * plan.users)}

    def error_details(self, plan: Plan) -> list[str]:
        """What else there is to say of the error."""
        return []

    @abstractmethod
    def moved(self, plan: Plan) -> str:
        """What malicious users move."""

    def shift(self, plan: Plan, malicious: int) -> str:
        """By how much so many malicious users can move it, rounded up."""
        return upwards(plan.max_shift(malicious))

    def assumptions(self) -> list[str]:
        """What the guarantee rests on here beyond what all rest on; sentences."""
        return []

    def _from_column(self) -> str:
        column = self.domain.column
        return "" if column is None else f", from column {column!r}"


def counted(plan: Plan, malicious: int) -> str:
    """By how many users so many malicious ones can move a count."""
    # what is whole but for rounding stays so
    return plural(math.ceil(plan.users * plan.max_shift(malicious) * (1 - 1e-9)), "user")


def margin_of_users(error: float) -> str:
    """The margin at 95 % of a number of users with this standard error."""
    return f"{margin(error, whole=True)} users"


def root_mean_square(plan: Plan) -> float:
    """The expected error of one estimated number."""
    return math.sqrt(plan.expected_error.total / plan.dimension)


def squared(plan: Plan) -> str:
    """The expected squared error and its parts."""
    error = plan.expected_error
    parts = {"sampling": error.sampling, "rounding": error.rounding, "noise": error.noise}
    return f"{plain(error.total, 4)} = {' + '.join(f'{plain(part)} {name}' for name, part in parts.items())}"


def listed(names: Sequence[str], what: str) -> str:
    """How many there are, and the first ones by name."""
    return f"{plural(len(names), what)} ({_and_more([_short(name) for name in names[:_LISTED]], len(names), ', ')})"


def arrays_of(shape: tuple[int, ...], dimension: int) -> str:
    """What numbers a user holds."""
    if dimension == 1:
        return "one number per user"
    many = f"{dimension:,} numbers per user"
    return many if shape == (dimension,) else f"arrays of {' by '.join(f'{side:,}' for side in shape)} ({many})"


def bounds_of(arrays: Any) -> str:
    """The bounds of the numbers of `Arrays`, and the columns they come from; of many the first ones are named."""
    what = "coefficient of the span" if arrays.structure.mixes else "number"
    columns = "" if arrays.columns is None else f", in {listed(arrays.columns, 'column')}"
    lower, upper = arrays.lower.tolist(), arrays.upper.tolist()
    if arrays.bounds.uniform:
        return f"Every {what} lies between {_exact(lower[0])} and {_exact(upper[0])}{columns}."
    each = [f"{_exact(low)} to {_exact(high)}" for low, high in zip(lower, upper, strict=True)]
    return f"Bounds of each {what}: {of_each(arrays, each)}."


def margins_of_numbers(plan: Plan, one: str) -> dict[str, str]:
    """The margin of each number, in its own unit: one for all, or by name where bounds differ; of many the first.

    `one` is what each of them is, as "the mean".
    """
    arrays: Any = plan.domain.numbers
    if arrays.bounds.uniform:
        return {one if arrays.dimension == 1 else f"{one} of each number": margin(root_mean_square(plan))}
    part = math.sqrt(plan.error_in_widths.total / plan.dimension)
    named = zip(_names(arrays, min(arrays.dimension, _LISTED)), arrays.width.tolist(), strict=False)
    found = {f"{one} of {name}": margin(part * width) for name, width in named}
    if arrays.dimension > _LISTED:
        found[f"{one} of each other number"] = f"{margin(100 * part)} % of the width of its bounds"
    return found


def of_each(arrays: Any, texts: Sequence[str]) -> str:
    """Something of each coordinate of `Arrays`, with its name; of many the first ones."""
    names = _names(arrays, min(len(texts), _LISTED))
    return _and_more([f"{name}: {text}" for name, text in zip(names, texts, strict=False)], len(texts), "; ")


def _names(arrays: Any, most: int) -> list[str]:
    columns, structure = arrays.columns, arrays.structure
    return [_short(columns[i]) if columns else structure.describe(i) for i in range(most)]


def _and_more(named: Sequence[str], all_of_them: int, between: str) -> str:
    """Never a list that looks whole and is not."""
    left = all_of_them - len(named)
    return between.join(named) + (f" and {left:,} more" if left else "")


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}... ({len(name):,} characters)"


def _exact(value: float) -> str:
    """A bound as it is, to the last digit."""
    return repr(value).removesuffix(".0")
