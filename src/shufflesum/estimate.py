"""What all estimates share: the plan, the table they are decoded from, and whether the guarantee holds.

Which kind of estimate belongs to a plan is the domain's to say (`Domain.estimate_type`). Each kind stands in the folder
of its domain and offers what it has.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import importlib.util
import json
import math
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._checks import check_choice, check_number
from shufflesum._documents import decode_checked, encode_checked, problem_of, read_file
from shufflesum._format import Z_95, Shown, between, counted, evenly, number, percent, plus_minus, visible
from shufflesum._machine import replace_file
from shufflesum.cautions import ShufflesumWarning
from shufflesum.errors import FileError, MissingExtraError, PlanError, ShufflesumError
from shufflesum.mechanisms.mechanism import Combined, Means, Target
from shufflesum.privacy import honest_users

if TYPE_CHECKING:
    from shufflesum.domains import Domain, Missing
    from shufflesum.plans import Plan

Floats = NDArray[np.float64]

AnyEstimate: TypeAlias = Any
"""An estimate of the kind that the plan's domain has, with the methods of that kind; always a `BaseEstimate`."""

_E = TypeVar("_E", bound="BaseEstimate")

Adjustment: TypeAlias = Literal["clipped", "midpoint", "dropped"]
ADJUSTMENTS: tuple[Adjustment, ...] = ("clipped", "midpoint", "dropped")

_SHOWN = 12  # rows in a notebook
_MOST_LEADING = 40  # rows, where the first ones belong together
_LEVEL = 0.95


