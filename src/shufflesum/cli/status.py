"""`shufflesum status`: where a deployment stands, as its servers say."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from shufflesum._machine import SYSTEM_CLOCK
from shufflesum.cli.options.common import task_option
from shufflesum.cli.options.configured import ConfiguredCommand
from shufflesum.errors import ShufflesumError
from shufflesum.service import require_service
from shufflesum.service.client.web import fetch_status
from shufflesum.wire import Task

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


@click.command("status", cls=ConfiguredCommand, short_help="Where a deployment stands, as its servers say.")
@task_option
@click.option("--shuffler", "shuffler_url", metavar="URL", help="Where to ask it.  [the task's address]")
@click.option("--analyzer", "analyzer_url", metavar="URL", help="The analyzer, to be asked as well.")
@click.option(
    "--operator-secret-file",
    type=click.Path(path_type=Path),
    help="The secret of the shuffler's operator: without it, it says no more than to everybody.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what the servers say as one JSON object.")
@click.option("--ca", type=click.Path(path_type=Path), help="Certificates (PEM) to trust instead of the system's.")
@click.option("--allow-plain-http", is_flag=True, help="Ask over plain HTTP on another machine.")
def command(
    task_file: Path,
    shuffler_url: str | None,
    analyzer_url: str | None,
    operator_secret_file: Path | None,
    as_json: bool,
    ca: Path | None,
    allow_plain_http: bool,
) -> None:
    """Print the open round, its users, a batch that waits, spent rounds, the expiry and the room that stores have.

    Ends with code 1 where a server that was asked has not answered.

    \b
    Example: shufflesum status --task task.json --operator-secret-file operator-secret
    """
    require_service()
    from shufflesum.service.http.access import SecretFile

    task = Task.load(task_file)
    secret = None if operator_secret_file is None else SecretFile(operator_secret_file).valid()[0]
    asked = {"shuffler": (shuffler_url or task.shuffler, secret)}
    if analyzer_url is not None:
        asked["analyzer"] = (analyzer_url, None)
    said: dict[str, dict[str, Any]] = {}
    for role, (url, bearer) in asked.items():
        try:
            found = fetch_status(task, url, role, secret=bearer, allow_plain_http=allow_plain_http, ca_file=ca)
        except ShufflesumError as error:
            found = {"problem": error.problem, "detail": str(error)}
        said[role] = {"url": url, **found}
    if as_json:
        expires = task.expires.isoformat()
        click.echo(json.dumps({"task": task.id, "name": task.name, "expires": expires, **said}))
    else:
        _print(task, said)
    if any("problem" in found for found in said.values()):
        raise click.exceptions.Exit(1)


def _print(task: Task, said: dict[str, dict[str, Any]]) -> None:
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
    return f"{_size(found['store_bytes'])}, " + ("free room unknown" if free is None else f"{_size(free)} free")


def _size(number: int) -> str:
    value, unit = float(number), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{number:,} bytes" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"


def _until(expires: datetime) -> str:
    left = expires - SYSTEM_CLOCK.now()
    if left.total_seconds() <= 0:
        return "EXPIRED"
    return f"in {left.days} days" if left.days > 1 else f"in {left.total_seconds() / 3600:.1f} hours"
