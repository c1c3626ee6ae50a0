"""`shufflesum plan`: from users, dimension and privacy to a plan, or from an error to what it needs."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import Any

import click

from shufflesum._rounding import downwards, upwards
from shufflesum.cli.options import console, plan_options, warnings_as_notes
from shufflesum.cli.results import fallback
from shufflesum.errors import ParameterError, ShufflesumError
from shufflesum.planning import alternatives, box_is_better, plan_for_error, published_plan
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan
from shufflesum.plots import DRAWABLE, error_chart, require_plots, save_chart
from shufflesum.statement import dishonest
from shufflesum.tables import StagedOutputs

__all__ = ["command"]


@click.command("plan", short_help="Choose reports, levels and noise for a privacy target.")
@click.option("--users", type=int, metavar="N", help="The smallest batch that may be released.")
@click.option("--dimension", type=int, metavar="D", help="Numbers in each user's array, if it is a vector.")
@click.option("--shape", metavar="D,D,...", help="Instead: the shape of each user's array, such as 28,28.")
@click.option("--epsilon", type=float, help="The guarantee's epsilon.")
@click.option("--delta", type=float, required=True, help="The guarantee's delta.")
@plan_options
@click.option("--one-process", is_flag=True, default=None, help="For whoever holds all data: nothing is sent.")
@click.option(
    "--target-error",
    type=float,
    metavar="X",
    help="Squared error of the mean, summed over coordinates: finds the least --users, or --epsilon, within 0.5%.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the plan file (.json).")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the predicted error by number of reports.")
def command(
    users: int | None,
    dimension: int | None,
    shape: str | None,
    epsilon: float | None,
    delta: float,
    target_error: float | None,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    **arguments: Any,
) -> None:
    """Plan a collection: what users send, what is guaranteed, what error to expect.

    \b
    Example: shufflesum plan --users 50000 --dimension 100 --epsilon 1 --delta 1e-6 -o plan.json
             shufflesum plan --target-error 0.001 --dimension 100 --epsilon 1 --delta 1e-6
    """
    given: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
    given |= {"shape": _shape(dimension, shape), "delta": delta}
    with StagedOutputs() as outputs, warnings_as_notes():
        staged = outputs.stage(output, (".json",)) if output else None
        if plot:
            require_plots()
        staged_plot = outputs.stage(plot, DRAWABLE) if plot else None
        if target_error is not None:
            plan = plan_for_error(target_error, users=users, epsilon=epsilon, **given)
        elif users is None or epsilon is None:
            raise ParameterError(
                "missing-argument", "--users and --epsilon are needed; one of them may be left out with --target-error"
            )
        else:
            plan = make_plan(users=users, epsilon=epsilon, **given)
        if staged:
            outputs.write(staged, plan.to_json())
        if staged_plot:
            _draw(plan, staged_plot)
    if as_json:
        click.echo(plan.to_json())
    else:
        console.print(card(plan, given.get("spread")))
        for path in (output, plot):
            if path:
                console.print(f"wrote {path}", markup=False)


def _shape(dimension: int | None, shape: str | None) -> int | list[int]:
    if (dimension is None) == (shape is None):
        raise ParameterError(
            "conflicting-arguments",
            "give either --dimension D or --shape D,D,...: how many numbers each user's array has",
        )
    if dimension is not None:
        return dimension
    try:
        return [int(size) for size in str(shape).split(",")]
    except ValueError:
        raise ParameterError(
            "wrong-type", f"--shape is {shape!r}; write whole numbers with commas, such as 28,28"
        ) from None


def card(plan: Plan, spread: float | None = None) -> str:
    """The plan for a person."""
    error = plan.expected_error
    per_coordinate = math.sqrt(error.total / plan.dimension)
    rounds = "" if plan.rounds == 1 else f", over {plan.rounds:,} rounds"
    honest = "" if plan.honest_fraction == 1 else f", {plan.honest_users:,} of them honest"
    split = f"{error.sampling:.3g} sampling + {error.rounding:.3g} rounding + {error.noise:.3g} noise"
    guarantee = f"epsilon {upwards(plan.epsilon)}, delta {upwards(plan.delta)} for one user{rounds}"
    lines = {
        "users": [f"at least {plan.users:,}{honest}; nothing is released below"],
        "each sends": [*textwrap.wrap(plan.mechanism.describe(plan.domain), 88), sent(plan)],
        "guarantee": [f"{guarantee} ({plan.accountant} accountant)"],
        "error": [
            f"{per_coordinate:.3g} per coordinate (root mean square, worst data)",
            f"squared, all coordinates: {error.total:.4g} = {split}",
            f"{upwards(error.total / plan.curator_error)} times that of a curator whom everybody trusts",
        ],
        "dishonest": textwrap.wrap(f"at most, {dishonest(plan)}", 88),
        "the paper": textwrap.wrap(_published(plan), 88),
        "fallback": [f"{fallback(plan)} if shuffler and analyzer collude"],
    }
    if spread is not None:
        expected = plan.error_at_spread(spread)
        lines["error"].append(
            f"where users differ by {spread:g}: {math.sqrt(expected.total / plan.dimension):.3g} per coordinate, "
            f"{expected.total:.4g} squared"
        )
    if plan.delta * plan.users >= 1:
        lines["guarantee"].append(
            f"a delta of 1/users ({downwards(1 / plan.users)}) or more lets somebody be laid open: lower it"
        )
    if box_is_better(plan):
        lines["error"].append("bounds on each number, and mechanism add, would do better for so few of them")
    if plan.worse_than_guessing:
        lines["error"].append("so guessing the middle of the bounds can do better: see the note")
    text = [f"[bold]Plan {plan.id[:16]}[/bold]"]
    for label, (first, *more) in lines.items():
        text += [f"  {label:<12} {first}", *(f"{'':15}{line}" for line in more)]
    return "\n".join(text)


def sent(plan: Plan) -> str:
    """How much leaves a device."""
    if plan.one_process:
        return "one process holds all data and draws all noise: nothing is sent"
    blanks = f", about {plan.blanks:,.0f} of them blank" if plan.blanks else ""
    size = plan.bytes_per_user
    return f"{plan.reports:,} reports a user and round{blanks}: {size['raw']:,} bytes ({size['sealed']:,} sealed)"


def _published(plan: Plan) -> str:
    """What the published formulas make of the same target, at their best."""
    if plan.accountant == "paper":
        return "this is its own formula"
    # The published constants jump at epsilon = 1, so above it the formula just below 1 may ask for less noise.
    targets = {plan.epsilon, min(plan.epsilon, math.nextafter(1.0, 0.0))}
    theirs, refusal = [], "there is nothing to compare"
    for epsilon in targets:
        try:
            theirs.append(published_plan(plan, epsilon))
        except ShufflesumError as error:
            refusal = str(error).split(",")[0]
    if not theirs:
        return f"offers nothing here: {refusal}"
    best = min(theirs, key=lambda other: other.expected_error.total)
    times = best.expected_error.total / plan.expected_error.total
    return f"{best.mechanism.describe(best.domain)}: {times:.3g} times our squared error"


def _draw(plan: Plan, path: Path) -> None:
    parts = {
        _label(option): {
            "sampling": option.expected_error.sampling,
            "rounding": option.expected_error.rounding,
            "noise": option.expected_error.noise,
        }
        for option in alternatives(plan)
    }
    chart = error_chart(
        parts,
        title="Predicted error by what a user sends",
        subtitle=f"{plan.users:,} users, {plan.dimension:,} coordinates, epsilon {upwards(plan.epsilon)}, "
        f"delta {upwards(plan.delta)}; worst data, certified noise",
    )
    save_chart(chart, path)


def _label(option: Plan) -> str:
    return f"{option.reports:,} {option.mechanism.kind}"
