"""`--bounds`: one pair for all values, one for each column, or a file of those."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import click

from shufflesum.errors import FileError, ParameterError

__all__ = ["bounds_option", "joined_bounds"]

_Pair: TypeAlias = tuple[float, float]
_COLUMNS = ("column", "lower", "upper")
_FORMS = "--bounds LO HI for all values, --bounds NAME=LO:HI for each column, or --bounds FILE.csv"


def joined_bounds(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, `--bounds LO HI` as one: an option takes one word or two, never either."""
    rest, joined = list(arguments), list[str]()
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*joined, word, *rest]
        if word == "--bounds" and rest:
            word = f"--bounds={rest.pop(0)}"
        if word.startswith("--bounds=") and rest and _is_number(word.removeprefix("--bounds=")):
            word = f"{word}:{rest.pop(0)}"
        joined.append(word)
    return joined


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
        raise ParameterError("bad-bounds", f"--bounds{where} is {text!r}, which is not two numbers; give {_FORMS}")
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
    metavar="LO HI",
    help="Public bounds of all values; or of each column, NAME=LO:HI, once for each; or FILE.csv with lines of "
    "column,lower,upper.  [0 1]",
)
