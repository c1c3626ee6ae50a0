"""`shufflesum estimate`: what the analyzer of a task has learned so far."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from shufflesum._format import upwards
from shufflesum._machine import SYSTEM_CLOCK
from shufflesum.cli.options.common import task_option
from shufflesum.cli.options.configured import ConfiguredCommand
from shufflesum.cli.options.wanted import candidates_option
from shufflesum.cli.output.printed import command_line, console, fallback, guarantee_of, print_rows
from shufflesum.cli.output.results import REPORT_HELP
from shufflesum.domains.options import read_words
from shufflesum.errors import ParameterError
from shufflesum.estimate import AnyEstimate, BaseEstimate
from shufflesum.pages import report_page, require_pages
from shufflesum.plots import DRAWABLE, estimate_chart, require_plots, rounds_chart, save_chart
from shufflesum.service.client import estimates_in, fetch_estimate
from shufflesum.tables import WRITABLE, StagedOutputs, estimate_to_json, write_estimate
from shufflesum.wire import Task

_LEVEL = 0.95
_HINT = " --json has all."
_PROMPT = "any words can be counted now, as often as you like: give --candidates FILE, one on each line"


@click.command("estimate", cls=ConfiguredCommand, short_help="Ask a task's analyzer for its estimate.")
@click.argument("url")
@task_option
@candidates_option
@click.option("--json", "as_json", is_flag=True, help="Print the analyzer's answer as one JSON object.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help=f"Write the analyzer's answer (.json), or the newest round ({', '.join(WRITABLE[1:])}).",
)
@click.option(
    "--plot", type=click.Path(path_type=Path), help=f"Draw it, several rounds over time: {', '.join(DRAWABLE)}."
)
@click.option("--report", type=click.Path(path_type=Path), help=REPORT_HELP)
@click.option("--round", "round_number", type=int, metavar="R", help="Ask for this round alone.  [all released]")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Ask again for so long where nothing is released yet.  [ask once]",
)
@click.option("--ca", type=click.Path(path_type=Path), help="Certificates (PEM) to trust instead of the system's.")
@click.option("--allow-plain-http", is_flag=True, help="Ask over plain HTTP on another machine.")
def command(
    url: str,
    task_file: Path,
    candidates: Path | None,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    report: Path | None,
    round_number: int | None,
    wait: float,
    ca: Path | None,
    allow_plain_http: bool,
) -> None:
    """Print the estimate of every released round, with its error bars and whether the guarantee holds.

    Under a plan for words, any list of them can be asked for, as often as one likes (--candidates). The longer it is,
    the better: frequent words that are not on it disturb the others.

    \b
    Example: shufflesum estimate --task task.json https://analyzer.example.org
    """
    task = Task.load(task_file)
    words = _words(task, candidates, plot or report)
    with StagedOutputs() as outputs:
        staged = outputs.stage(output, WRITABLE) if output else None
        if plot or report:
            require_plots()
        if report:
            require_pages()
        staged_plot = outputs.stage(plot, DRAWABLE) if plot else None
        staged_report = outputs.stage(report, (".html",)) if report else None
        document = fetch_estimate(
            task, url, round_number=round_number, wait=wait, allow_plain_http=allow_plain_http, ca_file=ca
        )
        estimates = [_asked(estimate, words) for estimate in estimates_in(task, document).values()]
        for found, estimate in zip(document["rounds"], estimates, strict=True):
            if estimate.words is not None:
                found["candidates"] = estimate_to_json(estimate, _LEVEL)
        level = document["rounds"][-1]["confidence_level"]
        text = json.dumps(document, allow_nan=False)
        if staged and staged.suffix.lower() == ".json":
            outputs.write(staged, text + "\n")
        elif staged:
            write_estimate(staged, estimates[-1], _LEVEL)
        if staged_plot:
            save_chart(_chart(task, estimates, level), staged_plot)
        if staged_report:
            page = report_page(
                estimates,
                title=f"Private estimates of task {task.name}",
                made=SYSTEM_CLOCK.now(),
                command=command_line(),
                level=level,
            )
            outputs.write(staged_report, page)
    if as_json:
        click.echo(text)
        return
    for found, estimate in zip(document["rounds"], estimates, strict=True):
        _print_round(task, found, estimate)
    for path in filter(None, (output, plot, report)):
        console.print(f"wrote {path}", markup=False)


def _words(task: Task, candidates: Path | None, drawn: Path | None) -> list[str] | None:
    """The words asked for; refuses them where there are none to ask for, and pictures of none."""
    hashed = task.plan.domain.needs_candidates
    if candidates is not None and not hashed:
        raise ParameterError(
            "conflicting-arguments", "--candidates are for plans for words; this task's labels are in its plan"
        )
    if drawn is not None and hashed and candidates is None:
        raise ParameterError("missing-argument", "of words only those asked for can be drawn: give --candidates FILE")
    return None if candidates is None else read_words(candidates, "candidates")


def _asked(estimate: AnyEstimate, words: Sequence[str] | None) -> AnyEstimate:
    return estimate if words is None else estimate.counts_of(words)


def _print_round(task: Task, found: dict[str, Any], estimate: BaseEstimate) -> None:
    """A round of the analyzer's answer for a person."""
    uploads = found.get("uploads", found["users"])
    of_uploads = f" (of {uploads:,} uploads)" if uploads != found["users"] else ""
    console.print(
        f"Task {task.name}, round {found['round']}: {found['users']:,} users{of_uploads}, "
        f"{found['rejected_reports']:,} reports rejected",
        style="bold",
        markup=False,
    )
    console.print(_promise(task, found["guarantee"]["holds"], estimate.broken), markup=False)
    for warning in estimate.warnings:
        click.echo(f"note: {warning}", err=True)
    level = found["confidence_level"]
    print_rows(estimate, level, hint=_HINT, prompt=_PROMPT)


def _chart(task: Task, estimates: Sequence[BaseEstimate], level: float) -> Any:
    newest = estimates[-1]
    promise = guarantee_of(task.plan) if newest.guarantee_holds else "the guarantee no longer holds"
    if len(estimates) > 1:
        return rounds_chart(
            estimates, title=f"Private estimates of {task.name} by round", subtitle=promise, level=level
        )
    title = f"{newest.what} of {task.name}, round {newest.round_number}"
    return estimate_chart(newest, title=title, subtitle=f"{newest.users:,} users, {promise}", level=level)


def _promise(task: Task, holds: bool, broken: str | None) -> str:
    if not holds:
        why = broken or "another round of the task broke it"
        return f"THE GUARANTEE NO LONGER HOLDS: {why}; the operator released this anyway"
    plan = task.plan
    return (
        f"guarantee for one user in all rounds: epsilon {upwards(plan.epsilon)}, delta {upwards(plan.delta)} "
        f"({plan.accountant} accountant); if shuffler and analyzer collude: {fallback(plan)}"
    )
