"""`shufflesum run`: a file of users' vectors in, a private mean and sum out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table as RichTable

from shufflesum._figures import downwards
from shufflesum.aggregate import aggregate_batches
from shufflesum.cli.options import console, plan_options, progress_bar, upwards, warnings_as_notes
from shufflesum.contract import Plan
from shufflesum.errors import DataError, FileError, ParameterError
from shufflesum.estimation import Estimate
from shufflesum.planning import plan as make_plan
from shufflesum.plots import DRAWABLE, estimate_chart, require_plots, save_chart
from shufflesum.tables import WRITABLE, StagedOutputs, Table, estimate_to_json, open_table, write_estimate

__all__ = ["command", "print_estimate"]

_SHOWN = 12


@click.command("run", short_help="Private mean and sum of the rows of a file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--epsilon", type=float, help="The guarantee's epsilon.")
@click.option("--delta", type=float, help="The guarantee's delta.")
@plan_options
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="Use this plan instead of making one.")
@click.option("--clip", is_flag=True, help="Move values to the nearest bound instead of refusing the file.")
@click.option(
    "--missing",
    type=click.Choice(["refuse", "midpoint"]),
    default="refuse",
    show_default=True,
    help="NaN and empty cells: refuse the file, or put the middle of the bounds there, which pulls the mean "
    "towards that middle by the missing fraction.",
)
@click.option("--columns", help="Columns to use: names or positions, separated by commas; ranges as 0:100.")
@click.option("--header/--no-header", default=None, help="Whether a CSV starts with names.  [found out]")
@click.option("--array", help="The array of an .npz file that holds several.")
@click.option("--user-column", metavar="NAME", help="The column that says whose row it is; each user may have one.")
@click.option("--json", "as_json", is_flag=True, help="Print plan and estimate as one JSON object.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help=f"Write the estimate: {', '.join(WRITABLE)}.")
@click.option("--plot", type=click.Path(path_type=Path), help=f"Draw the estimate: {', '.join(DRAWABLE)}.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Level of the intervals.")
def command(
    file: Path,
    plan_file: Path | None,
    columns: str | None,
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
    if not 0 < confidence < 1:
        raise ParameterError(f"--confidence is {confidence}; it must lie strictly between 0 and 1")
    for path in (output, plot):
        _keep_inputs(path, file, plan_file)
    with StagedOutputs() as outputs, warnings_as_notes():
        staged_output = outputs.stage(output, WRITABLE) if output else None
        if plot:
            require_plots()
        staged_plot = outputs.stage(plot, DRAWABLE) if plot else None
        names = None if columns is None else [name.strip() for name in columns.split(",") if columns.strip()]
        table = open_table(file, columns=names, header=header, user_column=user_column, array=array)
        plan = _plan_for(table, plan_file, plan_arguments)
        batches = (batch.reshape(len(batch), *plan.shape) for batch in table.batches())
        labels = table.names if len(plan.shape) == 1 else None
        with progress_bar("rows", table.rows) as progress:
            estimate = aggregate_batches(batches, plan, clip=clip, missing=missing, progress=progress)
        if staged_output:
            write_estimate(staged_output, estimate, plan.summary(), confidence, labels)
        if staged_plot:
            chart = estimate_chart(
                estimate,
                title=f"Private mean of {file.name}",
                subtitle=f"{estimate.users:,} users, {_guarantee(plan)}",
                level=confidence,
            )
            save_chart(chart, staged_plot)
    if as_json:
        document = {"plan": plan.summary(), "estimate": estimate_to_json(estimate, confidence, labels)}
        click.echo(json.dumps(document, allow_nan=False))
    else:
        print_estimate(estimate, confidence, table.names)
        if output is None and estimate.mean.size > _SHOWN:
            console.print("-o OUT writes all coordinates")
        for path in (output, plot):
            if path:
                console.print(f"wrote {path}", markup=False)


def _keep_inputs(output: Path | None, *inputs: Path | None) -> None:
    for path in inputs:
        if output and path and output.resolve() == path.resolve():
            raise FileError(f"{output}: is an input, and would be replaced; choose another output file")


def _plan_for(table: Table, plan_file: Path | None, arguments: dict[str, Any]) -> Plan:
    given = {name: value for name, value in arguments.items() if value is not None}
    if plan_file is None:
        for name in ("epsilon", "delta"):
            if name not in given:
                raise ParameterError(f"--{name} is missing; give --epsilon and --delta, or a --plan")
        return make_plan(users=table.rows, shape=table.shape, **given)
    if given:
        extra = next(iter(given)).replace("_", "-")
        raise ParameterError(f"--{extra} cannot be given with --plan, which fixes it already; leave one of them out")
    plan = Plan.load(plan_file)
    if table.rows < plan.users:
        raise DataError(
            f"the file has {table.rows} rows, but the plan needs at least {plan.users} users; "
            "add rows, or give a --plan for fewer users"
        )
    entries = 1
    for size in plan.shape:
        entries *= size
    if table.shape not in (plan.shape, (entries,)):
        raise DataError(
            f"a row of the file has shape {table.shape}, but the plan is for {plan.shape} ({entries} values); "
            "choose --columns, or the right --plan"
        )
    return plan


def _guarantee(plan: Plan) -> str:
    """Never without the conditions it rests on, where they are not the usual ones."""
    rounds = "" if plan.rounds == 1 else f" over {plan.rounds:,} rounds"
    honest = "" if plan.honest_fraction == 1 else f" if {plan.honest_users:,} users are honest"
    return f"epsilon {upwards(plan.epsilon)}, delta {upwards(plan.delta)}{rounds}{honest}"


def print_estimate(estimate: Estimate, level: float, names: tuple[str, ...] | None = None) -> None:
    """A few lines and a small table for a person."""
    plan = estimate.plan
    console.print(
        f"[bold]{estimate.users:,} users[/bold], each sending {plan.reports:,} of {plan.dimension:,} coordinates in "
        f"{plan.levels + 1} values, replaced by noise with probability {downwards(plan.noise_probability, 4)}"
    )
    console.print(
        f"guarantee for one row: [bold]{_guarantee(plan)}[/bold] ({plan.accountant} accountant); "
        f"if the shuffler colludes: epsilon {upwards(plan.local_epsilon)}"
    )
    lower, upper = (end.reshape(-1) for end in estimate.confidence_interval(level))
    mean, error, total = (part.reshape(-1) for part in (estimate.mean, estimate.standard_error, estimate.sum))
    table = RichTable(box=None, header_style="bold")
    for title in ("coordinate", "mean", "standard error", f"{100 * level:g}% interval", "sum"):
        table.add_column(title, justify="left" if title == "coordinate" else "right")
    shown = range(len(mean)) if len(mean) <= _SHOWN else [round(i * (len(mean) - 1) / 9) for i in range(10)]
    for i in shown:
        label = escape(names[i]) if names and len(names) == len(mean) else str(i)
        table.add_row(
            label, f"{mean[i]:.5g}", f"{error[i]:.2g}", f"{lower[i]:.5g} to {upper[i]:.5g}", f"{total[i]:.6g}"
        )
    console.print(table)
    if len(shown) < len(mean):
        console.print(f"{len(shown)} of {len(mean):,} coordinates shown")
