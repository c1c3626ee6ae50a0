"""Thin commands over the library."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

import click

from shufflesum.cli import (
    analyze,
    audit,
    demo,
    estimate,
    keygen,
    plan,
    privacy,
    randomize,
    reproduce,
    run,
    send,
    serve,
    shuffle,
    statement,
    task,
    tokens,
)
from shufflesum.errors import ShufflesumError

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="shufflesum")
def _group() -> None:
    """Private sums and means of vectors, matrices and tensors: the shuffle model of differential privacy."""


for _module in (
    *(run, plan, privacy, statement, audit, reproduce),
    *(randomize, shuffle, analyze),
    *(keygen, task, tokens, serve, send, estimate),
    demo,
):
    _group.add_command(_module.command)


def main() -> NoReturn:
    """Run a command; what a user can mend ends with one clear message and exit code 2."""
    # As an exception, a polite kill lets staged outputs be taken away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        result = _group(standalone_mode=False)
    except ShufflesumError as error:
        _fail(str(error))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail("stopped", code=130)
    except MemoryError:
        _fail("not enough memory for this dimension and number of levels; lower one of them")
    except OSError as error:  # files raise a ShufflesumError, so this is the terminal or the pipe
        _fail(f"the result cannot be printed: {error.strerror or error}; see where standard output goes")
    sys.exit(result if isinstance(result, int) else 0)


def _fail(message: str, code: int = 2) -> NoReturn:
    click.echo(f"shufflesum: {message}", err=True)
    sys.exit(code)