def estimate_of(
    plan: Plan, users: int, rejected: int, table: NDArray[np.int64], broken: str | None = None, round_number: int = 1
) -> AnyEstimate:
    """What a table of counts says under its plan: the kind of estimate that belongs to the plan's domain."""
    return plan.domain.estimate_type(plan, users, rejected, table, broken, round_number)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BaseEstimate(ABC):
    """The table of a batch that came through the gate, with its plan; each domain has its own kind.

    `broken` says why the plan's guarantee does not hold, where somebody insisted on an estimate all the same; it is
    None wherever the guarantee holds. `round_number` is the plan's round that it is of. `adjusted` says what was done
    to values before they were counted, where whoever held them all was told to.
    """

    what: ClassVar[str] = "Private mean"
    """What it is, as the title of a picture of something."""
    caption: ClassVar[str] = "Mean over all users"
    """What a picture shows, in words."""

    plan: Plan
    users: int
    rejected: int
    table: NDArray[np.int64]
    broken: str | None = None
    round_number: int = 1
    adjusted: tuple[Adjustment, ...] = ()
    left_out: int = field(default=0, kw_only=True)
    """How many rows had a missing value, where such rows were left out; users are those that remain."""
    library: Library | None = field(default=None, kw_only=True)
    """Whose tables the users' data came in, which `to_frame` then makes as well."""

    # ---- what each kind says

    @abstractmethod
    def _rows(self, level: float) -> EstimateTable:
        """The tidy table, but for the guarantee."""

    def figures(self, level: float = 0.95) -> dict[str, Any]:
        """Everything estimated, by name, as JSON and .npz files have it: the columns of the table.

        A kind of estimate whose values have a shape of their own says so in this shape; intervals are pairs.
        """
        return {name: column for name, column in self.to_table(level).columns.items() if name != "users"}

    @property
    def warnings(self) -> tuple[ShufflesumWarning, ...]:
        """What deserves a second look, by the plan and by what is estimated; it costs no privacy to say it."""
        return self.plan.warnings

    @property
    def prompt(self) -> str | None:
        """What must be asked for before there is anything to show people; None where it is there already."""
        return None

    @property
    def beside(self) -> tuple[BaseEstimate, ...]:
        """Other estimates of the same table that people see with it; files of its numbers hold them as well."""
        return ()

    @property
    def heading(self) -> str:
        """What stands above it on a page that shows several; nothing where the page's title says it."""
        return ""

    @property
    def details(self) -> tuple[BaseEstimate, ...]:
        """Parts of it that a page shows as well, each with a picture of its own."""
        return ()

    @property
    def words(self) -> list[str] | None:
        """The words that were asked for, which a file of it keeps; None where none were."""
        return None

    def remarks(self, level: float = 0.95) -> list[str]:
        """Sentences for people that go with the table."""
        return []

    # ---- what all have

    def read_as(self, kind: type[_E], **further: Any) -> _E:
        """The same table as another kind of estimate, with what that needs further."""
        return kind(**{each.name: getattr(self, each.name) for each in fields(BaseEstimate)}, **further)

    def to_table(self, level: float = 0.95) -> EstimateTable:
        """One row for each estimated number: name, value, std_error, lower, upper, users, notes (`EstimateTable`)."""
        rows = self._rows(level)
        if self.broken is None:
            return rows
        warning = f"NO GUARANTEE: {self.broken}"
        return replace(rows, notes=np.array([f"{warning}; {note}" if note else warning for note in rows.notes]))

    def to_frame(self, level: float = 0.95, *, library: Library | None = None) -> Any:
        """`to_table` as a data frame.

        Of pandas or of Polars: the one asked for, or that the data came in, else the one that is loaded or installed,
        pandas if both are.
        """
        return self.to_table(level).to_frame(library or self.library)

    def plot(self, *, title: str | None = None, truth: ArrayLike | None = None, level: float = 0.95) -> Any:
        """A picture that a notebook shows without a network, as `--plot` draws it; needs the extra `plots`.

        `.save(path)` writes it, `.chart` is the chart of Altair.
        """
        # Pictures know estimates, and nothing here depends on a picture: see the layers in pyproject.toml.
        from shufflesum.plots import Picture, estimate_chart

        promise = self.plan.guarantee.describe() if self.guarantee_holds else "WITHOUT the plan's guarantee"
        subtitle = f"{counted(self.users, 'user')}, {promise}"
        return Picture(estimate_chart(self, truth=truth, title=title or self.what, subtitle=subtitle, level=level))

    def save(self, path: str | Path) -> None:
        """Write the whole estimate, its plan with it, as a checksummed JSON file for `load`."""
        content = {
            "plan": self.plan.summary(),
            "round": int(self.round_number),
            "users": int(self.users),
            "rejected_reports": int(self.rejected),
            "why_broken": self.broken,
            "words": self.words,
            "table": table_to_json(self.table),
        }
        content |= {"adjusted": list(self.adjusted)} if self.adjusted else {}
        content |= {"left_out": int(self.left_out)} if self.left_out else {}
        try:
            replace_file(Path(path).resolve(), encode_checked(_FORMAT, content))  # a link keeps pointing to the file
        except OSError as error:
            raise FileError("unwritable", f"{path}: cannot be written: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote. Nothing is believed: plan and guarantee are computed again, the table is checked.

        `BaseEstimate.load` reads every kind, a kind's own only that kind.
        """
        estimate = load_estimate(path)
        if not isinstance(estimate, cls):
            raise FileError(
                "wrong-type", f"{path}: is a {type(estimate).__name__}, not a {cls.__name__}; load it as what it is"
            )
        return estimate

    def __repr__(self) -> str:
        broken = "" if self.guarantee_holds else ", WITHOUT the plan's guarantee"
        name = type(self).__name__
        later = f", round {self.round_number}" if self.round_number > 1 else ""
        return (
            f"{name}({counted(self.users, 'user')}, shape={self.plan.shape}, plan {self.plan.id[:12]}{later}{broken})"
        )

    def __str__(self) -> str:
        """The guarantee, and a table of all entries or of some: the same as a notebook shows."""
        return self._shown().text()

    def _repr_html_(self) -> str:
        return self._shown().html()

    def _shown(self) -> Shown:
        plan = self.plan
        later = f", round {self.round_number:,} of {plan.rounds:,}" if plan.rounds > 1 else ""
        facts = [f"{counted(self.users, 'user')}{later}; plan {plan.id[:12]}"]
        notes = [*([self.adjustment] if self.adjustment else []), *map(str, self.warnings)]
        if self.broken is None:
            facts.append(f"guarantee for one user: {plan.guarantee.describe()}")
        else:
            notes.insert(0, f"NO GUARANTEE: {self.broken}")
        if self.prompt is not None:
            return Shown(type(self).__name__, [*facts, self.prompt], None, notes)
        table = self._rows(_LEVEL)
        places = table.some(_SHOWN)
        if left_out := table.left_out(places):
            facts.append(f"{left_out} estimate.to_frame() has all.")
        return Shown(type(self).__name__, facts, (table.heads(), table.cells(places)), notes)

    @property
    def domain(self) -> Domain:
        """What users held, as it was reported in this round."""
        return self.plan.domain.of_round(self.round_number)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """What the entries of a user's vector are called, of a group's for groups; None where they have no names."""
        numbers = self.plan.domain.numbers
        return None if numbers is None else numbers.columns

    @property
    def guarantee_holds(self) -> bool:
        """Whether nothing speaks against the plan's guarantee."""
        return self.broken is None

    @property
    def adjustment(self) -> str | None:
        """What was done to values beyond the bounds or missing (`clip`, `missing`), and that no interval covers it."""
        return describe_adjustments(self.adjusted, self.plan.domain.wording.clipped, self.left_out, self.users)

    @property
    def may_be_clipped(self) -> bool:
        """Whether values beyond the bounds may have been moved to them: devices do that unasked."""
        return "clipped" in self.adjusted or self.plan.mechanism.noise_by != "curator"

    @property
    def _bounds(self) -> tuple[Floats, Floats] | None:
        """The public bounds of the entries of a vector; None where entries have none of their own."""
        numbers = self.plan.domain.numbers
        if numbers is None or numbers.structure.mixes or len(numbers.shape) != 1:
            return None
        lower = np.broadcast_to(numbers.lower, numbers.shape)
        return lower, lower + numbers.width

    @property
    def _means(self) -> Means:
        return self.plan.mechanism.decode(self.plan.encoding_of(self.domain), self.table, self.users)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MeanEstimate(BaseEstimate):
    """The mean of the users' arrays, in their own units and shape, with error bars."""

    @property
    @abstractmethod
    def mean(self) -> Floats:
        """The estimate of the users' mean."""

    @property
    @abstractmethod
    def report_counts(self) -> NDArray[np.int64]:
        """Accepted reports of each entry."""

    @abstractmethod
    def standard_error_of(self, target: Target) -> Floats:
        """The standard error of the mean, for these users or for the population they were drawn from."""

    @abstractmethod
    def confidence_interval(
        self, level: float = 0.95, *, simultaneous: bool = False, target: Target = "users"
    ) -> tuple[Floats, Floats]:
        """Lower and upper ends that hold each true mean with at least this probability."""

    @abstractmethod
    def linear(self, weights: Any, *, level: float = 0.95, target: Target = "users") -> Linear:
        """The sum of weights times the mean's entries, with its standard error and interval."""

    @abstractmethod
    def _names(self, places: Sequence[int]) -> list[str]:
        """What these entries are called, by their places in the flat mean."""

    @property
    def sum(self) -> Floats:
        """Users times mean."""
        return self.users * self.mean

    @property
    def standard_error(self) -> Floats:
        """The standard error of the mean, for the mean of these users."""
        return self.standard_error_of("users")

    def figures(self, level: float = 0.95) -> dict[str, Any]:
        """Names, where there are some, mean, sum, standard_error, report_counts and confidence_interval."""
        return ({} if self.columns is None else {"names": self.columns}) | {
            "mean": self.mean,
            "sum": self.sum,
            "standard_error": self.standard_error,
            "report_counts": self.report_counts,
            "confidence_interval": self.confidence_interval(level),
        }

    def _rows(self, level: float) -> EstimateTable:
        mean = np.asarray(self.mean)
        lower, upper = self.confidence_interval(level)
        return EstimateTable(
            "mean",
            level,
            mean.ravel(),
            np.ravel(self.standard_error),
            np.ravel(lower),
            np.ravel(upper),
            np.full(mean.size, self.users),
            np.where(np.isnan(mean.ravel()), "nobody reported it", ""),
            mean.shape,
            self._names,
            further={"sum": np.ravel(self.sum)},
            beside=("sum", self.users, ""),
            bounds=self._bounds,
            named=self.columns is not None,
        )


@dataclass(frozen=True, slots=True)
class Linear:
    """The sum of public weights times what was estimated, with its standard error and the ends of its interval."""

    value: float
    standard_error: float
    lower: float
    upper: float
    level: float

    @staticmethod
    def of(found: Combined, level: float, offset: float = 0.0, scale: float = 1.0) -> Linear:
        """What a mechanism combined, in the users' units."""
        value, lower, upper = (offset + scale * part for part in (found.value, found.lower, found.upper))
        return Linear(value, scale * math.sqrt(found.variance), lower, upper, level)

    @property
    def interval(self) -> tuple[float, float]:
        """Ends that hold the true sum with at least the probability `level`."""
        return self.lower, self.upper


def tail_of(level: float, together: int = 1) -> float:
    """What may lie beyond either end of an interval of this level, where so many must hold together (union bound)."""
    check_number("confidence level", level, above=0, below=1)
    return (1 - level) / 2 / together


# ---- what was done to users' values before they were counted ---------------------------------------------------------
#
# Which options were given is known, and how many values they changed is not told: exact counts of private data are not
# private. How many rows were left out is: the number of users is public.


def adjusted_by(*, clip: bool, missing: Missing) -> tuple[Adjustment, ...]:
    """What these options do."""
    return (*(("clipped",) if clip else ()), *(("midpoint",) if missing == "midpoint" else ()))


def describe_adjustments(
    adjusted: tuple[Adjustment, ...], clipped: str, left_out: int = 0, users: int = 0
) -> str | None:
    """What was done, and that no interval covers it; None where nothing was. `clipped` says what clipping does."""
    if not adjusted:
        return None
    words = {
        "clipped": f"{clipped}, if there were any",
        "midpoint": "missing values, if there were any, were put in the middle of the bounds",
        "dropped": f"{left_out:,} of {users + left_out:,} rows were left out, because they had a missing value",
    }
    said = ", and ".join(words[each] for each in adjusted)
    return (
        f"{said[0].upper()}{said[1:]}: estimates and intervals are of the values after that, and no interval covers "
        "this bias."
    )


# ---- One tidy table for every kind of estimate: what files, data frames, pages, terminals and pictures are made of.

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
    indexed: bool = True
    """Whether rows have places in an array of users' numbers; numbers of users never have."""
    crossed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The questions whose answers rows combine, each with its answers, where rows do; the last changes fastest."""
    leading: int = 0
    """How many rows, the first, people see where there is no room for all; 0 where they see the largest numbers."""

    def __len__(self) -> int:
        return len(self.value)

    def __str__(self) -> str:
        """As people read it; of many rows some."""
        places = self.some(_SHOWN)
        left_out = self.left_out(places)
        return Shown(type(self).__name__, [left_out] if left_out else [], (self.heads(), self.cells(places))).text()

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
        if self.indexed and not self.of_users:
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
        if names is None or len(names) != self.entries or not self.indexed:
            return self
        return replace(self, names_of=lambda places: [names[place] for place in places])

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
        if self.leading and len(self) > most:
            return list(range(min(self.leading, max(most, _MOST_LEADING))))
        if self.of_users:
            return _largest(self.value, most)
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
        for place, name in zip(places, self._shown_names(places), strict=True):
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

    def _shown_names(self, places: Sequence[int]) -> list[str]:
        """Names that users chose may hold commands for terminals, which are written out."""
        return list(map(visible, self.names_of([place % self.entries for place in places])))

    def left_out(self, places: Sequence[int]) -> str:
        """A sentence on the rows that are not among these; nothing where all are."""
        if len(places) == len(self):
            return ""
        entries = f"{self.entry[:-1]}ies" if self.entry.endswith("y") else f"{self.entry}s"
        if not self.groups:
            how = "the first" if self.leading else "the largest counts" if self.of_users else "evenly spaced"
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
        if np.isnan(self.std_error[place]):  # an interval from edge to edge lies anyhow around its value
            return [number(value, wide), ends]
        return [plus_minus(value, wide, whole=self.of_users), ends]

    def _beside(self, place: int) -> list[str]:
        if self.beside is None:
            return []
        _, times, unit = self.beside
        return [f"{number(times * float(self.value[place]), times * self.half_width(place))}{unit}"]


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


# ---- Whole estimates as files: the plan, and the table of counts that everything follows from; it is packed into JSON.
#
# What is read back is not believed: the plan's guarantee is computed again, the table must be one that the plan's users
# can have sent, and a guarantee that the table speaks against is refused. The checksum is against damage; whoever
# changes a table on purpose, keeps it possible and computes the checksum again is not found out, for there is no
# signature.

_FORMAT = "shufflesum-estimate-1"
_FIELDS = {"plan", "round", "users", "rejected_reports", "why_broken", "words", "table"}


def load_estimate(path: str | Path) -> BaseEstimate:
    """The estimate that was saved, of its own kind; refused where anything in the file cannot be."""
    from shufflesum.plans import Plan  # estimates stand below plans, which know their domains

    data = read_file(path, "estimate")
    try:
        content = decode_checked(data, _FORMAT)
    except ValueError as error:
        raise FileError(
            problem_of(error), f"{path}: is no estimate that can be used: {error}; save one with estimate.save(path)"
        ) from error
    if content.keys() - {"adjusted", "left_out"} != _FIELDS:
        raise FileError("malformed", f"{path}: an estimate has {', '.join(sorted(_FIELDS))}, and nothing else")
    try:
        plan = Plan.from_json(json.dumps(content["plan"]))
    except PlanError as error:
        raise error.at(path) from error
    try:
        return _estimate(plan, content)
    except ShufflesumError as error:
        raise FileError(error.problem, f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(
            "changed-afterwards", f"{path}: was changed after it was saved: {error}; have it saved again"
        ) from error


def _estimate(plan: Plan, content: dict[str, Any]) -> BaseEstimate:
    number, users, rejected = content["round"], content["users"], content["rejected_reports"]
    broken, words = content["why_broken"], content["words"]
    if not all(type(value) is int for value in (number, users, rejected)):
        raise TypeError("round, users or rejected reports are no whole numbers")
    if not isinstance(broken, str | None) or broken == "":
        raise TypeError("why_broken is neither null nor a reason")
    plan.check_round(number)
    adjusted = content.get("adjusted", [])
    if not isinstance(adjusted, list) or adjusted != [each for each in ADJUSTMENTS if each in adjusted]:
        raise TypeError(f"adjusted is none of {', '.join(ADJUSTMENTS)}")
    left_out = content.get("left_out", 0)
    if type(left_out) is not int or left_out < 0:
        raise TypeError("left_out is no number of rows")
    if plan.domain.finds_labels:
        if not isinstance(words, list) or broken is not None or rejected or users < plan.users:
            raise TypeError("labels are found, by a process that nobody sends anything, among enough users")
        table = table_from_json(content["table"], plan.cells + len(words))
        kind: AnyEstimate = plan.domain.estimate_type
        discovered: AnyEstimate = kind(plan, users, 0, table, None, number, labels=tuple(map(str, words)))
        return replace(discovered, adjusted=tuple(adjusted), left_out=left_out)  # type: ignore[no-any-return]
    table = table_from_json(content["table"], plan.cells)
    accepted = int(np.sum(table, dtype=object))  # whole numbers without end
    if plan.positions is not None:
        _check_noisy(plan, users, rejected, table)
    elif users < plan.users or rejected < 0 or accepted + rejected >= (users + 1) * plan.reports:
        raise ValueError(
            f"{accepted} reports and {rejected} rejected ones of {users} users, where the plan has {plan.reports} of "
            f"each of at least {plan.users} users"
        )
    blanks = max(0, users * plan.reports - accepted - rejected)
    malicious = plan.mechanism.min_malicious(plan.encoding, table, blanks, rejected, users)
    if broken is None and malicious > users - honest_users(users, plan.honest_fraction):
        raise ValueError(f"it says that the guarantee holds, but {malicious} users did not follow the protocol")
    found: AnyEstimate = estimate_of(plan, users, rejected, table, broken, number)
    estimate: BaseEstimate = replace(found, adjusted=tuple(adjusted), left_out=left_out)
    if words is None:
        return estimate
    if not plan.domain.needs_candidates or not isinstance(words, list):
        raise TypeError("words are asked for under a plan that has none")
    counts: BaseEstimate = found.counts_of(words)
    return replace(counts, adjusted=estimate.adjusted, left_out=left_out)


def _check_noisy(plan: Plan, users: int, rejected: int, table: NDArray[np.int64]) -> None:
    """Refuse a table that users and draws cannot have made."""
    most = plan.mechanism.most_counted(plan.encoding, users) if users >= 1 else 0
    if users < 1 or rejected or (table > most).any():
        raise ValueError(f"counts that {users} users and the noise of the plan cannot have made")


def table_to_json(table: NDArray[np.int64]) -> dict[str, Any]:
    """Whole numbers of 4 bytes, or of 8 where a count needs them."""
    size = 4 if int(table.max(initial=0)) < 1 << 32 else 8
    packed = zlib.compress(table.astype(f"<u{size}").tobytes(), 1)
    return {"bytes": size, "zlib": base64.b64encode(packed).decode("ascii")}


def table_from_json(value: Any, cells: int) -> NDArray[np.int64]:
    """The table of just so many cells; ValueError, KeyError or TypeError for anything else."""
    size, text = value["bytes"], value["zlib"]
    if size not in (4, 8) or value.keys() != {"bytes", "zlib"}:
        raise ValueError("no table of counts")
    opener = zlib.decompressobj()
    try:
        # One byte more than there should be is enough to see that there is too much.
        counts = opener.decompress(base64.b64decode(text, validate=True), cells * size + 1)
    except (binascii.Error, zlib.error) as error:
        raise ValueError("no table of counts") from error
    if not opener.eof or opener.unused_data or len(counts) != cells * size:
        raise ValueError("a table of another size")
    table = np.frombuffer(counts, f"<u{size}").astype(np.int64)
    if (table < 0).any():
        raise ValueError("counts beyond 2**63")
    table.setflags(write=False)
    return table
