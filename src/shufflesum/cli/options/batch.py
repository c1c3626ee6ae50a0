"""Options that the batch commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from click.core import ParameterSource

from shufflesum.errors import ParameterError
from shufflesum.plans import Plan
from shufflesum.wire import Task, load_private_key

if TYPE_CHECKING:
    from shufflesum.batch.targets import Target


_F = TypeVar("_F", bound=Callable[..., object])
_UNITS = ("", "K", "M", "G", "T")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?", re.IGNORECASE)


def memory_size(text: str | int) -> int:
    """A number of bytes from text such as 200MB, 2GB or 1GiB."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is no amount of memory; write it as 200MB, 2GB or 1GiB")
    power = _UNITS.index(match[2].upper())
    return int(float(match[1]) * (1024**power if match[3] else 1000**power))


def target_options(function: _F) -> _F:
    """What the reports are made for: a plan, or a task and round where they are sealed."""
    path = click.Path(path_type=Path)
    for option in (
        click.option("--task", "task_file", type=path, help="A task instead of a plan: reports are sealed."),
        click.option("--plan", "plan_file", type=path, help="From shufflesum plan."),
    ):
        function = option(function)
    return function


def load_target(
    plan_file: Path | None, task_file: Path | None, *, round_number: int | None = None, key_file: Path | None = None
) -> Target:
    """What the reports are made for; a plan or a task must be given, and only a task has a key."""
    from shufflesum.batch.targets import PlainTarget, SealedTarget

    if (plan_file is None) == (task_file is None):
        given = "neither was" if plan_file is None else "both were"
        raise ParameterError(
            "missing-argument" if plan_file is None else "conflicting-arguments",
            f"--plan or --task must be given, and {given}; a task holds its plan",
        )
    number = 1 if round_number is None else round_number
    if task_file is not None:
        key = None if key_file is None else load_private_key(key_file)
        return SealedTarget(Task.load(task_file), number, key)
    assert plan_file is not None
    return PlainTarget(Plan.load(plan_file), number)


def engine_options(function: _F) -> _F:
    """Where the work is done, by how many, and within which memory."""
    for option in (
        click.option(
            "--conf",
            metavar="KEY=VALUE",
            multiple=True,
            callback=_settings,
            help="A setting of Spark's, such as spark.executor.memory=4g; may be repeated.",
        ),
        click.option("--master", metavar="URL", help="The Spark master.  [local[*]]"),
        click.option("--engine", type=click.Choice(["local", "spark"]), default="local", show_default=True),
        click.option(
            "--workers", type=click.IntRange(1, 1 << 10), help="How many share the work.  [one for each core]"
        ),
        click.option(
            "--memory",
            type=memory_size,
            metavar="SIZE",
            default="1GB",
            show_default=True,
            help="At most so much beside the program itself.",
        ),
    ):
        function = option(function)
    return function


def _settings(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise click.BadParameter(f"{text!r} is no setting of Spark's; write it as spark.executor.memory=4g")
        if settings.setdefault(key, value) != value:
            raise click.BadParameter(f"{key} is given twice, with different values; give it once")
    return settings


def check_engine(engine: str, master: str | None, conf: Mapping[str, str]) -> None:
    """Refuse options that the engine would not heed."""
    for option, given in {"--master": master, "--conf": conf}.items():
        if engine == "local" and given:
            raise ParameterError(
                "conflicting-arguments", f"{option} is for --engine spark; say so, or leave {option} out"
            )
    context = click.get_current_context()
    for name in ("memory", "workers"):
        if engine == "spark" and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise ParameterError(
                "conflicting-arguments", f"--{name} is for --engine local; give Spark its own, with its configuration"
            )


@contextmanager
def taking_up(output: Path, *, restart: bool) -> Iterator[None]:
    """Say where a run that is interrupted leaves its work, and that the next one has found it."""
    from shufflesum._machine import is_interruption
    from shufflesum.batch.files import partial_path

    partial = partial_path(output)
    if partial.exists() and not restart:
        click.echo(f"note: found {partial}, which an interrupted run left", err=True)
    try:
        yield
    except BaseException as error:
        if is_interruption(error) and partial.exists():
            click.echo(
                f"note: {partial} keeps what is done, and the same command goes on from there; remove it if you give "
                "the work up: it may hold reports in the order they came",
                err=True,
            )
        raise
