"""Options that both servers take, each also by an environment variable."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.cli.options.budget import budget_option
from shufflesum.cli.options.common import option_group, task_option
from shufflesum.wire import Task

if TYPE_CHECKING:
    from shufflesum.service.http.access import SecretFile
    from shufflesum.service.http.server import ServerOptions


_FILE = click.Path(path_type=Path)


def clock_of(context: click.Context) -> Clock:
    """The clock that whoever runs the command handed in (`obj=`), else this machine's."""
    return context.obj or SYSTEM_CLOCK


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served, where it is kept, and where the server listens."""

    task_file: Path
    budget_file: Path | None
    store: str
    secret_file: Path | None
    host: str
    port: int
    tls_cert: Path | None
    tls_key: Path | None
    connections_per_address: int

    def listening(self, peer_ca: Path | None = None) -> ServerOptions:
        """Address and certificates; `peer_ca` has signed those of whom batches are taken from."""
        from shufflesum.service.http.server import ServerOptions

        return ServerOptions(self.host, self.port, self.tls_cert, self.tls_key, peer_ca)

    def secret(self) -> SecretFile | None:
        """What shuffler and analyzer share, if anything."""
        from shufflesum.service.http.access import SecretFile

        return None if self.secret_file is None else SecretFile(self.secret_file)

    def load_task(self, role: str) -> Task:
        """The server's task; its plan is verified first, which takes a while, and the log says so."""
        from shufflesum.service.logs import configure_logging, log

        configure_logging()
        log.info("task is read and its plan verified", role=role, file=self.task_file.name)
        return Task.load(self.task_file)


serving_options = option_group(
    "serving",
    Serving,
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
"""They reach a command as one `Serving`."""
