"""`shufflesum run`: a file of users' data in; private means, counts or means of groups out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shufflesum.aggregation import aggregate_batches
from shufflesum.cli.ball_options import BallOptions, ball_options
from shufflesum.cli.budget_option import begin_in_budget, budget_option
from shufflesum.cli.input_file import file_argument
from shufflesum.cli.label_options import (
    Chosen,
    LabelOptions,
    candidates_option,
    chosen_column,
    column_for,
    label_column_options,
    label_options,
    read_words,
)
from shufflesum.cli.options import (
    note_assumed_columns,
    note_missing_header,
    plan_options,
    progress_bar,
    table_options,
    warnings_as_notes,
)
from shufflesum.cli.results import Results, result_options
from shufflesum.domain import Ball, Box, Hashed
from shufflesum.errors import DataError, ParameterError
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan
from shufflesum.rounds import RoundsUsed
from shufflesum.tables import (
    Dialect,
    Place,
    Table,
    check_shape,
    column_names,
    located,
    open_table,
    rows_of,
    table_selection,
)

__all__ = ["command"]


@click.command("run", short_help="Private means, counts or group means of the rows of a file.")
@file_argument("file")
@click.option("--epsilon", type=float, help="The guarantee's epsilon.")
@click.option("--delta", type=float, help="The guarantee's delta.")
@label_column_options
@label_options
@candidates_option
@ball_options
@plan_options
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="Use this plan instead of making one.")
@click.option(
    "--rounds-file",
    type=click.Path(path_type=Path),
    help="With --plan: count the plan's rounds in this file; this run is the next, and none comes after the last.",
)
@budget_option
@click.option(
    "--clip",
    is_flag=True,
    help="Move values to the nearest bound, or scale vectors down to --radius, instead of refusing the file.",
)
@click.option(
    "--missing",
    type=click.Choice(["refuse", "midpoint"]),
    default="refuse",
    show_default=True,
    help="NaN and empty cells: refuse the file, or put the middle of the bounds there, which pulls the mean "
    "towards that middle by the missing fraction.",
)
@table_options
@result_options
def command(
    file: Place,
    categories: str | None,
    choices: str | None,
    group_by: str | None,
    words: str | None,
    labels: str | None,
    bins: str | None,
    other: bool,
    most: int | None,
    buckets: int | None,
    functions: int | None,
    candidates: Path | None,
    radius: float | None,
    center: Path | None,
    plan_file: Path | None,
    rounds_file: Path | None,
    budget_file: Path | None,
    columns: list[str] | None,
    header: bool | None,
    separator: str | None,
    decimal: str | None,
    encoding: str | None,
    array: str | None,
    user_column: str | None,
    clip: bool,
    missing: Any,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    report: Path | None,
    confidence: float,
    quantiles: tuple[float, ...],
    **plan_arguments: Any,
) -> None:
    """Aggregate the rows of FILE privately; each row is one user.

    FILE is a CSV (.csv or .tsv, also compressed as .csv.gz), a Parquet or Arrow IPC file, a .npy (memory-mapped, any
    shape) or an .npz; - is standard input. The guarantee is for one row: if people have several rows, name the column
    that tells them apart with --user-column. Bounds and labels are public: choose them from what can be, not by looking
    at the data.

    \b
    Example: shufflesum run beats.csv --epsilon 1 --delta 1e-6 --bounds 0 1 --plot beats.png
             shufflesum run people.csv --bounds age=0:120 --bounds income=0:500000 --epsilon 1 --delta 1e-6
             shufflesum run survey.csv --categories answer --labels yes,no,unsure --epsilon 1 --delta 1e-6
             shufflesum run people.csv --categories age --bins 0,18,45,65,120 --quantiles 0.5 --epsilon 1 --delta 1e-6
             shufflesum run visits.csv --group-by country --labels countries.txt --bounds 0 100 --epsilon 1 --delta 1e-6
             shufflesum run queries.csv --words query --candidates words.txt --epsilon 1 --delta 1e-6
             shufflesum run updates.npy --radius 0.4 --clip --epsilon 2 --delta 1e-6
    """
    asked = None if candidates is None else read_words(candidates, "candidates")
    results = Results(as_json, output, plot, report, confidence, quantiles, asked, draws_noise=True)
    chosen = chosen_column(categories=categories, choices=choices, group_by=group_by, words=words)
    options = LabelOptions(labels, bins, other, most, buckets, functions)
    if chosen is None and plan_file is None:  # a file of one column needs no name for it
        chosen = options.implied or (None if asked is None else ("words", None))
    given = {name: value for name, value in plan_arguments.items() if value is not None}
    ball = BallOptions(radius, center)
    ball.check(given, [*_columns_of(chosen), *options.given])
    dialect = Dialect(separator, decimal, encoding)
    with results.staged(file, plan_file, candidates, rounds_file, budget_file, center) as write, warnings_as_notes():
        planned = None if plan_file is None else _planned(plan_file, given, options.given + ball.given)
        domain = (chosen and options.domain(chosen[0])) if planned is None else planned.domain
        column = None if domain is None else column_for(domain, chosen)
        selection = {"columns": columns} if domain is None else table_selection(domain, column=column, columns=columns)
        table = open_table(file, header=header, user_column=user_column, array=array, dialect=dialect, **selection)
        plan = _plan_for(file, table, chosen, options, ball, given) if planned is None else planned
        _check_table(file, table, plan)
        if isinstance(plan.domain, Hashed) and asked is None:
            raise ParameterError(
                "missing-argument",
                "--candidates is missing: a file of the words to count, one a line; the users' words are not listed "
                "anywhere",
            )
        results.check_plan(plan)
        begin_in_budget(budget_file, plan)
        number = 1 if rounds_file is None else _next_round(rounds_file, plan, plan_file)
        with progress_bar("rows", table.rows) as progress:
            try:
                estimate = aggregate_batches(
                    rows_of(table, plan.domain),
                    plan,
                    clip=clip,
                    missing=missing,
                    progress=progress,
                    round_number=number,
                )
            except DataError as error:
                raise located(error, file, table) from None
        names = table.names if len(plan.shape) == 1 and isinstance(plan.domain, Ball | Box) else None
        found = results.answer(estimate)
        write(found, file.name, names)
    note_missing_header(column_names(table), file, header)
    note_assumed_columns(table.names, file, plan.domain)
    results.show(found, names, table.names)


def _next_round(rounds_file: Path, plan: Plan, plan_file: Path | None) -> int:
    if plan_file is None:
        raise ParameterError(
            "missing-argument", "--rounds-file counts the rounds of one plan; make it with shufflesum plan, give --plan"
        )
    return RoundsUsed(rounds_file, plan).begin()


def _columns_of(chosen: Chosen | None) -> list[str]:
    return [] if chosen is None else [f"--{chosen[0].replace('_', '-')}"]


def _plan_for(
    file: Place,
    table: Table,
    chosen: Chosen | None,
    options: LabelOptions,
    ball: BallOptions,
    given: dict[str, Any],
) -> Plan:
    """A plan for just this file; it knows what the columns are called."""
    for name in ("epsilon", "delta"):
        if name not in given:
            raise ParameterError("missing-argument", f"--{name} is missing; give --epsilon and --delta, or a --plan")
    if (within := ball.domain(table.shape)) is not None:
        return make_plan(users=table.rows, shape=within, one_process=True, **given)
    names = table.names or ()
    named = names if names and all(names) and len(set(names)) == len(names) else None
    if chosen is None:
        return make_plan(users=table.rows, shape=table.shape, columns=named, one_process=True, **given)
    numbers = Box.of(() if table.shape == (1,) else table.shape, (0, 1), named)
    column = table.label_name or (named[0] if named else None)  # what is counted in bins is a column of numbers
    domain = options.domain(chosen[0], column, numbers)
    check_shape(file, table.shape, domain)
    return make_plan(users=table.rows, shape=domain, one_process=True, **given)


def _planned(plan_file: Path, given: dict[str, Any], others: list[str]) -> Plan:
    """The plan of a file, and nothing beside it that it fixes."""
    for extra in [f"--{name.replace('_', '-')}" for name in given] + others:
        raise ParameterError(
            "conflicting-arguments",
            f"{extra} cannot be given with --plan, which fixes it already; leave one of them out",
        )
    return Plan.load(plan_file)


def _check_table(file: Place, table: Table, plan: Plan) -> None:
    if table.rows < plan.users:
        raise DataError(
            "too-few-users",
            f"the file has {table.rows} rows, but the plan needs at least {plan.users} users; "
            "add rows, or give a --plan for fewer users",
        )
    check_shape(file, table.shape, plan.domain)
