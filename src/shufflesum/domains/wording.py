"""Nouns and sentences about a domain, for plan cards, privacy statements and pages; each domain has its own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from shufflesum._format import counted as plural
from shufflesum._format import margin, plain, upwards
from shufflesum.domains import Arrays, Categories, GroupBy, L2Ball, MultiChoice, OpenVocabulary, UnlistedLabels
from shufflesum.domains.counts import QUANTILE_BINS, WIDE_BINS
from shufflesum.mechanisms import PartitionSelection
from shufflesum.mechanisms.noisy_slots import ASSUMED_LAW

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
    """A bound as it is, to the last digit: 300,000."""
    return f"{int(value):,}" if value.is_integer() and abs(value) < 1e15 else f"{value:,}"


class ArraysWording(Wording[Arrays]):
    """What is said of arrays with bounds."""

    public: ClassVar[str] = "Bounds"

    def collected(self) -> str:
        """Mean and sum."""
        return f"the mean and sum of {arrays_of(self.domain.shape, self.domain.dimension)}"

    def bounds(self) -> str:
        """Of every number or of each."""
        return bounds_of(self.domain)

    def margins(self, plan: Plan) -> dict[str, str]:
        """Of each mean."""
        return margins_of_numbers(plan, "the mean")

    def moved(self, plan: Plan) -> str:
        """A mean."""
        return "a mean" if self.domain.bounds.uniform else "the mean with the widest bounds"


class _CountsWording(Wording[_D]):
    """What is said wherever users are counted by what they hold."""

    def moved(self, plan: Plan) -> str:
        """A count."""
        return "the count of a label"

    def shift(self, plan: Plan, malicious: int) -> str:
        """In users."""
        return counted(plan, malicious)


class CategoriesWording(_CountsWording[Categories]):
    """What is said of one label, or one bin, for each user."""

    public: ClassVar[str] = "Labels"
    clipped: ClassVar[str] = "numbers beyond the bins were counted in the nearest one"

    def collected(self) -> str:
        """A count for each label or bin."""
        domain = self.domain
        if domain.bins is not None:
            bins = listed(domain.names, "bin")
            if domain.bins in (QUANTILE_BINS, WIDE_BINS):
                bins = f"{len(domain.names):,} logarithmic bins, for numbers of any size"
            return f"how many users' numbers lie in each of {bins}{self._from_column()}"
        return f"how many users hold each of {listed(domain.names, 'label')}, one each{self._from_column()}"


class GroupByWording(Wording[GroupBy]):
    """What is said of a group and an array for each user."""

    public: ClassVar[str] = "Groups, bounds"

    def collected(self) -> str:
        """Sizes, means and sums."""
        values, groups = self.domain.values, listed(self.domain.names, "group")
        held = arrays_of(values.shape, values.dimension)
        return f"users, mean and sum of {held} in each of {groups}{self._from_column()}"

    def bounds(self) -> str:
        """Of every number or of each, in all groups."""
        return bounds_of(self.domain.values)

    def margins(self, plan: Plan) -> dict[str, str]:
        """Of a mean, and of a group's size."""
        nobody = np.zeros(plan.cells, dtype=np.int64)
        size = math.sqrt(plan.mechanism.decode_groups(plan.encoding, nobody, plan.users).count_variance)
        sizes = {"the size of each group": margin_of_users(size)}
        return margins_of_numbers(plan, "a group's mean") | sizes

    def error_details(self, plan: Plan) -> list[str]:
        """What the error of a mean assumes."""
        return ["means: if all groups are equally large"]

    def moved(self, plan: Plan) -> str:
        """A mean of a group."""
        return f"the mean of a group (one of {len(self.domain.labels):,} equally large ones)"


class L2BallWording(Wording[L2Ball]):
    """What is said of arrays with a bounded norm."""

    public: ClassVar[str] = "Clipping norm, centre"
    clipped: ClassVar[str] = "rows longer than the clipping norm were scaled down to it"

    def collected(self) -> str:
        """Mean and sum, and the norm."""
        ball = self.domain
        measured = "" if ball.center is None else ", measured from a public centre"
        norm = f"of a Euclidean norm of at most {upwards(ball.clipping_norm, 6)}{measured}"
        return f"the mean and sum of {arrays_of(ball.shape, ball.dimension)}, {norm}"

    def margins(self, plan: Plan) -> dict[str, str]:
        """Of an entry."""
        return {"each entry of the mean": margin(root_mean_square(plan))}

    def error_details(self, plan: Plan) -> list[str]:
        """Of the whole vector."""
        return [f"norm of the whole error: {plain(math.sqrt(plan.expected_error.total))} (root mean square)"]

    def moved(self, plan: Plan) -> str:
        """An entry."""
        return "an entry of the mean"

    def assumptions(self) -> list[str]:
        """Rounding itself protects: a device that rounds to the nearest bit has no privacy at all."""
        return [
            "The coin that rounds is the privacy: devices must draw it freshly and secretly, for each bit anew. A coin "
            "that is fixed, shared or left out voids the guarantee."
        ]


class MultiChoiceWording(_CountsWording[MultiChoice]):
    """What is said of several labels for each user."""

    public: ClassVar[str] = "Labels"

    def collected(self) -> str:
        """A count for each label."""
        labels = listed(self.domain.names, "label")
        return f"how many users hold each of {labels}, up to {self.domain.max_choices} each{self._from_column()}"


class OpenVocabularyWording(_CountsWording[OpenVocabulary]):
    """What is said of any word for each user."""

    public: ClassVar[str] = "Hash functions"
    counted: ClassVar[str] = "word"

    def collected(self) -> str:
        """Counts of words that are asked for."""
        functions, buckets = self.domain.layout
        return (
            f"how many users hold any word that is asked for afterwards, one each, by {functions:,} hash functions "
            f"with {buckets:,} buckets each{self._from_column()}"
        )

    def error_details(self, plan: Plan) -> list[str]:
        """How frequent words are taken to be."""
        return [f"if {ASSUMED_LAW}"]

    def moved(self, plan: Plan) -> str:
        """A count."""
        return "a count of a word"


class UnlistedLabelsWording(_CountsWording[UnlistedLabels]):
    """What is said of labels that are found."""

    public: ClassVar[str] = "The number of labels that count for each user"

    def collected(self) -> str:
        """Labels and their counts."""
        domain = self.domain
        each = "one each" if domain.max_items is None else f"up to {plural(domain.max_items, 'label')} of each"
        written = f"Unicode {domain.normalization}{', capitals folded' if domain.ignore_case else ''}"
        return (
            f"labels that nobody listed before, {each}, found where many users hold them, how many do, and how many "
            f"users hold another label{self._from_column()} ({written})"
        )

    def margins(self, plan: Plan) -> dict[str, str]:
        """Of a label, and of the rest."""
        rest = math.sqrt(_selection(plan).rest_noise.variance)
        return super().margins(plan) | {"the users who hold a label that is not listed": margin_of_users(rest)}

    def error_details(self, plan: Plan) -> list[str]:
        """From when on a label is listed."""
        mechanism = _selection(plan)
        return [
            f"a label is listed where its count with noise is at least {mechanism.threshold:,}; held by "
            f"{mechanism.found_from(0.9):,} users it is with probability 90 %"
        ]

    def assumptions(self) -> list[str]:
        """What delta covers here."""
        return [
            "Delta covers, among all else, the chance that a label which only one user holds is listed. How labels are "
            "written, and how many of a user's count, must not depend on the data."
        ]


def _selection(plan: Plan) -> PartitionSelection:
    assert isinstance(plan.mechanism, PartitionSelection)
    return plan.mechanism
