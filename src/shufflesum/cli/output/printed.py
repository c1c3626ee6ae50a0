"""What commands print for people: the terminal, the command to repeat, guarantees and tables."""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from shufflesum._format import counted, percent, plain, upwards
from shufflesum.cli.commands import in_options
from shufflesum.estimate import BaseEstimate, Quantile, Top
from shufflesum.plans import Plan

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
        click.echo(f"note: {in_options(text)}", err=True)


_HIDDEN = "(hidden)"


def command_line() -> str:
    """This command as a line of a shell, with what environment variables gave.

    Never a secret: not who asks for an address, nor its query, nor the value of a setting of Spark's.
    """
    context = click.get_current_context()
    words = list(_given(sys.argv[1:]))
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) is ParameterSource.ENVIRONMENT:
            words += _as_option(parameter, context.params[name])
    return shlex.join(["shufflesum", *words])


def _given(words: Sequence[str]) -> Iterator[str]:
    before = ""
    for word in words:
        option, equals, value = word.partition("=")
        if before == "--conf":
            yield f"{option}={_HIDDEN}"
        elif option == "--conf" and equals:
            yield f"--conf={value.partition('=')[0]}={_HIDDEN}"
        else:
            yield _without_secrets(word)
        before = word


def _as_option(parameter: click.Parameter, value: Any) -> list[str]:
    """A value as it would be typed: a flag alone, what may be given several times once for each."""
    name = parameter.opts[0]
    if isinstance(value, bool):
        return [name] if value else []
    if isinstance(value, Mapping):
        return [word for key in value for word in (name, f"{key}={_HIDDEN}")]
    several = value if isinstance(value, tuple | list) else [value]
    return [word for each in several for word in (name, _without_secrets(str(each)))]


def _without_secrets(word: str) -> str:
    if "://" not in word:
        return word
    return re.sub(r"\?.*", f"?{_HIDDEN}", re.sub(r"//[^/]*@", "//", word))


_SHOWN = 12  # rows of a table; of more, ten are shown
_SOME = 10
_PROMPT = "the counts of any words can be asked for: give a file of them, --candidates words.txt"


def guarantee_of(plan: Plan) -> str:
    """The guarantee in words, with its conditions."""
    return plan.guarantee.describe()


def fallback(plan: Plan) -> str:
    """What is left of the guarantee without a shuffler."""
    return "no protection" if plan.local_epsilon is None else f"epsilon {upwards(plan.local_epsilon)}"


def print_estimate(
    estimate: BaseEstimate,
    level: float,
    names: tuple[str, ...] | None = None,
    *,
    in_process: bool = False,
    top: Top | None = None,
) -> None:
    """A few lines and a small table; `in_process` says that nobody sent anything, though under this plan they could."""
    plan = estimate.plan
    in_process = in_process or plan.noise_by == "curator"
    sending = "" if in_process else f", each sending {plan.mechanism.describe(plan.encoding)}"
    which = f", round {estimate.round_number} of {plan.rounds}" if plan.rounds > 1 else ""
    console.print(f"[bold]{counted(estimate.users, 'user')}[/bold]{which}{sending}")
    if estimate.broken is None:
        left = "this process saw the data" if in_process else f"if shuffler and analyzer collude: {fallback(plan)}"
        console.print(
            f"guarantee for one row: [bold]{guarantee_of(plan)}[/bold] ({plan.accountant} accountant); {left}"
        )
    else:
        console.print(f"[bold]NO GUARANTEE[/bold]: {escape(estimate.broken)}")
    print_rows(estimate, level, names, top=top)
    if estimate.adjustment:
        console.print(estimate.adjustment)


def shown_whole(estimate: BaseEstimate) -> bool:
    """Whether a person sees all of it."""
    return estimate.prompt is not None or len(estimate.to_table()) <= _SHOWN


def print_rows(
    estimate: BaseEstimate,
    level: float,
    names: Sequence[str] | None = None,
    *,
    hint: str = "",
    prompt: str = _PROMPT,
    top: Top | None = None,
) -> None:
    """The estimate as a table, of many rows some, with what is to be said of it; or what must be asked for first.

    With `top` these rows are its labels, the most frequent first.
    """
    if estimate.prompt is not None:
        console.print(prompt)
        return
    found = estimate.to_table(level).with_names(names)
    places = found.some(_SHOWN if len(found) <= _SHOWN else _SOME) if top is None else found.largest(len(top.rows))
    table = table_of(*found.heads())
    for row in found.cells(places):
        table.add_row(*map(escape, row))
    console.print(table)
    said = estimate.remarks(level)
    if top is not None:
        said[0] = top.statement  # the first is on the ranks of ten
    for line in ([f"{left_out}{hint}"] if (left_out := found.left_out(places)) else []) + said:
        console.print(line, markup=False)


def print_quantiles(quantiles: Sequence[Quantile], level: float) -> None:
    """Quantiles of numbers in bins; their intervals reach from edge to edge."""
    table = table_of("quantile", "value", f"{percent(level)} % interval")
    for each in quantiles:
        table.add_row(f"{each.q:g}", plain(each.value, 5), f"{plain(each.lower, 15)} to {plain(each.upper, 15)}")
    console.print(table)
