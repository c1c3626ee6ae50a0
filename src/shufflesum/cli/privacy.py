"""`shufflesum privacy`: the certified guarantee of given protocol parameters."""

from __future__ import annotations

import json

import click

from shufflesum._rounding import downwards, upwards
from shufflesum.cli.options import console
from shufflesum.errors import ParameterError
from shufflesum.privacy import Setting, local_epsilon

__all__ = ["command"]


@click.command("privacy", short_help="The certified guarantee of given protocol parameters.")
@click.option("--users", type=int, required=True, metavar="N", help="Users in a batch.")
@click.option("--levels", type=int, required=True, metavar="K", help="Rounding steps of a value.")
@click.option("--noise-probability", type=float, required=True, metavar="G", help="Chance of a random report.")
@click.option("--coordinates", type=int, default=1, show_default=True, metavar="T", help="Coordinates a user reports.")
@click.option("--rounds", type=int, default=1, show_default=True, metavar="R", help="Rounds each user takes part in.")
@click.option("--dimension", type=int, metavar="D", help="Coordinates of all; for uniform sampling; tightens levels 1.")
@click.option("--sampling", type=click.Choice(["stratified", "uniform"]), default="stratified", show_default=True)
@click.option("--honest-fraction", type=float, default=1.0, show_default=True, metavar="F")
@click.option("--epsilon", type=float, help="Ask for delta at this epsilon.")
@click.option("--delta", type=float, help="Ask for epsilon at this delta.")
@click.option("--json", "as_json", is_flag=True)
def command(
    users: int,
    levels: int,
    noise_probability: float,
    coordinates: int,
    rounds: int,
    dimension: int | None,
    sampling: str,
    honest_fraction: float,
    epsilon: float | None,
    delta: float | None,
    as_json: bool,
) -> None:
    """Bound delta at an epsilon, or epsilon at a delta, from both sides.

    The upper bound holds for every data set; the lower bound is shown by concrete data sets, so nothing can beat it.
    """
    if (epsilon is None) == (delta is None):
        raise ParameterError(
            "conflicting-arguments", "give exactly one of --epsilon (to ask for delta) and --delta (to ask for epsilon)"
        )
    setting = Setting(
        users=users,
        levels=levels,
        coordinates=coordinates,
        rounds=rounds,
        dimension=dimension,
        sampling="uniform" if sampling == "uniform" else "stratified",
        honest_fraction=honest_fraction,
    )
    if epsilon is not None:
        asked, found = "delta", setting.delta(noise_probability, epsilon)
        answer = {"epsilon": epsilon, "delta_upper": found.upper, "delta_lower": found.lower}
    else:
        assert delta is not None
        asked, found = "epsilon", setting.epsilon(noise_probability, delta)
        answer = {"delta": delta, "epsilon_upper": found.upper, "epsilon_lower": found.lower}
    if as_json:
        click.echo(json.dumps({name: value if value < float("inf") else None for name, value in answer.items()}))
        return
    given = f"epsilon {upwards(epsilon)}" if epsilon is not None else f"delta {upwards(delta or 0.0)}"
    console.print(f"at {given}: {asked} is at most [bold]{upwards(found.upper, 4)}[/bold] for every data set,")
    console.print(f"and at least {downwards(found.lower, 4)} for some")
    alone = local_epsilon(levels=levels, noise_probability=noise_probability, coordinates=coordinates, rounds=rounds)
    console.print(f"without the shuffler: epsilon {upwards(alone, 4)}, delta 0")
