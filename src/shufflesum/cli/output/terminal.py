"""The terminal, or what stands in for it: results, tables, notes and progress."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

__all__ = ["console", "progress_bar", "table_of", "warnings_as_notes"]

_ONE_LINE = 10_000
# Rows of a table wrap on a narrow terminal; in a pipe or a log, which has no width, each is one line.
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _ONE_LINE)
_notes = Console(stderr=True, highlight=False, soft_wrap=True)


def table_of(*titles: str, words: Container[int] = (0,)) -> Table:
    """An empty table for people: words in these columns; in the others numbers, to the right."""
    table = Table(box=None, header_style="bold")
    for place, title in enumerate(titles):
        table.add_column(title, justify="left" if place in words else "right")
    return table


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
