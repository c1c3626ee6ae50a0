"""A domain beside the package's: an angle in degrees for each user, whose mean direction is estimated.

The circle is cut into sectors, and an angle counts for the nearest direction: the mean is off by half a sector at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_size
from shufflesum.domains import ColumnLayout, Domain, Missing, real_array, users_rows
from shufflesum.domains.options import Option
from shufflesum.domains.wording import Wording, counted
from shufflesum.encodings import Block, Cells, Encoding, Levels, OneHot
from shufflesum.errors import DataError, ParameterError, PlanError
from shufflesum.estimate import BaseEstimate, EstimateTable

if TYPE_CHECKING:
    from shufflesum.plans import Plan


@dataclass(frozen=True, slots=True)
class Angles(Domain):
    """One angle in degrees per user, counted in so many sectors."""

    kind: ClassVar[str] = "angles"
    distributions: ClassVar[tuple[str, ...]] = ("north", "uniform")
    trivial_guess: ClassVar[str] = "that no direction is preferred"
    column_help: ClassVar[tuple[str, str]] = (
        "The mean direction of the angles of this column.",
        "The column of each user's angle, under a plan for angles.",
    )
    flag_help: ClassVar[str] = "Users hold angles in degrees."
    options: ClassVar[tuple[Option, ...]] = (Option("sectors", "angles: parts of the circle.", "S", int),)

    sectors: int = 12
    column: str | None = None

    def __post_init__(self) -> None:
        check_size("sectors", self.sectors, 3, 360)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.sectors,)

    @property
    def dimension(self) -> int:
        return self.sectors

    @property
    def entries(self) -> int:
        return 1

    @property
    def trivial_mse(self) -> float:
        return 1.0 - 1.0 / self.sectors

    @property
    def central_sensitivity(self) -> tuple[float, float]:
        return 2.0 * self.sectors, 4.0 * self.sectors

    @property
    def directions(self) -> NDArray[np.float64]:
        """The middle of each sector, in degrees."""
        return np.arange(self.sectors, dtype=np.float64) * (360.0 / self.sectors)

    def rows(self, values: Any) -> Any:
        rows = users_rows(values)
        if len(rows) == 0:
            raise DataError("no-rows", "angles: no rows; pass one number for each of at least one user")
        return rows

    def check_options(self, *, clip: bool, missing: Missing) -> None:
        if clip or missing != "refuse":
            raise ParameterError("impossible-combination", "angles are neither clipped nor filled in; leave that out")

    def block(self, rows: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse") -> Cells:
        degrees = real_array(rows, DataError, "angles").reshape(-1)
        if not np.isfinite(degrees).all():
            row = first_row + int(np.flatnonzero(~np.isfinite(degrees))[0])
            raise DataError("missing-value", f"row {row}: the angle is not a finite number; leave the row out", row=row)
        nearest = np.rint(degrees / (360.0 / self.sectors)).astype(np.int64) % self.sectors
        return Cells(nearest.astype(np.uint32), first_row, self.sectors, self._refuse)

    def _refuse(self, cells: NDArray[Any], first_row: int) -> NoReturn:
        raise AssertionError("every angle lies in a sector")

    @property
    def column_layout(self) -> ColumnLayout:
        return ColumnLayout(numbers=(), single=True, column=self.column)

    def encodings(self) -> tuple[Encoding, ...]:
        return OneHot(self.sectors), Levels(1, levels=self.sectors - 1)

    def example(self, *, cells: Any = (), values: Any = None) -> float:
        return float(self.directions[int(cells[0])])

    def sampler(self, distribution: str, random: np.random.Generator) -> Callable[[int], NDArray[np.float64]]:
        width = 30.0 if distribution == "north" else 360.0
        return lambda users: random.uniform(-width, width, users)

    def describe_distribution(self, distribution: str) -> str:
        return f"angles {distribution}"

    def true_values(self, blocks: Iterable[Block], candidates: Sequence[str] = ()) -> NDArray[np.float64]:
        counts = np.zeros(self.sectors)
        for block in blocks:
            assert isinstance(block, Cells)
            counts += np.bincount(block.cells, minlength=self.sectors)
        return counts

    @classmethod
    def from_options(cls, given: Mapping[str, Any], column: str | None, numbers: Any) -> Angles:
        return cls(given.get("sectors", 12), column)

    @property
    def estimate_type(self) -> type[DirectionEstimate]:
        return DirectionEstimate

    @property
    def wording(self) -> AnglesWording:
        return AnglesWording(self)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "sectors": self.sectors, "column": self.column}

    @classmethod
    def from_json(cls, value: object) -> Angles:
        match value:
            case {"kind": "angles", "sectors": int(sectors), "column": str() | None as column, **rest} if not rest:
                return cls(sectors, column)
        raise PlanError("malformed", f'angles must be {{"kind": "angles", "sectors", "column"}}, not {str(value)[:80]}')


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DirectionEstimate(BaseEstimate):
    """How many users hold an angle in each sector, and the mean direction of all."""

    what: ClassVar[str] = "Private directions"
    caption: ClassVar[str] = "How many users hold an angle in each sector"

    @property
    def counts(self) -> NDArray[np.float64]:
        """Unbiased counts."""
        return self.users * self._means.mean

    @property
    def mean_direction(self) -> float:
        """In degrees, from 0 to 360."""
        domain: Any = self.domain
        towards = np.exp(1j * np.radians(domain.directions)) @ self.counts
        return math.degrees(math.atan2(towards.imag, towards.real)) % 360.0

    def _rows(self, level: float) -> EstimateTable:
        from shufflesum.estimate import tail_of

        lower, upper = self._means.interval(tail_of(level), "users")
        domain: Any = self.domain
        names = [f"{direction:g} degrees" for direction in domain.directions]
        return EstimateTable(
            quantity="users",
            level=level,
            value=self.counts,
            std_error=self.users * np.sqrt(self._means.variance("users")),
            lower=self.users * lower,
            upper=self.users * upper,
            users=np.full(len(names), self.users),
            notes=np.full(len(names), ""),
            shape=(len(names),),
            further={"share": self._means.mean},
            entry="direction",
            of_users=True,
            names_of=lambda places: [names[place] for place in places],
        )

    def figures(self, level: float = 0.95) -> dict[str, Any]:
        """The counts and the direction."""
        return {**BaseEstimate.figures(self, level), "mean_direction": self.mean_direction}

    def remarks(self, level: float = 0.95) -> list[str]:
        """The direction."""
        return [f"mean direction: {self.mean_direction:.0f} degrees"]


class AnglesWording(Wording[Angles]):
    """Sentences about angles."""

    public: ClassVar[str] = "Sectors"
    counted: ClassVar[str] = "sector"

    def collected(self) -> str:
        """A count for each sector."""
        return f"the mean direction of angles in {self.domain.sectors} sectors"

    def moved(self, plan: Plan) -> str:
        """A count."""
        return "the count of a sector"

    def shift(self, plan: Plan, malicious: int) -> str:
        """In users."""
        return counted(plan, malicious)
