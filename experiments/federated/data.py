"""Pictures with a label each, and how they are dealt out to clients: MNIST from files, or a small task of our own."""

from __future__ import annotations

import gzip
import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import DataError, FileError

_FILES = {
    "images": "train-images-idx3-ubyte",
    "labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
_UNSIGNED_BYTES = 8  # the only kind of number in these files


@dataclass(frozen=True)
class Pictures:
    """Pictures as rows of numbers from 0 to 1, with labels 0 to 9, to train on and to test with."""

    name: str
    note: str
    images: NDArray[np.float32]
    labels: NDArray[np.uint8]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.uint8]

    @property
    def pixels(self) -> int:
        """Numbers in a picture."""
        return int(self.images.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all pictures and labels."""
        found = hashlib.sha256()
        for array in (self.images, self.labels, self.test_images, self.test_labels):
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()


@dataclass(frozen=True, slots=True)
class Clients:
    """One user's pictures in each row: (users, each, pixels), and their labels: (users, each)."""

    images: NDArray[np.float32]
    labels: NDArray[np.uint8]

    def __len__(self) -> int:
        """How many users there are."""
        return len(self.labels)


def load_mnist(folder: str | Path) -> Pictures:
    """The four idx files of MNIST, plain or with .gz, in a folder."""
    folder = Path(folder)
    read = {name: _read_idx(folder, file) for name, file in _FILES.items()}
    for shown, told in (("images", "labels"), ("test_images", "test_labels")):
        if read[shown].ndim != 3 or read[told].shape != read[shown].shape[:1] or not len(read[told]):
            raise FileError(
                "malformed",
                f"{folder}: {_FILES[shown]} has shape {read[shown].shape} and {_FILES[told]} "
                f"{read[told].shape}; pictures and a label for each are expected",
            )
        if read[told].max() > 9:
            raise FileError("malformed", f"{folder}: {_FILES[told]} has label {read[told].max()}; they are 0 to 9")
    if read["images"].shape[1:] != read["test_images"].shape[1:]:
        raise FileError("malformed", f"{folder}: pictures to train on and to test with are of different sizes")
    images, test_images = (
        (read[name].reshape(len(read[name]), -1) / np.float32(255)).astype(np.float32)
        for name in ("images", "test_images")
    )
    note = "MNIST, handwritten digits (LeCun, Cortes and Burges)"
    return Pictures("MNIST", note, images, read["labels"], test_images, read["test_labels"])


def _read_idx(folder: Path, name: str) -> NDArray[np.uint8]:
    """One idx file: two zero bytes, the kind of number, the number of axes, their lengths, the numbers."""
    path = folder / name
    zipped = folder / f"{name}.gz"
    try:
        content = path.read_bytes() if path.exists() or not zipped.exists() else gzip.decompress(zipped.read_bytes())
    except (OSError, EOFError) as error:
        raise FileError(
            "unreadable",
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}; MNIST is the folder with "
            f"{', '.join(_FILES.values())}, plain or with .gz",
        ) from error
    axes = content[3] if len(content) > 3 and content[:3] == bytes([0, 0, _UNSIGNED_BYTES]) else 0
    start = 4 + 4 * axes
    head = content[4:start] if len(content) >= start else b""
    lengths = tuple(int(length) for length in np.frombuffer(head, dtype=">u4"))
    if not lengths or len(content) != start + math.prod(lengths):
        raise FileError("malformed", f"{path}: is no idx file of bytes, or was cut short; get it again")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(lengths)


def blobs(*, users: int = 2_000, each: int = 5, tests: int = 2_000, side: int = 8, seed: int = 0) -> Pictures:
    """A made-up task: ten smooth pictures, one for each label, moved about and seen through noise."""
    random = np.random.default_rng(seed)
    grid = np.arange(side, dtype=np.float64)
    centres = random.uniform(1, side - 2, (10, 3, 2))

    def draw(count: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        labels = random.integers(0, 10, count).astype(np.uint8)
        spots = centres[labels] + random.normal(0, 0.5, (count, 1, 2))
        rows, columns = (np.exp(-((grid - spots[..., axis, None]) ** 2) / 2) for axis in (0, 1))
        pictures = np.einsum("usr,usc->urc", rows, columns).reshape(count, -1)
        return np.clip(pictures + random.normal(0, 0.2, pictures.shape), 0, 1).astype(np.float32), labels

    images, labels = draw(users * each)
    test_images, test_labels = draw(tests)
    return Pictures("made-up pictures", "made-up pictures, not MNIST", images, labels, test_images, test_labels)


def clients_of(pictures: Pictures, *, users: int, each: int, seed: int, labels_each: int | None = None) -> Clients:
    """Deal pictures out to users, none twice: at random, or so that each user has pictures of `labels_each` labels.

    For that pictures are sorted by label and cut into users x labels_each stacks, of which each user gets so many at
    random (McMahan et al., 2017): a stack has one label, or two where one label ends.
    """
    needed = users * each
    if needed > len(pictures.labels):
        raise DataError(
            "too-few-users", f"{pictures.name} has {len(pictures.labels)} pictures, not {users} x {each}: take fewer"
        )
    random = np.random.default_rng([seed, 1])
    order: NDArray[Any] = random.permutation(len(pictures.labels))[:needed]
    if labels_each is not None:
        if each % labels_each:
            raise DataError("conflicting-arguments", f"{each} pictures are not {labels_each} equal stacks")
        stacks = order[np.argsort(pictures.labels[order], kind="stable")].reshape(users * labels_each, -1)
        order = stacks[random.permutation(len(stacks))].reshape(-1)
    dealt = order.reshape(users, each)
    return Clients(pictures.images[dealt], pictures.labels[dealt])
