"""Thin commands over the library."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from shufflesum._compiled import tell_before_compiling
from shufflesum._machine import Clock
from shufflesum.errors import ShufflesumError

try:
    import click
except ModuleNotFoundError:  # before there is anything that prints errors nicely
    sys.exit("shufflesum: the command line needs click, which is not installed: pip install 'shufflesum[cli]'")

__all__ = ["COMMANDS", "main"]

# Commands by what people want, each with its line of help, so that help imports none of them.
SECTIONS = {
    "Ask a question of data on this machine": {
        "run": "Private means, counts or group means of the rows of a file.",
        "ask": "Ask a kept estimate: a survey's cross-tables, counts of words.",
        "bounds": "Bounds for the columns of a file, found privately.",
        "budget": "Make, show or ask the budget of a population.",
    },
    "Plan a collection": {
        "plan": "Choose reports, levels and noise for a privacy target.",
        "explore": "A local page: what a collection would cost.",
        "simulate": "Made-up or public data through a plan: the error to expect.",
        "demo": "Aggregate a synthetic crowd privately and draw the result.",
    },
    "Deploy with servers": {
        "keygen": "Make the analyzer's key pair.",
        "task": "Make or show what all parties of a deployment agree on.",
        "tokens": "Make upload tokens, so that one person is one user.",
        "serve": "Run a server of a deployment: shuffler or analyzer.",
        "send": "Randomize rows on this machine and send them to a task's shuffler.",
        "status": "Where a deployment stands, as its servers say.",
        "estimate": "Ask a task's analyzer for its estimate.",
    },
    "Deploy with files": {
        "randomize": "Users' rows in files to a folder of reports.",
        "shuffle": "Folders of reports to one in random order.",
        "analyze": "Private means, counts or group means of shuffled reports.",
    },
    "Check": {
        "statement": "A plan's privacy on one page, in plain language.",
        "privacy": "The certified guarantee of a plan or of given protocol parameters.",
        "audit": "Attack the running randomizer and compare with the certified bound.",
    },
}
COMMANDS = {name: line for section in SECTIONS.values() for name, line in section.items()}
_MODULES = {
    name: module
    for module, names in {
        "audit": ["privacy"],
        "batch": ["randomize", "shuffle", "analyze"],
        "clients": ["send", "status", "estimate"],
        "plan": ["explore", "statement"],
        "run": ["bounds"],
        "simulate": ["demo"],
        "task": ["keygen", "tokens"],
    }.items()
    for name in names
}
"""The modules of commands that share one; it is imported when a command is called, which is `NAME_command` in it."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"shufflesum.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(list(commands.items()))


def _use_file(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Let a configuration file say what counts where neither command line nor environment say anything."""
    if path is not None:
        from shufflesum.cli.commands import settings  # not for help

        context.default_map = settings(path, _group)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="SHUFFLESUM_CONFIG",
    show_envvar=True,
    expose_value=False,
    callback=_use_file,
    help="A TOML file with a table of options for each command; the environment and the command line count before it.",
)
@click.version_option(package_name="shufflesum")
def _group() -> None:
    """Private sums and means of vectors, matrices and tensors: the shuffle model of differential privacy."""


def main(clock: Clock | None = None) -> NoReturn:
    """Run a command; what a user can mend ends with one clear message and exit code 2. A server is handed `clock`."""
    # As an exception, a polite kill lets staged outputs be taken away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if _starts_server(sys.argv[1:]) and not sys.stderr.isatty():
        _serve(clock)
    if sys.stderr.isatty():
        tell_before_compiling(_say_compiling)
    try:
        result = _group(standalone_mode=False, obj=clock)
    except ShufflesumError as error:
        _fail(f"{error} [{error.problem}]{_value_of(error)}")
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


def _starts_server(words: list[str]) -> bool:
    rest = [word for word in words if not word.startswith("--config=")]
    return rest[2 if rest[:1] == ["--config"] else 0 :][:1] == ["serve"] and "--check" not in rest


def _serve(clock: Clock | None) -> None:
    """Run a server that no person reads along with: every line on standard error is one of its log, however it ends."""
    try:
        from shufflesum.service.logs import log, own_standard_error, where_of
    except ImportError:
        return  # the command says which extra is missing
    own_standard_error()
    begun, code = True, 1
    try:
        ended = _group(standalone_mode=False, obj=clock)
        code = ended if isinstance(ended, int) else 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except ShufflesumError as error:
        log.error("server ends", problem=error.problem, error=str(error))
        code = 2
    except click.ClickException as error:
        begun, code = False, error.exit_code
        log.error("server ends", problem="bad-arguments", error=error.format_message())
    except (click.Abort, KeyboardInterrupt):
        log.error("server ends", problem="stopped")
        code = 130
    except BaseException as error:
        log.error("server ends", problem="internal", error=type(error).__name__, where=where_of(error))
    finally:
        # All that counts is in the store, and an interpreter that is interrupted while it ends can wait for its threads
        # and processes for ever.
        if begun:
            os._exit(code)
    sys.exit(code)


def _value_of(error: ShufflesumError) -> str:
    """What somebody's data holds, for whoever sits at a terminal; logs are kept by others."""
    shown = error.value is not None and sys.stderr.isatty()
    return f"\n  there it says {error.value} (shown on a terminal only)" if shown else ""


def _say_compiling() -> None:
    click.echo("note: compiling for this machine, some seconds; later commands find it done", err=True)


def _fail(message: str, code: int = 2) -> NoReturn:
    click.echo(f"shufflesum: {message}", err=True)
    sys.exit(code)
