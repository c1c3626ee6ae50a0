"""What deserves a second look, found without any further look at the data: from released estimates and public plans.

Every warning of this package is a `ShufflesumWarning` with a stable `problem`, as errors have. Python's filters hold
for them; commands print them as notes, and estimates and plans keep theirs as `warnings`.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from shufflesum._format import downwards, upwards

_Floats = NDArray[np.float64]

_LARGE_EPSILON = 10.0
_AT = 3.0  # standard errors from a bound that cannot be told from it
_NARROW = 1 / 20  # of the range: what has a larger standard error is near both bounds anyway
_SURE = 1 / 100  # of the range: with a larger standard error noise alone may put an estimate at a bound
_MUCH = 1 / 5  # of the users
_IDENTIFIER = re.compile(r"(.*[\W_])?(id|ids|uuid|guid|ssn|rowid)|.*[a-z](Id|ID)|Unnamed: ?\d+", re.ASCII)


class ShufflesumWarning(UserWarning):
    """Root of every warning of this package; `problem` is its stable name."""

    problem = "warning"


class LargeDeltaWarning(ShufflesumWarning):
    """Delta is 1/users or more: it would allow that somebody's data is published whole."""

    problem = "large-delta"


class LargeEpsilonWarning(ShufflesumWarning):
    """Epsilon is above 10, where the promise says next to nothing."""

    problem = "large-epsilon"


class EdgeOfBoundsWarning(ShufflesumWarning):
    """An estimate cannot be told from an end of its bounds: these are probably wrong."""

    problem = "edge-of-bounds"


class IdentifierColumnWarning(ShufflesumWarning):
    """A column that is averaged has the name of an identifier."""

    problem = "identifier-column"


class LargeOtherWarning(ShufflesumWarning):
    """More than a fifth of the users hold none of the labels."""

    problem = "large-other"


class EnteredAgainWarning(ShufflesumWarning):
    """All rounds of a plan were begun in a budget, so that the next one cost the whole plan again."""

    problem = "entered-again"


class UncertainBoundsWarning(ShufflesumWarning):
    """Not even half of the users lie certainly within suggested bounds."""

    problem = "uncertain-bounds"


class UninformativeEstimateWarning(ShufflesumWarning):
    """Of many entries the interval covers all that was possible before anybody reported."""

    problem = "uninformative-estimate"


class UninformativePlanWarning(ShufflesumWarning):
    """The expected error is larger than the error of guessing the middle of the bounds, or of the ball."""

    problem = "uninformative-plan"


class UsersDrawNoiseWarning(ShufflesumWarning):
    """Users draw the noise, though servers would unasked: it would take more dummy reports than are allowed."""

    problem = "users-draw-noise"


class ArraysAreBetterWarning(ShufflesumWarning):
    """`Arrays` and mechanism `noisy-counts` would do better than this ball."""

    problem = "arrays-are-better"


class UnreportedCoordinateWarning(ShufflesumWarning):
    """Nobody reported some coordinate: it has no estimate, and NaN stands in its place."""

    problem = "unreported-coordinate"


def warn(warning: Warning | str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the caller of this package, however deep inside of it the warning is found."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "shufflesum":
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, category, stacklevel=level)


def of_guarantee(epsilon: float, delta: float, users: int) -> Iterator[ShufflesumWarning]:
    """What is weak about a guarantee that holds."""
    if delta * users >= 1:
        yield LargeDeltaWarning(
            f"delta {upwards(delta)} is 1/users ({downwards(1 / users)}) or more, so that somebody's data may "
            "be revealed: lower delta"
        )
    if epsilon > _LARGE_EPSILON:
        yield LargeEpsilonWarning(
            f"epsilon {upwards(epsilon)} is above {_LARGE_EPSILON:g}: an outcome may become e^{upwards(epsilon)} "
            "times as likely by what one user holds, which is next to no promise: lower epsilon"
        )


def of_columns(columns: Sequence[str] | None) -> Iterator[ShufflesumWarning]:
    """Columns of numbers that are identifiers by their names."""
    found = [name for name in columns or () if _IDENTIFIER.fullmatch(name) or name.lower() in ("id", "index")]
    if found:
        yield IdentifierColumnWarning(
            f"column {found[0]!r} has the name of an identifier, whose mean says nothing: leave it out (columns=), "
            "or, in a file, let it tell users apart (user_column=)"
        )


def large_other(share: float, deviation: float) -> Iterator[ShufflesumWarning]:
    """Where certainly more than a fifth of the users hold none of the labels."""
    if share - 2 * deviation > _MUCH:
        yield LargeOtherWarning(
            f"about {100 * share:.0f} % of the users hold none of the labels: look at how labels are written "
            "(ignore_case=True), or list more of them"
        )


def unreported(missing: NDArray[np.bool_], name: Callable[[int], str]) -> Iterator[ShufflesumWarning]:
    """Coordinates without any report."""
    found = np.flatnonzero(missing)
    if len(found):
        others = f" nor {len(found) - 1} others" if len(found) > 1 else ""
        yield UnreportedCoordinateWarning(
            f"nobody reported {name(int(found[0]))}{others}: no estimate there (NaN); more users or more coordinates "
            "per user would help"
        )


def at_the_edge(
    mean: _Floats, deviation: _Floats, name: Callable[[int], str], *, named: bool, clipped: bool
) -> Iterator[ShufflesumWarning]:
    """Means, as parts of the range of their bounds, that are at an end of it, beyond it, or too close to tell.

    Values within bounds have a mean inside. One at an end says that nearly all values were moved there, where they may
    have been `clipped`, or that the bounds are so wide that all values are close to that end, or that users are too few
    to tell. Where entries are not `named` columns but alike, as the pixels of an image are, some may be there by right:
    then it takes half of them.
    """
    narrow = np.isfinite(mean) & (deviation <= _NARROW)
    with np.errstate(invalid="ignore"):
        low, high = narrow & (mean <= _AT * deviation), narrow & (mean >= 1 - _AT * deviation)
    found = np.flatnonzero(low | high)
    if not len(found) or (not named and 2 * len(found) < np.count_nonzero(np.isfinite(mean))):
        return
    first = int(found[0])
    end = "lower" if low[first] else "upper"
    more = f", as are {len(found) - 1:,} of {len(mean) - 1:,} others" if len(found) > 1 else ""
    each = ", for each column (bounds={'NAME': (LO, HI)})" if named else ""
    if not clipped or deviation[first] > _SURE:
        yield EdgeOfBoundsWarning(
            f"the estimate of {name(first)} cannot be told from the {end} end of its bounds{more}: bounds are far "
            f"too wide, or users too few; narrower public bounds{each}, more users or a larger epsilon would help"
        )
    else:
        yield EdgeOfBoundsWarning(
            f"the estimate of {name(first)} is at the {end} end of its bounds or beyond{more}: either the bounds "
            "are far too wide, or nearly all values lie beyond that end and were clipped; choose public bounds closer "
            f"to what values can be{each}"
        )


def uninformative(mean: _Floats, deviation: _Floats) -> Iterator[ShufflesumWarning]:
    """Where intervals of 95 % of at least half of all means, as parts of their range, cover all that is possible."""
    known = np.isfinite(mean)
    reach = 1.96 * deviation[known]
    many = int(np.count_nonzero((mean[known] <= reach) & (mean[known] >= 1 - reach)))
    if many and 2 * many >= len(reach):
        yield UninformativeEstimateWarning(
            f"of {many:,} of {len(reach):,} entries the interval covers the whole range: they say nothing; more users, "
            "a larger epsilon or fewer coordinates would help"
        )
