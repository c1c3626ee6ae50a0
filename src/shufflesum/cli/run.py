"""`shufflesum run`: a file of users' vectors in, a private mean and sum out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shufflesum.aggregation import aggregate_batches
from shufflesum.cli.options import note_missing_header, plan_options, progress_bar, table_options, warnings_as_notes
from shufflesum.cli.results import Results, result_options
from shufflesum.errors import DataError, ParameterError
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan
from shufflesum.rounds import RoundsUsed
from shufflesum.tables import Table, check_shape, open_table

__all__ = ["command"]


@click.command("run", short_help="Private mean and sum of the rows of a file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--epsilon", type=float, help="The guarantee's epsilon.")
@click.option("--delta", type=float, help="The guarantee's delta.")
@plan_options
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="Use this plan instead of making one.")
@click.option(
    "--rounds-file",
    type=click.Path(path_type=Path),
    help="With --plan: count the plan's rounds in this file; this run is the next, and none comes after the last.",
)
@click.option("--clip", is_flag=True, help="Move values to the nearest bound instead of refusing the file.")
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
    file: Path,
    plan_file: Path | None,
    rounds_file: Path | None,
    columns: list[str] | None,
    header: bool | None,
    array: str | None,
    user_column: str | None,
    clip: bool,
    missing: Any,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    confidence: float,
    **plan_arguments: Any,
) -> None:
    """Aggregate the rows of FILE privately; each row is one user.

    FILE is a CSV, a Parquet file, a .npy (memory-mapped, any shape) or an .npz. The guarantee is for one row: if people
    have several rows, name the column that tells them apart with --user-column. Bounds are public: choose them from
    what the values can be, not by looking at the data.

    \b
    Example: shufflesum run beats.csv --epsilon 1 --delta 1e-6 --bounds 0 1 --plot beats.png
    """
    results = Results(as_json, output, plot, confidence)
    with results.staged(file, plan_file, rounds_file) as write, warnings_as_notes():
        table = open_table(file, columns=columns, header=header, user_column=user_column, array=array)
        plan = _plan_for(file, table, plan_file, plan_arguments)
        batches = (batch.reshape(len(batch), *plan.shape) for batch in table.batches())
        labels = table.names if len(plan.shape) == 1 else None
        number = 1 if rounds_file is None else _next_round(rounds_file, plan, plan_file)
        with progress_bar("rows", table.rows) as progress:
            estimate = aggregate_batches(
                batches, plan, clip=clip, missing=missing, progress=progress, round_number=number
            )
        write(estimate, file.name, labels)
    note_missing_header(table.names, file, header)
    results.show(estimate, labels, table.names)


def _next_round(rounds_file: Path, plan: Plan, plan_file: Path | None) -> int:
    if plan_file is None:
        raise ParameterError(
            "missing-argument", "--rounds-file counts the rounds of one plan; make it with shufflesum plan, give --plan"
        )
    return RoundsUsed(rounds_file, plan).begin()


def _plan_for(file: Path, table: Table, plan_file: Path | None, arguments: dict[str, Any]) -> Plan:
    given = {name: value for name, value in arguments.items() if value is not None}
    if plan_file is None:
        for name in ("epsilon", "delta"):
            if name not in given:
                raise ParameterError(
                    "missing-argument", f"--{name} is missing; give --epsilon and --delta, or a --plan"
                )
        return make_plan(users=table.rows, shape=table.shape, one_process=True, **given)
    if given:
        extra = next(iter(given)).replace("_", "-")
        raise ParameterError(
            "conflicting-arguments",
            f"--{extra} cannot be given with --plan, which fixes it already; leave one of them out",
        )
    plan = Plan.load(plan_file)
    if table.rows < plan.users:
        raise DataError(
            "too-few-users",
            f"the file has {table.rows} rows, but the plan needs at least {plan.users} users; "
            "add rows, or give a --plan for fewer users",
        )
    check_shape(file, table.shape, plan)
    return plan
