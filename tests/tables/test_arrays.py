from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.refusals import refusal

from shufflesum.errors import FileError, ParameterError
from shufflesum.tables import readers
from shufflesum.tables.readers import open_npy, open_npz


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(7,), (7, 3), (5, 2, 3, 4), (1, 1)])
@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8", ">f8", "<f2", "i1", "<u8", "?"])
def test_every_numeric_array_comes_back_row_by_row(
    tmp_path: Path, shape: tuple[int, ...], kind: str, order: str
) -> None:
    values = np.asarray(np.arange(np.prod(shape)).reshape(shape) % 100, dtype=kind, order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "x.npy", values)
    np.savez_compressed(tmp_path / "x.npz", values)
    for table in (open_npy(tmp_path / "x.npy"), open_npz(tmp_path / "x.npz", None)):
        assert (table.rows, table.shape, table.names) == (shape[0], shape[1:], None)
        for _ in range(2):
            batches = list(table.batches())
            assert all(batch.dtype in (np.float32, np.float64) and batch.dtype.isnative for batch in batches)
            assert all(batch.flags.c_contiguous for batch in batches)
            assert np.array_equal(np.concatenate(batches), values.astype(float))


@settings(deadline=None)  # files are slow on a busy machine
@given(
    values=hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=3, min_side=1)),
    limit=st.integers(1, 200),
)
def test_batches_join_to_the_whole_whatever_their_size(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray, limit: int
) -> None:
    path = tmp_path_factory.mktemp("npz") / "x.npz"
    np.savez(path, values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_BATCH_BYTES", limit)
        joined = np.concatenate(list(open_npz(path, None).batches()))
    assert np.array_equal(joined, values, equal_nan=True)


def test_batches_of_a_map_are_views_and_stay_small(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((60_000, 100), np.float32))
    batches = list(open_npy(tmp_path / "x.npy").batches())
    assert len(batches) == 3
    assert max(batch.nbytes for batch in batches) <= 8 << 20
    assert not any(batch.flags.owndata for batch in batches)


def test_narrow_types_are_batched_by_their_widened_size(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3 << 20, 1), np.int8))
    assert max(batch.nbytes for batch in open_npy(tmp_path / "x.npy").batches()) <= 8 << 20


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        (np.float64(3.0), ("wrong-shape",)),
        (np.zeros((0, 4)), ("no-rows", "(0, 4)")),
        (np.zeros((4, 0)), ("no-rows", "(4, 0)")),
        (np.zeros(3, complex), ("not-numbers", "complex128", "astype")),
        (np.array(["a"]), ("not-numbers", "<U1")),
        (np.zeros(3, "f8,i4"), ("not-numbers",)),
    ],
)
def test_arrays_that_are_no_users_rows_are_refused(
    tmp_path: Path, values: np.ndarray, refused: tuple[str, ...]
) -> None:
    np.save(tmp_path / "x.npy", values)
    np.savez(tmp_path / "x.npz", values)
    with refusal(*refused, error=FileError):
        open_npy(tmp_path / "x.npy")
    with refusal(*refused, error=FileError):
        open_npz(tmp_path / "x.npz", None)


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    with refusal("damaged", error=FileError):
        open_npy(tmp_path / "x.npy")


@pytest.mark.parametrize("kept", [3, 40, 500])
def test_a_npy_file_cut_short_is_refused_when_opened(tmp_path: Path, kept: int) -> None:
    np.save(tmp_path / "x.npy", np.ones((100, 10)))
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:kept])
    with refusal("damaged", error=FileError):
        open_npy(tmp_path / "x.npy")


@pytest.mark.parametrize("content", [b"hello, world\n" * 20, b"PK\x03\x04junk", b"\x93NUMPY\x01\x00\x05\x00{{{{{"])
def test_garbage_is_refused(tmp_path: Path, content: bytes) -> None:
    for suffix, opened in ((".npy", open_npy), (".npz", lambda path: open_npz(path, None))):
        path = tmp_path / f"x{suffix}"
        path.write_bytes(content)
        with refusal("damaged", error=FileError):
            opened(path)


def test_a_changed_byte_in_an_archive_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, np.ones((100, 10)))
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(bytes(raw))
    with refusal("damaged", error=FileError):
        list(open_npz(path, None).batches())


def test_an_archive_under_the_wrong_suffix_is_told_so(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", np.ones(3))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    with refusal("format-mismatch", error=FileError):
        open_npy(tmp_path / "x.npy")


def test_one_of_several_arrays_is_chosen_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, first=np.zeros((2, 3)), second=np.ones((4, 5)))
    table = open_npz(path, "second")
    assert (table.rows, table.shape) == (4, (5,))
    with refusal("missing-argument", "2 arrays", "array=", "'first'", "'second'", error=ParameterError):
        open_npz(path, None)
    with refusal("unknown-choice", "array 'third'", "'first'", "'second'", error=ParameterError):
        open_npz(path, "third")


def test_an_archive_without_arrays_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz")
    with refusal("malformed", error=FileError):
        open_npz(tmp_path / "x.npz", None)
