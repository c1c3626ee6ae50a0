"""`shufflesum send`: one user's row, or a file of them, randomized here and sent to the shuffler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from shufflesum.cli.options.common import file_argument, note_assumed_columns, task_option
from shufflesum.cli.options.configured import ConfiguredCommand
from shufflesum.cli.options.table import TableOptions, table_options
from shufflesum.cli.options.wanted import Chosen, column_for, planned_column_options
from shufflesum.cli.output.printed import console, progress_bar
from shufflesum.domains import Domain
from shufflesum.errors import FileError, ParameterError
from shufflesum.service.client import Client, ContributedError, RefusedError, UnreachableError
from shufflesum.tables import DataSource, check_shape, rows_of
from shufflesum.wire import Task


@click.command(
    "send", cls=ConfiguredCommand, short_help="Randomize rows on this machine and send them to a task's shuffler."
)
@file_argument("file")
@task_option
@click.option("--row", type=click.IntRange(min=0), help="Send only this row, counted from 0.")
@click.option("--user", help="With --row: whose row it is, among the contributions.  [row N]")
@click.option("--round", "round_number", type=int, help="The round to contribute to.  [the open one]")
@planned_column_options
@table_options
@click.option("--clip", is_flag=True, help="Always so here: values are moved to the nearest bound.")
@click.option(
    "--tokens",
    "tokens_file",
    type=click.Path(path_type=Path),
    help="Upload tokens, one line for each row; with --row also one alone.",
)
@click.option(
    "--contributions",
    type=click.Path(path_type=Path),
    help="Where contributions are remembered.  [SHUFFLESUM_CONTRIBUTIONS, or a file in the user's data folder]",
)
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds to try before giving up.")
@click.option("--ca", type=click.Path(path_type=Path), help="Certificates (PEM) to trust instead of the system's.")
@click.option("--allow-plain-http", is_flag=True, help="Send over plain HTTP to another machine.")
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Compute the task's guarantee again before anything is sent, or believe whoever gave you the task.",
)
def command(
    file: Path,
    task_file: Path,
    row: int | None,
    user: str | None,
    round_number: int | None,
    chosen: Chosen | None,
    reading: TableOptions,
    clip: bool,
    tokens_file: Path | None,
    contributions: Path | None,
    timeout: float,
    ca: Path | None,
    allow_plain_http: bool,
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
    table = reading.open(file, domain, column_for(domain, chosen))
    check_shape(file, table.shape, domain)
    reading.note_missing_header(table, file)
    note_assumed_columns(table.names, file, domain)
    tokens = None if tokens_file is None else _read_tokens(tokens_file, table.rows, row)
    labels = [label for users in table.users() for label in users.to_pylist()]
    if reading.user_column is None:
        labels = [f"row {i}" for i in range(table.rows)]
    with Client(
        task, contributions=contributions, timeout=timeout, allow_plain_http=allow_plain_http, ca_file=ca
    ) as client:
        round_number = client.open_round() if round_number is None else round_number
        if row is None:
            try:
                _send_all(client, table, labels, tokens, round_number)
            except (RefusedError, UnreachableError):
                if count := client.acknowledged(labels, round_number):
                    click.echo(f"note: {count:,} of the {table.rows:,} rows count in round {round_number}", err=True)
                raise
            return
        value = _row(table, domain, row)  # first, because it refuses a row that is not there
        token = None if tokens is None else tokens[-1]
        client.upload(value, user=user or labels[row], round_number=round_number, token=token)
    console.print(f"row {row} was accepted for round {round_number}")


def _send_all(
    client: Client, table: DataSource, labels: Sequence[str], tokens: Sequence[str] | None, round_number: int
) -> None:
    task = client.task
    sent = earlier = done = 0
    with progress_bar("rows", table.rows) as progress:
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
        raise ContributedError(
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
