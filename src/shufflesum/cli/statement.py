"""`shufflesum statement`: a plan's privacy on one page."""

from __future__ import annotations

from pathlib import Path

import click

from shufflesum.cli.options.common import Command
from shufflesum.plans import Plan
from shufflesum.statement import statement
from shufflesum.tables import StagedOutputs


@click.command("statement", cls=Command, short_help="A plan's privacy on one page, in plain language.")
@click.argument("plan_file", metavar="PLAN", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the page (.md) instead of printing it.")
def command(plan_file: Path, output: Path | None) -> None:
    """Say for a privacy officer who sees what, what is guaranteed, on which assumptions, and what is left without them.

    The plan's claim is computed again first; a plan that claims too much is refused.
    """
    text = statement(Plan.load(plan_file))
    if output is None:
        click.echo(text)
        return
    with StagedOutputs() as outputs:
        outputs.write(outputs.stage(output, (".md",)), text)
    click.echo(f"wrote {output}")
