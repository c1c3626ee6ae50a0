"""`shufflesum config`: which options count, and where they came from."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from shufflesum.cli.options.common import Group
from shufflesum.cli.options.configured import CONFIGURED, command_named, hidden, option_name, settings
from shufflesum.errors import ParameterError

_SOURCES: dict[ParameterSource | None, str] = {
    ParameterSource.COMMANDLINE: "option",
    ParameterSource.ENVIRONMENT: "environment",
    ParameterSource.DEFAULT_MAP: "file",
}


@click.group("config", cls=Group, short_help="Check a configuration file.")
def command() -> None:
    """Check a configuration file: what counts, and where it came from."""


@command.command(
    "check",
    short_help="Say what counts, and where it came from.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="SHUFFLESUM_CONFIG",
    show_envvar=True,
    help="The file to check.",
)
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND [OPTION]...]")
def check(config: Path | None, command_line: tuple[str, ...]) -> None:
    """Print each option that a command would run with: from the command line, the environment, the file or the default.

    Without COMMAND, for every command that the file has a table of; with one, exactly as it would be run, so that
    whatever it would refuse in its options is refused. Nothing is started, and passwords in addresses are not printed.

    \b
    Example: shufflesum config check --config shufflesum.toml
             shufflesum config check --config shufflesum.toml serve shuffler --port 443
    """
    from_file = [] if config is None else ["--config", str(config)]
    if command_line:
        name = next((name for name in CONFIGURED if command_line[: len(name.split())] == tuple(name.split())), None)
        if name is None:
            raise ParameterError(
                "unknown-choice",
                f"{' '.join(command_line[:2])!r} takes no configuration file; those that do: {', '.join(CONFIGURED)}",
            )
        found = command_named(name)
        _print(name, found.make_context(f"shufflesum {name}", [*from_file, *command_line[len(name.split()) :]]))
        return
    if config is None:
        raise ParameterError("missing-argument", "give --config FILE, a COMMAND with its options, or both")
    for name in settings(config):
        _print(name, _file_only(command_named(name)).make_context(f"shufflesum {name}", list(from_file)))


def _file_only(whole: click.Command) -> click.Command:
    """The command without its arguments, and insisting on no option: those may be typed when it is run."""
    part = copy.copy(whole)
    part.params = [copy.copy(option) for option in whole.params if isinstance(option, click.Option)]
    for option in part.params:
        option.required = False
    return part


def _print(name: str, context: click.Context) -> None:
    click.echo(f"shufflesum {name}")
    options = [
        option for option in command_named(name).params if isinstance(option, click.Option) and option.expose_value
    ]
    width = max(len(option_name(option)) for option in options)
    for option in options:
        assert option.name is not None
        value = context.params[option.name]
        source = context.get_parameter_source(option.name)
        where = "missing" if value is None and option.required else _SOURCES.get(source, "default")
        if source is ParameterSource.ENVIRONMENT:
            where += f" {option.envvar}"
        click.echo(f"  {option_name(option):{width}}  {_shown(value)}  [{where}]")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}=(hidden)" for key in value) or "none"  # settings of Spark's: keys to stores among them
    if isinstance(value, tuple | list):
        return " ".join(hidden(str(item)) for item in value) or "none"
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else hidden(str(value))
