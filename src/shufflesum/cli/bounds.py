"""`shufflesum bounds`: a file of users' data in; bounds found privately out, and a plan with them for the rest."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from shufflesum._format import downwards, percent, upwards
from shufflesum.bounds import SuggestedBounds, plan_bounds
from shufflesum.cli.options.budget import budget_option, spending
from shufflesum.cli.options.common import Command, file_argument
from shufflesum.cli.options.table import TableOptions, aggregate_table, named_columns, prepared, table_options
from shufflesum.cli.output.printed import console, table_of, warnings_as_notes
from shufflesum.domains.options import bin_edges
from shufflesum.errors import ParameterError
from shufflesum.estimate import check_cover, tail_of
from shufflesum.tables import PathOrUrl, StagedOutputs


@click.command("bounds", cls=Command, short_help="Bounds for the columns of a file, found privately.")
@file_argument("file")
@click.option("--epsilon", type=float, required=True, help="Of everything: bounds and main plan together.")
@click.option("--delta", type=float, required=True, help="Of everything.")
@click.option("--share", type=float, default=0.2, show_default=True, help="The part of both that bounds may cost.")
@click.option("--cover", type=float, default=0.99, show_default=True, help="The part of the users to be within.")
@click.option("--bins", metavar="E,E,...", help="Public edges that bounds are chosen from.  [1, 2, 5, 10, ... and 0]")
@click.option("--rounds", type=int, metavar="R", help="Rounds of the main plan.  [1]")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of what is said of the users within.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the main plan, with these bounds (.json).")
@budget_option
@table_options
def command(
    file: PathOrUrl,
    epsilon: float,
    delta: float,
    share: float,
    cover: float,
    bins: str | None,
    rounds: int | None,
    confidence: float,
    as_json: bool,
    output: Path | None,
    budget_file: Path | None,
    reading: TableOptions,
) -> None:
    """Find bounds for the columns of FILE, where nothing is known of them, and plan what is left.

    Values are counted privately in very wide public bins. The bounds are edges of bins, and the plan that -o writes has
    them; with this command it costs --epsilon and --delta in all. Run it on the same file, with --clip.

    \b
    Example: shufflesum bounds people.csv --epsilon 1 --delta 1e-6 -o plan.json
             shufflesum run people.csv --plan plan.json --clip
    """
    check_cover(cover)  # before anything is spent
    tail_of(confidence)
    with warnings_as_notes(), spending(budget_file) as budget, StagedOutputs() as outputs:
        staged = outputs.stage(output, (".json",)) if output else None
        if staged and share == 1:
            raise ParameterError("conflicting-arguments", "--share 1 leaves nothing for a main plan; leave -o out")
        table = reading.open(file)
        given: dict[str, Any] = {} if rounds is None else {"rounds": rounds}
        if (names := named_columns(table)) is not None:
            given["columns"] = names
        plans = plan_bounds(
            users=table.rows,
            shape=table.shape,
            epsilon=epsilon,
            delta=delta,
            share=share,
            bins=None if bins is None else bin_edges(bins),
            noise_by="curator",
            **given,
        )
        begin = budget.round_of(plans.first)
        estimate = aggregate_table(file, table, lambda: prepared(table, plans.rows), plans.first, begin=begin)
        found = plans.found(estimate, cover=cover, level=confidence)
        if staged and found.main is not None:
            outputs.write(staged, found.main.to_json())
    reading.note_missing_header(table, file)
    _show(found, table.names or (), as_json)
    if output and not as_json:
        again = ["shufflesum", "run", str(file), "--plan", str(output), "--clip"]
        again += [] if rounds in (None, 1) else ["--rounds-file", str(output.with_suffix(".rounds.json"))]
        again += [] if budget_file is None else ["--budget", str(budget_file)]
        console.print(f"wrote {output}: run it with {shlex.join(again)}", markup=False)


def _show(found: SuggestedBounds, names: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        document = {
            "columns": [{"name": names[i] if names else i, **asdict(column)} for i, column in enumerate(found.columns)],
            "first": found.estimate.plan.summary(),
            "main": None if found.main is None else found.main.summary(),
            "epsilon": found.epsilon,
            "delta": found.delta,
        }
        click.echo(json.dumps(document, allow_nan=False))
        return
    shown = table_of("column", "lower", "upper", "users within", f"{percent(found.columns[0].level)}% interval")
    for i, column in enumerate(found.columns):
        shown.add_row(
            escape(names[i]) if names else str(i),
            f"{column.lower:.15g}",
            f"{column.upper:.15g}",
            f"{100 * column.within:.1f}%",
            f"{downwards(100 * column.within_lower)}% to {upwards(100 * column.within_upper)}%",
        )
    console.print(shown)
    console.print(found.statement, markup=False)
