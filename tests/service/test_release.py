from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.chances import FALSE_ALARM, chi_square

from shufflesum.errors import ReportsError
from shufflesum.service import release
from shufflesum.service.release import permuted
from shufflesum.wire import SEALED_BYTES

ORDERS = {order: place for place, order in enumerate(itertools.permutations(range(4)))}


def reports(count: int) -> bytes:
    rows = np.zeros((count, SEALED_BYTES), dtype=np.uint8)
    rows[:, :4] = np.arange(count, dtype=">u4").view(np.uint8).reshape(-1, 4)
    return rows.tobytes()


def numbers(sealed: bytes) -> list[int]:
    rows = np.frombuffer(sealed, dtype=np.uint8).reshape(-1, SEALED_BYTES)
    return [int(number) for number in np.ascontiguousarray(rows[:, :4]).view(">u4").ravel()]


def chunked(sealed: bytes, sizes: list[int]) -> Callable[[], Iterator[bytes]]:
    def read() -> Iterator[bytes]:
        start = 0
        for size in sizes:
            yield sealed[start * SEALED_BYTES : (start + size) * SEALED_BYTES]
            start += size

    return read


@pytest.mark.parametrize("bucket", [1, 7, 1000, 10**6])
def test_every_report_comes_once_however_small_the_buckets(bucket: int) -> None:
    read = chunked(reports(1000), [1, 0, 499, 500])
    assert sorted(numbers(b"".join(permuted(read, 1000, bucket=bucket)))) == list(range(1000))


def orders(draws: int, bucket: int) -> list[int]:
    """How often each of the 24 orders of four reports comes."""
    read = chunked(reports(4), [3, 1])
    seen = [ORDERS[tuple(numbers(b"".join(permuted(read, 4, bucket=bucket))))] for _ in range(draws)]
    return [int(count) for count in np.bincount(seen, minlength=24)]


@pytest.mark.parametrize("bucket", [1, 2, 4])
def test_all_orders_are_equally_likely(bucket: int) -> None:
    """A true shuffle is rejected with probability 1e-6."""
    assert chi_square(orders(3000, bucket), np.full(24, 1 / 24)) > FALSE_ALARM


def test_a_shuffle_that_never_leaves_its_bucket_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "_permutation", lambda count, _: np.arange(count, dtype=np.uint32))
    assert chi_square(orders(3000, 2), np.full(24, 1 / 24)) < FALSE_ALARM


def test_no_more_than_about_a_bucket_is_gathered_at_a_time() -> None:
    piece = reports(4096)
    largest = 0

    def read() -> Iterator[bytes]:
        for _ in range(32):
            yield piece

    for sent in permuted(read, 32 * 4096, bucket=4096):
        largest = max(largest, len(sent) // SEALED_BYTES)
    assert largest < 2 * 4096


def test_a_batch_that_others_changed_is_not_sent() -> None:
    with pytest.raises(ReportsError, match="changed by others"):
        list(permuted(chunked(reports(5), [5]), 6))
