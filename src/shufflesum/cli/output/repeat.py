"""The command line as it was given, for people who want to repeat it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

__all__ = ["command_line"]

_HIDDEN = "(hidden)"


def command_line() -> str:
    """This command as a line of a shell, with what environment variables gave.

    Never a secret: not who asks for an address, nor its query, nor the value of a setting of Spark's.
    """
    context = click.get_current_context()
    words = list(_given(sys.argv[1:]))
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) is ParameterSource.ENVIRONMENT:
            words += _as_option(parameter, context.params[name])
    return shlex.join(["shufflesum", *words])


def _given(words: Sequence[str]) -> Iterator[str]:
    before = ""
    for word in words:
        option, equals, value = word.partition("=")
        if before == "--conf":
            yield f"{option}={_HIDDEN}"
        elif option == "--conf" and equals:
            yield f"--conf={value.partition('=')[0]}={_HIDDEN}"
        else:
            yield _without_secrets(word)
        before = word


def _as_option(parameter: click.Parameter, value: Any) -> list[str]:
    """A value as it would be typed: a flag alone, what may be given several times once for each."""
    name = parameter.opts[0]
    if isinstance(value, bool):
        return [name] if value else []
    if isinstance(value, Mapping):
        return [word for key in value for word in (name, f"{key}={_HIDDEN}")]
    several = value if isinstance(value, tuple | list) else [value]
    return [word for each in several for word in (name, _without_secrets(str(each)))]


def _without_secrets(word: str) -> str:
    if "://" not in word:
        return word
    return re.sub(r"\?.*", f"?{_HIDDEN}", re.sub(r"//[^/]*@", "//", word))
