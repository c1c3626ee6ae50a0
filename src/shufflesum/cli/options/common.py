"""Options for any file, task or plan, and what is said of a file's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from shufflesum.cli.options.bounds import bounds_option
from shufflesum.domain import Box, Domain, numbers_of
from shufflesum.errors import ParameterError
from shufflesum.plans import Plan
from shufflesum.tables import TEXT, Place, place, suffix_of

__all__ = [
    "PLACE",
    "columns_option",
    "note_assumed_columns",
    "note_missing_header",
    "plan_of_file",
    "plan_options",
    "task_option",
]

task_option = click.option(
    "--task",
    "task_file",
    type=click.Path(path_type=Path),
    required=True,
    envvar="SHUFFLESUM_TASK",
    show_envvar=True,
    help="From shufflesum task create.",
)


class _PlaceType(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.3
    """A path on this machine, or an address that is read."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Where it is."""
        return place(value)


PLACE = _PlaceType()

_F = TypeVar("_F", bound=Callable[..., object])


def plan_options(function: _F) -> _F:
    """The parameters of a plan, for every command that may make one; those not given are None."""
    for option in reversed(
        (
            bounds_option,
            click.option(
                "--mechanism",
                type=click.Choice(["replace", "add"]),
                help="replace: noise instead of some reports; add: noise as further reports.  [chosen]",
            ),
            click.option("--max-reports", type=int, metavar="N", help="Most reports of a user, blanks included."),
            click.option("--digits", type=int, metavar="J", help="add: binary digits of a value.  [chosen]"),
            click.option("--coordinates", type=int, metavar="T", help="replace: those each user reports.  [chosen]"),
            click.option("--levels", type=int, metavar="K", help="replace: rounding steps of a value.  [chosen]"),
            click.option("--sampling", type=click.Choice(["stratified", "uniform"]), help="replace.  [stratified]"),
            click.option(
                "--accountant",
                type=click.Choice(["exact", "paper"]),
                help="Certified, or the published formulas.  [exact]",
            ),
            click.option(
                "--honest-fraction",
                type=float,
                metavar="F",
                help="The part of the users that follows the protocol.  [1]",
            ),
            click.option("--rounds", type=int, metavar="R", help="Rounds the guarantee covers.  [1]"),
            click.option(
                "--spread",
                type=float,
                metavar="S",
                help="Plan for users who differ by so much: a public guess of their standard deviation.  [the worst]",
            ),
        )
    ):
        function = option(function)
    return function


def plan_of_file(plan_file: Path, beside: Iterable[str]) -> Plan:
    """The plan of a file; options that it fixes already, by their names or their arguments' names, are refused."""
    for name in beside:
        option = name if name.startswith("--") else f"--{name.replace('_', '-')}"
        raise ParameterError(
            "conflicting-arguments",
            f"{option} cannot be given with --plan, which fixes it already; leave one of them out",
        )
    return Plan.load(plan_file)


def columns_option(help_text: str) -> Callable[[_F], _F]:
    """Columns of numbers, as a list of names."""
    return click.option("--columns", callback=_column_names, help=help_text)


def note_missing_header(names: tuple[str, ...] | None, file: Place, header: bool | None) -> None:
    """Say that the first line of a CSV counts as a user, where that was only found out from its looks."""
    if names is None and header is None and suffix_of(file) in TEXT:
        click.echo(
            f"note: {file} has no header by its looks, so its first line is a user; say --header if not", err=True
        )


def note_assumed_columns(names: tuple[str, ...] | None, file: Place, domain: Domain) -> None:
    """Say that columns without names are taken for those that the plan names."""
    box = numbers_of(domain)
    if names is None and isinstance(box, Box) and box.columns is not None:
        click.echo(
            f"note: {file} does not name its columns; they are taken for the plan's, in this order: "
            f"{', '.join(box.columns[:12])}{', ...' if len(box.columns) > 12 else ''}",
            err=True,
        )


def _column_names(_: click.Context, __: click.Parameter, text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [name.strip() for name in text.split(",")] if text.strip() else []
