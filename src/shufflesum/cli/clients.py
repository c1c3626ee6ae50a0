"""`shufflesum send`, `status` and `estimate`: what is asked of the servers of a deployment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from json import dumps
from pathlib import Path
from typing import Any

import click
from rich.filesize import decimal

from shufflesum._format import upwards
from shufflesum._machine import SYSTEM_CLOCK
from shufflesum.cli import options
from shufflesum.cli import output as printed
from shufflesum.cli.commands import DEPLOYED, Command
from shufflesum.cli.options import PATH
from shufflesum.cli.output import console
from shufflesum.cli.table import TableOptions, table_options
from shufflesum.domains import Domain
from shufflesum.domains.counts import Top
from shufflesum.errors import FileError, ParameterError, ShufflesumError
from shufflesum.estimate import BaseEstimate
from shufflesum.pages import report_page
from shufflesum.plots import DRAWABLE, estimate_chart, rounds_chart, save_chart
from shufflesum.service import client as service
from shufflesum.service import require_service
from shufflesum.statement import fallback
from shufflesum.tables.readers import check_shape, rows_of
from shufflesum.tables.sources import DataSource
from shufflesum.tables.writers import WRITABLE, estimate_to_json, write_estimate
from shufflesum.wire import Task


def _web(ca: Path | None, allow_plain_http: bool) -> dict[str, Any]:
    return {"ca_file": ca, "allow_plain_http": allow_plain_http}


web_options = options.option_group(
    "web",
    _web,
    click.option("--ca", type=PATH, help="Certificates (PEM) to trust instead of the system's."),
    click.option("--allow-plain-http", is_flag=True, help="Talk to another machine over plain HTTP."),
)


@click.command("send", cls=Command, context_settings=DEPLOYED)
@options.file_argument("file")
@options.task_option
@click.option("--row", type=click.IntRange(min=0), help="Send only this row, counted from 0.")
@click.option("--user", help="With --row: whose row it is, among the contributions.  [row N]")
@click.option("--round", type=int, help="The round to contribute to.  [the open one]")
@options.planned_column_options
@table_options
@click.option("--clip", is_flag=True, help="Always so here: values are moved to the nearest bound.")
@click.option("--tokens", type=PATH, help="Upload tokens, one line for each row; with --row also one alone.")
@click.option(
    "--contributions",
    type=PATH,
    help="Where contributions are remembered.  [SHUFFLESUM_CONTRIBUTIONS, or a file in the user's data folder]",
)
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds to try before giving up.")
@web_options
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Compute the task's guarantee again before anything is sent, or believe whoever gave you the task.",
)
def send_command(
    file: Path,
    task_file: Path,
    row: int | None,
    user: str | None,
    round: int | None,
    chosen: options.Chosen | None,
    reading: TableOptions,
    clip: bool,
    tokens: Path | None,
    contributions: Path | None,
    timeout: float,
    web: dict[str, Any],
    verify: bool,
) -> None:
    """Randomize each row of FILE on this machine, seal it and send it; one row is one user.

    Values out of bounds are moved to the nearest bound and missing ones to the middle, because taking part must not
    depend on the data; vectors longer than the clipping norm are scaled down to it. A file of contributions remembers
    who has contributed to which round, by --user-column or else by row number: a second run sends only what is missing,
    and what was under way goes out again with the same bytes. Without a user column, another file of other people needs
    another --contributions.

    The task's guarantee is computed again first, which takes seconds. --no-verify leaves that to others, such as
    shufflesum task show and both servers, and all else is checked as always: one row is then sent in about a second.

    \b
    Example: shufflesum send --task task.json beats.csv
    """
    if user is not None and row is None:
        raise ParameterError("missing-argument", "--user names one person; give --row N with it")
    if clip:
        click.echo("note: --clip is not needed: send always moves values to the nearest bound", err=True)
    task = Task.load(task_file, verify=verify)
    domain = task.plan.domain
    table = reading.open(file, domain, options.column_for(domain, chosen))
    check_shape(file, table.shape, domain)
    reading.note_detected(table, file, quiet=True)
    options.note_assumed_columns(table.names, file, domain)
    codes = None if tokens is None else _read_tokens(tokens, table.rows, row)
    labels = [label for users in table.users() for label in users.to_pylist()]
    if reading.user_column is None:
        labels = [f"row {i}" for i in range(table.rows)]
    with service.Client(task, contributions=contributions, timeout=timeout, **web) as client:
        round_number = client.open_round() if round is None else round
        if row is None:
            try:
                _send_all(client, table, labels, codes, round_number)
            except (service.RefusedError, service.UnreachableError):
                if count := client.acknowledged(labels, round_number):
                    click.echo(f"note: {count:,} of the {table.rows:,} rows count in round {round_number}", err=True)
                raise
            return
        value = _row(table, domain, row)  # first, because it refuses a row that is not there
        token = None if codes is None else codes[-1]
        client.upload(value, user=user or labels[row], round_number=round_number, token=token)
    console.print(f"row {row} was accepted for round {round_number}")


def _send_all(
    client: service.Client, table: DataSource, labels: Sequence[str], tokens: Sequence[str] | None, round_number: int
) -> None:
    task = client.task
    sent = earlier = done = 0
    with printed.progress_bar("rows", table.rows) as progress:
        for rows in rows_of(table, task.plan.domain):
            here = slice(done, done + len(rows))
            receipts = client.upload_many(
                rows,
                labels[here],
                round_number=round_number,
                tokens=None if tokens is None else tokens[here],
                progress=lambda count, before=done: progress(before + count),  # type: ignore[misc]
            )
            done += len(rows)
            earlier += sum(receipt.contribution == "earlier" for receipt in receipts)
            sent = done - earlier
    if not sent:
        raise service.ContributedError(
            "duplicate-contribution",
            f"all {earlier:,} rows have contributed to round {round_number} of task {task.name!r} already; each user "
            f"counts once in a round: give another {'--round, or another ' * (task.rounds > 1)}--contributions if "
            "these are other people",
        )
    passed_over = f"; {earlier:,} had contributed before and were passed over" if earlier else ""
    console.print(f"{sent:,} rows were accepted for round {round_number}{passed_over}")


def _row(table: DataSource, domain: Domain, row: int) -> Any:
    """What one user holds: an array, a label, a list of labels, or a group and an array."""
    if row >= table.rows:
        raise ParameterError("out-of-range", f"--row is {row}; the file has rows 0 to {table.rows - 1}")
    first = 0
    for rows in rows_of(table, domain):
        if row < first + len(rows):
            return domain.value_at(rows, row - first)
        first += len(rows)
    raise FileError("changed-meanwhile", f"row {row} is gone; the file must not change while it is read")


def _read_tokens(path: Path, rows: int, row: int | None) -> list[str]:
    """A token for each row; for a single row those up to its own, or the only one there is."""
    try:
        tokens = path.read_text(encoding="ascii").split()
    except (OSError, UnicodeError) as error:
        raise FileError(
            "unreadable", f"cannot read the tokens {path}: {error}; give a file from shufflesum tokens"
        ) from error
    if row is not None and len(tokens) == 1:
        return tokens
    needed = rows if row is None else row + 1
    if len(tokens) < needed:
        raise ParameterError(
            "too-few-tokens", f"{path} holds {len(tokens)} tokens for {needed} rows; every row spends one of its own"
        )
    return tokens[:needed]


@click.command("status", cls=Command, context_settings=DEPLOYED)
@options.task_option
@click.option("--shuffler", metavar="URL", help="Where to ask it.  [the task's address]")
@click.option("--analyzer", metavar="URL", help="The analyzer, to be asked as well.")
@click.option(
    "--operator-secret-file",
    type=PATH,
    help="The secret of the shuffler's operator: without it, it says no more than to everybody.",
)
@click.option("--json", is_flag=True, help="Print what the servers say as one JSON object.")
@web_options
def status_command(
    task_file: Path,
    shuffler: str | None,
    analyzer: str | None,
    operator_secret_file: Path | None,
    json: bool,
    web: dict[str, Any],
) -> None:
    """Print the open round, its users, a batch that waits, spent rounds, the expiry and the room that stores have.

    Ends with code 1 where a server that was asked has not answered.

    \b
    Example: shufflesum status --task task.json --operator-secret-file operator-secret
    """
    require_service()
    from shufflesum.service.http.app import SecretFile

    task = Task.load(task_file)
    secret = None if operator_secret_file is None else SecretFile(operator_secret_file).valid()[0]
    asked = {"shuffler": (shuffler or task.shuffler, secret)}
    if analyzer is not None:
        asked["analyzer"] = (analyzer, None)
    said: dict[str, dict[str, Any]] = {}
    for role, (url, bearer) in asked.items():
        try:
            found = service.fetch_status(task, url, role, secret=bearer, **web)
        except ShufflesumError as error:
            found = {"problem": error.problem, "detail": str(error)}
        said[role] = {"url": url, **found}
    if json:
        expires = task.expires.isoformat()
        click.echo(dumps({"task": task.id, "name": task.name, "expires": expires, **said}))
    else:
        _print_status(task, said)
    if any("problem" in found for found in said.values()):
        raise click.exceptions.Exit(1)


def _print_status(task: Task, said: dict[str, dict[str, Any]]) -> None:
    click.echo(f"Task {task.name}, {task.id[:12]}")
    click.echo(f"  expires        {task.expires:%Y-%m-%d %H:%M:%S} UTC, {_until(task.expires)}")
    for role, found in said.items():
        click.echo(f"  {role:14} {found['url']}")
        lines = {"problem": found["detail"]} if "problem" in found else _LINES[role](task, found)
        for name, value in lines.items():
            click.echo(f"    {name:13} {value}")


def _shuffler_lines(task: Task, found: dict[str, Any]) -> dict[str, str]:
    number = found["open_round"]
    lines = {"open round": f"{number} of {task.rounds:,}" if number else f"none: all {task.rounds:,} are over"}
    if "users" not in found:
        shown = found.get("users_at_least")
        hint = "everything else is the operator's to see: --operator-secret-file"
        return lines | {
            "users": "not shown" if shown is None else f"at least {shown:,} of {task.smallest_batch:,}",
            "": f"({hint})",
        }
    waits = found["waiting_round"]
    until = f", released at {found['release_at']:,}" if found["release_at"] > task.smallest_batch else ""
    return lines | {
        "users": f"{found['users']:,}; the smallest batch is {task.smallest_batch:,}{until}",
        "waiting batch": f"round {waits}, {found['waiting_users']:,} users: the analyzer has not taken it"
        if waits
        else "none",
        "spent rounds": f"{found['released_rounds']:,} released of {task.rounds:,}",
        "store": _room(found),
    }


def _analyzer_lines(task: Task, found: dict[str, Any]) -> dict[str, str]:
    return {"spent rounds": f"{found['counted_rounds']:,} counted of {task.rounds:,}", "store": _room(found)}


_LINES = {"shuffler": _shuffler_lines, "analyzer": _analyzer_lines}


def _room(found: dict[str, Any]) -> str:
    free = found["free_bytes"]
    return f"{decimal(found['store_bytes'])}, " + ("free room unknown" if free is None else f"{decimal(free)} free")


def _until(expires: datetime) -> str:
    left = expires - SYSTEM_CLOCK.now()
    if left.total_seconds() <= 0:
        return "EXPIRED"
    return f"in {left.days} days" if left.days > 1 else f"in {left.total_seconds() / 3600:.1f} hours"


_LEVEL = 0.95
_HINT = " --json has all."
_PROMPT = "any words can be counted now, as often as you like: give --candidates FILE, one on each line"


@click.command("estimate", cls=Command, context_settings=DEPLOYED)
@click.argument("url")
@options.task_option
@options.candidates_option
@options.option_group(
    "results",
    printed.Results,
    click.option("--json", is_flag=True, help="Print the analyzer's answer as one JSON object."),
    click.option(
        "-o",
        "--output",
        type=PATH,
        help=f"Write the analyzer's answer (.json), or the newest round ({', '.join(WRITABLE[1:])}).",
    ),
    click.option("--plot", type=PATH, help=f"Draw it, several rounds over time: {', '.join(DRAWABLE)}."),
    printed.report_option,
    printed.keep_option,
    printed.top_option,
)
@click.option("--round", type=int, metavar="R", help="Ask for this round alone.  [all released]")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Ask again for so long where nothing is released yet.  [ask once]",
)
@web_options
def estimate_command(
    url: str,
    task_file: Path,
    candidates: Path | None,
    results: printed.Results,
    round: int | None,
    wait: float,
    web: dict[str, Any],
) -> None:
    """Print the estimate of every released round, with its error bars and whether the guarantee holds.

    Under a plan for words, any list of them can be asked for, as often as one likes (--candidates). The longer it is,
    the better: frequent words that are not on it disturb the others.

    \b
    Example: shufflesum estimate --task task.json https://analyzer.example.org
    """
    task = Task.load(task_file)
    results = replace(results, asked=options.words_of(candidates))
    results.check_plan(task.plan)
    with (outputs := printed.Outputs()):
        staged, staged_plot = outputs.file(results.output, *WRITABLE), outputs.chart(results.plot)
        staged_report, staged_keep = outputs.page(results.report), outputs.file(results.keep, ".json")
        document = service.fetch_estimate(task, url, round_number=round, wait=wait, **web)
        estimates = [results.answer(estimate) for estimate in service.estimates_in(task, document).values()]
        for found, estimate in zip(document["rounds"], estimates, strict=True):
            if estimate.words is not None:
                found["candidates"] = estimate_to_json(estimate, _LEVEL)
        level = document["rounds"][-1]["confidence_level"]
        text = dumps(document, allow_nan=False)
        if staged and staged.suffix.lower() == ".json":
            outputs.write(staged, text + "\n")
        elif staged:
            write_estimate(staged, estimates[-1], _LEVEL)
        if staged_keep:
            estimates[-1].save(staged_keep)
        if staged_plot:
            save_chart(_chart(task, estimates, level), staged_plot)
        if staged_report:
            page = report_page(
                estimates,
                title=f"Private estimates of task {task.name}",
                made=SYSTEM_CLOCK.now(),
                command=printed.command_line(),
                level=level,
            )
            outputs.write(staged_report, page)
    if results.json:
        click.echo(text)
        return
    for found, estimate in zip(document["rounds"], estimates, strict=True):
        _print_round(task, found, estimate, results.ranked(estimate))
    outputs.say_written()


def _print_round(task: Task, found: dict[str, Any], estimate: BaseEstimate, top: Top | None) -> None:
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
    printed.print_rows(estimate, found["confidence_level"], hint=_HINT, prompt=_PROMPT, top=top)


def _chart(task: Task, estimates: Sequence[BaseEstimate], level: float) -> Any:
    newest = estimates[-1]
    promise = task.plan.guarantee.describe() if newest.guarantee_holds else "the guarantee no longer holds"
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
