"""Curves kept on disk as they come, so that a comparison goes on where it was stopped."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from shufflesum.errors import FileError
from shufflesum.experiments.federated.data import Pictures
from shufflesum.experiments.federated.runs import Run
from shufflesum.experiments.measurements import writing
from shufflesum.tables import StagedOutputs

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
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                if any(not entry.name.startswith(".") for entry in folder.iterdir()):
                    raise FileError(
                        "exists",
                        f"{folder}: is not empty and holds no {FILE_NAME} to go on with; choose another folder with -o",
                    )
                return Curves(path, _File(_FORMAT, pictures.name, pictures.fingerprint, {}))
            text = path.read_bytes()
        try:
            content = msgspec.json.decode(text, type=_File)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            raise FileError(
                "damaged",
                f"{path}: is damaged or was cut short ({problem}); it was left as it is: mend or remove it, or choose "
                "another folder with -o",
            ) from problem
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
            text = msgspec.json.format(msgspec.json.encode(self.content), indent=1)
            with writing(self.path), StagedOutputs() as outputs:
                outputs.stage(self.path, (".json",)).write_bytes(text)
