"""Options that several commands share: groups of options, bounds, files, tasks and plans."""

from __future__ import annotations

import csv
import inspect
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

from shufflesum.domains import Domain
from shufflesum.errors import FileError, ParameterError
from shufflesum.mechanisms import MECHANISMS
from shufflesum.plans import Plan
from shufflesum.tables import TEXT, PathOrUrl, place, suffix_of
from shufflesum.tables.delimited import suffix_by

_F = TypeVar("_F", bound=Callable[..., object])


def option_group(
    name: str, make: Callable[..., object], *options: Callable[[Any], Any], parameters: Iterable[str] | None = None
) -> Callable[[_F], _F]:
    """A decorator: the command takes these options as one argument of this name, which `make` makes of them.

    They are the `parameters` of `make`, by their names; those with a default may have no option.
    """
    names = list(inspect.signature(make).parameters if parameters is None else parameters)

    def decorate(function: _F) -> _F:
        @wraps(function)
        def command(*positional: Any, **given: Any) -> object:
            mine = {option: given.pop(option) for option in names if option in given}
            return function(*positional, **{name: make(**mine)}, **given)

        decorated: Any = command
        for option in reversed(options):
            decorated = option(decorated)
        result: _F = decorated
        return result

    return decorate


_Pair: TypeAlias = tuple[float, float]
_COLUMNS = ("column", "lower", "upper")
_FORMS = "--bounds LO:HI for all values (--bounds 0:120), --bounds NAME=LO:HI for each column, or --bounds FILE.csv"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> _Pair | dict[str, _Pair] | None:
    if not texts:
        return None
    kinds = {"a column" if "=" in text else "a file" if text.lower().endswith(".csv") else "all" for text in texts}
    if len(kinds) > 1 or (len(texts) > 1 and kinds != {"a column"}):
        raise ParameterError(
            "conflicting-arguments",
            f"--bounds is given {len(texts)} times, for {' and for '.join(sorted(kinds))}; give {_FORMS}",
        )
    if kinds == {"all"}:
        return _pair(texts[0])
    if kinds == {"a file"}:
        return _from_file(Path(texts[0]))
    return _of_columns([(name.strip(), pair) for name, _, pair in (text.rpartition("=") for text in texts)])


def _of_columns(named: Sequence[tuple[str, str]]) -> dict[str, _Pair]:
    found: dict[str, _Pair] = {}
    for name, pair in named:
        if name in found:
            raise ParameterError("conflicting-arguments", f"--bounds has column {name!r} twice; give each once")
        found[name] = _pair(pair, name)
    return found


def _pair(text: str, column: str | None = None) -> _Pair:
    low, _, high = text.partition(":")
    if not (_is_number(low) and _is_number(high)):
        where = "" if column is None else f" of column {column!r}"
        joined = ", written as one word with a colon" if _is_number(text) else ""
        raise ParameterError("bad-bounds", f"--bounds{where} is {text!r}, not two numbers{joined}; give {_FORMS}")
    return float(low), float(high)


def _from_file(path: Path) -> dict[str, _Pair]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, skipinitialspace=True))
    except (OSError, UnicodeError, csv.Error) as error:
        raise FileError("unreadable", f"{path}: the bounds cannot be read: {error}") from error
    for row in rows:
        if set(row) != set(_COLUMNS) or None in row.values():
            raise FileError(
                "malformed",
                f"{path}: bounds are lines of a column's name, its lower and its upper bound, below the line "
                f"{','.join(_COLUMNS)}",
            )
    if not rows:
        raise FileError("no-rows", f"{path}: holds no bounds; give a line of column,lower,upper for each column")
    return _of_columns([(row["column"].strip(), f"{row['lower']}:{row['upper']}") for row in rows])


bounds_option = click.option(
    "--bounds",
    multiple=True,
    callback=_read,
    metavar="LO:HI",
    help="Public bounds of all values; or of each column, NAME=LO:HI, once for each; or FILE.csv with lines of "
    "column,lower,upper.  [0:1]",
)


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

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> PathOrUrl:
        """Where it is."""
        return place(value)


