"""Options that both servers take, each also by an environment variable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from shufflesum._clock import SYSTEM_CLOCK, Clock
from shufflesum.cli.budget_option import budget_option
from shufflesum.cli.options import task_option
from shufflesum.wire import Task

__all__ = ["clock_of", "load_task", "server_options"]

_F = TypeVar("_F", bound=Callable[..., object])
_FILE = click.Path(path_type=Path)


def clock_of(context: click.Context) -> Clock:
    """The clock that whoever runs the command handed in (`obj=`), else this machine's."""
    return context.obj or SYSTEM_CLOCK


def load_task(path: Path, role: str) -> Task:
    """A server's task; its plan is verified first, which takes a while, and the log says so."""
    from shufflesum.service.logs import configure_logging, log

    configure_logging()
    log.info("task is read and its plan verified", role=role, file=path.name)
    return Task.load(path)


def server_options(function: _F) -> _F:
    """Both servers' options as keyword arguments of the command, from task_file to connections_per_address."""
    for option in reversed(
        (
            task_option,
            budget_option,
            click.option(
                "--store",
                required=True,
                metavar="STORE",
                help="sqlite:PATH or postgresql://user@host/database.",
            ),
            click.option(
                "--secret-file",
                type=_FILE,
                help="The secret that shuffler and analyzer share (mode 0600); a second line is valid, too.",
            ),
            click.option(
                "--host",
                default="127.0.0.1",
                show_default=True,
                help="Address to listen on.",
            ),
            click.option(
                "--port",
                type=click.IntRange(0, 65535),
                default=8080,
                show_default=True,
                help="Port to listen on; 0 takes a free one, named in the log.",
            ),
            click.option("--tls-cert", type=_FILE, help="Certificate chain."),
            click.option("--tls-key", type=_FILE, help="Its key."),
            click.option(
                "--connections-per-address",
                type=click.IntRange(min=0),
                default=256,
                show_default=True,
                help="Open connections that one address may have, this machine's own aside; 0 for no limit.",
            ),
        )
    ):
        function = option(function)
    return function
