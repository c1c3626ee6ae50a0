"""Estimates as a few lines and a small table for a person."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.markup import escape

from shufflesum._rounding import between, evenly, number, percent, upwards
from shufflesum.cli.output.terminal import console, table_of
from shufflesum.estimate import CountEstimate, Estimate, GroupEstimate, HashedEstimate, Quantile, Released, WordCounts
from shufflesum.plans import Plan

__all__ = [
    "fallback",
    "guarantee_of",
    "print_counts",
    "print_estimate",
    "print_groups",
    "print_quantiles",
    "print_table",
    "shown_whole",
]

_SHOWN = 12  # rows of a table; of more, ten are shown
_SOME = 10


def guarantee_of(plan: Plan) -> str:
    """The guarantee in words, with its conditions."""
    return plan.guarantee.in_words


def fallback(plan: Plan) -> str:
    """What is left of the guarantee without a shuffler."""
    return "none" if plan.local_epsilon is None else f"epsilon {upwards(plan.local_epsilon)}"


def print_estimate(
    estimate: Released, level: float, names: tuple[str, ...] | None = None, *, in_process: bool = False
) -> None:
    """A few lines and a small table; `in_process` says that nobody sent anything, though under this plan they could."""
    plan = estimate.plan
    in_process = in_process or plan.one_process
    sending = "in one process, as if each sent" if in_process else "each sending"
    which = f", round {estimate.round_number} of {plan.rounds}" if plan.rounds > 1 else ""
    console.print(f"[bold]{estimate.users:,} users[/bold]{which}, {sending} {plan.mechanism.describe(plan.domain)}")
    if estimate.broken is None:
        left = "this process saw the data" if in_process else f"if the shuffler colludes: {fallback(plan)}"
        console.print(
            f"guarantee for one row: [bold]{guarantee_of(plan)}[/bold] ({plan.accountant} accountant); {left}"
        )
    else:
        console.print(f"[bold]NO GUARANTEE[/bold]: {escape(estimate.broken)}")
    match estimate:
        case CountEstimate() | WordCounts():
            print_counts(estimate, level)
        case GroupEstimate():
            print_groups(estimate, level, names)
        case HashedEstimate():
            console.print("the counts of any words can be asked for: give a file of them, --candidates words.txt")
        case Estimate():
            interval = estimate.confidence_interval(level)
            print_table(
                estimate.mean, estimate.standard_error, interval, estimate.sum, level, names or estimate.columns
            )
    if estimate.adjustment:
        console.print(estimate.adjustment)


def shown_whole(estimate: Released) -> bool:
    """Whether a person sees all of it."""
    match estimate:
        case CountEstimate() | WordCounts():
            return len(estimate.counts) <= _SHOWN
        case HashedEstimate():
            return True
        case Estimate():
            return bool(estimate.mean.size <= _SHOWN)
    return True


def print_table(
    mean: ArrayLike,
    standard_error: ArrayLike,
    interval: Sequence[ArrayLike],
    total: ArrayLike,
    level: float,
    names: Sequence[str] | None = None,
    *,
    hint: str = "",
) -> None:
    """Means as a table: all coordinates, or some of many."""
    columns = [np.asarray(column, dtype=np.float64).reshape(-1) for column in (mean, standard_error, *interval, total)]
    size = len(columns[0])
    named = names is not None and len(names) == size
    first, within = "column" if named else "coordinate", f"{percent(level)}% interval"
    table = table_of(first, "mean", "standard error", within, "sum")
    shown = evenly(size, size if size <= _SHOWN else _SOME)
    for i in shown:
        label = escape(names[i]) if names and named else str(i)
        middle, error, lower, upper, whole = (float(column[i]) for column in columns)
        value = number(middle, error), number(error, error), between(lower, upper, error)
        table.add_row(label, *value, number(whole, abs(error * whole / middle) if middle else error))
    console.print(table)
    if len(shown) < size:
        console.print(f"{len(shown)} of {size:,} coordinates shown{hint}")


def print_counts(estimate: CountEstimate | WordCounts, level: float, *, hint: str = "") -> None:
    """All labels in their order, or the most frequent of many; and which places are certain."""
    counts, size = estimate.counts, len(estimate.counts)
    errors = estimate.count_standard_error
    lower, upper = estimate.count_interval(level)
    table = table_of("label", "count", "standard error", f"{percent(level)}% interval", "share")
    shown: NDArray[np.intp] = np.arange(size) if size <= _SHOWN else np.argsort(-counts, kind="stable")[:_SOME]
    for i in shown.tolist():
        table.add_row(
            escape(estimate.names[i]),
            number(counts[i], errors[i]),
            number(errors[i], errors[i]),
            between(lower[i], upper[i], errors[i]),
            f"{100 * estimate.frequencies[i]:.2f}%",
        )
    console.print(table)
    if len(shown) < size:
        console.print(f"the {len(shown)} largest of {size:,} counts shown{hint}")
    console.print(estimate.top(min(_SOME, size), level).statement, markup=False)


def print_groups(estimate: GroupEstimate, level: float, names: Sequence[str] | None = None, *, hint: str = "") -> None:
    """Users and means of each group; of long arrays the users alone."""
    groups, names = len(estimate.names), names or estimate.columns
    means, errors = (_by_group(values, groups) for values in (estimate.mean, estimate.standard_error))
    lower, upper = (_by_group(end, groups) for end in estimate.confidence_interval(level))
    entries = means.shape[1]
    listed = min(groups, _SHOWN)
    each = entries if groups * entries <= 2 * _SHOWN else min(entries, 2 * _SHOWN // listed)
    many = entries > 1
    error, within = "standard error", f"{percent(level)}% interval"
    table = table_of("group", "users", error, *(["entry"] if many else []), "mean", error, within)
    for group in range(listed):
        spread = estimate.count_standard_error[group]
        users = number(estimate.counts[group], spread), number(spread, spread)
        for entry in range(each):
            row = [escape(estimate.names[group]), *users] if entry == 0 else ["", "", ""]
            if estimate.too_few[group]:
                table.add_row(*row, *([""] if many else []), "too few users")
                break
            if many:
                row.append(escape(names[entry]) if names and len(names) == entries else str(entry))
            found = means[group, entry], errors[group, entry]
            held = between(lower[group, entry], upper[group, entry], found[1])
            table.add_row(*row, number(*found), number(found[1], found[1]), held)
    console.print(table)
    if listed < groups or each < entries:
        console.print(f"{listed} of {groups:,} groups, {each} of {entries:,} entries of their means shown{hint}")
    if estimate.too_few.any():
        console.print(
            f"{int(estimate.too_few.sum())} of {groups:,} groups have too few users for a mean: their size cannot be "
            "told from 0"
        )


def print_quantiles(quantiles: Sequence[Quantile], level: float) -> None:
    """Quantiles of numbers in bins; their intervals reach from edge to edge."""
    table = table_of("quantile", "value", f"{percent(level)}% interval")
    for each in quantiles:
        table.add_row(f"{each.q:g}", f"{each.value:.5g}", f"{each.lower:.15g} to {each.upper:.15g}")
    console.print(table)


def _by_group(values: NDArray[np.float64], groups: int) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64).reshape(groups, -1)
