"""Heartbeats to experiment on: the public ones in the forms they come in, or made-up ones.

Forms: the Kaggle folder with `mitbih_train.csv` and `mitbih_test.csv`; a CSV, Parquet or .npy matrix, one beat a row;
an .npz archive with the arrays `num` (beats x samples), `den` and `split` (one each a beat; 0 train, 1 test), and
`label` where classes are known. There a sample is num / den in [0, 1].
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import DataError, FileError
from shufflesum.synthetic import heartbeats
from shufflesum.tables.readers import open_table
from shufflesum.tables.sources import ReadOptions

LEAST_SAMPLES = 150  # the widest vectors of the paper's panels
_KAGGLE_COLUMNS = 188  # 187 samples and the class
_KAGGLE_FILES = ("mitbih_test.csv", "mitbih_train.csv")  # in the order they are used
_ARCHIVE_ARRAYS = ("num", "den", "split")
_SHUFFLE_SEED = 0
_CLASSES = {0: "normal", 1: "supraventricular", 2: "ventricular", 3: "fusion", 4: "paced or unclassified"}
_PEOPLE_NOTE = "Unit of privacy: one beat, as in the paper (the beats come from 47 people)"


@dataclass(frozen=True, slots=True, eq=False)
class Heartbeats:
    """Beats in [0, 1], one a row, in the order they are used; `note` says on every figure whom privacy is for."""

    beats: NDArray[np.float32]
    labels: NDArray[np.int64] | None
    name: str
    note: str

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the beats and labels in their order: measurements of other data never mix."""
        digest = hashlib.sha256(str(self.beats.shape).encode())
        digest.update(np.ascontiguousarray(self.beats).data)
        if self.labels is not None:
            digest.update(self.labels.tobytes())
        return digest.hexdigest()

    def class_name(self, label: int) -> str:
        """What a class is called."""
        return _CLASSES.get(label, f"class {label}")


