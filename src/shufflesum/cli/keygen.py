"""`shufflesum keygen`: the analyzer's key pair."""

from __future__ import annotations

from pathlib import Path

import click

from shufflesum.cli.options.common import Command
from shufflesum.cli.output.printed import console
from shufflesum.wire import generate_private_key, write_key_pair


@click.command("keygen", cls=Command, short_help="Make the analyzer's key pair.")
@click.option(
    "-o", "--output", "name", type=click.Path(path_type=Path), required=True, metavar="NAME", help="Names both files."
)
def command(name: Path) -> None:
    """Write NAME.key, which stays with the analyzer, and NAME.pub, which goes into tasks.

    Files that exist are never overwritten. Keys are replaced by making a new task with a new key.

    \b
    Example: shufflesum keygen -o analyzer
    """
    private, public = write_key_pair(name, generate_private_key())
    console.print(f"wrote {private} (secret: it stays with the analyzer) and {public}", markup=False)
