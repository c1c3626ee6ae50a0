from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refusal

from experiments.data import Heartbeats, load, synthetic
from shufflesum.errors import DataError, FileError

BEATS, SAMPLES = 60, 187


@pytest.fixture
def archive() -> dict[str, NDArray[np.generic]]:
    random = np.random.default_rng(5)
    den = random.integers(100, 1000, BEATS).astype(np.uint16)
    num = (random.random((BEATS, SAMPLES)) * den[:, None]).astype(np.uint16)
    split = (np.arange(BEATS) >= 40).astype(np.uint8)
    return {"num": num, "den": den, "split": split, "label": (np.arange(BEATS) % 3).astype(np.uint8)}


def save(path: Path, arrays: dict[str, NDArray[np.generic]]) -> Path:
    np.savez(path, allow_pickle=False, **arrays)
    return path


def test_an_archive_gives_test_rows_first_then_training_rows_shuffled_within_class(
    tmp_path: Path, archive: dict[str, NDArray[np.generic]]
) -> None:
    data = load(save(tmp_path / "beats.npz", archive))
    exact = (archive["num"].astype(float) / archive["den"].astype(float)[:, None]).astype(np.float32)
    assert data.labels is not None
    assert data.beats.dtype == np.float32
    np.testing.assert_array_equal(data.beats[:20], exact[40:])
    np.testing.assert_array_equal(data.labels[:20], archive["label"][40:])
    assert np.all(np.diff(data.labels[20:]) >= 0)
    rows = [int(np.flatnonzero((exact == beat).all(axis=1))[0]) for beat in data.beats[20:]]
    assert sorted(rows) == list(range(40))
    np.testing.assert_array_equal(data.labels[20:], archive["label"][rows])
    assert rows != sorted(rows, key=lambda row: (archive["label"][row], row))
    assert load(tmp_path / "beats.npz").fingerprint == data.fingerprint
    assert "one beat" in data.note
    assert "47 people" in data.note


def test_the_kaggle_folder_gives_test_rows_first(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    tables = {}
    for name, rows in (("train", 30), ("test", 10)):
        table = np.column_stack([random.integers(0, 2, (rows, SAMPLES)), random.integers(0, 5, rows)])
        np.savetxt(tmp_path / f"mitbih_{name}.csv", table, fmt="%.18e", delimiter=",", newline="\r\n")
        tables[name] = table
    data = load(tmp_path)
    expected = np.concatenate([tables["test"], tables["train"]])
    np.testing.assert_array_equal(data.beats, expected[:, :-1])
    np.testing.assert_array_equal(data.labels, expected[:, -1])
    assert "47 people" in data.note


@pytest.mark.parametrize("form", ["csv", "parquet", "npy", "npz"])
def test_a_matrix_is_read_in_its_order(tmp_path: Path, form: str) -> None:
    beats = np.random.default_rng(7).random((25, 160)).astype(np.float32)
    path = tmp_path / f"beats.{form}"
    writers: dict[str, Callable[[], object]] = {
        "csv": lambda: np.savetxt(path, beats, delimiter=","),
        "parquet": lambda: _write_parquet(path, beats),
        "npy": lambda: np.save(path, beats),
        "npz": lambda: np.savez(path, beats=beats),
    }
    writers[form]()
    data = load(path)
    np.testing.assert_allclose(data.beats, beats, rtol=1e-6)
    assert data.labels is None
    assert data.note == f"Unit of privacy: one row of {path.name}"


def _write_parquet(path: Path, beats: NDArray[np.float32]) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({f"s{i}": column for i, column in enumerate(beats.T)}), path)


