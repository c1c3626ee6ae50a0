"""`shufflesum shuffle`: folders of reports, or of clients' uploads, to one in a uniformly random order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from shufflesum._format import counted
from shufflesum.cli.options.batch import check_engine, engine_options, taking_up
from shufflesum.cli.options.common import PLACE
from shufflesum.cli.options.configured import ConfiguredCommand
from shufflesum.cli.output.printed import console, progress_bar, warnings_as_notes
from shufflesum.errors import ParameterError
from shufflesum.tables import PathOrUrl
from shufflesum.wire import Task


@click.command("shuffle", cls=ConfiguredCommand, short_help="Folders of reports to one in random order.")
@click.argument("reports", nargs=-1, required=True, type=PLACE)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The folder to make.")
@click.option(
    "--task", "task_file", type=click.Path(path_type=Path), help="The task of sealed reports; needed for uploads."
)
@click.option("--format", "kind", type=click.Choice(["parquet", "arrow"]), default="parquet", show_default=True)
@click.option("--restart", is_flag=True, help="Throw away what an interrupted run has done.")
@click.option(
    "--released",
    type=click.Path(path_type=Path),
    help="The shuffler's list of the batches it released.  [default: _released.json in each folder of REPORTS]",
)
@engine_options
def command(
    reports: tuple[PathOrUrl, ...],
    output: Path,
    task_file: Path | None,
    kind: Any,
    restart: bool,
    released: Path | None,
    memory: int,
    workers: int | None,
    engine: str,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Write the reports of REPORTS to a new folder in a uniformly random order, so that no trace of theirs is left.

    REPORTS is a folder from shufflesum randomize, plain or sealed, or several such folders of one plan, one from each
    data owner: together they are one batch. With --task they may be folders of uploads as clients send them (*.upload).
    What does not fit into --memory is spilled beside the output and removed in the end. Nothing is written for a batch
    smaller than the plan's, nor for one that shares some but not all reports with an earlier one: late files wait for
    the next batch, in a folder of their own, and --released names the list of what was released. A run that was
    interrupted goes on where it was when the same command is given again, and one that has finished is not done again.

    \b
    Example: shufflesum shuffle reports -o shuffled --memory 2GB
             shufflesum shuffle hospital-a hospital-b hospital-c -o shuffled
    """
    check_engine(engine, master, conf)
    finished = os.path.lexists(output)  # what is there is refused, unless it is this batch, shuffled
    task = None if task_file is None else Task.load(task_file)
    if engine == "spark":
        if task is not None or restart or kind != "parquet":
            raise ParameterError(
                "conflicting-arguments",
                "--task, --restart and --format arrow are for --engine local; leave them out, or shuffle there",
            )
        from shufflesum.batch import spark

        with warnings_as_notes():
            dataset = spark.shuffle_folder(reports, output, master=master, conf=conf, released=released)
        _say(output, dataset.rows, len(dataset.files), finished=finished)
        return
    from shufflesum.batch.shuffle import FileSource, open_source, shuffle_source

    with warnings_as_notes(), taking_up(output, restart=restart):
        source = open_source(*reports, task=task)
        if isinstance(source, FileSource) and not source.dataset.whole:
            click.echo("note: where a folder has no _shufflesum.json, nobody notices files that it lacks", err=True)
        with progress_bar("reports", source.rows) as progress:
            done = shuffle_source(
                source,
                output,
                memory=memory,
                workers=workers,
                format=kind,
                restart=restart,
                released=released,
                progress=progress,
            )
    if done.repeated:
        console.print(f"{done.repeated:,} of the uploads came before and do not count again")
    _say(output, done.reports, done.parts, finished=finished)


def _say(output: Path, reports: int, files: int, *, finished: bool) -> None:
    did = "finished before, with the same input: nothing was done;" if finished else "wrote"
    console.print(f"{did} {output}: {counted(reports, 'report')} in {counted(files, 'file')}", markup=False)
