"""A JSON file in a folder of its own that grows as figures come: the old one or the new one, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from shufflesum.errors import FileError
from shufflesum.tables import StagedOutputs

__all__ = ["read_kept", "write_kept", "writing"]

_T = TypeVar("_T", bound=msgspec.Struct)


def read_kept(path: Path, kind: type[_T]) -> _T | None:
    """What an earlier run kept; None in a new folder, which is made. What cannot be gone on with is left as it is."""
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            # Hidden files are what a killed run may leave of an unfinished save; they are never read.
            if any(not entry.name.startswith(".") for entry in path.parent.iterdir()):
                folder = path.parent
                raise FileError(
                    "exists",
                    f"{folder}: is not empty and holds no {path.name} to go on with; choose another folder with -o",
                )
            return None
        text = path.read_bytes()
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise FileError(
            "damaged",
            f"{path}: is damaged or was cut short ({problem}); it was left as it is, and so was all beside it: mend or "
            "remove it, or choose another folder with -o",
        ) from problem


def write_kept(path: Path, content: msgspec.Struct) -> None:
    """All of it."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=1)
    with writing(path), StagedOutputs() as outputs:
        outputs.stage(path, (".json",)).write_bytes(text)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever goes wrong with the disk ends as an error that names the place and says that nothing was lost."""
    try:
        yield
    except FileError:
        raise
    except OSError as problem:
        raise FileError(
            "unwritable",
            f"{path}: cannot be written: {problem.strerror or problem}; earlier measurements were kept: check the "
            "disk, then give the same command again, or choose another folder with -o",
        ) from problem
