"""The plan that somebody wants, by options: what users hold, what is guaranteed, and what else is fixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shufflesum.cli.options.ball import BallOptions, ball_options
from shufflesum.cli.options.common import columns_option, plan_options
from shufflesum.cli.options.labels import LabelOptions, label_options
from shufflesum.domain import Box, Groups
from shufflesum.errors import ParameterError
from shufflesum.planning import Shape, plan, plan_for_error
from shufflesum.plans import Plan

__all__ = ["wanted_choices", "wanted_options", "wanted_plan"]

_F = TypeVar("_F", bound=Callable[..., object])


def wanted_options(function: _F) -> _F:
    """What a plan is made of: the arguments of `wanted_plan`."""
    for option in reversed(
        (
            click.option("--users", type=int, metavar="N", help="The smallest batch that may be released."),
            click.option("--dimension", type=int, metavar="D", help="Numbers in each user's array, if it is a vector."),
            click.option("--shape", metavar="D,D,...", help="Instead: the shape of each user's array, such as 28,28."),
            columns_option(
                "What the numbers are called: names, separated by commas; files must have just these columns."
            ),
            ball_options,
            label_options,
            click.option("--words", is_flag=True, help="Users hold any words, without a list of them."),
            click.option("--column", metavar="NAME", help="What the column of labels or words is called in files."),
            click.option("--epsilon", type=float, help="The guarantee's epsilon."),
            click.option("--delta", type=float, help="The guarantee's delta."),
            plan_options,
            click.option(
                "--one-process", is_flag=True, default=None, help="For whoever holds all data: nothing is sent."
            ),
        )
    ):
        function = option(function)
    return function


def wanted_plan(
    error: dict[str, Any], *, users: int | None, epsilon: float | None, delta: float | None, **arguments: Any
) -> Plan:
    """The plan that the options of `wanted_options` ask for, for an `error` if there is one."""
    if delta is None:
        raise ParameterError("missing-argument", "--delta is missing; give --epsilon and --delta")
    given = wanted_choices(**arguments) | {"delta": delta}
    if error:
        return plan_for_error(**error, users=users, epsilon=epsilon, **given)
    if users is None or epsilon is None:
        raise ParameterError(
            "missing-argument", "--users and --epsilon are needed; one of them may be left out with --acceptable-error"
        )
    return plan(users=users, epsilon=epsilon, **given)


def wanted_choices(
    *,
    dimension: int | None,
    shape: str | None,
    columns: list[str] | None,
    ball: BallOptions,
    words: bool,
    column: str | None,
    labelled: LabelOptions,
    **arguments: Any,
) -> dict[str, Any]:
    """The same as arguments of `plan`: what users hold, and what else is fixed, but for users, epsilon and delta."""
    given: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
    ball.check(given, [*labelled.given, *_unfit_for_balls(words, columns, column)])
    within = None if ball.radius is None else ball.domain(_shape(dimension, shape, None))
    bounds = given.get("bounds")
    if isinstance(bounds, dict) and columns is None and dimension is None and shape is None:
        columns = list(bounds)  # named already, so they need no naming again
    held = within or _held(labelled, words, dimension, shape, columns, column)
    given["shape"] = held
    if columns is not None and not isinstance(held, Groups):
        given["columns"] = columns
    return given


def _unfit_for_balls(words: bool, columns: list[str] | None, column: str | None) -> list[str]:
    given = {"--words": words, "--columns": columns is not None, "--column": column is not None}
    return [option for option, there in given.items() if there]


def _held(
    labelled: LabelOptions,
    words: bool,
    dimension: int | None,
    shape: str | None,
    columns: list[str] | None,
    column: str | None,
) -> Shape:
    """What users hold, by the options that were given: numbers, labels, or both."""
    numbers = dimension is not None or shape is not None or columns is not None
    kind = labelled.implied if not words else ("words", None)
    if kind is None:
        if column is not None:
            raise ParameterError("conflicting-arguments", "--column is for labels; give --columns for numbers")
        return _shape(dimension, shape, columns)
    if kind[0] == "categories" and numbers and labelled.bins is None:
        kind = "group_by", None
    elif numbers:
        raise ParameterError(
            "conflicting-arguments",
            "--dimension, --shape and --columns are for numbers; beside --labels they mean groups, and nothing else",
        )
    box = Box.of(_shape(dimension, shape, columns), (0, 1), columns) if numbers else None
    return labelled.domain(kind[0], column, box)


def _shape(dimension: int | None, shape: str | None, columns: list[str] | None) -> int | list[int]:
    if dimension is None and shape is None and columns:
        return len(columns)
    if (dimension is None) == (shape is None):
        raise ParameterError(
            "conflicting-arguments",
            "give either --dimension D or --shape D,D,...: how many numbers each user's array has; or --labels for "
            "labels, --words for words",
        )
    if dimension is not None:
        return dimension
    try:
        return [int(size) for size in str(shape).split(",")]
    except ValueError:
        raise ParameterError(
            "wrong-type", f"--shape is {shape!r}; write whole numbers with commas, such as 28,28"
        ) from None
