"""`shufflesum simulate` and `demo`: made-up or public data through a plan before anything is collected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.markup import escape

from shufflesum._format import upwards
from shufflesum._machine import SYSTEM_CLOCK
from shufflesum.aggregation import aggregate_batches
from shufflesum.cli import options
from shufflesum.cli import output as printed
from shufflesum.cli.commands import Command, conflict
from shufflesum.cli.options import PATH
from shufflesum.cli.output import console
from shufflesum.cli.table import TEXT_PARAMETERS, TableOptions, check_table, named_columns, text_options
from shufflesum.domains import DOMAINS
from shufflesum.errors import FileError
from shufflesum.pages import simulation_page
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan
from shufflesum.plots import DRAWABLE, estimate_chart, require_plots, save_chart
from shufflesum.simulation import Simulation, found, simulate, simulate_batches
from shufflesum.synthetic import heartbeats
from shufflesum.tables.readers import rows_of
from shufflesum.tables.sources import DataSource
from shufflesum.tables.writers import StagedOutputs

_DISTRIBUTIONS = list(dict.fromkeys(name for kind in DOMAINS.values() for name in kind.distributions))


@click.command("simulate", cls=Command)
@click.option("--plan", "plan_file", type=PATH, help="The plan to try, instead of one made of the options below.")
@click.option("--data", type=PATH, help="A file of PUBLIC data, one row per user, instead of made-up users.")
@click.option(
    "--distribution",
    type=click.Choice(_DISTRIBUTIONS),
    help="Of made-up users: numbers normal, uniform, skewed or constant; labels zipf or uniform.",
)
@click.option("--repeats", type=int, default=50, show_default=True, metavar="R", help="How often to try.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the made-up data; noise has none.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Level of the intervals.")
@click.option("--clip", is_flag=True, help="With --data: move values to the nearest bound.")
@options.option_group("reading", TableOptions, *text_options("With --data: "), parameters=TEXT_PARAMETERS)
@options.candidates_option
@click.option("--json", "as_json", is_flag=True, help="Print what was found as one JSON object.")
@click.option("--plot", type=PATH, help=f"Draw the first try beside the truth: {', '.join(DRAWABLE)}.")
@click.option("--report", type=PATH, help="Write one page with all of it (.html).")
@options.wanted_options
def simulate_command(
    plan_file: Path | None,
    data: Path | None,
    distribution: str | None,
    repeats: int,
    seed: int,
    confidence: float,
    clip: bool,
    reading: TableOptions,
    candidates: Path | None,
    as_json: bool,
    plot: Path | None,
    report: Path | None,
    **arguments: Any,
) -> None:
    """Try a plan on made-up users, or on a file of public data, and compare the error observed with the one to expect.

    The plan comes from a file, or from the options of shufflesum plan. Never use private data: what is printed shows
    its truth.

    \b
    Example: shufflesum simulate --users 5000 --dimension 3 --bounds 0:100 --epsilon 1 --delta 1e-6 --report try.html
             shufflesum simulate --plan plan.json --data public.csv --repeats 200
             shufflesum simulate --users 5000 --labels yes,no,unsure --epsilon 1 --delta 1e-6 --distribution uniform
    """
    words = options.words_of(candidates)
    with (outputs := printed.Outputs()), printed.warnings_as_notes():
        staged_plot, staged_report = outputs.chart(plot), outputs.page(report)
        table = None
        if data is not None and plan_file is None:
            table = _fill_in(data, arguments, reading)
        plan = _tried_plan(plan_file, arguments)
        if words is not None and not plan.domain.needs_candidates:
            raise conflict("--candidates is for words; the plan lists its labels")
        if data is None:
            with printed.progress_bar("rows", repeats * plan.users) as progress:
                tried = simulate(
                    plan,
                    distribution=distribution,
                    repeats=repeats,
                    seed=seed,
                    level=confidence,
                    words=words,
                    progress=progress,
                )
        else:
            if distribution is not None:
                raise conflict("--distribution is for made-up data, not --data")
            opened = table or reading.open(data, plan.domain)
            check_table(data, opened, plan)
            with printed.progress_bar("rows", repeats * opened.rows) as progress:
                tried = simulate_batches(
                    plan,
                    lambda: rows_of(opened, plan.domain),
                    f"public data of {data.name}",
                    repeats=repeats,
                    level=confidence,
                    words=words,
                    clip=clip,
                    progress=progress,
                )
        if staged_plot:
            save_chart(_chart(tried), staged_plot)
        if staged_report:
            page = simulation_page(
                tried, title="A plan tried before collecting", made=SYSTEM_CLOCK.now(), command=printed.command_line()
            )
            outputs.write(staged_report, page)
    _show_simulation(tried, as_json)
    if not as_json:
        outputs.say_written()


def _tried_plan(plan_file: Path | None, arguments: dict[str, Any]) -> Plan:
    if plan_file is None:
        return options.plan_from_options({}, **arguments)
    single = [name for name, value in arguments.items() if name != "held" and value not in (None, False)]
    return options.plan_of_file(plan_file, [*single, *arguments["held"].given])


def _fill_in(data: Path, arguments: dict[str, Any], reading: TableOptions) -> DataSource | None:
    """For numbers, shape, names and users are those of the file unless others are given."""
    kind = arguments["held"].kind()
    if kind is not None and kind.column_help is not None:
        return None
    table = replace(reading, columns=arguments["columns"]).open(data)
    if arguments["dimension"] is None and arguments["shape"] is None:
        arguments["shape"] = ",".join(map(str, table.shape))
    names = named_columns(table)
    if kind is None and len(table.shape) == 1 and names is not None:
        arguments["columns"] = list(names)
    if arguments["users"] is None:
        arguments["users"] = table.rows
    return table


def _chart(tried: Simulation) -> Any:
    estimate: Any = tried.estimate
    return estimate_chart(
        estimate,
        truth=tried.truth,
        title="A plan tried before collecting",
        subtitle=f"{tried.users:,} users, {tried.data}; {tried.plan.guarantee.describe()}",
        level=tried.level,
    )


def _show_simulation(tried: Simulation, as_json: bool) -> None:
    if as_json:
        document = {
            "plan": tried.plan.summary(),
            "simulation": {
                "data": tried.data,
                "users": tried.users,
                "repeats": tried.repeats,
                "confidence_level": tried.level,
                "worst_error": tried.worst,
                "predicted_error": tried.predicted,
                "observed_error": tried.observed,
                "observed_standard_error": None if tried.repeats == 1 else tried.observed_error,
                "error_unit": tried.unit or None,
                "intervals": tried.intervals,
                "intervals_that_held": tried.held,
            },
        }
        printed.print_json(document)
        return
    console.print(f"[bold]Plan {tried.plan.id[:16]}[/bold], {tried.plan.guarantee.describe()}")
    figures = found(tried)
    width = max(map(len, figures))
    for what, value in figures.items():
        console.print(f"  {what:<{width}}  {escape(value)}")


_SAMPLES = 100


@click.command("demo", cls=Command)
@click.option("--users", type=click.IntRange(100), default=50_000, show_default=True, help="Size of the crowd.")
@click.option("--epsilon", type=float, default=1.0, show_default=True)
@click.option("--delta", type=float, default=1e-6, show_default=True)
@click.option("-o", "--output", type=PATH, default=Path("demo-output"), help="Folder for the picture.")
def demo_command(users: int, epsilon: float, delta: float, output: Path) -> None:
    """Make a crowd of synthetic heartbeats, learn their mean beat privately, and draw it beside the true one.

    The beats come from a model of the P, Q, R, S and T waves, so the truth is known and nobody's data is used.
    """
    require_plots()
    console.print(f"{users:,} people, each with one heartbeat of {_SAMPLES} samples that nobody else may see.")
    with printed.warnings_as_notes():
        plan = make_plan(
            users=users, shape=_SAMPLES, epsilon=epsilon, delta=delta, bounds=(0.0, 1.0), noise_by="curator"
        )
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise FileError("unwritable", f"cannot make the folder {output}: {problem.strerror}") from problem
    picture = output / "heartbeat.png"
    with StagedOutputs() as outputs, printed.warnings_as_notes():
        staged = outputs.stage(picture, DRAWABLE)
        beats = heartbeats(users, _SAMPLES)
        truth = beats.mean(axis=0, dtype=np.float64)
        with printed.progress_bar("people", users) as progress:
            batches = (beats[start : start + 10_000] for start in range(0, users, 10_000))
            estimate = aggregate_batches(batches, plan, progress=progress)
        squared_error = float(np.sum((estimate.mean - truth) ** 2))
        printed.print_estimate(estimate, 0.95)
        console.print(
            f"squared error of the whole mean beat: {squared_error:.3g} "
            f"(expected: {plan.expected_error.total:.3g} on the worst data, less on most)"
        )
        times = plan.times_curator
        console.print(
            f"a trusted curator's would be {plan.curator_error:.3g}: ours is expected {upwards(times)} times it"
        )
        chart = estimate_chart(
            estimate,
            truth=truth,
            title="The mean heartbeat of a synthetic crowd, learned privately",
            subtitle=f"{users:,} made-up people, epsilon {upwards(epsilon)}, "
            f"delta {upwards(delta)}; expected squared error {upwards(times)} times a trusted curator's",
        )
        save_chart(chart, staged)
    console.print(f"picture: {picture}", markup=False)
