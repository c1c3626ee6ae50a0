"""What files and data frames say of each kind of estimate: lists in its shape for JSON and .npz, else rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.estimate.base import Released
from shufflesum.estimate.counts import CountEstimate
from shufflesum.estimate.groups import GroupEstimate
from shufflesum.estimate.hashed import HashedEstimate, WordCounts
from shufflesum.estimate.means import Estimate

__all__ = ["Contents", "columns_of", "contents_of"]

_Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """The same numbers twice.

    `labels` are lists as they were given, None where there are none, and `texts` the same in words. Intervals are named
    twice: as a whole, and by the beginning of the names of their ends ("count_" for count_lower and count_upper).
    """

    labels: Mapping[str, Sequence[Any] | None]
    texts: Mapping[str, Sequence[str]]
    arrays: Mapping[str, _Array]
    intervals: Mapping[tuple[str, str], tuple[_Array, _Array]]
    columns: Mapping[str, _Array]


def contents_of(estimate: Released, level: float, names: Sequence[str] | None = None) -> Contents:
    """What there is to write; `names`, of the entries of a mean, are the plan's unless others are given."""
    match estimate:
        case CountEstimate() | WordCounts():
            return _counts(estimate, level)
        case GroupEstimate():
            return _groups(estimate, level)
        case HashedEstimate():
            return _cells(estimate)
        case Estimate():
            return _means(estimate, level, estimate.columns if names is None else names)
    raise TypeError(f"{type(estimate).__name__} is no estimate that files know")


def columns_of(estimate: Released, level: float, names: Sequence[str] | None = None) -> dict[str, _Array]:
    """One row for each entry, column by column; where the guarantee does not hold, every row says so."""
    columns = {name: np.ravel(column) for name, column in contents_of(estimate, level, names).columns.items()}
    if not estimate.guarantee_holds:
        columns["guarantee_holds"] = np.zeros(len(next(iter(columns.values()))), dtype=bool)
    return columns


def _means(estimate: Estimate, level: float, names: Sequence[str] | None) -> Contents:
    mean = np.asarray(estimate.mean)
    lower, upper = estimate.confidence_interval(level)
    reports = np.asarray(estimate.report_counts)
    arrays = {
        "mean": mean,
        "sum": np.asarray(estimate.sum),
        "standard_error": np.asarray(estimate.standard_error),
        "report_counts": reports,
    }
    columns = _indices(mean.shape)
    if names is not None:
        columns["name"] = np.asarray(names)
    columns |= {
        "mean": mean,
        "sum": arrays["sum"],
        "standard_error": arrays["standard_error"],
        "lower": lower,
        "upper": upper,
        "report_count": reports if reports.shape == mean.shape else np.full(mean.shape, np.nan),
    }
    return Contents(
        {"names": names},
        {"names": names or []},
        arrays,
        {("confidence_interval", ""): (lower, upper)},
        columns,
    )


def _counts(estimate: CountEstimate | WordCounts, level: float) -> Contents:
    intervals = {
        ("count_interval", "count_"): estimate.count_interval(level),
        ("confidence_interval", ""): estimate.confidence_interval(level),
    }
    (count_lower, count_upper), (lower, upper) = intervals.values()
    arrays: dict[str, _Array] = {
        "counts": estimate.counts,
        "count_standard_error": estimate.count_standard_error,
        "consistent_counts": estimate.consistent_counts,
        "frequencies": estimate.frequencies,
        "standard_error": estimate.standard_error,
        "consistent_frequencies": estimate.consistent_frequencies,
    }
    columns: dict[str, _Array] = {
        "label": np.asarray(estimate.names, dtype=np.str_),
        "count": arrays["counts"],
        "count_standard_error": arrays["count_standard_error"],
        "count_lower": count_lower,
        "count_upper": count_upper,
        "consistent_count": arrays["consistent_counts"],
        "frequency": arrays["frequencies"],
        "standard_error": arrays["standard_error"],
        "lower": lower,
        "upper": upper,
        "consistent_frequency": arrays["consistent_frequencies"],
    }
    if isinstance(estimate, CountEstimate):
        columns["report_count"] = arrays["report_counts"] = estimate.report_counts
    return Contents({"labels": estimate.labels}, {"labels": estimate.names}, arrays, intervals, columns)


def _groups(estimate: GroupEstimate, level: float) -> Contents:
    mean = estimate.mean
    intervals = {
        ("count_interval", "count_"): estimate.count_interval(level),
        ("confidence_interval", ""): estimate.confidence_interval(level),
    }
    (count_lower, count_upper), (lower, upper) = intervals.values()
    arrays = {
        "counts": estimate.counts,
        "count_standard_error": estimate.count_standard_error,
        "too_few": estimate.too_few,
        "mean": mean,
        "standard_error": estimate.standard_error,
        "sum": estimate.sum,
        "sum_standard_error": estimate.sum_standard_error,
    }

    def of_each(values: _Array) -> _Array:
        return np.broadcast_to(values.reshape(-1, *(1,) * (mean.ndim - 1)), mean.shape)

    columns = {"group": of_each(np.asarray(estimate.names, dtype=np.str_))}
    columns |= {name: np.broadcast_to(index, mean.shape) for name, index in _indices(mean.shape[1:]).items()}
    if estimate.columns is not None:
        columns["name"] = np.broadcast_to(np.asarray(estimate.columns), mean.shape)
    columns |= {
        "mean": mean,
        "standard_error": arrays["standard_error"],
        "lower": lower,
        "upper": upper,
        "sum": arrays["sum"],
        "sum_standard_error": arrays["sum_standard_error"],
        "count": of_each(estimate.counts),
        "count_standard_error": of_each(estimate.count_standard_error),
        "count_lower": of_each(count_lower),
        "count_upper": of_each(count_upper),
        "too_few": of_each(estimate.too_few),
    }
    labels: dict[str, Sequence[Any] | None] = {"groups": estimate.groups}
    texts: dict[str, Sequence[str]] = {"groups": estimate.names}
    if estimate.columns is not None:
        labels["names"] = texts["names"] = estimate.columns
    return Contents(labels, texts, arrays, intervals, columns)


def _cells(estimate: HashedEstimate) -> Contents:
    """The table itself: from it anybody who has the plan can count words later."""
    table = estimate.cells
    cells: _Array = np.indices(table.shape)
    columns: dict[str, _Array] = {"function": cells[0], "bucket": cells[1], "report_count": table}
    return Contents({}, {}, {"report_counts": table}, {}, columns)


def _indices(shape: tuple[int, ...]) -> dict[str, _Array]:
    return {f"index_{axis}": np.asarray(index) for axis, index in enumerate(np.indices(shape))}
