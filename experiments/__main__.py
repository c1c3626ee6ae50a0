"""`python -m experiments`: the paper's figures, or the federated comparison, as one page of figures."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

import click

from experiments.data import load, synthetic
from experiments.federated.comparison import Comparison, Federated, compare
from experiments.reproduction import Reproduction, Request, reproduce
from experiments.trials import Encoding
from shufflesum.cli.output import console, progress_bar
from shufflesum.errors import ShufflesumError
from shufflesum.plots import require_plots

_output = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder for the report; a run that was stopped goes on there.",
)
_quick = click.option("--quick", is_flag=True, help="Some of the values only: a look within seconds.")
_repeats = click.IntRange(1, 1000)
_T = TypeVar("_T")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def command() -> None:
    """Repeat the paper's experiments, and compare with a certified guarantee.

    Each command writes DIR/report.html, one page that opens offline, and each figure as PNG, SVG and CSV.
    """


@command.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Heartbeats: the Kaggle folder, a matrix (.csv, .parquet, .npy), or an .npz archive.  [made-up beats]",
)
@_output
@click.option("--repeats", type=_repeats, metavar="R", help="Runs of each measurement.  [10; quick: 3]")
@_quick
@click.option(
    "--encoding",
    type=click.Choice(["paper", "authors"]),
    default="paper",
    show_default=True,
    help="Of the six panels: as in the paper, or as in its authors' code.",
)
def paper(data: Path | None, output: Path, repeats: int | None, quick: bool, encoding: Encoding) -> None:
    """Repeat the six panels of the paper's evaluation and show what changes with a certified guarantee.

    Both mechanisms, replace and add, are compared with what a trusted curator would have had. Without --data the beats
    are made up, and every figure says so.
    """
    require_plots()
    beats = synthetic() if data is None else load(data)
    request = Request(output, repeats or (3 if quick else 10), quick, encoding, command=_command_line())
    found = _run(lambda progress: reproduce(beats, request, progress), output)
    _show(f"{beats.name}, {len(beats.beats):,} rows", found, "measurements")


@command.command()
@click.option(
    "--mnist", type=click.Path(path_type=Path), metavar="DIR", help="MNIST's four idx files.  [made-up pictures]"
)
@_output
@click.option(
    "--repeats", type=_repeats, metavar="R", help="Trainings of each kind, each with its seed.  [3; quick: 1]"
)
@_quick
def federated(mnist: Path | None, output: Path, repeats: int | None, quick: bool) -> None:
    """Train two models on clients' pictures under five kinds of privacy."""
    request = Federated(output, mnist, repeats or (1 if quick else 3), quick, _command_line())
    found = _run(lambda progress: compare(request, progress), output)
    _show(found.data, found, "trainings")


def _command_line() -> str:
    return shlex.join(["python", "-m", "experiments", *sys.argv[1:]])


def _run(work: Callable[[Callable[[int], None]], _T], output: Path) -> _T:
    try:
        with progress_bar("percent done", 100) as progress:
            return work(progress)
    except KeyboardInterrupt:
        click.echo(f"experiments: stopped; what is done was kept, the same command goes on in {output}", err=True)
        sys.exit(130)


def _show(data: str, found: Reproduction | Comparison, what: str) -> None:
    console.print(f"data: {data}", markup=False)
    for line in found.summary:
        console.print(f"- {line}", markup=False)
    if found.reused:
        console.print(f"{found.reused:,} {what} were kept from an earlier run, {found.measured:,} made")
    console.print(f"report: {found.page}", markup=False)


def main() -> NoReturn:
    """Run a command; what a user can mend ends with one clear message and exit code 2."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that staged outputs are taken away
    try:
        command(prog_name="python -m experiments")
    except ShufflesumError as error:
        click.echo(f"experiments: {error} [{error.problem}]", err=True)
        sys.exit(2)
    sys.exit(0)


if __name__ == "__main__":
    main()
