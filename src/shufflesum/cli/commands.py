"""How every command reads its options: the command line counts before the environment, that before a file (--config).

A table of the file is named like its command, a key like an option, and a value is read as if it had been typed.
"""

from __future__ import annotations

import re
import stat
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from shufflesum.errors import FileError, ParameterError, ShufflesumError

DEPLOYED = {"auto_envvar_prefix": "SHUFFLESUM"}
"""Context settings of commands that run on servers: each option has an environment variable, SHUFFLESUM_OPTION."""

COLUMN = "shufflesum.column"
"""Where a command keeps the option that names the column of a plan's domain, as --categories."""

_HIDDEN = "(hidden)"
_SOURCES: dict[ParameterSource | None, str] = {
    ParameterSource.COMMANDLINE: "option",
    ParameterSource.ENVIRONMENT: "environment",
    ParameterSource.DEFAULT_MAP: "file",
}


class Command(click.Command):
    """A command that refuses an option given twice where one value counts; click lets the last one win in silence.

    Where options have environment variables, `--check` says what counts and where it came from.
    """

    def __init__(self, *arguments: Any, **rest: Any) -> None:
        super().__init__(*arguments, **rest)
        if "auto_envvar_prefix" in self.context_settings:
            text = "Check all options, print what each is and where that came from, and start nothing."
            self.params.append(click.Option(["--check"], is_flag=True, help=text))
            for option in self.params:
                if isinstance(option, click.Option):
                    option.show_envvar = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; what is refused says where it came from."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(given).items():
            if times > 1 and isinstance(option, click.Option) and not (option.multiple or option.count):
                raise conflict(f"--{option_name(option)} is given {times} times; give it once")
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            source = ctx.get_parameter_source(error.param.name or "") if error.param is not None else None
            if source not in (ParameterSource.DEFAULT_MAP, ParameterSource.ENVIRONMENT):
                raise
            where = "configuration file" if source is ParameterSource.DEFAULT_MAP else "environment"
            raise click.BadParameter(f"{error.message} (so says the {where})", error.ctx, error.param) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, or only say what it would run with; what the library refuses is said in options."""
        if ctx.params.pop("check", False):
            return _print_settings(ctx)
        try:
            return super().invoke(ctx)
        except ShufflesumError as error:
            said = in_options(str(error))
            if error.problem == "rounds-spent":
                said += (
                    "; no round of it is left: a further answer needs another plan, which costs an epsilon of its own, "
                    f"and shufflesum budget ask {ctx.params.get('budget_file') or 'BUDGET'} --users N says what a "
                    "budget still allows"
                )
            raise type(error)(error.problem, said, value=error.value, row=error.row) from error.__cause__


class Group(click.Group):
    """A command with commands of its own."""

    command_class = Command


def conflict(message: str) -> ParameterError:
    """The error for options that do not go together."""
    return ParameterError("conflicting-arguments", message)


def as_option(argument: str) -> str:
    """The option that gives an argument of the library: max_reports is --max-reports."""
    return f"--{argument.replace('_', '-')}"


def option_name(option: click.Parameter) -> str:
    """An option as people write it, without its dashes."""
    return max(option.opts, key=len).lstrip("-")


def in_options(text: str) -> str:
    """A message of the library with options instead of arguments.

    clip=True is --clip, header=False --no-header, max_reports --max-reports, bounds={'age': (0, 120)} --bounds
    age=0:120. Only options that the command has are
    named; a word such as users, which is also plain English, stays.
    """
    context = click.get_current_context(silent=True)
    params, column = ([], None) if context is None else (context.command.params, context.meta.get(COLUMN))
    options = {option_name(each).replace("-", "_"): each for each in params if isinstance(each, click.Option)}

    def option(found: re.Match[str]) -> str:
        name, equals, value = found[1], found[2], (found[3] or "").strip("'\"")
        if name == "column" and equals and column:
            return f"{column} {value}".rstrip()
        if name not in options or not (equals or "_" in name):
            return found[0]
        if value == "False" and options[name].secondary_opts:
            return options[name].secondary_opts[0]
        return as_option(name) + ("" if value in ("", "True") else f" {value}")

    said = re.sub(r"(?<![\w`'\".-])(?<!\w\()([a-z_]+)\b(=('[^']*'|\"[^\"]*\"|\w*))?(?!\()", option, text)
    return re.sub(r"(--[\w-]+)\{'([^']*)': \(([\w.]+), ([\w.]+)\)\}", r"\1 \2=\3:\4", said)


def settings(path: Path, group: click.Group) -> dict[str, Any]:
    """A configuration file as click's default map; any key that is no option of its command is refused."""
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            document = tomllib.load(file)
    except OSError as error:
        raise FileError("unreadable", f"cannot read the configuration {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError("malformed", f"the configuration {path} is not TOML: {error}") from error
    found = _defaults(group, document, path)
    if mode & 0o077 and any(hidden(text) != text for text in _texts(found)):
        raise FileError(
            "insecure-permissions",
            f"{path}: holds an address with a password, and others than the owner may read the file (mode "
            f"{stat.S_IMODE(mode):04o}); chmod 600 {path}, or leave the password to ~/.pgpass (PGPASSFILE)",
        )
    return found


def hidden(text: str) -> str:
    """A value that may be shown: without the user and password that an address can hold."""
    without_user = re.sub(r"//\S*:\S*@", f"//{_HIDDEN}@", text)
    return re.sub(r"(?i)\?\S*pass\S*", f"?{_HIDDEN}", without_user)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    else:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _defaults(command: click.Command, table: Any, path: Path, *names: str) -> dict[str, Any]:
    """The table of a command, by the names of its parameters; that of a group, by its commands."""
    if not isinstance(table, dict):
        raise ParameterError("wrong-type", f"{path}: {' '.join(names)!r} is no table; write [{'.'.join(names)}]")
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in table.keys() - set(command.list_commands(context)):
            raise ParameterError(
                "unknown-choice",
                f"{path}: there is no command {' '.join((*names, name))!r} that a table could be for; there are "
                f"{', '.join(command.list_commands(context))}",
            )
        each = {name: command.get_command(context, name) for name in table}
        return {name: _defaults(each[name] or command, table[name], path, *names, name) for name in table}
    options = {option_name(option): option for option in command.params if isinstance(option, click.Option)}
    for key in table.keys() - options.keys():
        raise ParameterError(
            "unknown-choice",
            f"{path}: shufflesum {' '.join(names)} has no option {key!r}; [{'.'.join(names)}] may have "
            f"{', '.join(sorted(options))}",
        )
    where = f"{path}: {{}} of {' '.join(names)}"
    return {options[key].name or "": _typed(options[key], value, where.format(key)) for key, value in table.items()}


def _typed(option: click.Option, value: Any, where: str) -> str | list[str]:
    """A value as it would be typed: text, a number, true or false for a flag, a list where there may be several."""
    if isinstance(value, list) and option.multiple:
        return [_scalar(item, False, where) for item in value]
    if option.multiple:
        raise ParameterError("wrong-type", f'{where} may be given several times; write a list, as ["..."]')
    return _scalar(value, option.is_flag, where)


def _scalar(value: Any, flag: bool, where: str) -> str:
    if isinstance(value, bool) != flag or not isinstance(value, str | int | float):
        wanted = "true or false" if flag else "text or a number"
        raise ParameterError("wrong-type", f"{where} must be {wanted}, and is {type(value).__name__}")
    return str(value).lower() if flag else str(value)


def _print_settings(ctx: click.Context) -> None:
    """Each option, without passwords, and where it came from."""
    options = [each for each in ctx.command.params if isinstance(each, click.Option) and each.name in ctx.params]
    width = max(len(option_name(option)) for option in options)
    for option in options:
        source = ctx.get_parameter_source(option.name or "")
        where = _SOURCES.get(source, "default")
        click.echo(f"  {option_name(option):{width}}  {_shown(ctx.params[option.name or ''])}  [{where}]")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={_HIDDEN}" for key in value) or "none"  # settings of Spark's: keys to stores among them
    if isinstance(value, tuple | list):
        return " ".join(hidden(str(item)) for item in value) or "none"
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else hidden(str(value))
