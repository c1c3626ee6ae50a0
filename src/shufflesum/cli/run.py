"""`shufflesum run` and `bounds`: a file of users' data in; private estimates out."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from shufflesum._checks import check_number
from shufflesum.bounds import SuggestedBounds, plan_bounds
from shufflesum.cli import options
from shufflesum.cli import table as tabled
from shufflesum.cli.budget import budget_option, spending
from shufflesum.cli.commands import Command, conflict
from shufflesum.cli.options import PATH, Chosen, DomainOptions
from shufflesum.cli.output import Outputs, Results, console, print_json, result_options, table_of, warnings_as_notes
from shufflesum.cli.table import TableOptions
from shufflesum.domains import DOMAINS, Arrays, Categories, UnlistedLabels
from shufflesum.domains.bounds import DEFAULT_BOUNDS, explicit_bounds
from shufflesum.domains.counts import QUANTILE_BINS
from shufflesum.domains.options import bin_edges
from shufflesum.errors import ParameterError
from shufflesum.estimate import tail_of
from shufflesum.moments import Moments, Squares, quiet_squares
from shufflesum.planning import plan_in_process
from shufflesum.plans import Plan
from shufflesum.rounds import RoundCounter
from shufflesum.tables.paths import PathOrUrl
from shufflesum.tables.readers import check_shape
from shufflesum.tables.sources import DataSource


@click.command("run", cls=Command)
@options.file_argument("file")
@click.option("--epsilon", type=float, help="The guarantee's epsilon.")
@click.option("--delta", type=float, help="The guarantee's delta.")
@options.column_options
@options.domain_options
@options.candidates_option
@options.plan_options
@click.option("--plan", "plan_file", type=PATH, help="Use this plan instead of making one.")
@click.option(
    "--rounds-file",
    type=PATH,
    help="With --plan: count the plan's rounds in this file; this run is the next, and none comes after the last.",
)
@budget_option
@tabled.clip_options(
    "Move values to the nearest bound, or scale vectors down to --clipping-norm,", tabled.DROPPED, "drop"
)
@tabled.table_options
@result_options
@click.option("--variance", is_flag=True, help="Of numbers: also the variance and the standard deviation of each.")
@click.option("--verbose", is_flag=True, help="Also say the mechanism, and what each row stands for.")
def run_command(
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
    variance: bool,
    verbose: bool,
    **plan_arguments: Any,
) -> None:
    """Aggregate the rows of FILE privately; each row is one user.

    FILE is a CSV (.csv or .tsv, also compressed as .csv.gz), a Parquet or Arrow IPC file, a .npy (memory-mapped, any
    shape) or an .npz; - is standard input. The guarantee is for one row: if people have several rows, name the column
    that tells them apart with --user-column. Bounds and labels are public: choose them from what can be, not by looking
    at the data. Variances are those within the bounds: what --clip moves is moved before it is squared.

    \b
    Example: shufflesum run beats.csv --epsilon 1 --delta 1e-6 --bounds 0:1 --plot beats.png
             shufflesum run people.csv --bounds age=0:120 --bounds income=0:500000 --epsilon 1 --delta 1e-6
             shufflesum run survey.csv --categories answer --labels yes,no,unsure --epsilon 1 --delta 1e-6
             shufflesum run people.csv --categories age --bins 0,18,45,65,120 --quantiles 0.5 --epsilon 1 --delta 1e-6
             shufflesum run people.csv --columns income --quantiles 0.5,0.9 --epsilon 1 --delta 1e-6
             shufflesum run visits.csv --group-by country --labels countries.txt --bounds 0:100 --epsilon 1 --delta 1e-6
             shufflesum run queries.csv --open-vocabulary query --candidates words.txt --epsilon 1 --delta 1e-6
             shufflesum run visits.csv --discover url --epsilon 1 --delta 1e-6
             shufflesum run people.csv --columns age --bounds 0:120 --variance --epsilon 1 --delta 1e-6
             shufflesum run updates.npy --clipping-norm 0.4 --clip --epsilon 2 --delta 1e-6
    """
    results = replace(results, asked=(asked := options.words_of(candidates)), draws_noise=True)
    if results.quantiles and plan_file is None and not variance and not {"bins", "labels"} & held.values.keys():
        held, chosen, reading = _in_fine_bins(held, chosen, reading)
    if chosen is None and plan_file is None:  # a file of one column needs no name for it
        kind = held.kind()
        if kind is None and asked is not None:
            kind = next(kind for kind in DOMAINS.values() if kind.needs_candidates)
        chosen = None if kind is None else (kind, None)
    given = {name: value for name, value in plan_arguments.items() if value is not None}
    if variance:
        beside: dict[str, Any] = {
            "--plan": plan_file,
            "--candidates": candidates,
            "--quantiles": results.quantiles,
            "--top": results.top,
        }
        named = [*held.given, *([] if chosen is None else [f"--{chosen[0].kind}"])]
        for option in [*named, *(option for option, value in beside.items() if value)]:
            raise conflict(f"{option} does not go with --variance; leave one of them out")
        _run_variance(file, reading, results, given, budget_file, clip=clip, missing=missing)
        return
    if rounds_file is not None and plan_file is None:
        raise ParameterError(
            "missing-argument", "--rounds-file counts the rounds of one plan; make it with shufflesum plan, give --plan"
        )
    if chosen is not None:
        held.refuse_excluded(chosen[0], given)
    given_files = (value for value in held.values.values() if isinstance(value, Path))
    inputs = (file, plan_file, candidates, rounds_file, budget_file, *given_files)
    with warnings_as_notes(), spending(budget_file) as budget, results.staged(*inputs) as write:
        planned = None if plan_file is None else options.plan_of_file(plan_file, [*given, *held.given])
        domain = None if planned is None else planned.domain
        if planned is None and chosen is not None and not (chosen[0].column_help is None and chosen[0].takes_numbers):
            domain = held.domain(chosen[0])
        column = None if domain is None else options.column_for(domain, chosen)
        table, missing = tabled.apply_missing_policy(file, reading.open(file, domain, column), missing)
        plan = planned or _plan_for(file, table, chosen, held, options.with_mechanism(given), reading)
        tabled.check_table(file, table, plan)
        if plan.domain.needs_candidates and asked is None:
            raise ParameterError(
                "missing-argument",
                "--candidates is missing: a file of the words to count, one per line; the users' words are not listed "
                "anywhere",
            )
        results.check_plan(plan)
        rounds = None if rounds_file is None else RoundCounter(rounds_file, plan)
        begin = budget.round_of(plan, rounds, "--rounds-file FILE, or with --budget FILE")
        unbounded = planned is None and "bounds" not in given and plan.domain.numbers is not None
        with explicit_bounds(unbounded, clip=clip):
            estimate = tabled.aggregate_table(
                file, table, lambda: reading.rows(table, plan.domain), plan, begin=begin, clip=clip, missing=missing
            )
        layout = plan.domain.column_layout
        names = table.names if len(plan.shape) == 1 and layout.numbers is not None and not layout.named else None
        found = results.answer(estimate)
        write(found, file.name, names)
    reading.note_detected(table, file, quiet=results.json)
    options.note_assumed_columns(table.names, file, plan.domain)
    results.show(found, names, table.names)
    if verbose:
        what = f"mechanism: {plan.mechanism.family}, as if each user sent {plan.mechanism.describe(plan.encoding)}"
        click.echo(what, err=results.json)
    if rounds is None:
        budget.note_second_release(plan)


def _in_fine_bins(
    held: DomainOptions, chosen: Chosen | None, reading: TableOptions
) -> tuple[DomainOptions, Chosen, TableOptions]:
    """What was said, with bins for numbers of which nothing is known; a column that is named alone is the one."""
    held = replace(held, values={**held.values, "bins": QUANTILE_BINS})
    if chosen is not None or reading.columns is None or len(reading.columns) != 1:
        return held, chosen or (Categories, None), reading
    return held, (Categories, reading.columns[0]), replace(reading, columns=None)


def _check_target(given: dict[str, Any]) -> None:
    for name in ("epsilon", "delta"):
        if name not in given:
            raise ParameterError("missing-argument", f"--{name} is missing; give --epsilon and --delta, or a --plan")


def _plan_for(
    file: PathOrUrl,
    table: DataSource,
    chosen: Chosen | None,
    held: DomainOptions,
    given: dict[str, Any],
    reading: TableOptions,
) -> Plan:
    """A plan for just this file; it knows what the columns are called."""
    _check_target(given)
    named = tabled.named_columns(table)
    if chosen is None:
        return plan_in_process(users=table.rows, shape=table.shape, columns=named, **given)
    if chosen[0].column_help is None:
        domain = held.domain(chosen[0], None, Arrays(table.shape))
    else:
        numbers = Arrays(() if table.shape == (1,) else table.shape, (0, 1), named)
        column = table.label_name or (named[0] if named else None)  # what is counted in bins is a column of numbers
        domain = held.domain(chosen[0], column, numbers)
    if isinstance(domain, UnlistedLabels):
        domain = replace(domain, ignore_case=reading.ignore_case)
    check_shape(file, table.shape, domain)
    return plan_in_process(users=table.rows, domain=domain, **given)


def _run_variance(
    file: PathOrUrl,
    reading: TableOptions,
    results: Results,
    given: dict[str, Any],
    budget_file: Path | None,
    *,
    clip: bool,
    missing: Any,
) -> None:
    """Mean, variance and standard deviation of each column: users hold each value and its square, in one plan."""
    _check_target(given)
    given = options.with_mechanism(given)
    inputs = (file, budget_file)
    with warnings_as_notes(), spending(budget_file) as budget, results.staged(*inputs) as write:
        table, missing = tabled.apply_missing_policy(file, reading.open(file), missing)
        bounds = given.pop("bounds", None)
        squares = Squares(Arrays(table.shape, bounds or DEFAULT_BOUNDS, tabled.named_columns(table)))
        domain = squares.domain
        plan = plan_in_process(
            users=table.rows,
            shape=domain.shape,
            bounds=(domain.lower, domain.upper),
            columns=domain.columns,
            **given,
        )
        rows = partial(squares.rows, clip=clip, missing=missing)
        with quiet_squares(), explicit_bounds(bounds is None, clip=clip):
            begin = budget.round_of(plan)
            estimate = tabled.aggregate_table(file, table, lambda: tabled.prepared(table, rows), plan, begin=begin)
        found = Moments.of(squares, estimate, clip=clip, missing=missing)
        write(found, file.name, None)
    reading.note_detected(table, file, quiet=results.json)
    results.show(found)
    budget.note_second_release(plan)


@click.command("bounds", cls=Command)
@options.file_argument("file")
@click.option("--epsilon", type=float, required=True, help="Of everything: bounds and main plan together.")
@click.option("--delta", type=float, required=True, help="Of everything.")
@click.option("--share", type=float, default=0.2, show_default=True, help="The part of both that bounds may cost.")
@click.option("--cover", type=float, default=0.99, show_default=True, help="The part of the users to be within.")
@click.option("--bins", metavar="E,E,...", help="Public edges that bounds are chosen from.  [1, 2, 5, 10, ... and 0]")
@click.option("--rounds", type=int, metavar="R", help="Rounds of the main plan.  [1]")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of what is said of the users within.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("-o", "--output", type=PATH, help="Write the main plan, with these bounds (.json).")
@budget_option
@tabled.table_options
def bounds_command(
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
    check_number("cover", cover, above=0, most=1)  # before anything is spent
    tail_of(confidence)
    with warnings_as_notes(), spending(budget_file) as budget, (outputs := Outputs()):
        staged = outputs.file(output, ".json")
        if staged and share == 1:
            raise conflict("--share 1 leaves nothing for a main plan; leave -o out")
        table = reading.open(file)
        given: dict[str, Any] = {} if rounds is None else {"rounds": rounds}
        if (names := tabled.named_columns(table)) is not None:
            given["columns"] = names
        plans = plan_bounds(
            users=table.rows,
            shape=table.shape,
            epsilon=epsilon,
            delta=delta,
            share=share,
            bins=None if bins is None else bin_edges(bins),
            **given,
        )
        begin = budget.round_of(plans.first)
        estimate = tabled.aggregate_table(
            file, table, lambda: tabled.prepared(table, plans.rows), plans.first, begin=begin
        )
        found = plans.found(estimate, cover=cover, level=confidence)
        if staged and found.main is not None:
            outputs.write(staged, found.main.to_json())
    reading.note_detected(table, file, quiet=as_json)
    _show_bounds(found, as_json)
    if output and not as_json:
        again = ["shufflesum", "run", str(file), "--plan", str(output), "--clip"]
        again += [] if rounds in (None, 1) else ["--rounds-file", str(output.with_suffix(".rounds.db"))]
        again += [] if budget_file is None else ["--budget", str(budget_file)]
        console.print(f"wrote {output}: run it with {shlex.join(again)}", markup=False)
    budget.note_second_release(plans.first)


def _show_bounds(found: SuggestedBounds, as_json: bool) -> None:
    if as_json:
        document = {
            "columns": [
                {"name": found.names[i] if found.names else i, **asdict(column)}
                for i, column in enumerate(found.columns)
            ],
            "first": found.estimate.plan.summary(),
            "main": None if found.main is None else found.main.summary(),
            "epsilon": found.epsilon,
            "delta": found.delta,
        }
        print_json(document)
        return
    heads, rows = found.cells()
    shown = table_of(*heads)
    for row in rows:
        shown.add_row(*map(escape, row))
    console.print(shown)
    console.print(found.statement, markup=False)
