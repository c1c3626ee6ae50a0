"""One tidy table for every kind of estimate: what files, data frames, pages, terminals and pictures are made of."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice
from shufflesum._format import between, evenly, number, percent
from shufflesum.errors import MissingExtraError

Floats = NDArray[np.float64]
Library = Literal["pandas", "polars"]
_LIBRARIES = get_args(Library)


@dataclass(frozen=True, slots=True, eq=False)
class EstimateTable:
    """One row for each estimated number.

    The columns are, in this order: `group`, where there are groups; `index_0`, `index_1`, ..., the place of a mean in
    its array; `name`, of the label, column or entry; `value`, `std_error`, and `lower` and `upper`, the ends of the
    interval of this `level`; `users`, how many users the number is of, which is estimated for a group; `notes`, why a
    value is missing or must not be relied on; and the `further` columns of a kind of estimate.
    """

    quantity: Literal["mean", "count"]
    level: float
    value: Floats
    std_error: Floats
    lower: Floats
    upper: Floats
    users: NDArray[Any]
    notes: NDArray[np.str_]
    shape: tuple[int, ...]
    """Of the array that is estimated, for each group where there are groups; of counts, how many there are."""
    names_of: Callable[[Sequence[int]], list[str]] = field(repr=False)
    """The names of the entries of one such array, by their places."""
    groups: tuple[str, ...] = ()
    further: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.value)

    @property
    def entries(self) -> int:
        """How many rows each group has, or how many there are."""
        return len(self) // max(1, len(self.groups))

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """All columns by name, in their order."""
        found: dict[str, NDArray[Any]] = {}
        times = max(1, len(self.groups))
        if self.groups:
            found["group"] = np.repeat(np.array(self.groups, dtype=np.str_), self.entries)
        if self.quantity == "mean":
            found |= {f"index_{axis}": np.tile(at.ravel(), times) for axis, at in enumerate(np.indices(self.shape))}
        found["name"] = np.tile(np.array(self.names_of(range(self.entries)), dtype=np.str_), times)
        for name in ("value", "std_error", "lower", "upper", "users", "notes"):
            found[name] = getattr(self, name)
        return found | dict(self.further)

    def to_frame(self, library: Library | None = None) -> Any:
        """The columns as a data frame of pandas or Polars: the one asked for, else what is loaded or installed."""
        if library is not None:
            check_choice("library", library, _LIBRARIES)
        chosen = library or _found()
        if chosen is None or importlib.util.find_spec(chosen) is None:
            raise MissingExtraError(
                "missing-extra", f"a data frame needs {chosen or 'pandas or polars'}: pip install {chosen or 'pandas'}"
            )
        return importlib.import_module(chosen).DataFrame(self.columns)

    def with_names(self, names: Sequence[str] | None) -> EstimateTable:
        """The same with these names of its entries; as it is where there are none, or not as many as entries."""
        if names is None or len(names) != self.entries:
            return self
        return replace(self, names_of=partial(_pick, names))

    def labels(self, places: Sequence[int]) -> list[str]:
        """What these rows are called: by group and name where there are both."""
        names = self.names_of([place % self.entries for place in places])
        if not self.groups:
            return names
        groups = [self.groups[place // self.entries] for place in places]
        return [f"{group}, {name}" if self.entries > 1 else group for group, name in zip(groups, names, strict=True)]

    def some(self, most: int) -> list[int]:
        """The rows to show where there is room for so many.

        All of them, or the largest counts, or evenly spaced means; of groups the largest, each with evenly spaced ones.
        """
        if self.quantity == "count":
            return list(range(len(self))) if len(self) <= most else self.largest(most)
        if not self.groups:
            return evenly(len(self), most)
        each = evenly(self.entries, max(1, most // min(len(self.groups), 10)))
        groups = _largest(self.users[:: self.entries], max(1, most // len(each)))
        return [group * self.entries + entry for group in groups for entry in each]

    def largest(self, most: int) -> list[int]:
        """The rows of the largest values, largest first."""
        places: list[int] = np.argsort(-self.value, kind="stable")[:most].tolist()
        return places

    def heads(self) -> list[str]:
        """The heads of the columns of `cells`."""
        each = ["standard error", f"{percent(self.level)} % interval"]
        if self.quantity == "count":
            return ["label", "users", *each, "share"]
        if self.groups:
            return ["group", "users", *(["entry"] if self.entries > 1 else []), "mean", *each]
        return ["entry", "mean", *each, "sum"]

    def cells(self, places: Sequence[int]) -> list[list[str]]:
        """Rows for people: values to as many digits as their errors allow, ends rounded outwards.

        A group without a mean is one row.
        """
        rows: list[list[str]] = []
        seen: set[int] = set()
        for place, name in zip(places, self.names_of([place % self.entries for place in places]), strict=True):
            value, error = float(self.value[place]), float(self.std_error[place])
            missing = np.isnan(value)
            ends = "" if missing else between(float(self.lower[place]), float(self.upper[place]), error)
            told = [number(value, error) or str(self.notes[place]), number(error, error), ends]
            if not self.groups:
                rows.append([name, *told, self._beside(place, error)])
                continue
            group = place // self.entries
            if missing and group in seen:
                continue
            seen.add(group)
            size, spread = float(self.users[place]), float(self.further["users_std_error"][place])
            entry = [] if self.entries == 1 else [""] if missing else [name]
            rows.append([self.groups[group], f"{number(size, spread)} ± {number(spread, spread)}", *entry, *told])
        return rows

    def left_out(self, places: Sequence[int]) -> str:
        """A sentence on the rows that are not among these; nothing where all are."""
        if len(places) == len(self):
            return ""
        if self.quantity == "count":
            return f"{len(places)} of {len(self):,} labels are shown, the largest counts."
        if not self.groups:
            return f"{len(places)} of {len(self):,} entries are shown, evenly spaced."
        groups = len({place // self.entries for place in places})
        each = len(places) // groups
        shown = f"{groups} of {len(self.groups):,} groups are shown, the largest"
        return f"{shown}, with {each} of {self.entries:,} entries each."

    def _beside(self, place: int, error: float) -> str:
        """The share of a count, or the sum of a mean."""
        users = float(self.users[place])
        if self.quantity == "count":
            return f"{number(100 * float(self.further['share'][place]), 100 * error / users)} %"
        return number(float(self.further["sum"][place]), users * error)


def _pick(names: Sequence[str], places: Sequence[int]) -> list[str]:
    return [names[place] for place in places]


def _largest(values: Floats, most: int) -> list[int]:
    """All in their order, or the largest first."""
    if len(values) <= most:
        return list(range(len(values)))
    places: list[int] = np.argsort(-values, kind="stable")[:most].tolist()
    return places


def _found() -> str | None:
    """The library that the program has loaded already, else the first that is installed."""
    loaded = [name for name in _LIBRARIES if name in sys.modules]
    return next(iter(loaded or [name for name in _LIBRARIES if importlib.util.find_spec(name)]), None)


def index_names(shape: tuple[int, ...], places: Sequence[int]) -> list[str]:
    """Entries of an array by their indices: "1, 2"; a single number is its "value"."""
    if shape == ():
        return ["value" for _ in places]
    indices = np.unravel_index(np.asarray(places, dtype=np.int64), shape)
    return [", ".join(map(str, index)) for index in zip(*(axis.tolist() for axis in indices), strict=True)]
