"""The command line as it was given, for people who want to repeat it."""

from __future__ import annotations

import shlex
import sys
from urllib.parse import urlsplit, urlunsplit

import click
from click.core import ParameterSource

__all__ = ["command_line"]


def command_line() -> str:
    """This command as a line of a shell, with what an environment variable gave; never a password of an address."""
    context = click.get_current_context()
    words = [_without_password(word) for word in sys.argv[1:]]
    for parameter in context.command.params:
        if context.get_parameter_source(parameter.name or "") is ParameterSource.ENVIRONMENT:
            words += [parameter.opts[0], str(context.params[parameter.name or ""])]
    return shlex.join(["shufflesum", *words])


def _without_password(word: str) -> str:
    parts = urlsplit(word) if "://" in word else None
    if parts is None or "@" not in parts.netloc:
        return word
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
