"""What all estimates share: the plan, the table they are decoded from, and whether the guarantee holds.

Which kind of estimate belongs to a plan is the domain's to say (`Domain.estimate_type`). Each kind stands in the folder
of its domain and offers what it has.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._checks import check_number
from shufflesum._format import Shown, counted
from shufflesum.cautions import ShufflesumWarning
from shufflesum.errors import FileError, ParameterError
from shufflesum.estimate.table import EstimateTable, Library
from shufflesum.mechanisms import Means, Target
from shufflesum.mechanisms.mechanism import Combined

if TYPE_CHECKING:
    from shufflesum.domains import Domain, Missing
    from shufflesum.plans import Plan

Floats = NDArray[np.float64]

AnyEstimate: TypeAlias = Any
"""An estimate of the kind that the plan's domain has, with the methods of that kind; always a `BaseEstimate`."""

Adjustment: TypeAlias = Literal["clipped", "midpoint", "dropped"]
ADJUSTMENTS: tuple[Adjustment, ...] = ("clipped", "midpoint", "dropped")

_SHOWN = 12  # rows in a notebook
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
    def words(self) -> list[str] | None:
        """The words that were asked for, which a file of it keeps; None where none were."""
        return None

    def remarks(self, level: float = 0.95) -> list[str]:
        """Sentences for people that go with the table."""
        return []

    # ---- what all have

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
        from shufflesum.estimate.files import save_estimate

        save_estimate(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote. Nothing is believed: plan and guarantee are computed again, the table is checked.

        `BaseEstimate.load` reads every kind, a kind's own only that kind.
        """
        from shufflesum.estimate.files import load_estimate

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
        box = self.plan.domain.numbers
        if box is None or box.structure.mixes or len(box.shape) != 1:
            return None
        lower = np.broadcast_to(box.lower, box.shape)
        return lower, lower + box.width

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
    check_number("confidence level", level)
    if not 0 < level < 1:
        raise ParameterError("out-of-range", f"confidence level is {level}; it must lie strictly between 0 and 1")
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
