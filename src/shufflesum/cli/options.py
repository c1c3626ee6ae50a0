"""Options that several commands share: groups of options, bounds, files, tasks, and the plan that somebody wants."""

from __future__ import annotations

import csv
import inspect
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_args

import click

from shufflesum.cli.commands import COLUMN, as_option, conflict
from shufflesum.domains import DOMAINS, Arrays, Domain
from shufflesum.domains.options import Option, read_words
from shufflesum.errors import FileError, ParameterError
from shufflesum.mechanisms import MECHANISMS
from shufflesum.mechanisms.mechanism import NoiseBy
from shufflesum.planning import plan, plan_for_error
from shufflesum.plans import Plan
from shufflesum.tables.delimited import TEXT, suffix_by, suffix_of
from shufflesum.tables.paths import PathOrUrl, place

_F = TypeVar("_F", bound=Callable[..., object])


def all_of(*options: Callable[[Any], Any]) -> Callable[[_F], _F]:
    """A decorator: the command takes all these options, in this order."""

    def decorate(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


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

        decorated: _F = all_of(*options)(command)  # type: ignore[assignment]
        return decorated

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
        raise conflict(f"--bounds is given {len(texts)} times, for {' and for '.join(sorted(kinds))}; give {_FORMS}")
    if kinds == {"all"}:
        return _pair(texts[0])
    if kinds == {"a file"}:
        return _from_file(Path(texts[0]))
    return _of_columns([(name.strip(), pair) for name, _, pair in (text.rpartition("=") for text in texts)])


def _of_columns(named: Sequence[tuple[str, str]]) -> dict[str, _Pair]:
    found: dict[str, _Pair] = {}
    for name, pair in named:
        if name in found:
            raise conflict(f"--bounds has column {name!r} twice; give each once")
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


plan_options = all_of(
    click.option(
        "--bounds",
        multiple=True,
        callback=_read,
        metavar="LO:HI",
        help="Public bounds of all values; or of each column, NAME=LO:HI, once for each; or FILE.csv with lines of "
        "column,lower,upper.  [0:1]",
    ),
    click.option(
        "--mechanism",
        type=click.Choice(["randomized-response", "noisy-counts"]),
        help="randomized-response: some reports are noise; noisy-counts: dummy reports are added.  [automatic]",
    ),
    click.option("--max-dummies", type=int, metavar="N", help="Most reports a shuffler adds as noise.  [10000000]"),
    click.option("--max-reports", type=int, metavar="N", help="Most reports of a user, blanks included."),
    click.option("--digits", type=int, metavar="J", help="noisy-counts: digits of a value.  [automatic]"),
    click.option(
        "--coordinates", type=int, metavar="T", help="randomized-response: those each user reports.  [automatic]"
    ),
    click.option(
        "--levels", type=int, metavar="K", help="randomized-response: rounding steps of a value.  [automatic]"
    ),
    click.option("--sampling", type=click.Choice(["stratified", "uniform"]), help="randomized-response.  [stratified]"),
    click.option(
        "--accountant", type=click.Choice(["exact", "paper"]), help="Certified, or the published formulas.  [exact]"
    ),
    click.option(
        "--honest-fraction", type=float, metavar="F", help="The part of the users that follows the protocol.  [1]"
    ),
    click.option("--rounds", type=int, metavar="R", help="Rounds the guarantee covers.  [1]"),
    click.option(
        "--assumed-std",
        type=float,
        metavar="S",
        help="Plan for users who differ by so much: a public guess of their standard deviation.  [worst case]",
    ),
)
"""The parameters of a plan, for every command that may make one; those not given are None."""


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
            option, other = as_option(next(iter(own))), getattr(other, "family", other)
            raise conflict(f"{option} is for --mechanism {kind.family}, not {other}; leave one of them out")
        found["mechanism"] = kind.Options(**own)
    return found


def plan_of_file(plan_file: Path, beside: Iterable[str]) -> Plan:
    """The plan of a file; options that it fixes already, by their names or their arguments' names, are refused."""
    for name in beside:
        option = name if name.startswith("--") else as_option(name)
        raise conflict(f"{option} cannot be given with --plan, which fixes it already; leave one of them out")
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
    numbers = domain.numbers
    if names is None and numbers is not None and numbers.columns is not None:
        click.echo(
            f"note: {file} does not name its columns; they are taken for the plan's, in this order: "
            f"{', '.join(numbers.columns[:12])}{', ...' if len(numbers.columns) > 12 else ''}",
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


# ---- The plan that somebody wants, by options: what users hold, what is guaranteed, and what else is fixed.

Chosen = tuple[type[Domain], str | None]
"""The kind of domain, and the column that holds its labels, if it has a name."""


candidates_option = click.option(
    "--candidates", type=click.Path(path_type=Path), help="open-vocabulary: a file of the words to count, one per line."
)


def words_of(candidates: Path | None) -> list[str] | None:
    """The words of `candidates_option`, each once."""
    return None if candidates is None else list(dict.fromkeys(read_words(candidates, "candidates")))


def _argument(kind: type[Domain]) -> str:
    return kind.kind.replace("-", "_")


def _refuse_several(kinds: Sequence[type[Domain]]) -> None:
    if len(kinds) > 1:
        raise conflict(f"--{kinds[0].kind} and --{kinds[1].kind} exclude each other; leave one of them out")


def _column_options(which: int) -> Callable[[_F], _F]:
    """The options --KIND COLUMN, with the domain's first or second help text."""
    texts = {kind: kind.column_help[which] for kind in DOMAINS.values() if kind.column_help is not None}
    arguments = {_argument(kind): kind for kind in texts}

    def chosen(**columns: str | None) -> Chosen | None:
        given = [(arguments[name], column) for name, column in columns.items() if column is not None]
        _refuse_several([kind for kind, _ in given])
        return given[0] if given else None

    options = [click.option(f"--{kind.kind}", metavar="COLUMN", help=text) for kind, text in texts.items()]
    return option_group("chosen", chosen, *options, parameters=arguments)


column_options = _column_options(0)
"""Which column holds labels, as `chosen`; at most one of them may be given."""

planned_column_options = _column_options(1)
"""The same for commands that count nothing themselves: what is done with the column is the plan's."""


def column_for(domain: Domain, chosen: Chosen | None) -> str | None:
    """The name of the column of labels under a plan, if one was given; it must be what the plan is for."""
    wanted = f"--{domain.kind}" if domain.column_layout.named else None
    click.get_current_context().meta[COLUMN] = wanted  # what messages call column=
    if chosen is None:
        return None
    if chosen[0] is not type(domain):
        remedy = "leave it out" if wanted is None else f"name the column with {wanted}"
        raise conflict(f"--{chosen[0].kind} is not what the plan is for, {type(domain).__name__}; {remedy}")
    return chosen[1]


@dataclass(frozen=True, slots=True)
class DomainOptions:
    """What was said of the domain: the domain itself by a flag, and its own options by their arguments' names."""

    flag: type[Domain] | None
    values: Mapping[str, Any]

    @property
    def given(self) -> list[str]:
        """Which options were given."""
        flag = [] if self.flag is None else [f"--{self.flag.kind}"]
        return [as_option(name) for name in self.values] + flag

    def kind(self, *, numbers: bool = False) -> type[Domain] | None:
        """The first domain that has all options that were given; None without any.

        Some domains take numbers as well (--dimension, --shape, --columns): those, or the others, come first.
        """
        if not self.given:
            return None
        kinds = [kind for kind in DOMAINS.values() if self._fit(kind)]
        if not kinds:
            raise conflict(f"{' and '.join(self._unlike())} exclude each other; leave one of them out")
        return next((kind for kind in kinds if kind.takes_numbers == numbers), kinds[0])

    def domain(self, kind: type[Domain], column: str | None = None, numbers: Any = None) -> Domain:
        """A domain of this kind, with labels in a column of this name and, beside them, these numbers."""
        own = {option.argument for option in kind.options}
        for name in self.values:
            if name not in own:
                raise conflict(f"{as_option(name)} is not for --{kind.kind}; leave it out")
        return kind.from_options(self.values, column, numbers)

    def refuse_excluded(self, kind: type[Domain], arguments: Mapping[str, Any]) -> None:
        """Refuse arguments of a plan that mean nothing for this kind of domain."""
        for name in kind.excludes:
            if arguments.get(name) is not None:
                raise conflict(f"{as_option(name)} and {self.given[0]} exclude each other: leave one out")

    def _fit(self, kind: type[Domain]) -> bool:
        return self.values.keys() <= {option.argument for option in kind.options} and self.flag in (None, kind)

    def _unlike(self) -> list[str]:
        """Two options that no domain has both, or else all."""
        parts = [DomainOptions(None, {name: value}) for name, value in self.values.items()]
        parts += [] if self.flag is None else [DomainOptions(self.flag, {})]
        for one, other in combinations(parts, 2):
            if not any(one._fit(kind) and other._fit(kind) for kind in DOMAINS.values()):
                return one.given + other.given
        return self.given


def _domain_options(*, flags: bool) -> Callable[[_F], _F]:
    """All options of all domains, each once; with `flags` those that stand for a whole domain, too."""
    own = {option.argument: option for kind in DOMAINS.values() for option in kind.options}
    kinds = {_argument(kind): kind for kind in DOMAINS.values() if flags and kind.flag_help is not None}

    def made(**given: Any) -> DomainOptions:
        marked = [kind for name, kind in kinds.items() if given.get(name)]
        _refuse_several(marked)
        values = {
            name: given[name] if option.flag else option.convert(given[name])
            for name, option in own.items()
            if given.get(name) is not None and given[name] is not False
        }
        return DomainOptions(marked[0] if marked else None, values)

    options = [_click_option(option) for option in own.values()]
    options += [click.option(f"--{kind.kind}", is_flag=True, help=kind.flag_help) for kind in kinds.values()]
    return option_group("held", made, *options, parameters=[*own, *kinds])


def _click_option(option: Option) -> Callable[[Any], Any]:
    if option.flag:
        return click.option(f"--{option.name}", is_flag=True, help=option.help)
    kinds: dict[Any, Any] = {int: int, float: float, Path: click.Path(path_type=Path)}
    kind = kinds.get(option.convert, str)
    return click.option(f"--{option.name}", type=kind, metavar=option.metavar, help=option.help)


domain_options = _domain_options(flags=False)
"""What there is to say of domains, as `held`."""

domain_and_flag_options = _domain_options(flags=True)
"""The same for commands without a column that says which domain is meant."""


wanted_options = all_of(
    click.option("--users", type=int, metavar="N", help="The smallest batch that may be released."),
    click.option("--dimension", type=int, metavar="D", help="Numbers in each user's array, if it is a vector."),
    click.option("--shape", metavar="D,D,...", help="Instead: the shape of each user's array, such as 28,28."),
    columns_option("What the numbers are called: names, separated by commas; files must have just these columns."),
    domain_and_flag_options,
    click.option("--column", metavar="NAME", help="What the column of labels or words is called in files."),
    click.option("--epsilon", type=float, help="The guarantee's epsilon."),
    click.option("--delta", type=float, help="The guarantee's delta."),
    plan_options,
    click.option(
        "--noise-by",
        type=click.Choice(get_args(NoiseBy)),
        help="Who draws the noise: users, shuffler, both servers, or curator: one process, nothing is sent.  [users]",
    ),
)
"""What a plan is made of: the arguments of `plan_from_options`."""


def plan_from_options(
    error: dict[str, Any], *, users: int | None, epsilon: float | None, delta: float | None, **arguments: Any
) -> Plan:
    """The plan that the options of `wanted_options` ask for, for an `error` if there is one."""
    if delta is None:
        raise ParameterError("missing-argument", "--delta is missing; give --epsilon and --delta")
    given = plan_arguments(**arguments) | {"delta": delta}
    if error:
        return plan_for_error(**error, users=users, epsilon=epsilon, **given)
    if users is None or epsilon is None:
        raise ParameterError(
            "missing-argument", "--users and --epsilon are needed; one of them, or both, may be left out with --margin"
        )
    return plan(users=users, epsilon=epsilon, **given)


def plan_arguments(
    *,
    dimension: int | None,
    shape: str | None,
    columns: list[str] | None,
    held: DomainOptions,
    column: str | None,
    **arguments: Any,
) -> dict[str, Any]:
    """The same as arguments of `plan`: what users hold, and what else is fixed, but for users, epsilon and delta."""
    given: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
    kind = held.kind(numbers=dimension is not None or shape is not None or columns is not None)
    if kind is not None:
        held.refuse_excluded(kind, given | {"columns": columns, "column": column})
    given = with_mechanism(given)
    bounds = given.get("bounds")
    if isinstance(bounds, dict) and columns is None and dimension is None and shape is None:
        columns = list(bounds)  # named already, so they need no naming again
        kind = held.kind(numbers=True)
    if kind is None:
        if column is not None:
            raise conflict("--column is for labels; give --columns for numbers")
        named = {} if columns is None else {"columns": columns}
        return given | named | {"shape": _shape(dimension, shape, columns)}
    if kind.takes_numbers:
        numbers = Arrays(_shape(dimension, shape, columns), (0, 1), columns)
        return given | {"domain": held.domain(kind, column, numbers)}
    if dimension is not None or shape is not None or columns is not None:
        raise conflict(
            "--dimension, --shape and --columns are for numbers; beside --labels they mean groups, and nothing else"
        )
    return given | {"domain": held.domain(kind, column)}


def _shape(dimension: int | None, shape: str | None, columns: list[str] | None) -> int | list[int]:
    if dimension is None and shape is None and columns:
        return len(columns)
    if (dimension is None) == (shape is None):
        raise conflict(
            "give either --dimension D or --shape D,D,...: how many numbers each user's array has; or --labels for "
            "labels, --open-vocabulary for words"
        )
    if dimension is not None:
        return dimension
    try:
        return [int(size) for size in str(shape).split(",")]
    except ValueError:
        raise ParameterError(
            "wrong-type", f"--shape is {shape!r}; write whole numbers with commas, such as 28,28"
        ) from None