def synthetic(people: int = 100_000) -> Heartbeats:
    """Made-up beats; every 14th is of a second class, whose waves are broad."""
    beats = heartbeats(people, LEAST_SAMPLES)
    labels = np.zeros(people, dtype=np.int64)
    labels[::14] = 2
    window = 15
    padded = np.pad(beats[::14], ((0, 0), (window // 2, window // 2)), mode="edge")
    running = np.cumsum(np.pad(padded, ((0, 0), (1, 0))), axis=1, dtype=np.float64)
    beats[::14] = np.clip((running[:, window:] - running[:, :-window]) / window, 0.0, 1.0)
    return Heartbeats(
        beats,
        labels,
        "synthetic heartbeats (made up, nobody's data)",
        "SYNTHETIC heartbeats, made up, one per person. Unit of privacy: one beat",
    )


def load(path: Path) -> Heartbeats:
    """The beats at `path`: test rows first, then training rows, where the form tells them apart.

    The training rows of an .npz archive are shuffled within their class by a fixed seed; all other rows keep the order
    of their files.
    """
    try:
        if path.is_dir():
            return _kaggle(path)
        if path.suffix.lower() == ".npz" and zipfile.is_zipfile(path):
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                if "num" in archive.files or len(archive.files) > 1:
                    return _archive(path, {name: archive[name] for name in archive.files})
    except FileError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as problem:
        if isinstance(problem, DataError):
            raise
        raise FileError("damaged", f"{path}: cannot be read ({problem}); it may be cut short or damaged") from problem
    beats, labels = _matrix(path, header=None)
    return Heartbeats(beats, labels, path.name, f"Unit of privacy: one row of {path.name}")


def _kaggle(folder: Path) -> Heartbeats:
    for name in _KAGGLE_FILES:
        if not (folder / name).is_file():
            raise FileError(
                "unreadable", f"{folder}: holds no {name}; --data needs a folder with {' and '.join(_KAGGLE_FILES)}"
            )
    parts = []
    for name in _KAGGLE_FILES:
        beats, labels = _matrix(folder / name, header=False)
        if labels is None:
            raise DataError(
                "wrong-shape",
                f"{folder / name}: has {beats.shape[1]} columns; allowed are {_KAGGLE_COLUMNS}: 187 samples and the "
                "class. Download the file again, or give one matrix of samples as --data",
            )
        parts.append((beats, labels))
    return Heartbeats(
        np.concatenate([beats for beats, _ in parts]),
        np.concatenate([labels for _, labels in parts]),
        "MIT-BIH heartbeats, Kaggle files",
        _PEOPLE_NOTE,
    )


def _matrix(path: Path, *, header: bool | None) -> tuple[NDArray[np.float32], NDArray[np.int64] | None]:
    """Samples, and classes where the matrix has the 188 columns of the Kaggle files."""
    table = open_table(path, ReadOptions(header=header))
    if len(table.shape) != 1:
        raise DataError("wrong-shape", f"{path}: a row has shape {table.shape}; --data needs a matrix, one beat a row")
    rows = np.concatenate([np.asarray(batch, dtype=np.float32) for batch in table.batches()])
    labels = None
    if rows.shape[1] == _KAGGLE_COLUMNS:
        last = rows[:, -1]
        if not np.all((last == np.floor(last)) & (last >= 0) & (last <= 255)):
            raise DataError(
                "malformed",
                f"{path}: with {_KAGGLE_COLUMNS} columns the last one is the class, a whole number, but it holds "
                "something else; leave out a column if all are samples",
                value=str(float(last[(last != np.floor(last)) | ~(last >= 0)][0])),
            )
        labels, rows = last.astype(np.int64), np.ascontiguousarray(rows[:, :-1])
    _check(path, rows)
    return rows, labels


def _archive(path: Path, arrays: Mapping[str, NDArray[np.generic]]) -> Heartbeats:
    for name in _ARCHIVE_ARRAYS:
        if name not in arrays:
            raise DataError(
                "malformed",
                f"{path}: holds the arrays {', '.join(arrays)}, but no {name!r}; --data needs "
                f"{', '.join(_ARCHIVE_ARRAYS)} (and label, where classes are known)",
            )
        if not np.issubdtype(arrays[name].dtype, np.number):
            raise DataError("not-numbers", f"{path}: array {name!r} holds {arrays[name].dtype}; numbers are needed")
    num, den, split = (np.asarray(arrays[name]) for name in _ARCHIVE_ARRAYS)
    given = arrays.get("label")
    label = np.zeros(len(split), dtype=np.int64) if given is None else np.asarray(given).astype(np.int64)
    if num.ndim != 2 or any(array.shape != num.shape[:1] for array in (den, split, label)):
        raise DataError(
            "wrong-shape",
            f"{path}: num has shape {num.shape}, den {den.shape}, split {split.shape}, label {label.shape}; needed "
            "are (beats, samples) and one value a beat in the others",
        )
    if not np.all(np.isin(split, (0, 1))):
        raise DataError("malformed", f"{path}: split holds other values than 0 (train) and 1 (test)")
    with np.errstate(divide="ignore", invalid="ignore"):
        beats = (num.astype(np.float64) / den.astype(np.float64)[:, None]).astype(np.float32)
    _check(path, beats)
    train = np.random.default_rng(_SHUFFLE_SEED).permutation(np.flatnonzero(split == 0))
    train = train[np.argsort(label[train], kind="stable")]
    order = np.concatenate([np.flatnonzero(split == 1), train])
    return Heartbeats(
        beats[order], None if given is None else label[order], f"MIT-BIH heartbeats, {path.name}", _PEOPLE_NOTE
    )


def _check(path: Path, beats: NDArray[np.float32]) -> None:
    if beats.shape[1] < LEAST_SAMPLES:
        raise DataError(
            "wrong-shape",
            f"{path}: a row has {beats.shape[1]} samples; at least {LEAST_SAMPLES} are needed, because the paper's "
            f"vectors are up to {LEAST_SAMPLES} long",
        )
    outside = ~((beats >= 0) & (beats <= 1))
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise DataError(
            "out-of-bounds",
            f"{path}: row {row}, column {column} (counted from 0) is outside [0, 1]; scale values, and fill in missing "
            "ones",
            value=str(beats[row, column]),
        )
