"""What all estimates share: the plan, the table they are decoded from, and whether the guarantee holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._checks import check_number
from shufflesum.cautions import ShufflesumWarning
from shufflesum.domain import Box, Domain, Groups
from shufflesum.errors import FileError, ParameterError
from shufflesum.estimate.adjusted import Adjustment, in_words
from shufflesum.plans import Plan

__all__ = ["Floats", "Released", "tail_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Released:
    """The table of a batch that came through the gate, with its plan; each kind of domain has its own estimate of it.

    `broken` says why the plan's guarantee does not hold, where somebody insisted on an estimate all the same; it is
    None wherever the guarantee holds. `round_number` is the plan's round that it is of. `adjusted` says what was done
    to values before they were counted, where whoever held them all was told to.
    """

    what: ClassVar[str] = "Private mean"
    """What it is, as the title of a picture."""

    plan: Plan
    users: int
    rejected: int
    table: NDArray[np.int64]
    broken: str | None = None
    round_number: int = 1
    adjusted: tuple[Adjustment, ...] = ()

    def __repr__(self) -> str:
        broken = "" if self.guarantee_holds else ", WITHOUT the plan's guarantee"
        name = type(self).__name__
        later = f", round {self.round_number}" if self.round_number > 1 else ""
        return f"{name}({self.users} users, shape={self.plan.shape}, plan {self.plan.id[:12]}{later}{broken})"

    def __str__(self) -> str:
        """The guarantee, and a table of all entries or of some: the same as a notebook shows."""
        from shufflesum.estimate.shown import shown

        return shown(self).text()

    def _repr_html_(self) -> str:
        from shufflesum.estimate.shown import shown

        return shown(self).html()

    @property
    def warnings(self) -> tuple[ShufflesumWarning, ...]:
        """What deserves a second look, by the plan and by what is estimated; it costs no privacy to say it."""
        return self.plan.warnings

    @property
    def adjustment(self) -> str | None:
        """What was done to values beyond the bounds or missing (`clip`, `missing`), and that no interval covers it."""
        return in_words(self.adjusted, self.plan.domain)

    def to_frame(self, level: float = 0.95, *, library: Literal["pandas", "polars"] | None = None) -> Any:
        """A data frame with a row for each entry: names, estimates, standard errors, ends of intervals of this level.

        Of pandas or of Polars: the one asked for, else the one that is loaded or installed, pandas if both are.
        """
        from shufflesum.estimate.frames import frame_of

        return frame_of(self, level, library)

    def plot(self, *, title: str | None = None, truth: ArrayLike | None = None, level: float = 0.95) -> Any:
        """A chart of Altair, as `--plot` draws it; needs the extra `plots`."""
        # The one place that reaches up, so that an estimate can be asked for its picture: see the layers in
        # pyproject.toml. Pictures know estimates, and nothing here depends on a picture.
        from shufflesum.plots import estimate_chart

        promise = self.plan.guarantee.in_words if self.guarantee_holds else "WITHOUT the plan's guarantee"
        subtitle = f"{self.users:,} users, {promise}"
        drawable: Any = self
        return estimate_chart(drawable, truth=truth, title=title or self.what, subtitle=subtitle, level=level)

    def save(self, path: str | Path) -> None:
        """Write the whole estimate, its plan with it, as a checksummed JSON file for `load`."""
        from shufflesum.estimate.files import save_estimate

        save_estimate(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote. Nothing is believed: plan and guarantee are computed again, the table is checked.

        `Estimate.load` reads every kind, a kind's own only that kind.
        """
        from shufflesum.estimate.files import load_estimate

        estimate = load_estimate(path)
        if not isinstance(estimate, cls):
            raise FileError(
                "wrong-type", f"{path}: is a {type(estimate).__name__}, not a {cls.__name__}; load it as what it is"
            )
        return estimate

    @property
    def domain(self) -> Domain:
        """What users held, as it was reported in this round."""
        return self.plan.domain.of_round(self.round_number)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """What the entries of a user's vector are called, of a group's for groups; None where they have no names."""
        match self.plan.domain:
            case Box() as box:
                return box.columns
            case Groups(box=box):
                return box.columns
        return None

    @property
    def guarantee_holds(self) -> bool:
        """Whether nothing speaks against the plan's guarantee."""
        return self.broken is None


def tail_of(level: float, together: int = 1) -> float:
    """What may lie beyond either end of an interval of this level, where so many must hold together (union bound)."""
    check_number("confidence level", level)
    if not 0 < level < 1:
        raise ParameterError("out-of-range", f"confidence level is {level}; it must lie strictly between 0 and 1")
    return (1 - level) / 2 / together