def test_a_matrix_of_188_columns_ends_with_the_class(tmp_path: Path) -> None:
    rows = np.random.default_rng(8).random((5, 188))
    np.save(tmp_path / "real.npy", rows)
    with refusal("malformed", error=DataError):
        load(tmp_path / "real.npy")
    rows[:, -1] = [0, 1, 2, 3, 4]
    np.save(tmp_path / "labelled.npy", rows)
    data = load(tmp_path / "labelled.npy")
    assert data.labels is not None
    assert data.labels.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"den": None}, ("malformed", "num, split, label", "'den'")),
        ({"split": None}, ("malformed", "'split'")),
        ({"num": None}, ("malformed", "'num'")),
        ({"den": np.ones(3)}, ("wrong-shape", "den (3,)")),
        ({"label": np.ones(3)}, ("wrong-shape", "label (3,)")),
        ({"split": np.full(BEATS, 2)}, ("malformed", "split")),
        ({"den": np.zeros(BEATS)}, ("out-of-bounds", "row 0", "column 0", "[0, 1]")),
        ({"num": np.full((BEATS, 187), 2000)}, ("out-of-bounds", "[0, 1]")),
        ({"num": np.ones((BEATS, 149))}, ("wrong-shape", "149", "150")),
        ({"num": np.full((BEATS, 187), "x")}, ("not-numbers", "'num'", "<U1")),
    ],
)
def test_a_wrong_archive_is_refused_with_what_is_needed(
    tmp_path: Path,
    archive: dict[str, NDArray[np.generic]],
    change: dict[str, NDArray[np.generic] | None],
    refused: tuple[str, ...],
) -> None:
    arrays = {name: array for name, array in (archive | change).items() if array is not None}
    with refusal(*refused, error=DataError):
        load(save(tmp_path / "beats.npz", arrays))


def test_wrong_values_and_widths_of_matrices_are_refused(tmp_path: Path) -> None:
    beats = np.full((4, 150), 0.5)
    beats[2, 7] = np.nan
    np.save(tmp_path / "hole.npy", beats)
    with refusal("out-of-bounds", "row 2", "column 7", "0", "1", error=DataError):
        load(tmp_path / "hole.npy")
    beats[2, 7] = -0.01
    np.save(tmp_path / "below.npy", beats)
    with refusal("out-of-bounds", "row 2", "column 7", error=DataError):
        load(tmp_path / "below.npy")
    np.save(tmp_path / "narrow.npy", np.zeros((4, 100)))
    with refusal("wrong-shape", "100 samples", "least 150", error=DataError):
        load(tmp_path / "narrow.npy")
    np.save(tmp_path / "deep.npy", np.zeros((4, 20, 20)))
    with refusal("wrong-shape", error=DataError):
        load(tmp_path / "deep.npy")


def test_files_that_are_missing_or_damaged_are_refused(tmp_path: Path, archive: dict[str, NDArray[np.generic]]) -> None:
    with refusal("unreadable", "nowhere.csv", error=FileError):
        load(tmp_path / "nowhere.csv")
    with refusal("unreadable", "mitbih_test.csv", "--data", error=FileError):
        load(tmp_path)
    whole = save(tmp_path / "beats.npz", archive).read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 30):
        (tmp_path / "beats.npz").write_bytes(whole[:size])
        with refusal("damaged" if size else "no-rows", "beats.npz", error=FileError):
            load(tmp_path / "beats.npz")


@pytest.mark.parametrize("columns", [187, 189])
def test_a_kaggle_file_of_another_width_is_refused(tmp_path: Path, columns: int) -> None:
    for name in ("train", "test"):
        np.savetxt(tmp_path / f"mitbih_{name}.csv", np.zeros((3, columns)), fmt="%d", delimiter=",")
    with refusal("wrong-shape", "mitbih_test.csv", str(columns), "are 188", error=DataError):
        load(tmp_path)


def test_synthetic_beats_say_so_and_have_two_classes() -> None:
    data = synthetic(2000)
    assert isinstance(data, Heartbeats)
    assert data.beats.shape == (2000, 150)
    assert data.note.startswith("SYNTHETIC")
    assert data.labels is not None
    assert 0 <= data.beats.min() <= data.beats.max() <= 1
    normal, other = (data.beats[data.labels == label].mean(axis=0) for label in (0, 2))
    assert np.abs(normal - other).max() > 0.1
