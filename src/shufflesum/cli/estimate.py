"""`shufflesum estimate`: what the analyzer of a task has learned so far."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from shufflesum._rounding import upwards
from shufflesum.cli.options import console, task_option
from shufflesum.cli.printed import fallback, guarantee_of, print_table
from shufflesum.plots import DRAWABLE, estimate_chart, require_plots, save_chart
from shufflesum.service.client import fetch_estimate
from shufflesum.tables import StagedOutputs
from shufflesum.wire import Task

__all__ = ["command", "print_rounds"]

_SHOWN = 12


@click.command("estimate", short_help="Ask a task's analyzer for its estimate.")
@click.argument("url")
@task_option
@click.option("--json", "as_json", is_flag=True, help="Print the analyzer's answer as one JSON object.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the analyzer's answer (.json).")
@click.option("--plot", type=click.Path(path_type=Path), help=f"Draw the newest round: {', '.join(DRAWABLE)}.")
@click.option("--ca", type=click.Path(path_type=Path), help="Certificates (PEM) to trust instead of the system's.")
@click.option("--allow-plain-http", is_flag=True, help="Ask over plain HTTP on another machine.")
def command(
    url: str,
    task_file: Path,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    ca: Path | None,
    allow_plain_http: bool,
) -> None:
    """Print the estimate of every released round, with its error bars and whether the guarantee holds.

    \b
    Example: shufflesum estimate --task task.json https://analyzer.example.org
    """
    task = Task.load(task_file)
    with StagedOutputs() as outputs:
        staged = outputs.stage(output, (".json",)) if output else None
        if plot:
            require_plots()
        staged_plot = outputs.stage(plot, DRAWABLE) if plot else None
        document = fetch_estimate(task, url, allow_plain_http=allow_plain_http, ca_file=ca)
        text = json.dumps(document, allow_nan=False)
        if staged:
            outputs.write(staged, text + "\n")
        if staged_plot:
            save_chart(_chart(task, document["rounds"][-1]), staged_plot)
    if as_json:
        click.echo(text)
    else:
        print_rounds(task, document)
        for path in filter(None, (output, plot)):
            console.print(f"wrote {path}", markup=False)


def print_rounds(task: Task, document: dict[str, Any]) -> None:
    """The analyzer's answer for a person."""
    for found in document["rounds"]:
        uploads = found.get("uploads", found["users"])
        of_uploads = f" (of {uploads:,} uploads)" if uploads != found["users"] else ""
        console.print(
            f"Task {task.name}, round {found['round']}: {found['users']:,} users{of_uploads}, "
            f"{found['rejected_reports']:,} reports rejected",
            style="bold",
            markup=False,
        )
        console.print(_promise(task, found["guarantee"]["holds"]), markup=False)
        arrays = (found["mean"], found["standard_error"], found["confidence_interval"], found["sum"])
        print_table(*arrays, found["confidence_level"], hint="; --json has all")


@dataclass(frozen=True, slots=True)
class _Round:
    """A round of the answer, as far as it is drawn."""

    mean: NDArray[np.float64]
    interval: tuple[NDArray[np.float64], NDArray[np.float64]]

    def confidence_interval(self, _: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self.interval


def _chart(task: Task, found: dict[str, Any]) -> Any:
    lower, upper = (np.array(end, dtype=np.float64) for end in found["confidence_interval"])
    promise = guarantee_of(task.plan) if found["guarantee"]["holds"] else "the guarantee no longer holds"
    return estimate_chart(
        _Round(np.array(found["mean"], dtype=np.float64), (lower, upper)),
        title=f"Private mean of {task.name}, round {found['round']}",
        subtitle=f"{found['users']:,} users, {promise}",
        level=found["confidence_level"],
    )


def _promise(task: Task, holds: bool) -> str:
    if not holds:
        return "THE GUARANTEE NO LONGER HOLDS: too many reports were rejected; the operator released this anyway"
    plan = task.plan
    return (
        f"guarantee for one user in all rounds: epsilon {upwards(plan.epsilon)}, delta {upwards(plan.delta)} "
        f"({plan.accountant} accountant); if shuffler and analyzer collude: {fallback(plan)}"
    )
