from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refusal

from experiments.federated.data import blobs, clients_of, load_mnist
from shufflesum.errors import DataError, FileError


def idx(array: NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(folder: Path, **other: NDArray[Any]) -> None:
    random = np.random.default_rng(1)
    arrays = {
        "train-images-idx3-ubyte": random.integers(0, 256, (30, 2, 3)).astype(np.uint8),
        "train-labels-idx1-ubyte": (np.arange(30) % 10).astype(np.uint8),
        "t10k-images-idx3-ubyte": random.integers(0, 256, (5, 2, 3)).astype(np.uint8),
        "t10k-labels-idx1-ubyte": np.arange(5).astype(np.uint8),
    }
    for name, array in arrays.items():
        (folder / name).write_bytes(idx(other.get(name.split("-")[0] + "_" + name.split("-")[1], array)))


def test_the_four_files_are_read_plain_or_zipped(tmp_path: Path) -> None:
    write(tmp_path)
    plain = load_mnist(tmp_path)
    assert (plain.images.shape, plain.test_images.shape, plain.pixels) == ((30, 6), (5, 6), 6)
    assert plain.images.dtype == np.float32
    raw = np.frombuffer((tmp_path / "train-images-idx3-ubyte").read_bytes()[16:], dtype=np.uint8)
    np.testing.assert_allclose(plain.images.reshape(-1) * 255, raw, atol=1e-4)
    for path in list(tmp_path.iterdir()):
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert load_mnist(tmp_path).fingerprint == plain.fingerprint


def test_what_is_no_mnist_is_refused(tmp_path: Path) -> None:
    with refusal("unreadable", error=FileError):
        load_mnist(tmp_path)
    write(tmp_path, train_labels=np.arange(29).astype(np.uint8))
    with refusal("malformed", error=FileError):
        load_mnist(tmp_path)
    write(tmp_path, train_labels=np.full(30, 11, dtype=np.uint8))
    with refusal("malformed", error=FileError):
        load_mnist(tmp_path)
    write(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    for damaged in (whole[:-1], b"", b"\x00\x00\x0d" + whole[3:], whole[:5]):
        path.write_bytes(damaged)
        with refusal("malformed", error=FileError):
            load_mnist(tmp_path)


def test_no_picture_is_dealt_twice_and_seeds_deal_differently() -> None:
    pictures = blobs(users=40, each=5, tests=10)
    dealt = [clients_of(pictures, users=40, each=5, seed=seed) for seed in (0, 0, 1)]
    for clients in dealt:
        assert clients.images.shape == (40, 5, 64)
        rows = clients.images.reshape(200, 64)
        assert sorted(map(bytes, rows)) == sorted(map(bytes, pictures.images))
    np.testing.assert_array_equal(dealt[0].labels, dealt[1].labels)
    assert not np.array_equal(dealt[0].labels, dealt[2].labels)
    with refusal("too-few-users", error=DataError):
        clients_of(pictures, users=41, each=5, seed=0)


@pytest.mark.parametrize("seed", range(3))
def test_clients_with_two_labels_have_hardly_ever_more(seed: int) -> None:
    pictures = blobs(users=200, each=10, tests=10)
    clients = clients_of(pictures, users=200, each=10, seed=seed, labels_each=2)
    kinds = np.array([len(set(labels.tolist())) for labels in clients.labels])
    assert kinds.max() <= 4
    assert (kinds > 2).sum() <= 9  # a stack with two labels for each border between labels
    labels_at_random = clients_of(pictures, users=200, each=10, seed=seed).labels
    assert np.mean([len(set(labels.tolist())) for labels in labels_at_random]) > 4
