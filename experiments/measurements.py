"""Measurements kept on disk as they come, so that a run goes on where it was stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from experiments.data import Heartbeats
from experiments.trials import Encoding, Errors
from shufflesum.errors import FileError
from shufflesum.tables.writers import StagedOutputs

FILE_NAME = "measurements.json"
_FORMAT = "shufflesum measurements 1"
_SAVE_EVERY = 1.0  # seconds
_T = TypeVar("_T", bound=msgspec.Struct)


def read_kept(path: Path, kind: type[_T]) -> _T | None:
    """What an earlier run kept in this JSON file; None in a new folder, which is made. A damaged file is left alone."""
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
    """Write the file whole: it is the old one or the new one, whatever happens."""
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


class Named(Protocol):
    """Whatever is measured has a name that tells it from all others."""

    @property
    def key(self) -> str:
        """The name."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    data: str
    fingerprint: str
    encoding: str
    seed: int
    trials: dict[str, dict[int, tuple[float, float]]]


@dataclass(slots=True)
class Measurements:
    """The measurements of one folder: trial -> repeat -> errors. Saved whole, atomically, at most once a second."""

    path: Path
    content: _File
    _saved: float = 0.0

    @staticmethod
    def open(folder: Path, data: Heartbeats, encoding: Encoding, seed: int) -> Measurements:
        """Start a new folder, or go on with one; what cannot be gone on with is refused and left as it is."""
        path, fingerprint = folder / FILE_NAME, data.fingerprint
        content = read_kept(path, _File)
        if content is None:
            return Measurements(path, _File(_FORMAT, data.name, fingerprint, encoding, seed, {}))
        for what, found, expected in (
            ("format", content.format, _FORMAT),
            ("data", content.fingerprint, fingerprint),
            ("encoding", content.encoding, encoding),
            ("seed", str(content.seed), str(seed)),
        ):
            if found != expected:
                raise FileError(
                    "measurements-mismatch",
                    f"{path}: holds measurements of another {what} ({content.data}; now: {data.name}); they were kept: "
                    "choose another folder with -o",
                )
        return Measurements(path, content)

    def get(self, trial: Named, repeat: int) -> Errors | None:
        """What was measured before, if it was."""
        found = self.content.trials.get(trial.key, {}).get(repeat)
        return None if found is None else Errors(*found)

    def put(self, trial: Named, repeat: int, errors: Errors) -> None:
        """Keep one measurement."""
        self.content.trials.setdefault(trial.key, {})[repeat] = (errors.mean_error, errors.paper_error)
        if time.monotonic() - self._saved > _SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """Write everything."""
        write_kept(self.path, self.content)
        self._saved = time.monotonic()
