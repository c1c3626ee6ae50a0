"""`shufflesum plan`: from users, dimension and privacy to a plan, or from an error to what it needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from shufflesum._rounding import upwards
from shufflesum.cli.options.ball import BallOptions, ball_options
from shufflesum.cli.options.common import columns_option, plan_options
from shufflesum.cli.options.labels import LabelOptions, label_options
from shufflesum.cli.output.card import card
from shufflesum.cli.output.terminal import console, warnings_as_notes
from shufflesum.domain import Box, Categories, Choices, Groups, Hashed
from shufflesum.errors import ParameterError
from shufflesum.planning import Shape, alternatives, plan_for_error
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan
from shufflesum.plots import DRAWABLE, error_chart, require_plots, save_chart
from shufflesum.tables import StagedOutputs

__all__ = ["command", "wanted_choices", "wanted_options", "wanted_plan"]

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


def _errors(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> float | dict[str, float] | None:
    """`X` for all means, or `NAME=X` for each."""
    if not texts:
        return None
    named = [text.rpartition("=")[::2] for text in texts]
    names = [name for name, _ in named]
    try:
        errors = [float(error) for _, error in named]
    except ValueError:
        errors = []
    if not errors or len(set(names)) < len(names) or ("" in names and len(names) > 1):
        raise ParameterError(
            "wrong-type",
            f"--acceptable-error is {' and '.join(texts)}; give one number for all, or NAME=X once for each column",
        )
    return errors[0] if names == [""] else dict(zip(names, errors, strict=True))


@click.command("plan", short_help="Choose reports, levels and noise for a privacy target.")
@wanted_options
@click.option(
    "--acceptable-error",
    multiple=True,
    callback=_errors,
    metavar="X",
    help="Standard error of each mean in its unit, NAME=X for a column, or of each label's share, such as 0.01: finds "
    "the least --users, or --epsilon, whichever is left out, within 0.5%.",
)
@click.option(
    "--target-error",
    type=float,
    metavar="X",
    help="Instead: squared error of the mean, summed over coordinates, in squared units of the values, of frequencies "
    "summed over labels, of one word's frequency.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the plan file (.json).")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the predicted error by number of reports.")
def command(
    acceptable_error: float | dict[str, float] | None,
    target_error: float | None,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    **arguments: Any,
) -> None:
    """Plan a collection: what users send, what is guaranteed, what error to expect.

    \b
    Example: shufflesum plan --users 50000 --dimension 100 --epsilon 1 --delta 1e-6 -o plan.json
             shufflesum plan --users 50000 --bounds age=0:120 --bounds income=0:500000 --epsilon 1 --delta 1e-6
             shufflesum plan --users 5000 --bounds age=0:120 --acceptable-error age=0.5 --delta 1e-6
             shufflesum plan --target-error 0.001 --dimension 100 --epsilon 1 --delta 1e-6
             shufflesum plan --users 50000 --labels yes,no,unsure --epsilon 1 --delta 1e-6 -o plan.json
             shufflesum plan --users 6000 --dimension 7850 --radius 0.4 --rounds 30 --epsilon 2 --delta 1e-6

    --labels alone counts one label a user, with --most S up to S labels, with --dimension or --shape it is for means of
    numbers in groups. --bins counts numbers in bins, --words any words.
    """
    with StagedOutputs() as outputs, warnings_as_notes():
        staged = outputs.stage(output, (".json",)) if output else None
        if plot:
            require_plots()
        staged_plot = outputs.stage(plot, DRAWABLE) if plot else None
        errors = {"target_error": target_error, "acceptable_error": acceptable_error}
        plan = wanted_plan({name: error for name, error in errors.items() if error is not None}, **arguments)
        if staged:
            outputs.write(staged, plan.to_json())
        if staged_plot:
            _draw(plan, staged_plot)
    if as_json:
        click.echo(plan.to_json())
    else:
        console.print(card(plan, arguments.get("spread")))
        for path in (output, plot):
            if path:
                console.print(f"wrote {path}", markup=False)


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
    return make_plan(users=users, epsilon=epsilon, **given)


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


def _draw(plan: Plan, path: Path) -> None:
    parts = {
        _label(option): {
            "sampling": option.expected_error.sampling,
            "rounding": option.expected_error.rounding,
            "noise": option.expected_error.noise,
        }
        for option in alternatives(plan)
    }
    chart = error_chart(
        parts,
        title="Predicted error by what a user sends",
        subtitle=f"{plan.users:,} users, {_size(plan)}, epsilon {upwards(plan.epsilon)}, "
        f"delta {upwards(plan.delta)}; worst data, certified noise",
    )
    save_chart(chart, path)


def _size(plan: Plan) -> str:
    match plan.domain:
        case Categories() | Choices():
            return f"{plan.dimension:,} labels"
        case Groups():
            return f"{len(plan.domain.labels):,} groups of {plan.domain.box.dimension:,} coordinates"
        case Hashed():
            return "any words"
    return f"{plan.dimension:,} coordinates"


def _label(option: Plan) -> str:
    return f"{option.reports:,} {option.mechanism.kind}"
