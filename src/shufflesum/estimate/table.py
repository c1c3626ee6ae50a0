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
from shufflesum._format import Z_95, between, evenly, number, percent, plus_minus
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

    quantity: str
    """What a value is, as the head of a column and the title of an axis: "mean", "users"."""
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
    entry: str = "entry"
    """What a row is: an entry, a label, a word."""
    of_users: bool = False
    """Whether values are numbers of users: whole for people, drawn from 0, and of many the largest are shown."""
    beside: tuple[str, float, str] | None = None
    """What people also see: its name, what a value is multiplied with for it, and its unit."""
    bounds: tuple[Floats, Floats] | None = field(default=None, repr=False)
    """The public bounds of the entries of one array, where they are numbers with bounds."""
    named: bool = False
    """Whether names are those of columns, and not places in an array."""

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
        if not self.of_users:
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

        All of them, or the largest numbers of users, or evenly spaced values; of groups the largest, each with
        evenly spaced ones.
        """
        if self.of_users:
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
        told = [self.quantity, f"{percent(self.level)} % interval"]
        if self.groups:
            return ["group", "users", *([self.entry] if self.entries > 1 else []), *told]
        return [self.entry, *told, *([self.beside[0]] if self.beside else [])]

    def cells(self, places: Sequence[int]) -> list[list[str]]:
        """Rows for people: values to as many digits as their errors allow, ends rounded outwards.

        A group without a value is one row.
        """
        rows: list[list[str]] = []
        seen: set[int] = set()
        for place, name in zip(places, self.names_of([place % self.entries for place in places]), strict=True):
            told, missing = self._told(place), np.isnan(self.value[place])
            if not self.groups:
                rows.append([name, *told, *self._beside(place)])
                continue
            group = place // self.entries
            if missing and group in seen:
                continue
            seen.add(group)
            size = float(self.users[place])
            wide = Z_95 * float(self.further["users_std_error"][place])
            entry = [] if self.entries == 1 else [""] if missing else [name]
            rows.append([self.groups[group], plus_minus(size, wide, whole=True), *entry, *told])
        return rows

    def left_out(self, places: Sequence[int]) -> str:
        """A sentence on the rows that are not among these; nothing where all are."""
        if len(places) == len(self):
            return ""
        entries = f"{self.entry[:-1]}ies" if self.entry.endswith("y") else f"{self.entry}s"
        if not self.groups:
            how = "the largest counts" if self.of_users else "evenly spaced"
            return f"{len(places)} of {len(self):,} {entries} are shown, {how}."
        groups = len({place // self.entries for place in places})
        each = len(places) // groups
        shown = f"{groups} of {len(self.groups):,} groups are shown, the largest"
        return f"{shown}, with {each} of {self.entries:,} {entries} each."

    def half_width(self, place: int) -> float:
        """How far the farther end of an interval is from its value."""
        value = self.value[place]
        return float(max(self.upper[place] - value, value - self.lower[place]))

    def _told(self, place: int) -> list[str]:
        """The value with what may lie on either side, and its interval; or why there is none."""
        value, wide = float(self.value[place]), self.half_width(place)
        if np.isnan(value):
            return [str(self.notes[place]), ""]
        digits = max(wide, 10.0) if self.of_users else wide
        ends = between(float(self.lower[place]), float(self.upper[place]), digits)
        return [plus_minus(value, wide, whole=self.of_users), ends]

    def _beside(self, place: int) -> list[str]:
        if self.beside is None:
            return []
        _, times, unit = self.beside
        return [f"{number(times * float(self.value[place]), times * self.half_width(place))}{unit}"]


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
