"""Curves kept on disk as they come, so that a comparison goes on where it was stopped."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from shufflesum.errors import FileError
from shufflesum.experiments.federated.data import Pictures
from shufflesum.experiments.federated.runs import Run
from shufflesum.experiments.kept import read_kept, write_kept

__all__ = ["FILE_NAME", "Curves"]

FILE_NAME = "curves.json"
_FORMAT = "shufflesum curves 1"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    data: str
    fingerprint: str
    curves: dict[str, list[float]]


@dataclass(slots=True)
class Curves:
    """The accuracies after each round of each training of one folder; written whole, after every training."""

    path: Path
    content: _File
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def open(folder: Path, pictures: Pictures) -> Curves:
        """Start a new folder, or go on with one; what cannot be gone on with is refused and left as it is."""
        path = folder / FILE_NAME
        content = read_kept(path, _File)
        if content is None:
            return Curves(path, _File(_FORMAT, pictures.name, pictures.fingerprint, {}))
        if (content.format, content.fingerprint) != (_FORMAT, pictures.fingerprint):
            raise FileError(
                "other-measurements",
                f"{path}: holds curves of other data ({content.data}; now: {pictures.name}) or of another version; "
                "they were kept: choose another folder with -o",
            )
        return Curves(path, content)

    def get(self, run: Run) -> list[float] | None:
        """What was measured before, if it was."""
        return self.content.curves.get(run.key)

    def put(self, run: Run, curve: list[float]) -> None:
        """Keep one training's curve."""
        with self._lock:
            self.content.curves[run.key] = curve
            write_kept(self.path, self.content)
