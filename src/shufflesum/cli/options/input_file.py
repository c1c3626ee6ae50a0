"""The file that a command reads, or what comes in on standard input."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click

from shufflesum.cli.options.common import PLACE
from shufflesum.errors import FileError
from shufflesum.tables import Place
from shufflesum.tables.layout import suffix_by

__all__ = ["file_argument"]

_F = TypeVar("_F", bound=Callable[..., object])


def file_argument(name: str) -> Callable[[_F], _F]:
    """A file, or `-` for standard input, which is there as a file until the command ends."""

    def kept(context: click.Context, _: click.Parameter, path: Place) -> Place:
        return context.with_resource(_input_file(path))

    return click.argument(name, type=PLACE, callback=kept)


@contextmanager
def _input_file(path: Place) -> Iterator[Place]:
    """The file itself; for `-` a copy of standard input, which only its owner can read, until the block ends.

    Files are read twice, to count the rows and to use them, and a stream can be read once.
    """
    if str(path) != "-":
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="shufflesum-") as folder:
        start = sys.stdin.buffer.read(8)
        copy = Path(folder) / f"standard-input{suffix_by(start) or '.csv'}"
        try:
            with copy.open("wb") as file:
                file.write(start)
                shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
        except OSError as error:
            raise FileError(
                "unwritable",
                f"standard input cannot be kept in {folder}: {error.strerror or error}; it needs room for all of it: "
                "set TMPDIR to a folder that has it",
            ) from error
        yield copy
