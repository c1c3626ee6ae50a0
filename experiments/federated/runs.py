"""A training from its first round to its last, its accuracy after each, and curves kept on disk as they come."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from experiments.federated.data import Pictures, clients_of
from experiments.federated.methods import Setting, method
from experiments.federated.models import Classifier, Network, Softmax, Updates
from experiments.measurements import read_kept, write_kept
from shufflesum.errors import FileError
from shufflesum.federated import Momentum, OptimizerState

ModelName = Literal["softmax", "network"]

STEPS: dict[str, Momentum] = {"softmax": Momentum(3.0), "network": Momentum(2.0)}
FILE_NAME = "curves.json"
_FORMAT = "shufflesum curves 1"
_BLOCK_VALUES = 1 << 21  # of updates that are held at once


@dataclass(frozen=True)
class Run:
    """One training: which model, under which privacy, with whose data."""

    model: ModelName
    method: str
    setting: Setting
    each: int
    labels_each: int | None
    seed: int

    @cached_property
    def key(self) -> str:
        """A name that tells it from all others."""
        parts = [self.model, self.method, *asdict(self.setting).values(), self.each, self.labels_each, self.seed]
        step = STEPS[self.model]
        return "/".join(str(part) for part in [*parts, step.learning_rate, step.momentum])


def model_of(name: ModelName, pixels: int) -> Classifier:
    """The model of that name for pictures of that size."""
    return Softmax(pixels) if name == "softmax" else Network(pixels)


def accuracy(model: Classifier, parameters: NDArray[np.float32], pictures: Pictures) -> float:
    """The fraction of the test pictures that get their own label."""
    scores = model.scores(parameters, pictures.test_images)
    return float(np.mean(scores.argmax(axis=1) == pictures.test_labels))


def train(pictures: Pictures, run: Run) -> list[float]:
    """The accuracy after each round. All clients take part in all rounds, with one gradient each."""
    model, setting = model_of(run.model, pictures.pixels), run.setting
    clients = clients_of(
        pictures, users=setting.users, each=run.each, seed=run.seed, labels_each=run.labels_each
    )  # the same clients, and the same start, under every method
    parameters = model.start(np.random.default_rng([run.seed, 2]))
    used = method(run.method, model, setting)
    seed = list(hashlib.sha256(run.key.encode()).digest())
    memory, found = OptimizerState(), []
    size = max(1, _BLOCK_VALUES // model.dimension)

    def blocks() -> Iterator[Updates]:
        for start in range(0, len(clients), size):
            here = slice(start, start + size)
            yield model.updates(parameters, clients.images[here], clients.labels[here])

    for round_number in range(1, setting.rounds + 1):
        move, memory = STEPS[run.model].move(used.mean(blocks(), round_number, seed), memory)
        parameters = (parameters + move).astype(np.float32)
        found.append(accuracy(model, parameters, pictures))
    return found


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
                "measurements-mismatch",
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
