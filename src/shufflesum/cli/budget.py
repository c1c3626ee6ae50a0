"""`shufflesum budget`: make, show and ask the budget of a population."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec

from shufflesum._format import upwards
from shufflesum.budget import Budget
from shufflesum.budget_file import BudgetFile
from shufflesum.cli.commands import Group
from shufflesum.cli.options.common import PATH
from shufflesum.cli.options.wanted import plan_arguments, wanted_options
from shufflesum.cli.output.card import card
from shufflesum.cli.output.printed import console, warnings_as_notes
from shufflesum.errors import ParameterError
from shufflesum.plans import Plan
from shufflesum.plots import DRAWABLE, budget_chart, require_plots, save_chart
from shufflesum.tables import StagedOutputs


@click.group("budget", cls=Group)
def budget_command() -> None:
    """What may be asked of one population in all: a plan is entered before it is run, and refused if it is too much.

    Give the file to run, bounds, randomize, task create and both servers with --budget FILE.
    """


@budget_command.command("create", short_help="Make the file of a budget.")
@click.argument("file", type=PATH)
@click.option("--epsilon", type=float, required=True, help="Of everything that will ever be asked.")
@click.option("--delta", type=float, required=True, help="Of everything.")
@click.option(
    "--plan",
    "plan_files",
    type=PATH,
    multiple=True,
    help="A plan that is fixed now, once for each: they are composed exactly, and no other can be entered.",
)
def create(file: Path, epsilon: float, delta: float, plan_files: tuple[Path, ...]) -> None:
    """Make FILE. It must not be deleted, nor an older copy put in its place, as long as anything is asked.

    \b
    Example: shufflesum budget create budget.db --epsilon 3 --delta 1e-5
             shufflesum run people.csv --bounds 0:120 --epsilon 0.5 --delta 1e-6 --budget budget.db
    """
    Budget.create(file, epsilon, delta, plans=[Plan.load(path) for path in plan_files])
    console.print(f"wrote {file}: epsilon {upwards(epsilon)}, delta {upwards(delta)} in all", markup=False)


@budget_command.command("show", short_help="What is spent, and what is left.")
@click.argument("file", type=PATH)
@click.option("--plot", type=PATH, help=f"Draw what is spent and left: {', '.join(DRAWABLE)}.")
@click.option("--json", "as_json", is_flag=True, help="Print it as one JSON object.")
def show(file: Path, plot: Path | None, as_json: bool) -> None:
    """List all plans that were entered in FILE, what each cost, and what is left."""
    budget = BudgetFile(file).read()  # once: others may enter plans meanwhile
    entries, parts = budget.entries, budget.parts
    with StagedOutputs() as outputs:
        if plot:
            require_plots()
            title = f"Budget: epsilon {upwards(budget.epsilon)}, delta {upwards(budget.delta)} for everything"
            subtitle = f"{len(entries)} plan{'s were' if len(entries) != 1 else ' was'} entered; {budget.state}"
            if budget.closed:
                together = sum(entry.rounds for entry in entries)
                shares = {"rounds begun": [entry.begun / together for entry in entries]}
                words = {"whole": "all rounds of the plans", "rest": "not begun"}
            else:
                shares, words = {"privacy loss": [one for one, _ in parts], "delta": [other for _, other in parts]}, {}
            save_chart(budget_chart(shares, title=title, subtitle=subtitle, **words), outputs.stage(plot, DRAWABLE))
    if as_json:
        document: dict[str, Any] = {"epsilon": budget.epsilon, "delta": budget.delta, "closed": budget.closed}
        document |= {"spent": budget.spent, "entries": msgspec.to_builtins(entries)}
        click.echo(json.dumps(document, allow_nan=False))
        return
    console.print(str(budget), markup=False)
    if not budget.closed:
        if entries:
            console.print("epsilons do not simply add up: spent is the larger sum, of privacy loss or of delta")
        console.print(f"what still fits: shufflesum budget ask {file} --users N --dimension D", markup=False)
    if plot:
        console.print(f"wrote {plot}", markup=False)


@budget_command.command("ask", short_help="What could still be asked, and at which error.")
@click.argument("file", type=PATH)
@wanted_options
@click.option("-o", "--output", type=PATH, help="Write the plan file (.json).")
def ask(
    file: Path,
    users: int | None,
    epsilon: float | None,
    delta: float | None,
    output: Path | None,
    **arguments: Any,
) -> None:
    """The plan with the largest epsilon that still fits into FILE, for what the other options ask; nothing is spent.

    Its delta is a tenth of the budget's unless --delta says otherwise. Its epsilon can be larger than the budget's: at
    the larger delta of that, it guarantees more.

    \b
    Example: shufflesum budget ask budget.db --users 50000 --dimension 10
             shufflesum budget ask budget.db --users 50000 --labels yes,no,unsure -o plan.json
    """
    with StagedOutputs() as outputs, warnings_as_notes():
        staged = outputs.stage(output, (".json",)) if output else None
        if users is None:
            raise ParameterError("missing-argument", "--users is missing: how many there are at least")
        if epsilon is not None:
            raise ParameterError("conflicting-arguments", "--epsilon is what is asked for; leave it out")
        plan = Budget.open(file).ask(users=users, delta=delta, **plan_arguments(**arguments))
        if staged:
            outputs.write(staged, plan.to_json())
    console.print(card(plan, arguments.get("assumed_std")))
    if output:
        console.print(f"wrote {output}", markup=False)
