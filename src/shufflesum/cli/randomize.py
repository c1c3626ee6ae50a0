"""`shufflesum randomize`: files of users' data in, a folder of reports for the shuffler out."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shufflesum._format import counted
from shufflesum.cli.options.batch import check_engine, engine_options, load_target, taking_up, target_options
from shufflesum.cli.options.budget import budget_option, spending
from shufflesum.cli.options.common import file_argument, note_assumed_columns, note_missing_header
from shufflesum.cli.options.configured import ConfiguredCommand
from shufflesum.cli.options.table import MIDPOINT, TableOptions, clip_options, table_options
from shufflesum.cli.options.wanted import Chosen, column_for, planned_column_options
from shufflesum.cli.output.printed import console, progress_bar, warnings_as_notes
from shufflesum.errors import ParameterError
from shufflesum.plans import Plan
from shufflesum.tables import PathOrUrl

if TYPE_CHECKING:
    from shufflesum.batch.files import Dataset


@click.command("randomize", cls=ConfiguredCommand, short_help="Users' rows in files to a folder of reports.")
@file_argument("users")
@target_options
@click.option("--round", "round_number", type=int, help="The round of the plan that the reports are for.  [1]")
@budget_option
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The folder to make.")
@clip_options("Move values to the nearest bound, or scale vectors down to the clipping norm,", MIDPOINT)
@planned_column_options
@table_options
@click.option("--format", type=click.Choice(["parquet", "arrow"]), default="parquet", show_default=True)
@click.option(
    "--restart",
    is_flag=True,
    help="Throw away what an interrupted run has done; draw anew what a finished one wrote, where that is gone.",
)
@engine_options
def command(
    users: PathOrUrl,
    plan_file: Path | None,
    task_file: Path | None,
    round_number: int | None,
    budget_file: Path | None,
    output: Path,
    clip: bool,
    missing: Any,
    chosen: Chosen | None,
    reading: TableOptions,
    format: Any,
    restart: bool,
    memory: int,
    workers: int | None,
    engine: str,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Randomize the rows of USERS, a file or a folder of files, into a folder of reports; each row is one user.

    Files are CSV (.csv or .tsv, also compressed as .csv.gz), Parquet, Arrow IPC, .npy or .npz, in a folder all of one
    kind; empty ones are skipped, and - is standard input. With --task each report is sealed, so that only the analyzer
    can read it. The folder is for the shuffler alone: in it, a user's reports are still together. A run that was
    interrupted goes on where it was when the same command is given again, and one that has finished is not done again.
    Labels are in the column that the plan names, in the only one there is, or in the one that --categories,
    --multi-choice, --group-by or --open-vocabulary says.

    \b
    Example: shufflesum randomize beats.parquet --plan plan.json -o reports
             shufflesum randomize survey.csv --plan plan.json --categories answer -o reports
    """
    check_engine(engine, master, conf)
    repeated = os.path.lexists(output)  # what is there is refused, unless the same work made it
    target = load_target(plan_file, task_file, round_number=round_number)
    plan = target.plan
    column = column_for(plan.domain, chosen)
    if engine == "spark":
        if task_file is not None or format != "parquet" or reading.says_how_it_is_written:
            raise ParameterError(
                "conflicting-arguments",
                "--task, --format arrow, --array and what says how a CSV is written are for --engine local; leave them "
                "out, or randomize there",
            )
        from shufflesum.batch import spark

        with warnings_as_notes(), spending(budget_file) as budget:
            dataset = spark.randomize_folder(
                users,
                output,
                plan,
                master=master,
                conf=conf,
                clip=clip,
                missing=missing,
                columns=reading.columns,
                label_column=column,
                user_column=reading.user_column,
                round_number=target.round_number,
                restart=restart,
                begin=budget.runs_of(plan),
            )
            _say(output, dataset, plan, repeated=repeated)
        return
    from shufflesum.batch.randomize import randomize
    from shufflesum.batch.users import open_users

    with warnings_as_notes(), spending(budget_file) as budget, taking_up(output, restart=restart):
        rows = open_users(users, **reading.arguments(plan.domain, column))
        with progress_bar("rows", rows.rows) as progress:
            dataset = randomize(
                rows,
                output,
                target,
                clip=clip,
                missing=missing,
                format=format,
                memory=memory,
                workers=workers,
                restart=restart,
                progress=progress,
                begin=budget.runs_of(plan, task=target.task),
            )
        note_missing_header(rows.names, rows.paths[0], reading.header)
        note_assumed_columns(rows.names, rows.paths[0], plan.domain)
        _say(output, dataset, plan, repeated=repeated)


def _say(output: Path, dataset: Dataset, plan: Plan, *, repeated: bool) -> None:
    users = dataset.rows // plan.reports
    if users < plan.users:
        warnings.warn(
            f"{users} rows, but nothing is released for fewer than {plan.users} users; the shuffler waits for the "
            "reports of others under the same plan",
            stacklevel=1,
        )
    did = "finished before, with the same input and options: nothing was drawn again;" if repeated else "wrote"
    amount = f"{counted(dataset.rows, 'report')} of {counted(users, 'user')} in {counted(len(dataset.files), 'file')}"
    console.print(f"{did} {output}: {amount}", markup=False)
