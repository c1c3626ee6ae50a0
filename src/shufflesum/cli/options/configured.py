"""Commands whose options can also come from a file: an option counts before the environment, that before the file.

A table of the file is named like its command, a key like an option, and a value is read as if it had been typed.
"""

from __future__ import annotations

import importlib
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from shufflesum.cli.options.common import Command
from shufflesum.errors import FileError, ParameterError

CONFIGURED = ("serve shuffler", "serve analyzer", "send", "estimate", "status", "randomize", "shuffle", "analyze")
"""The commands that take a configuration file, as they are typed."""

_Settings = dict[str, str | list[str]]
_HIDDEN = "(hidden)"
_SAID_ELSEWHERE: dict[ParameterSource | None, str] = {
    ParameterSource.DEFAULT_MAP: "(so says the configuration file)",
    ParameterSource.ENVIRONMENT: "(so says the environment)",
}


class ConfiguredCommand(Command):
    """A command with `--config FILE`, and an environment variable for every option."""

    def __init__(self, *arguments: Any, **rest: Any) -> None:
        super().__init__(*arguments, **rest)
        self.params.append(
            click.Option(
                ["--config"],
                type=click.Path(path_type=Path),
                metavar="FILE",
                is_eager=True,
                expose_value=False,
                callback=_use_file,
                help="A TOML file with options; the environment and the command line count before it.",
            )
        )
        for option in self.params:
            if isinstance(option, click.Option) and option.envvar is None:
                option.envvar = f"SHUFFLESUM_{option_name(option).upper().replace('-', '_')}"
                option.show_envvar = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; what is refused says where it came from."""
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            source = ctx.get_parameter_source(error.param.name or "") if error.param is not None else None
            if source not in _SAID_ELSEWHERE:
                raise
            raise click.BadParameter(f"{error.message} {_SAID_ELSEWHERE[source]}", error.ctx, error.param) from error


def option_name(option: click.Parameter) -> str:
    """An option as people write it, without its dashes."""
    return max(option.opts, key=len).lstrip("-")


def command_named(name: str) -> click.Command:
    """One of the commands that take a configuration file."""
    first, _, second = name.partition(" ")
    found: click.Command = importlib.import_module(f"shufflesum.cli.{first}").command
    return found.commands[second] if isinstance(found, click.Group) else found


def settings(path: Path) -> dict[str, _Settings]:
    """All of a configuration file by command, each value as it would be typed; any key that is no option is refused."""
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            document = tomllib.load(file)
    except OSError as error:
        raise FileError("unreadable", f"cannot read the configuration {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError("malformed", f"the configuration {path} is not TOML: {error}") from error
    tables = {name: table for name, table in document.items() if name != "serve"}
    serve = document.get("serve", {})
    tables |= {f"serve {name}": table for name, table in serve.items()} if isinstance(serve, dict) else {"serve": serve}
    found = {name: _checked(name, table, path) for name, table in tables.items()}
    with_password = [name for name, table in found.items() if any(hidden(text) != text for text in _texts(table))]
    if with_password and mode & 0o077:
        raise FileError(
            "insecure-permissions",
            f"{path}: [{with_password[0].replace(' ', '.')}] holds an address with a password, and others than the "
            f"owner may read the file (mode {stat.S_IMODE(mode):04o}); chmod 600 {path}, or leave the password to "
            "~/.pgpass (PGPASSFILE)",
        )
    return found


def hidden(text: str) -> str:
    """A value that may be shown: without the user and password that an address can hold."""
    without_user = re.sub(r"//\S*:\S*@", f"//{_HIDDEN}@", text)
    return re.sub(r"(?i)\?\S*pass\S*", f"?{_HIDDEN}", without_user)


def _texts(table: _Settings) -> list[str]:
    return [text for value in table.values() for text in ([value] if isinstance(value, str) else value)]


def _checked(name: str, table: Any, path: Path) -> _Settings:
    if name not in CONFIGURED:
        allowed = ", ".join(f"[{command.replace(' ', '.')}]" for command in CONFIGURED)
        raise ParameterError("unknown-choice", f"{path}: there is no table for {name!r}; there are {allowed}")
    if not isinstance(table, dict):
        raise ParameterError("wrong-type", f"{path}: {name!r} is no table; write [{name.replace(' ', '.')}]")
    options = {option_name(option): option for option in command_named(name).params if isinstance(option, click.Option)}
    del options["config"]
    for key in table.keys() - options.keys():
        raise ParameterError(
            "unknown-choice",
            f"{path}: shufflesum {name} has no option {key!r}; [{name.replace(' ', '.')}] may have "
            f"{', '.join(sorted(options))}",
        )
    return {key: _typed(options[key], value, f"{path}: {key} of {name}") for key, value in table.items()}


def _typed(option: click.Option, value: Any, where: str) -> str | list[str]:
    """A value as it would be typed: text, a number, true or false for a flag, a list where there may be several."""
    if isinstance(value, list) and (option.multiple or option.nargs != 1):
        return [_scalar(item, False, where) for item in value]
    if option.multiple:
        raise ParameterError("wrong-type", f'{where} may be given several times; write a list, as ["..."]')
    return _scalar(value, option.is_flag, where)


def _scalar(value: Any, flag: bool, where: str) -> str:
    if isinstance(value, bool) != flag or not isinstance(value, str | int | float):
        wanted = "true or false" if flag else "text or a number"
        raise ParameterError("wrong-type", f"{where} must be {wanted}, and is {type(value).__name__}")
    return str(value).lower() if flag else str(value)


def _use_file(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """What the file says of this command counts where neither command line nor environment say anything."""
    if path is None:
        return
    found = next((table for name, table in settings(path).items() if name.split()[-1] == ctx.command.name), {})
    names = {option_name(option): option.name or "" for option in ctx.command.params}
    ctx.default_map = {names[key]: value for key, value in found.items()}
