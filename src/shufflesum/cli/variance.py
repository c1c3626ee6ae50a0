"""`shufflesum variance`: a file of users' data in; private means, variances and standard deviations out."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.markup import escape

from shufflesum._format import between, number, percent
from shufflesum.cli.options.budget import budget_option, spending
from shufflesum.cli.options.common import Command, file_argument, plan_options, with_mechanism
from shufflesum.cli.options.table import (
    DROPPED,
    TableOptions,
    aggregate_table,
    apply_missing_policy,
    clip_options,
    named_columns,
    prepared,
    table_options,
)
from shufflesum.cli.output.printed import console, guarantee_of, table_of, warnings_as_notes
from shufflesum.domains import Arrays
from shufflesum.domains.bounds import default_bounds_named
from shufflesum.estimate import tail_of
from shufflesum.moments import Moments, Squares, quiet_squares
from shufflesum.planning import plan as make_plan
from shufflesum.tables import PathOrUrl


@click.command("variance", cls=Command, short_help="Private means and variances of the columns of a file.")
@file_argument("file")
@click.option("--epsilon", type=float, required=True, help="The guarantee's epsilon.")
@click.option("--delta", type=float, required=True, help="The guarantee's delta.")
@plan_options
@clip_options("Move values to the nearest bound", DROPPED, "drop")
@budget_option
@table_options
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Level of the intervals.")
@click.option("--json", "as_json", is_flag=True, help="Print plan and result as one JSON object.")
def command(
    file: PathOrUrl,
    clip: bool,
    missing: Any,
    budget_file: Path | None,
    reading: TableOptions,
    confidence: float,
    as_json: bool,
    **plan_arguments: Any,
) -> None:
    """Mean, variance and standard deviation of each column of FILE, privately; each row is one user.

    Users hold each value and its square, so that one plan serves for both. Variances are those within the bounds:
    what --clip moves is moved before it is squared.

    \b
    Example: shufflesum variance people.csv --bounds 0:120 --columns age --epsilon 1 --delta 1e-6
    """
    tail_of(confidence)
    given = with_mechanism({name: value for name, value in plan_arguments.items() if value is not None})
    with warnings_as_notes(), spending(budget_file) as budget:
        table, missing = apply_missing_policy(file, reading.open(file), missing)
        bounds = given.pop("bounds", None)
        squares = Squares(Arrays(table.shape, (0.0, 1.0) if bounds is None else bounds, named_columns(table)))
        domain = squares.domain
        plan = make_plan(
            users=table.rows,
            shape=domain.shape,
            bounds=(domain.lower, domain.upper),
            columns=domain.columns,
            noise_by="curator",
            **given,
        )
        rows = partial(squares.rows, clip=clip, missing=missing)
        with quiet_squares(), default_bounds_named(bounds is None):
            begin = budget.round_of(plan)
            estimate = aggregate_table(file, table, lambda: prepared(table, rows), plan, begin=begin)
        found = Moments.of(squares, estimate, clip=clip, missing=missing)
    reading.note_missing_header(table, file)
    _show(found, table.names or (), confidence, as_json)


def _show(found: Moments, names: tuple[str, ...], level: float, as_json: bool) -> None:
    columns: dict[str, Any] = {"mean": found.mean, "variance": found.variance}
    columns["standard_deviation"] = found.standard_deviation
    intervals = {
        "mean": found.mean_interval(level),
        "variance": found.variance_interval(level),
        "standard_deviation": found.standard_deviation_interval(level),
    }
    if as_json:
        document: dict[str, Any] = {
            "plan": found.estimate.plan.summary(),
            "names": list(names) or None,
            "users": found.users,
            "level": level,
        }
        if found.estimate.adjusted:
            document |= {"adjusted": list(found.estimate.adjusted), "adjustment": found.estimate.adjustment}
        for name, values in columns.items():
            document[name] = np.asarray(values).tolist()
            document[f"{name}_interval"] = [np.asarray(end).tolist() for end in intervals[name]]
        click.echo(json.dumps(document, allow_nan=False))
        return
    console.print(f"[bold]{found.users:,} users[/bold]; guarantee for one row: {guarantee_of(found.estimate.plan)}")
    interval = f"{percent(level)}% interval"
    shown = table_of("column", "mean", "variance", interval, "deviation", interval)
    flat = {name: np.asarray(values).reshape(-1) for name, values in columns.items()}
    ends = {name: [np.asarray(end).reshape(-1) for end in pair] for name, pair in intervals.items()}
    for i in range(len(flat["mean"])):
        shown.add_row(
            escape(names[i]) if names else str(i),
            _held(flat["mean"][i], *(end[i] for end in ends["mean"]))[0],
            *(
                text
                for name in ("variance", "standard_deviation")
                for text in _held(flat[name][i], *(end[i] for end in ends[name]))
            ),
        )
    console.print(shown)
    if found.estimate.adjustment:
        console.print(found.estimate.adjustment)


def _held(value: float, lower: float, upper: float) -> tuple[str, str]:
    """A value and its interval, to the digits that a quarter of the interval, about a standard error, allows."""
    error = (upper - lower) / 4
    return number(value, error), between(lower, upper, error)