PLACE = _PlaceType()
PATH = click.Path(path_type=Path)


def plan_options(function: _F) -> _F:
    """The parameters of a plan, for every command that may make one; those not given are None."""
    for option in reversed(
        (
            bounds_option,
            click.option(
                "--mechanism",
                type=click.Choice(["randomized-response", "noisy-counts"]),
                help="randomized-response: some reports are noise; noisy-counts: dummy reports are added.  [automatic]",
            ),
            click.option("--max-reports", type=int, metavar="N", help="Most reports of a user, blanks included."),
            click.option("--digits", type=int, metavar="J", help="noisy-counts: digits of a value.  [automatic]"),
            click.option(
                "--coordinates",
                type=int,
                metavar="T",
                help="randomized-response: those each user reports.  [automatic]",
            ),
            click.option(
                "--levels", type=int, metavar="K", help="randomized-response: rounding steps of a value.  [automatic]"
            ),
            click.option(
                "--sampling", type=click.Choice(["stratified", "uniform"]), help="randomized-response.  [stratified]"
            ),
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
                "--assumed-std",
                type=float,
                metavar="S",
                help="Plan for users who differ by so much: a public guess of their standard deviation.  [worst case]",
            ),
        )
    ):
        function = option(function)
    return function


def with_mechanism(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a plan, with those that only one mechanism has as the options of that mechanism."""
    found = dict(given)
    for kind in MECHANISMS.values():
        if kind.Options is None:
            continue
        own = {field.name: found.pop(field.name) for field in fields(kind.Options) if field.name in found}
        if not own:
            continue
        other = found.get("mechanism", kind.family)
        if other != kind.family:
            option = f"--{next(iter(own)).replace('_', '-')}"
            raise ParameterError(
                "conflicting-arguments",
                f"{option} is for --mechanism {kind.family}, not {getattr(other, 'family', other)}; leave one of them "
                "out",
            )
        found["mechanism"] = kind.Options(**own)
    return found


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


def note_missing_header(names: tuple[str, ...] | None, file: PathOrUrl, header: bool | None) -> None:
    """Say that the first line of a CSV counts as a user, where that was only found out from its looks."""
    if names is None and header is None and suffix_of(file) in TEXT:
        click.echo(
            f"note: {file} has no header by its looks, so its first line is a user; say --header if not", err=True
        )


def note_assumed_columns(names: tuple[str, ...] | None, file: PathOrUrl, domain: Domain) -> None:
    """Say that columns without names are taken for those that the plan names."""
    box = domain.numbers
    if names is None and box is not None and box.columns is not None:
        click.echo(
            f"note: {file} does not name its columns; they are taken for the plan's, in this order: "
            f"{', '.join(box.columns[:12])}{', ...' if len(box.columns) > 12 else ''}",
            err=True,
        )


def _column_names(_: click.Context, __: click.Parameter, text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [name.strip() for name in text.split(",")] if text.strip() else []


def file_argument(name: str) -> Callable[[_F], _F]:
    """A file, or `-` for standard input, which is there as a file until the command ends."""

    def kept(context: click.Context, _: click.Parameter, path: PathOrUrl) -> PathOrUrl:
        return context.with_resource(_input_file(path))

    return click.argument(name, type=PLACE, callback=kept)


@contextmanager
def _input_file(path: PathOrUrl) -> Iterator[PathOrUrl]:
    """The file itself; for `-` a copy of standard input, which only its owner can read, until the block ends.

    Files are read twice, to count the rows and to use them, and a stream can be read once.
    """
    if str(path) != "-":
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="shufflesum-") as folder:
        start = sys.stdin.buffer.read(8)
        copy = Path(folder) / f"standard-input{suffix_by(start) or '.csv'}"
        try:
            with copy.open("wb") as file:
                file.write(start)
                shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
        except OSError as error:
            raise FileError(
                "unwritable",
                f"standard input cannot be kept in {folder}: {error.strerror or error}; it needs room for all of it: "
                "set TMPDIR to a folder that has it",
            ) from error
        yield copy
