"""Labels that nobody listed: one for each user, or several, of which some are drawn; found where many users hold them.

How labels are written is public. Labels are compared, and listed, as text in one canonical form, so that no spelling of
a single user's is ever shown.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice, check_size, set_fields, shown
from shufflesum.domains import base
from shufflesum.domains.base import ColumnLayout, Domain, Missing
from shufflesum.domains.labels import (
    DictionaryColumn,
    LabelRows,
    checked_column,
    column_from_json,
    label_rows,
    no_label,
    text_of,
    value_at,
)
from shufflesum.domains.multi_choice import ListRows, listed_rows
from shufflesum.domains.options import Option
from shufflesum.domains.structure import LEFT_OUT
from shufflesum.encodings import Block, Encoding, UnlistedCells
from shufflesum.errors import DataError, ParameterError
from shufflesum.privacy.partition_selection import MOST_ITEMS

Normalization = Literal["NFC", "NFKC"]


@dataclass(frozen=True, slots=True, init=False)
class UnlistedLabels(Domain):
    """One label each, or, with `max_items`, a list of labels each, of which that many count, drawn at random.

    Labels are text in Unicode's form NFC, or NFKC, in which a ligature is its letters; `ignore_case` folds capitals.
    """

    kind: ClassVar[str] = "discover"
    parts: ClassVar[tuple[str, str]] = (
        "unlisted_labels.estimate:DiscoveryEstimate",
        "wording:UnlistedLabelsWording",
    )
    trivial_guess: ClassVar[str] = "that nobody holds a label"
    finds_labels: ClassVar[bool] = True
    distributions: ClassVar[tuple[str, ...]] = base.LABEL_DISTRIBUTIONS
    column_help: ClassVar[tuple[str, str]] = (
        "Find which labels in this column many users hold, without a list, and count them.",
        "The column of labels, under a plan that finds them.",
    )
    flag_help: ClassVar[str] = "Users hold labels that nobody listed, which one process finds."
    options: ClassVar[tuple[Option, ...]] = (
        Option("max-items", "discover: each user has a list of labels, of which so many count.  [one label]", "K", int),
        Option("normalization", "discover: the form of Unicode that labels are read in, NFC or NFKC.  [NFC]", "FORM"),
    )

    max_items: int | None
    """How many labels of a user count; None where each holds just one."""
    ignore_case: bool
    normalization: Normalization
    column: str | None
    """What the column of labels is called, for tables that must have it."""

    def __init__(
        self,
        max_items: int | None = None,
        *,
        ignore_case: bool = False,
        normalization: Normalization = "NFC",
        column: str | None = None,
    ) -> None:
        if max_items is not None:
            check_size("max_items", max_items, 1, MOST_ITEMS)
        if not isinstance(ignore_case, bool | np.bool_):
            raise ParameterError("wrong-type", f"ignore_case is {shown(ignore_case)}; it must be True or False")
        check_choice("normalization", normalization, get_args(Normalization))
        set_fields(
            self,
            max_items=None if max_items is None else int(max_items),
            ignore_case=bool(ignore_case),
            normalization=str(normalization),
            column=checked_column(column),
        )

    @property
    def counted_items(self) -> int:
        """How many labels of a user count at most."""
        return self.max_items or 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what is estimated: one count, for any label that is found."""
        return ()

    @property
    def dimension(self) -> int:
        """How many numbers are estimated in any case."""
        return 1

    @property
    def entries(self) -> int:
        """How many labels of a user count."""
        return self.counted_items

    def size_text(self) -> str:
        """There is no number of them."""
        return "any labels"

    @property
    def central_sensitivity(self) -> tuple[float, float]:
        """A trusted curator's squared error of one frequency in units of Gaussian and of Laplace noise."""
        return 2.0 * self.counted_items, 4.0 * self.counted_items**2

    @property
    def trivial_mse(self) -> float:
        """Squared error of guessing that nobody holds a label, at the worst."""
        return 1.0

    def rows(self, values: Any) -> LabelRows | ListRows:
        """One label for each user, or a list of labels."""
        if self.max_items is None:
            if isinstance(values, ListRows) or _holds_lists(values):
                raise DataError(
                    "wrong-type",
                    "labels: a row is a list; give max_items=, the number of labels that count for each user",
                )
            return label_rows(values)
        rows = listed_rows(values)
        if len(rows) == 0:
            raise DataError("no-rows", "labels: no rows; pass the labels of at least one user")
        return rows

    def check_options(self, *, clip: bool, missing: Missing) -> None:
        """Refuse what cannot be done here about missing labels, and about others."""
        base.refuse_for_labels(clip=clip, missing=missing)

    def block(self, rows: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse") -> HeldLabels:
        """The labels of these users in their canonical form; never changes `rows`."""
        self.check_options(clip=clip, missing=missing)
        rows = self.rows(rows)
        if not isinstance(rows, ListRows):
            codes, texts = self._coded(rows)
            _refuse_unreadable(codes, texts, rows, lambda item: first_row + item)
            return HeldLabels(texts, codes, None, len(rows), first_row)
        if rows.missing is not None and rows.missing.any():
            row = first_row + int(np.flatnonzero(rows.missing)[0])
            raise DataError(
                "missing-value", f"row {row}: the list of labels is missing; {LEFT_OUT}, or pass an empty list", row=row
            )
        labels = rows.labels[int(rows.starts[0]) : int(rows.starts[-1])]
        users = np.repeat(np.arange(len(rows)), np.diff(rows.starts))
        codes, texts = self._coded(labels) if len(labels) else (users, [])
        _refuse_unreadable(codes, texts, labels, lambda item: first_row + int(users[item]))
        return HeldLabels(texts, codes, users, len(rows), first_row)

    def text(self, value: object) -> str | None:
        """A label in its canonical form; empty where it is missing; None for what is no label, or has no UTF-8."""
        try:
            text = text_of(value) or ""
            text.encode("utf-8")  # half of a surrogate pair has none
        except (TypeError, UnicodeEncodeError):
            return None
        text = unicodedata.normalize(self.normalization, text)
        if self.ignore_case:  # twice: what folding leaves may compose to a letter that folds once more
            for _ in range(2):
                text = unicodedata.normalize(self.normalization, text.casefold())
        return text.strip()

    @property
    def column_layout(self) -> ColumnLayout:
        """One column, of labels or of lists of them."""
        return ColumnLayout(labels=True, lists=self.max_items is not None, column=self.column)

    def sampler(self, distribution: str, random: np.random.Generator) -> Callable[[int], list[Any]]:
        """A thousand labels, one for each user."""

        def sample(users: int) -> list[Any]:
            found = [f"label {code + 1}" for code in base.made_up_codes(random, 1000, users, distribution)]
            return found if self.max_items is None else [[label] for label in found]

        return sample

    def true_values(self, blocks: Iterable[Block], candidates: Any = ()) -> NDArray[np.float64]:
        """How many users hold each of the candidates."""
        found: Counter[str] = Counter()
        for block in blocks:
            assert isinstance(block, HeldLabels)
            users = np.arange(len(block)) if block.users is None else block.users
            held = {(user, block.texts[code]) for user, code in zip(users.tolist(), block.codes.tolist(), strict=True)}
            found.update(text for _, text in held)
        return np.array([found[self.text(label) or ""] for label in candidates], dtype=np.float64)

    @classmethod
    def from_options(cls, given: Mapping[str, Any], column: str | None, numbers: Any) -> UnlistedLabels:
        """How many labels of a user count, and how they are written."""
        return cls(given.get("max_items"), normalization=given.get("normalization", "NFC"), column=column)

    def encodings(self) -> tuple[Encoding, ...]:
        """A cell for each label that somebody holds."""
        return (UnlistedCells(self.counted_items),)

    def example(self, *, cells: Any = (), values: Any = None) -> Any:
        """A label; nobody listed its cell."""
        labels = [str(cell) for cell in cells]
        return labels if self.max_items is not None else labels[0]

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into an equal domain."""
        return {
            "kind": self.kind,
            "max_items": self.max_items,
            "ignore_case": self.ignore_case,
            "normalization": self.normalization,
        } | self._column_field()

    _fields: ClassVar[str] = '"max_items", "ignore_case", "normalization" and perhaps "column"'

    @classmethod
    def _from_fields(cls, fields: dict[Any, Any]) -> UnlistedLabels | None:
        match fields:
            case {
                "max_items": int() | None as max_items,
                "ignore_case": bool(ignore_case),
                "normalization": "NFC" | "NFKC" as normalization,
                **rest,
            }:
                column = column_from_json(rest)
                return cls(max_items, ignore_case=ignore_case, normalization=normalization, column=column)
        return None

    def _coded(self, rows: LabelRows) -> tuple[NDArray[np.int64], list[str | None]]:
        """Which of some texts each of these labels is; a text may occur twice, and need not occur at all."""
        if not isinstance(rows, DictionaryColumn):
            values, places = np.unique(rows, return_inverse=True)
            return places.astype(np.int64), [self.text(value) for value in values]
        key = f"{self.normalization} {self.ignore_case}"
        texts: list[str | None] | None = rows.tables.get(key)
        if texts is None:
            texts = rows.tables[key] = [*map(self.text, rows.values), ""]  # the last is what place -1 leads to
        return np.asarray(rows.places, dtype=np.int64) % len(texts), texts


@dataclass(frozen=True, slots=True, eq=False)
class HeldLabels(Block):
    """Labels of some users: item i is `texts[codes[i]]`, and is held by `users[i]`, or by user i where that is None."""

    texts: list[str | None]
    codes: NDArray[np.int64]
    users: NDArray[np.int64] | None
    size: int
    first_row: int

    def __len__(self) -> int:
        return self.size


def _holds_lists(values: Any) -> bool:
    return isinstance(values, list | tuple) and any(isinstance(value, list | tuple | set) for value in values)


def _refuse_unreadable(
    codes: NDArray[np.int64], texts: list[str | None], labels: LabelRows, row_of: Callable[[int], int]
) -> None:
    """Refuse the first item that is missing, or no label."""
    wrong = np.array([not text for text in texts], dtype=np.bool_)
    if not wrong.any() or not (found := wrong[codes]).any():
        return
    item = int(np.flatnonzero(found)[0])
    if texts[int(codes[item])] is None:
        raise no_label(value_at(labels, item), row_of(item), "labels")
    raise DataError("missing-value", f"row {row_of(item)}: the label is missing; {LEFT_OUT}", row=row_of(item))
