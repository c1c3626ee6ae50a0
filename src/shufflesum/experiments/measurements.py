"""Measurements kept on disk as they come, so that a run goes on where it was stopped."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from shufflesum.errors import FileError
from shufflesum.experiments.data import Heartbeats
from shufflesum.experiments.kept import read_kept, write_kept
from shufflesum.experiments.trials import Encoding, Errors

__all__ = ["FILE_NAME", "Measurements", "Named"]

FILE_NAME = "measurements.json"
_FORMAT = "shufflesum measurements 1"
_SAVE_EVERY = 1.0  # seconds


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
                    "other-measurements",
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
        """Write everything; the file is the old one or the new one, whatever happens."""
        write_kept(self.path, self.content)
        self._saved = time.monotonic()
