"""`shufflesum serve`: the two servers of a deployment."""

from __future__ import annotations

import click

from shufflesum.cli.serve.analyzer import analyzer
from shufflesum.cli.serve.shuffler import shuffler

__all__ = ["command"]


@click.group("serve", short_help="Run a server of a deployment: shuffler or analyzer.")
def command() -> None:
    """Run one of the two servers of a deployment, on machines of parties that do not collude.

    Every option can be set by an environment variable instead, or in a file (--config). SIGTERM stops a server after
    the requests under way.
    """


command.add_command(shuffler)
command.add_command(analyzer)
