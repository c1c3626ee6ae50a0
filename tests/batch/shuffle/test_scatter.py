from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.batch.shuffle.biased_sources import WordsBelow
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum.batch import identity
from shufflesum.batch.identity import Items
from shufflesum.batch.shuffle import spill, spilled
from shufflesum.errors import FileError, ParameterError
from shufflesum.shuffling import Layout, MemoryRuns, permute, scatter
from shufflesum.testing import SeededSource

PLAIN, SEALED = identity.PLAIN.item, identity.SEALED.item


def numbered(count: int) -> Items:
    return np.arange(count, dtype=PLAIN)


def random_items(count: int, dtype: np.dtype[Any], seed: int = 1) -> Items:
    return np.frombuffer(np.random.default_rng(seed).bytes(count * dtype.itemsize), dtype=dtype)


@pytest.mark.parametrize("dtype", [PLAIN, SEALED], ids=["plain", "sealed"])
@pytest.mark.parametrize("buckets", [1, 2, 64, 65536])
def test_scattering_moves_whole_items_and_loses_none(dtype: np.dtype[Any], buckets: int) -> None:
    items = random_items(1000, dtype)
    out, ends = scatter(items, buckets, SeededSource(2))
    assert sorted(item.tobytes() for item in out) == sorted(item.tobytes() for item in items)
    assert ends[0] == 0
    assert ends[-1] == len(items)
    assert (np.diff(ends.astype(np.int64)) >= 0).all()


def test_buckets_are_drawn_uniformly_and_independently() -> None:
    """All 64 pairs of buckets of two neighbours are equally likely (false alarm 1e-6); not so with biased words."""

    def pairs(source: Any) -> Any:
        found = np.zeros((8, 8))
        for _ in range(20):
            out, ends = scatter(numbered(2000), 8, source)
            bucket = np.empty(2000, dtype=np.int64)
            bucket[out] = np.repeat(np.arange(8), np.diff(ends))
            np.add.at(found, (bucket[::2], bucket[1::2]), 1)
        return found

    assert chi_square(pairs(SeededSource(3)), np.full(64, 1 / 64)) > FALSE_ALARM
    assert chi_square(pairs(WordsBelow(3)), np.full(64, 1 / 64)) < FALSE_ALARM


@pytest.mark.long
def test_a_bucket_is_permuted_uniformly() -> None:
    """Chi-square over the 120 permutations of five at false alarm 1e-6; with biased words it is rejected."""
    place = {order: i for i, order in enumerate(permutations(range(5)))}

    def observed(source: Any) -> Any:
        found = np.zeros(120)
        for _ in range(12_000):
            found[place[tuple(permute(numbered(5), source).tolist())]] += 1
        return found

    assert chi_square(observed(SeededSource(4)), np.full(120, 1 / 120)) > FALSE_ALARM
    assert chi_square(observed(WordsBelow(4)), np.full(120, 1 / 120)) < FALSE_ALARM


@pytest.mark.parametrize("dtype", [PLAIN, SEALED], ids=["plain", "sealed"])
@pytest.mark.parametrize("count", [0, 1, 200_000])
def test_permuting_keeps_every_byte(dtype: np.dtype[Any], count: int) -> None:
    items = random_items(count, dtype)
    out = permute(items, SeededSource(5))
    assert np.array_equal(np.sort(out.view(f"V{dtype.itemsize}")), np.sort(items.view(f"V{dtype.itemsize}")))
    assert count < 2 or out.tobytes() != items.tobytes()


def test_runs_in_files_and_in_memory_give_the_same_buckets(tmp_path: Path) -> None:
    runs = [scatter(random_items(size, SEALED, size), 4, SeededSource(size)) for size in (300, 7, 1, 250)]
    in_memory = MemoryRuns(SEALED)
    for items, ends in runs:
        in_memory.add(items, ends)
    assert spill(tmp_path, 0, iter(runs[:3]), 4) == 308
    assert spill(tmp_path, 1, iter(runs[3:]), 4) == 250
    with spilled(tmp_path, 2, SEALED, 4) as in_files:
        assert in_files.rows == in_memory.rows == 558
        for bucket in range(4):
            assert in_files.bucket(bucket).tobytes() == in_memory.bucket(bucket).tobytes()
    assert sum(len(in_memory.bucket(bucket)) for bucket in range(4)) == 558


def test_a_unit_that_was_half_spilled_is_written_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "unit-000000").write_bytes(bytes(10_000))
    run = scatter(numbered(100), 2, SeededSource(1))
    spill(tmp_path, 0, iter([run]), 2)
    with spilled(tmp_path, 1, PLAIN, 2) as runs:
        assert sorted(np.concatenate([runs.bucket(0), runs.bucket(1)]).tolist()) == list(range(100))


def test_a_unit_is_not_done_before_all_of_it_is_spilled(tmp_path: Path) -> None:
    def broken() -> Any:
        yield scatter(numbered(100), 2, SeededSource(1))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spill(tmp_path, 0, broken(), 2)
    assert not (tmp_path / "unit-000000.index").exists()


def test_a_spill_file_that_lost_bytes_is_refused(tmp_path: Path) -> None:
    spill(tmp_path, 0, iter([scatter(numbered(100), 2, SeededSource(1))]), 2)
    data = (tmp_path / "unit-000000").read_bytes()
    (tmp_path / "unit-000000").write_bytes(data[:-1])
    with refusal("damaged", error=FileError):
        spilled(tmp_path, 1, PLAIN, 2)


@given(
    rows=st.integers(1, 10**9),
    item_bytes=st.sampled_from([PLAIN.itemsize, SEALED.itemsize]),
    memory=st.integers(1 << 26, 1 << 33),
    workers=st.integers(1, 64),
)
def test_a_layout_covers_all_buckets_once_and_stays_within_the_memory(
    rows: int, item_bytes: int, memory: int, workers: int
) -> None:
    layout = Layout.plan(rows, item_bytes, memory=memory, workers=workers)
    covered = [bucket for part in range(layout.parts) for bucket in layout.buckets_of(part)]
    assert covered == list(range(layout.buckets))
    assert layout.buckets & (layout.buckets - 1) == 0
    assert 1 <= layout.workers <= workers
    kept = rows * item_bytes if layout.in_memory else 0
    run = layout.run_rows * (2 * item_bytes + 2)
    bucket = rows / layout.buckets + 6 * (rows / layout.buckets) ** 0.5  # and each there twice, with its place
    assert kept + layout.workers * run <= memory
    assert kept + layout.workers * bucket * (2 * item_bytes + 4) <= memory
    assert rows // layout.unit_rows <= 256


def test_what_fits_into_memory_is_not_spilled() -> None:
    assert Layout.plan(10**6, 4, memory=1 << 26, workers=2).in_memory
    assert not Layout.plan(10**8, 4, memory=1 << 28, workers=2).in_memory
    few = Layout.plan(1000, 4, memory=1 << 26, workers=2)
    assert (few.buckets, few.parts) == (1, 1)


def test_impossible_layouts_are_refused_by_name() -> None:
    with refusal("out-of-range", "is 10", "least 42", error=ParameterError):
        Layout.plan(100, 4, memory=10**7, workers=1)
    with refusal("out-of-range", "is 0", error=ParameterError):
        Layout.plan(100, 4, memory=10**9, workers=0)
    with refusal("out-of-range", "40", "000", "within 200", error=ParameterError):
        Layout.plan(10**13, 4, memory=2 * 10**8, workers=2)
