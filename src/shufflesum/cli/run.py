"""`shufflesum run`: a file of users' data in; private means, counts or means of groups out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from shufflesum.cli.options.budget import budget_option, spending
from shufflesum.cli.options.common import (
    Command,
    file_argument,
    note_assumed_columns,
    plan_of_file,
    plan_options,
    with_mechanism,
)
from shufflesum.cli.options.table import (
    DROPPED,
    TableOptions,
    aggregate_table,
    apply_missing_policy,
    check_table,
    clip_options,
    named_columns,
    table_options,
)
from shufflesum.cli.options.wanted import (
    Chosen,
    DomainOptions,
    candidates_option,
    column_for,
    column_options,
    domain_options,
)
from shufflesum.cli.output.printed import warnings_as_notes
from shufflesum.cli.output.results import Results, result_options
from shufflesum.domains import DOMAINS, Arrays
from shufflesum.domains.bounds import default_bounds_named
from shufflesum.domains.options import read_words
from shufflesum.errors import ParameterError
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan
from shufflesum.rounds import RoundCounter
from shufflesum.tables import DataSource, PathOrUrl, check_shape, rows_of


@click.command("run", cls=Command, short_help="Private means, counts or group means of the rows of a file.")
@file_argument("file")
@click.option("--epsilon", type=float, help="The guarantee's epsilon.")
@click.option("--delta", type=float, help="The guarantee's delta.")
@column_options
@domain_options
@candidates_option
@plan_options
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="Use this plan instead of making one.")
@click.option(
    "--rounds-file",
    type=click.Path(path_type=Path),
    help="With --plan: count the plan's rounds in this file; this run is the next, and none comes after the last.",
)
@budget_option
@clip_options("Move values to the nearest bound, or scale vectors down to --clipping-norm,", DROPPED, "drop")
@table_options
@result_options
def command(
    file: PathOrUrl,
    chosen: Chosen | None,
    held: DomainOptions,
    candidates: Path | None,
    plan_file: Path | None,
    rounds_file: Path | None,
    budget_file: Path | None,
    reading: TableOptions,
    clip: bool,
    missing: Any,
    results: Results,
    **plan_arguments: Any,
) -> None:
    """Aggregate the rows of FILE privately; each row is one user.

    FILE is a CSV (.csv or .tsv, also compressed as .csv.gz), a Parquet or Arrow IPC file, a .npy (memory-mapped, any
    shape) or an .npz; - is standard input. The guarantee is for one row: if people have several rows, name the column
    that tells them apart with --user-column. Bounds and labels are public: choose them from what can be, not by looking
    at the data.

    \b
    Example: shufflesum run beats.csv --epsilon 1 --delta 1e-6 --bounds 0:1 --plot beats.png
             shufflesum run people.csv --bounds age=0:120 --bounds income=0:500000 --epsilon 1 --delta 1e-6
             shufflesum run survey.csv --categories answer --labels yes,no,unsure --epsilon 1 --delta 1e-6
             shufflesum run people.csv --categories age --bins 0,18,45,65,120 --quantiles 0.5 --epsilon 1 --delta 1e-6
             shufflesum run visits.csv --group-by country --labels countries.txt --bounds 0:100 --epsilon 1 --delta 1e-6
             shufflesum run queries.csv --open-vocabulary query --candidates words.txt --epsilon 1 --delta 1e-6
             shufflesum run updates.npy --clipping-norm 0.4 --clip --epsilon 2 --delta 1e-6
    """
    asked = None if candidates is None else read_words(candidates, "candidates")
    results = replace(results, asked=asked, draws_noise=True)
    if chosen is None and plan_file is None:  # a file of one column needs no name for it
        kind = held.kind()
        if kind is None and asked is not None:
            kind = next(kind for kind in DOMAINS.values() if kind.needs_candidates)
        chosen = None if kind is None else (kind, None)
    given = {name: value for name, value in plan_arguments.items() if value is not None}
    if rounds_file is not None and plan_file is None:
        raise ParameterError(
            "missing-argument", "--rounds-file counts the rounds of one plan; make it with shufflesum plan, give --plan"
        )
    if chosen is not None:
        held.refuse_excluded(chosen[0], given)
    files = [value for value in held.values.values() if isinstance(value, Path)]
    inputs = (file, plan_file, candidates, rounds_file, budget_file, *files)
    with warnings_as_notes(), spending(budget_file) as budget, results.staged(*inputs) as write:
        planned = None if plan_file is None else plan_of_file(plan_file, [*given, *held.given])
        domain = None if planned is None else planned.domain
        if planned is None and chosen is not None and chosen[0].column_help is not None:
            domain = held.domain(chosen[0])
        column = None if domain is None else column_for(domain, chosen)
        table, missing = apply_missing_policy(file, reading.open(file, domain, column), missing)
        plan = _plan_for(file, table, chosen, held, with_mechanism(given)) if planned is None else planned
        check_table(file, table, plan)
        if plan.domain.needs_candidates and asked is None:
            raise ParameterError(
                "missing-argument",
                "--candidates is missing: a file of the words to count, one a line; the users' words are not listed "
                "anywhere",
            )
        results.check_plan(plan)
        rounds = None if rounds_file is None else RoundCounter(rounds_file, plan)
        begin = budget.round_of(plan, rounds, "--rounds-file FILE, or with --budget FILE")
        unbounded = planned is None and "bounds" not in given and plan.domain.numbers is not None
        with default_bounds_named(unbounded):
            estimate = aggregate_table(
                file, table, lambda: rows_of(table, plan.domain), plan, begin=begin, clip=clip, missing=missing
            )
        names = table.names if len(plan.shape) == 1 and plan.domain.column_layout.option is None else None
        found = results.answer(estimate)
        write(found, file.name, names)
    reading.note_missing_header(table, file)
    note_assumed_columns(table.names, file, plan.domain)
    results.show(found, names, table.names)


def _plan_for(
    file: PathOrUrl,
    table: DataSource,
    chosen: Chosen | None,
    held: DomainOptions,
    given: dict[str, Any],
) -> Plan:
    """A plan for just this file; it knows what the columns are called."""
    for name in ("epsilon", "delta"):
        if name not in given:
            raise ParameterError("missing-argument", f"--{name} is missing; give --epsilon and --delta, or a --plan")
    named = named_columns(table)
    if chosen is None:
        return make_plan(users=table.rows, shape=table.shape, columns=named, noise_by="curator", **given)
    if chosen[0].column_help is None:
        domain = held.domain(chosen[0], None, Arrays(table.shape))
    else:
        numbers = Arrays(() if table.shape == (1,) else table.shape, (0, 1), named)
        column = table.label_name or (named[0] if named else None)  # what is counted in bins is a column of numbers
        domain = held.domain(chosen[0], column, numbers)
    check_shape(file, table.shape, domain)
    return make_plan(users=table.rows, domain=domain, noise_by="curator", **given)
