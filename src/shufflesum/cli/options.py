"""Options, and ways of printing, that several commands share."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from shufflesum.cli.bounds_option import bounds_option
from shufflesum.domain import Box, Domain, Groups
from shufflesum.tables import TEXT, Place, place, suffix_of

__all__ = [
    "PLACE",
    "columns_option",
    "console",
    "note_assumed_columns",
    "note_missing_header",
    "plan_options",
    "progress_bar",
    "task_option",
    "warnings_as_notes",
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

_ONE_LINE = 10_000
# Rows of a table wrap on a narrow terminal; in a pipe or a log, which has no width, each is one line.
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _ONE_LINE)
_notes = Console(stderr=True, highlight=False, soft_wrap=True)


def plan_options(function: _F) -> _F:
    """The parameters of a plan that both `run` and `plan` take; those not given are None."""
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
    box = domain.box if isinstance(domain, Groups) else domain
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


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, silence in a pipe; yields the function that moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Not `_notes.is_terminal`: FORCE_COLOR asks for colours, not for a bar in a log.
    with Progress(*columns, console=_notes, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(description, total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """The library's warnings, as lines a person can read on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        click.echo(f"note: {text}", err=True)
