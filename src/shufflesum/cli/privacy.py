"""`shufflesum privacy`: the certified guarantee of a plan, or of given protocol parameters."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from shufflesum._format import downwards, upwards
from shufflesum._search import GRID
from shufflesum.cli.options.common import Command, plan_of_file
from shufflesum.cli.output.printed import console
from shufflesum.domains import Arrays
from shufflesum.errors import ParameterError
from shufflesum.mechanisms import NoisyCounts
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee, PrivacyAccountant, RandomizedResponseAccountant


def _numbers(_: click.Context, parameter: click.Parameter, text: str | None) -> list[float] | None:
    whole = parameter.name == "trials"
    try:
        numbers = None if text is None else [int(number) if whole else float(number) for number in text.split(",")]
    except ValueError:
        numbers = [math.nan]
    if numbers is not None and not all(map(math.isfinite, numbers)):
        shape = "whole numbers with commas, such as 10,5,3" if whole else "numbers with commas, such as 0.02,0.01"
        raise ParameterError("wrong-type", f"--{parameter.name} is {text!r}; write {shape}")
    return numbers


@click.command("privacy", cls=Command, short_help="The certified guarantee of a plan or of given protocol parameters.")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="That of this plan; instead of all below.")
@click.option("--users", type=int, metavar="N", help="Users in a batch.")
@click.option("--dimension", type=int, metavar="D", help="Coordinates of all; needed but for stratified sampling.")
@click.option("--levels", type=int, metavar="K", help="randomized-response: rounding steps of a value.")
@click.option("--noise-probability", type=float, metavar="G", help="randomized-response: chance of a random report.")
@click.option("--coordinates", type=int, metavar="T", help="randomized-response: coordinates a user reports.  [1]")
@click.option("--sampling", type=click.Choice(["stratified", "uniform"]), help="randomized-response.  [stratified]")
@click.option("--trials", callback=_numbers, metavar="Q,...", help="noisy-counts: a user's trials, digit by digit.")
@click.option("--probabilities", callback=_numbers, metavar="P,...", help="noisy-counts: their chances.")
@click.option("--cap", type=int, metavar="C", help="noisy-counts: most dummy reports of a user.  [none]")
@click.option("--rounds", type=int, default=1, show_default=True, metavar="R", help="Rounds each user takes part in.")
@click.option("--honest-fraction", type=float, default=1.0, show_default=True, metavar="F")
@click.option("--epsilon", type=float, help="Ask for delta at this epsilon.")
@click.option("--delta", type=float, help="Ask for epsilon at this delta.")
@click.option("--json", "as_json", is_flag=True)
def command(epsilon: float | None, delta: float | None, as_json: bool, **given: Any) -> None:
    """Bound delta at an epsilon, or epsilon at a delta, from both sides.

    The upper bound holds for every data set; the lower bound is shown by concrete data sets, so nothing can beat it.

    \b
    Example: shufflesum privacy --plan plan.json --epsilon 0.5
             shufflesum privacy --users 50000 --levels 3 --noise-probability 0.004 --delta 1e-6
             shufflesum privacy --users 50000 --dimension 100 --trials 2 --probabilities 0.0205 --delta 1e-6
    """
    if (epsilon is None) == (delta is None):
        raise ParameterError(
            "conflicting-arguments", "give exactly one of --epsilon (to ask for delta) and --delta (to ask for epsilon)"
        )
    accountant = _accountant({name: value for name, value in given.items() if value is not None})
    if epsilon is not None:
        asked, found = "delta", accountant.delta(epsilon)
        answer = {"epsilon": epsilon, "delta_upper": found.upper, "delta_lower": found.lower}
    else:
        assert delta is not None
        asked, found = "epsilon", accountant.epsilon(delta)
        answer = {"delta": delta, "epsilon_upper": found.upper, "epsilon_lower": found.lower}
    if as_json:
        click.echo(json.dumps({name: value if value < float("inf") else None for name, value in answer.items()}))
        return
    at = f"epsilon {upwards(epsilon)}" if epsilon is not None else f"delta {upwards(delta or 0.0)}"
    console.print(f"at {at}: {asked} is at most [bold]{upwards(found.upper, 4)}[/bold] for every data set,")
    console.print(f"and at least {downwards(found.lower, 4)} for some")
    alone = accountant.local_epsilon
    console.print(f"without the shuffler: {'none' if alone is None else f'epsilon {upwards(alone, 4)}, delta 0'}")


def _accountant(given: dict[str, Any]) -> PrivacyAccountant:
    usual = {"rounds": 1, "honest_fraction": 1.0}
    if plan_file := given.pop("plan_file", None):
        return plan_of_file(plan_file, (name for name, value in given.items() if usual.get(name) != value)).privacy
    guarantee = Guarantee(1.0, 1.0, _needed(given, "users"), given["honest_fraction"], given["rounds"], "none")
    if "trials" in given or "probabilities" in given:
        trials, chances = _needed(given, "trials"), _needed(given, "probabilities")
        if others := given.keys() & {"levels", "noise_probability", "coordinates", "sampling"}:
            name = min(others).replace("_", "-")
            raise ParameterError(
                "conflicting-arguments", f"--trials means mechanism 'noisy-counts', and --{name} 'randomized-response'"
            )
        drawn = tuple(math.floor(chance * GRID) / GRID for chance in chances)  # no more noise than was asked about
        mechanism = NoisyCounts(len(trials), tuple(trials), drawn, given.get("cap"))
        numbers = Arrays(_needed(given, "dimension"))
        return Plan(numbers, mechanism, guarantee).privacy
    return RandomizedResponseAccountant(
        users=guarantee.users,
        levels=_needed(given, "levels"),
        noise_probability=_needed(given, "noise_probability"),
        coordinates=given.get("coordinates", 1),
        rounds=guarantee.rounds,
        dimension=given.get("dimension"),
        sampling=given.get("sampling", "stratified"),
        honest_fraction=guarantee.honest_fraction,
    )


def _needed(given: dict[str, Any], name: str) -> Any:
    if name not in given:
        raise ParameterError("missing-argument", f"--{name.replace('_', '-')} is missing; give it, or a --plan")
    return given[name]
