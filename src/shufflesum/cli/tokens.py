"""`shufflesum tokens`: one upload token for each person."""

from __future__ import annotations

from pathlib import Path

import click

from shufflesum.cli.options.common import Command
from shufflesum.cli.output.printed import console
from shufflesum.service.shuffler.tokens import write_tokens


@click.command("tokens", cls=Command, short_help="Make upload tokens, so that one person is one user.")
@click.option("--count", type=int, required=True, metavar="N", help="How many: one for each person.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The tokens, to be handed out.")
@click.option("--digests", type=click.Path(path_type=Path), required=True, help="What the shuffler needs of them.")
def command(count: int, output: Path, digests: Path) -> None:
    """Make upload tokens: hand one to each person, and give the digests to the shuffler.

    A token works once in every round. Whoever hands them out knows whose they are, so that should be neither the
    shuffler nor the analyzer. Files that exist are never overwritten.

    \b
    Example: shufflesum tokens --count 1000 -o tokens.txt --digests tokens.sha256
             shufflesum serve shuffler --tokens tokens.sha256 ...
    """
    write_tokens(count, output, digests)
    console.print(f"wrote {output} (hand out, one each) and {digests} (for serve shuffler --tokens)", markup=False)
