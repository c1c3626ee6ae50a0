"""`shufflesum reproduce`: the paper's experiments, and what a certified guarantee changes, as one page of figures."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shufflesum.cli.output.repeat import command_line
from shufflesum.cli.output.terminal import console, progress_bar
from shufflesum.errors import ParameterError
from shufflesum.experiments.data import load, synthetic
from shufflesum.experiments.federated.comparison import Federated, compare
from shufflesum.experiments.reproduction import Request, reproduce
from shufflesum.experiments.trials import Encoding
from shufflesum.plots import require_plots

__all__ = ["command"]

_QUICK_REPEATS = 3


@click.command("reproduce", short_help="Repeat the paper's experiments, and compare with a certified guarantee.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Heartbeats: the Kaggle folder, a matrix (.csv, .parquet, .npy), or an .npz archive.  [made-up beats]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    metavar="DIR",
    help="Folder for the report; a run that was stopped goes on there.",
)
@click.option("--repeats", type=click.IntRange(1, 1000), metavar="R", help="Runs of each measurement.  [10; quick: 3]")
@click.option("--quick", is_flag=True, help="Some of the values only: a look within seconds.")
@click.option(
    "--encoding",
    type=click.Choice(["paper", "authors"]),
    default="paper",
    show_default=True,
    help="Of the six panels: as in the paper, or as in its authors' code.",
)
@click.option("--federated", is_flag=True, help="Train models instead, under five kinds of privacy.")
@click.option(
    "--mnist",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With --federated: the folder of MNIST's four idx files.  [made-up pictures]",
)
def command(
    data: Path | None,
    output: Path,
    repeats: int | None,
    quick: bool,
    encoding: Encoding,
    federated: bool,
    mnist: Path | None,
) -> None:
    """Repeat the six panels of the paper's evaluation and show what changes with a certified guarantee.

    Both mechanisms, replace and add, are compared with what a trusted curator would have had. Writes DIR/report.html,
    one page that opens offline, and each figure as PNG, SVG and CSV. Without --data the beats are made up, and every
    figure says so.

    With --federated two models are trained on clients' pictures instead, R times each with other seeds.
    """
    require_plots()
    if mnist is not None and not federated:
        raise ParameterError("conflicting-arguments", "--mnist is for --federated; give both, or neither")
    if federated:
        if data is not None or encoding != "paper":
            raise ParameterError("conflicting-arguments", "--data and --encoding are not for --federated; use --mnist")
        _federated(output, mnist, repeats or (1 if quick else 3), quick)
        return
    beats = synthetic() if data is None else load(data)
    request = Request(
        folder=output,
        repeats=repeats or (_QUICK_REPEATS if quick else 10),
        quick=quick,
        encoding=encoding,
        command=command_line(),
    )
    try:
        with progress_bar("percent done", 100) as progress:
            found = reproduce(beats, request, progress)
    except KeyboardInterrupt:
        click.echo(f"shufflesum: stopped; what was measured is kept, the same command goes on in {output}", err=True)
        sys.exit(130)
    console.print(f"data: {beats.name}, {len(beats.beats):,} rows", markup=False)
    for line in found.summary:
        console.print(f"- {line}", markup=False)
    if found.reused:
        console.print(f"{found.reused:,} measurements were kept from an earlier run, {found.measured:,} made")
    console.print(f"report: {found.page}", markup=False)


def _federated(output: Path, mnist: Path | None, seeds: int, quick: bool) -> None:
    request = Federated(output, mnist, seeds, quick, command_line())
    try:
        with progress_bar("percent done", 100) as progress:
            found = compare(request, progress)
    except KeyboardInterrupt:
        click.echo(f"shufflesum: stopped; what was trained is kept, the same command goes on in {output}", err=True)
        sys.exit(130)
    console.print(f"data: {found.data}", markup=False)
    for line in found.summary:
        console.print(f"- {line}", markup=False)
    if found.reused:
        console.print(f"{found.reused:,} trainings were kept from an earlier run, {found.measured:,} made")
    console.print(f"report: {found.page}", markup=False)
