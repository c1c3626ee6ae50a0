"""The plan that somebody wants, by options: what users hold, what is guaranteed, and what else is fixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from shufflesum.cli.options.common import columns_option, option_group, plan_options, with_mechanism
from shufflesum.domains import DOMAINS, Arrays, Domain
from shufflesum.domains.options import Option, read_words
from shufflesum.errors import ParameterError
from shufflesum.mechanisms import NoiseBy
from shufflesum.planning import plan, plan_for_error
from shufflesum.plans import Plan

Chosen = tuple[type[Domain], str | None]
"""The kind of domain, and the column that holds its labels, if it has a name."""

_F = TypeVar("_F", bound=Callable[..., object])

candidates_option = click.option(
    "--candidates", type=click.Path(path_type=Path), help="open-vocabulary: a file of the words to count, one a line."
)


def words_of(candidates: Path | None) -> list[str] | None:
    """The words of `candidates_option`, each once."""
    return None if candidates is None else list(dict.fromkeys(read_words(candidates, "candidates")))


def _argument(kind: type[Domain]) -> str:
    return kind.kind.replace("-", "_")


def _column_options(which: int) -> Callable[[_F], _F]:
    """The options --KIND COLUMN, with the domain's first or second help text."""
    texts = {kind: kind.column_help[which] for kind in DOMAINS.values() if kind.column_help is not None}
    arguments = {_argument(kind): kind for kind in texts}

    def chosen(**columns: str | None) -> Chosen | None:
        given = [(arguments[name], column) for name, column in columns.items() if column is not None]
        if len(given) > 1:
            one, other = (f"--{kind.kind}" for kind, _ in given[:2])
            raise ParameterError(
                "conflicting-arguments", f"{one} and {other} exclude each other; leave one of them out"
            )
        return given[0] if given else None

    options = [click.option(f"--{kind.kind}", metavar="COLUMN", help=text) for kind, text in texts.items()]
    return option_group("chosen", chosen, *options, parameters=arguments)


column_options = _column_options(0)
"""Which column holds labels, as `chosen`; at most one of them may be given."""

planned_column_options = _column_options(1)
"""The same for commands that count nothing themselves: what is done with the column is the plan's."""


def column_for(domain: Domain, chosen: Chosen | None) -> str | None:
    """The name of the column of labels under a plan, if one was given; it must be what the plan is for."""
    if chosen is None:
        return None
    option, wanted = f"--{chosen[0].kind}", domain.column_layout.option
    if option != wanted:
        remedy = "leave it out" if wanted is None else f"name the column with {wanted}"
        raise ParameterError(
            "conflicting-arguments", f"{option} is not what the plan is for, {type(domain).__name__}; {remedy}"
        )
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
        return [f"--{name.replace('_', '-')}" for name in self.values] + flag

    def kind(self, *, numbers: bool = False) -> type[Domain] | None:
        """The first domain that has all options that were given; None without any.

        Some domains take numbers as well (--dimension, --shape, --columns): those, or the others, come first.
        """
        if not self.given:
            return None
        kinds = [kind for kind in DOMAINS.values() if self._fit(kind)]
        if not kinds:
            raise ParameterError(
                "conflicting-arguments", f"{' and '.join(self._unlike())} exclude each other; leave one of them out"
            )
        return next((kind for kind in kinds if kind.takes_numbers == numbers), kinds[0])

    def domain(self, kind: type[Domain], column: str | None = None, numbers: Any = None) -> Domain:
        """A domain of this kind, with labels in a column of this name and, beside them, these numbers."""
        own = {option.argument for option in kind.options}
        for name in self.values:
            if name not in own:
                raise ParameterError(
                    "conflicting-arguments", f"--{name.replace('_', '-')} is not for --{kind.kind}; leave it out"
                )
        return kind.from_options(self.values, column, numbers)

    def refuse_excluded(self, kind: type[Domain], arguments: Mapping[str, Any]) -> None:
        """Refuse arguments of a plan that mean nothing for this kind of domain."""
        for name in kind.excludes:
            if arguments.get(name) is not None:
                option, by = f"--{name.replace('_', '-')}", self.given[0]
                raise ParameterError("conflicting-arguments", f"{option} and {by} exclude each other: leave one out")

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
        if len(marked) > 1:
            one, other = (f"--{kind.kind}" for kind in marked[:2])
            raise ParameterError(
                "conflicting-arguments", f"{one} and {other} exclude each other; leave one of them out"
            )
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


def wanted_options(function: _F) -> _F:
    """What a plan is made of: the arguments of `plan_from_options`."""
    for option in reversed(
        (
            click.option("--users", type=int, metavar="N", help="The smallest batch that may be released."),
            click.option("--dimension", type=int, metavar="D", help="Numbers in each user's array, if it is a vector."),
            click.option("--shape", metavar="D,D,...", help="Instead: the shape of each user's array, such as 28,28."),
            columns_option(
                "What the numbers are called: names, separated by commas; files must have just these columns."
            ),
            domain_and_flag_options,
            click.option("--column", metavar="NAME", help="What the column of labels or words is called in files."),
            click.option("--epsilon", type=float, help="The guarantee's epsilon."),
            click.option("--delta", type=float, help="The guarantee's delta."),
            plan_options,
            click.option(
                "--noise-by",
                type=click.Choice(get_args(NoiseBy)),
                help="users: each draws noise; curator: one process holds all rows, nothing is sent.  [users]",
            ),
        )
    ):
        function = option(function)
    return function


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
            raise ParameterError("conflicting-arguments", "--column is for labels; give --columns for numbers")
        named = {} if columns is None else {"columns": columns}
        return given | named | {"shape": _shape(dimension, shape, columns)}
    if kind.takes_numbers:
        numbers = Arrays(_shape(dimension, shape, columns), (0, 1), columns)
        return given | {"domain": held.domain(kind, column, numbers)}
    if dimension is not None or shape is not None or columns is not None:
        raise ParameterError(
            "conflicting-arguments",
            "--dimension, --shape and --columns are for numbers; beside --labels they mean groups, and nothing else",
        )
    return given | {"domain": held.domain(kind, column)}


def _shape(dimension: int | None, shape: str | None, columns: list[str] | None) -> int | list[int]:
    if dimension is None and shape is None and columns:
        return len(columns)
    if (dimension is None) == (shape is None):
        raise ParameterError(
            "conflicting-arguments",
            "give either --dimension D or --shape D,D,...: how many numbers each user's array has; or --labels for "
            "labels, --open-vocabulary for words",
        )
    if dimension is not None:
        return dimension
    try:
        return [int(size) for size in str(shape).split(",")]
    except ValueError:
        raise ParameterError(
            "wrong-type", f"--shape is {shape!r}; write whole numbers with commas, such as 28,28"
        ) from None
