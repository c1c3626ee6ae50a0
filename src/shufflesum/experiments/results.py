"""Measurements kept on disk as they come, so that a run goes on where it was stopped, read back with predictions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np

from shufflesum.errors import FileError
from shufflesum.experiments.data import Heartbeats
from shufflesum.experiments.trials import Encoding, Errors, Moments, Prediction, Trial, measure, predict
from shufflesum.tables import StagedOutputs

__all__ = ["FILE_NAME", "Results", "Row", "Store", "Summary", "writing"]

Row: TypeAlias = dict[str, float | int | str | bool | None]
FILE_NAME = "measurements.json"
_FORMAT = "shufflesum measurements 1"
_SAVE_EVERY = 1.0  # seconds


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever goes wrong while writing ends as an error that names the place and says that nothing was lost."""
    try:
        yield
    except FileError:
        raise
    except OSError as problem:
        raise FileError(
            f"{path}: cannot be written: {problem.strerror or problem}; earlier results were kept: check the disk, "
            "then give the same command again"
        ) from problem


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    data: str
    fingerprint: str
    encoding: str
    seed: int
    trials: dict[str, dict[int, tuple[float, float]]]


@dataclass(slots=True)
class Store:
    """The measurements of one folder: trial -> repeat -> errors. Saved whole, atomically, at most once a second."""

    path: Path
    content: _File
    _saved: float = 0.0

    @staticmethod
    def open(folder: Path, data: Heartbeats, encoding: Encoding, seed: int) -> Store:
        """Start a new folder, or go on with one; what cannot be gone on with is refused and left as it is."""
        path = folder / FILE_NAME
        fingerprint = data.fingerprint
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                # Hidden files are what a killed run may leave of an unfinished save; they are never read.
                if any(not entry.name.startswith(".") for entry in folder.iterdir()):
                    raise FileError(
                        f"{folder}: is not empty and holds no {FILE_NAME} to go on with; choose another folder with -o"
                    )
                return Store(path, _File(_FORMAT, data.name, fingerprint, encoding, seed, {}))
            text = path.read_bytes()
        except FileError:
            raise
        except OSError as problem:
            raise FileError(
                f"{folder}: cannot be used for results: {problem.strerror}; choose another folder with -o"
            ) from problem
        try:
            content = msgspec.json.decode(text, type=_File)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            raise FileError(
                f"{path}: is damaged or was cut short ({problem}); it was left as it is, and so were the figures "
                "beside it: mend or remove it, or choose another folder with -o"
            ) from problem
        for what, found, expected in (
            ("format", content.format, _FORMAT),
            ("data", content.fingerprint, fingerprint),
            ("encoding", content.encoding, encoding),
            ("seed", str(content.seed), str(seed)),
        ):
            if found != expected:
                raise FileError(
                    f"{path}: holds results of another {what} ({content.data}; now: {data.name}); they were kept: "
                    "choose another folder with -o"
                )
        return Store(path, content)

    def get(self, trial: Trial, repeat: int) -> Errors | None:
        """What was measured before, if it was."""
        found = self.content.trials.get(trial.key, {}).get(repeat)
        return None if found is None else Errors(*found)

    def put(self, trial: Trial, repeat: int, errors: Errors) -> None:
        """Keep one measurement."""
        self.content.trials.setdefault(trial.key, {})[repeat] = (errors.mean_error, errors.paper_error)
        if time.monotonic() - self._saved > _SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """Write everything; the file is the old one or the new one, whatever happens."""
        text = msgspec.json.format(msgspec.json.encode(self.content), indent=1)
        with writing(self.path), StagedOutputs() as outputs:
            outputs.stage(self.path, (".json",)).write_bytes(text)
        self._saved = time.monotonic()


@dataclass(frozen=True, slots=True)
class Summary:
    """A trial's measured errors over its repeats, beside what was predicted."""

    repeats: int
    mean_error: float
    standard_error: float | None  # of that mean; unknown from a single run
    paper_error: float
    prediction: Prediction

    @property
    def predicted_standard_error(self) -> float:
        """Of the mean over the repeats."""
        return self.prediction.standard_deviation / math.sqrt(self.repeats)


@dataclass(slots=True)
class Results:
    """Everything measured so far on one set of beats."""

    data: Heartbeats
    store: Store
    repeats: int
    seed: int
    workers: int
    _moments: dict[tuple[int, int, Encoding], Moments] = field(default_factory=dict)

    def missing(self, trials: Iterable[Trial]) -> list[tuple[Trial, int]]:
        """What is still to be measured."""
        distinct = dict.fromkeys(trials)
        return [(t, repeat) for t in distinct for repeat in range(self.repeats) if self.store.get(t, repeat) is None]

    def run(self, trials: Iterable[Trial], progress: Callable[[], None]) -> None:
        """Measure what is missing, on all cores; what is done is kept even if this is stopped."""
        with ThreadPoolExecutor(self.workers) as pool:
            futures = {
                pool.submit(measure, self.data.beats, trial, self.seed, repeat): (trial, repeat)
                for trial, repeat in self.missing(trials)
            }
            try:
                for future in as_completed(futures):
                    self.store.put(*futures[future], future.result())
                    progress()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                self.store.save()

    def summary(self, trial: Trial) -> Summary:
        """Measured beside predicted."""
        errors = np.array([self.store.content.trials[trial.key][repeat] for repeat in range(self.repeats)])
        mean_error, paper_error = errors.mean(axis=0)
        error = float(errors[:, 0].std(ddof=1)) / math.sqrt(self.repeats) if self.repeats > 1 else None
        return Summary(self.repeats, float(mean_error), error, float(paper_error), self.predict(trial))

    def predict(self, trial: Trial) -> Prediction:
        """From the moments of the very beats that the trial uses."""
        key = trial.users, trial.levels, trial.encoding
        if key not in self._moments:
            self._moments[key] = Moments.of(self.data.beats[: trial.users], trial.levels, trial.encoding)
        return predict(self._moments[key], trial)
