"""Options that both servers take, each also by an environment variable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from shufflesum._clock import SYSTEM_CLOCK, Clock
from shufflesum.cli.options import task_option

__all__ = ["clock_of", "server_options"]

_F = TypeVar("_F", bound=Callable[..., object])
_FILE = click.Path(path_type=Path)


def clock_of(context: click.Context) -> Clock:
    """The clock that whoever runs the command handed in (`obj=`), else this machine's."""
    return context.obj or SYSTEM_CLOCK


def server_options(function: _F) -> _F:
    """task, store, secret_file, host, port, tls_cert, tls_key, as keyword arguments of the command."""
    for option in reversed(
        (
            task_option,
            click.option(
                "--store",
                required=True,
                metavar="STORE",
                envvar="SHUFFLESUM_STORE",
                show_envvar=True,
                help="sqlite:PATH or postgresql://user@host/database.",
            ),
            click.option(
                "--secret-file",
                type=_FILE,
                required=True,
                envvar="SHUFFLESUM_SECRET_FILE",
                show_envvar=True,
                help="The secret that shuffler and analyzer share (mode 0600).",
            ),
            click.option(
                "--host",
                default="127.0.0.1",
                show_default=True,
                envvar="SHUFFLESUM_HOST",
                show_envvar=True,
                help="Address to listen on.",
            ),
            click.option(
                "--port",
                type=click.IntRange(0, 65535),
                default=8080,
                show_default=True,
                envvar="SHUFFLESUM_PORT",
                show_envvar=True,
                help="Port to listen on; 0 takes a free one, named in the log.",
            ),
            click.option(
                "--tls-cert", type=_FILE, envvar="SHUFFLESUM_TLS_CERT", show_envvar=True, help="Certificate chain."
            ),
            click.option("--tls-key", type=_FILE, envvar="SHUFFLESUM_TLS_KEY", show_envvar=True, help="Its key."),
        )
    ):
        function = option(function)
    return function
