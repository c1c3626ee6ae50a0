from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.batch.report_folders import (
    KEY,
    noiseless_plan,
    noiseless_task,
    records_of,
)
from tests.batch.shuffle.biased_sources import WordsBelow
from tests.batch.shuffle.numbered_reports import IDENTITY, PLAN, numbered_folder, read
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum import Randomizer
from shufflesum.batch.files import Format, open_dataset, read_records, write_part
from shufflesum.batch.identity import Identity
from shufflesum.batch.local import count
from shufflesum.batch.once import RELEASED
from shufflesum.batch.shuffle import open_source, shuffle
from shufflesum.batch.targets import PlainTarget, SealedTarget
from shufflesum.cells import BLANK
from shufflesum.randomness import RandomSource
from shufflesum.reports import Counts
from shufflesum.shuffling import Layout
from shufflesum.testing import SeededSource, unprotected_plan


def orders(reports: Path, layout: Layout, randomness: RandomSource, times: int) -> Iterator[list[int]]:
    """Shuffle the same folder again and again."""
    source, output = open_source(reports), reports.with_name("shuffled")
    for _ in range(times):
        shuffle(source, output, layout=layout, randomness=lambda: randomness)
        yield read(output)
        shutil.rmtree(output)
        (reports / RELEASED).unlink()


IN_MEMORY = Layout(rows=4, buckets=1, parts=1, run_rows=4, in_memory=True, workers=1)
SPILLED = Layout(rows=4, buckets=2, parts=2, run_rows=2, in_memory=False, workers=1)
SEVERAL = Layout(rows=4, buckets=4, parts=2, run_rows=1, in_memory=False, workers=1)


def permutation_chance(folder: Path, layout: Layout, randomness: RandomSource, times: int) -> float:
    place = {order: i for i, order in enumerate(permutations(range(4)))}
    observed = np.zeros(24)
    for order in orders(numbered_folder(folder / "reports", 1, 3), layout, randomness, times):
        observed[place[tuple(order)]] += 1
    return chi_square(observed, np.full(24, 1 / 24))


@pytest.mark.long
@pytest.mark.parametrize(
    "layout", [pytest.param(IN_MEMORY, marks=pytest.mark.slow), SPILLED], ids=["in memory", "two buckets"]
)
def test_every_permutation_of_four_reports_is_equally_likely_through_files(folder: Path, layout: Layout) -> None:
    """Chi-square over 24 permutations at false alarm 1e-6."""
    assert permutation_chance(folder, layout, SeededSource(1), 250) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("layout", [IN_MEMORY, SPILLED, SEVERAL], ids=["in memory", "two buckets", "four buckets"])
def test_every_permutation_of_four_reports_is_equally_likely_in_many_shuffles(folder: Path, layout: Layout) -> None:
    """Chi-square over 24 permutations at false alarm 1e-6."""
    assert permutation_chance(folder, layout, SeededSource(2), 6000) > FALSE_ALARM


@pytest.mark.long
@pytest.mark.parametrize(
    "layout", [pytest.param(IN_MEMORY, marks=pytest.mark.slow), SPILLED], ids=["in memory", "two buckets"]
)
def test_a_shuffle_with_biased_words_is_found_out(folder: Path, layout: Layout) -> None:
    """The twin: the same code with words that lack two bits."""
    assert permutation_chance(folder, layout, WordsBelow(1), 250) < FALSE_ALARM


class Unscattered:
    """A source for reports that go to buckets by turns and only then are permuted: almost a shuffle."""

    def __init__(self) -> None:
        self._source = SeededSource(9)

    def fill(self, out: Any) -> None:
        if out.dtype == np.uint16:
            out[:] = np.arange(len(out))
        else:
            self._source.fill(out)


@pytest.mark.parametrize(
    ("randomness", "uniform"),
    [(SeededSource(3), True), pytest.param(Unscattered(), False, marks=pytest.mark.slow)],
)
def test_reports_at_the_ends_of_parts_are_any_reports(folder: Path, randomness: RandomSource, uniform: bool) -> None:
    """Ends of parts, and neighbours across them, are uniform (each at false alarm 5e-7); by turns they are not."""
    reports = numbered_folder(folder / "reports", 10, 1, 21)
    layout = Layout(rows=32, buckets=4, parts=4, run_rows=8, in_memory=False, workers=1)
    ends, steps = np.zeros(32), np.zeros(31)
    source, output = open_source(reports), folder / "shuffled"
    for _ in range(150):
        shuffle(source, output, layout=layout, randomness=lambda: randomness)
        parts = [parquet.read_table(path)["cell"].to_pylist() for path in sorted(output.glob("part-*"))]
        for part in filter(None, parts):
            ends[part[0]] += 1
            ends[part[-1]] += len(part) > 1
        for left, right in pairwise(parts):
            if left and right:
                steps[(right[0] - left[-1]) % 32 - 1] += 1
        shutil.rmtree(output)
    chances = chi_square(ends, np.full(32, 1 / 32)), chi_square(steps, np.full(31, 1 / 31))
    assert (min(chances) > FALSE_ALARM / 2) is uniform


def test_parts_are_as_large_as_chance_makes_them_however_the_input_was_cut(folder: Path) -> None:
    """Chi-square of four parts' sizes, multinomial, at false alarm 1e-6; with lopsided words they are not."""
    reports = numbered_folder(folder / "reports", 1, 19_000, 3, 996, kind="arrow")

    def sizes(randomness: RandomSource) -> list[int]:
        layout = Layout(rows=20_000, buckets=8, parts=4, run_rows=3000, in_memory=False, workers=1)
        shuffle(open_source(reports), folder / "shuffled", layout=layout, randomness=lambda: randomness)
        found = [file.rows for file in open_dataset(folder / "shuffled", stage="shuffled").files]
        shutil.rmtree(folder / "shuffled")
        return found

    assert chi_square(sizes(SeededSource(4)), np.full(4, 1 / 4)) > FALSE_ALARM

    class Lopsided(SeededSource):
        def fill(self, out: Any) -> None:
            super().fill(out)
            if out.dtype == np.uint16:
                out[::10] = 0

    assert chi_square(sizes(Lopsided(4)), np.full(4, 1 / 4)) < FALSE_ALARM


def test_a_large_folder_is_mixed_thoroughly(folder: Path) -> None:
    """Distances are those of a uniform permutation: mean a third, here within 40 deviations; few stay neighbours."""
    reports = numbered_folder(folder / "reports", 50_000, 7, 49_993)
    layout = Layout(rows=100_000, buckets=16, parts=4, run_rows=9000, in_memory=False, workers=2)
    shuffle(open_source(reports), folder / "shuffled", layout=layout)
    order = np.array(read(folder / "shuffled"))
    assert np.array_equal(np.sort(order), np.arange(100_000))
    assert abs(np.abs(order - np.arange(100_000)).mean() / 100_000 - 1 / 3) < 0.03
    assert np.count_nonzero(np.abs(np.diff(order)) == 1) < 40  # about Poisson with mean 2: beyond 40 once in 10^36


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_nothing_of_the_output_depends_on_how_the_input_was_cut(folder: Path, kind: Format) -> None:
    seen = []
    before = time.time()
    for number, sizes in enumerate([(3000,), (1, 0, 2990, 9)]):
        reports = numbered_folder(folder / f"reports{number}", *sizes, kind="arrow")
        output = folder / f"shuffled{number}"
        os.utime(next(reports.iterdir()), (1, 1))
        shuffle(reports, output, format=kind)
        seen.append({path.name: path.stat().st_size for path in output.glob("part-*")})
        identity = open_dataset(output, stage="shuffled").identity
        assert identity.written == 3000
        assert replace(identity, shuffle_id=None, written=None, stage="reports") == IDENTITY
        assert all(path.stat().st_mtime >= before - 1 for path in output.iterdir())
        for path in output.glob("*.parquet"):
            metadata = parquet.read_metadata(path)
            assert metadata.num_row_groups == 1
            assert not any(metadata.row_group(0).column(i).is_stats_set for i in range(1))
    one, other = seen
    assert one.keys() == other.keys()
    assert all(abs(one[name] - other[name]) < 0.02 * one[name] for name in one)  # another order packs otherwise


def test_several_folders_are_merged_and_keep_the_names_of_their_batches(folder: Path) -> None:
    other = Identity.for_plan(PLAN)
    reports = numbered_folder(folder / "reports", 50)
    write_part(reports, "other", [records_of(range(50, 90), other)], other)
    done = shuffle(reports, folder / "shuffled")
    assert done.identity.contribution_ids == tuple(sorted((*IDENTITY.contribution_ids, *other.contribution_ids)))
    assert sorted(read(folder / "shuffled")) == list(range(90))
    assert (done.rows, len(done.files), open_source(reports).repeated) == (90, 1, 0)


@pytest.mark.parametrize("in_memory", [True, False])
def test_sealed_reports_are_shuffled_unopened(folder: Path, in_memory: bool) -> None:
    plan = noiseless_plan(users=10)
    task = noiseless_task(plan)
    identity = Identity.for_task(task, 1)
    rows = np.random.default_rng(1).integers(0, 5, (20, 3)) / 4
    target = SealedTarget(task, private_key=KEY)
    with target.encoding(1) as encode:
        records = encode(Randomizer(plan).randomize(rows))
    (folder / "reports").mkdir()
    write_part(folder / "reports", "part", [records], identity)
    sent = records.column("sealed").to_pylist()
    layout = Layout(rows=60, buckets=4, parts=2, run_rows=7, in_memory=in_memory, workers=2)
    shuffle(open_source(folder / "reports", task=task), folder / "shuffled", layout=layout)
    dataset = open_dataset(folder / "shuffled", stage="shuffled")
    received = [
        report for file in dataset.files for found in read_records(file, 100) for report in found["sealed"].to_pylist()
    ]
    counts, _ = count(dataset, target, workers=1)
    assert received != sent
    assert sorted(received) == sorted(sent)
    expected = Counts(plan)
    expected.add(Randomizer(plan).randomize(rows))
    assert counts.table.tolist() == expected.table.tolist()
    assert counts.rejected == 0


def test_rows_that_are_no_reports_stay_and_are_rejected_by_the_analyzer(folder: Path) -> None:
    """As a file from another engine may have them: a signed column with nulls, negative and large numbers."""
    plan = unprotected_plan(users=2, shape=4, levels=1)
    schema = pa.schema([("cell", pa.int64())], metadata=Identity.for_plan(plan).arrow_schema().metadata)
    (folder / "reports").mkdir()
    table = pa.table([pa.array([0, 3, None, -1, 1 << 40, 8, 7, BLANK], pa.int64())], schema=schema)
    parquet.write_table(table, folder / "reports" / "part.parquet")
    assert shuffle(folder / "reports", folder / "shuffled").rows == 8
    counts, _ = count(open_dataset(folder / "shuffled", stage="shuffled"), PlainTarget(plan))
    assert (counts.blanks, counts.rejected) == (1, 4)
    assert counts.table.tolist() == [1, 0, 0, 1, 0, 0, 0, 1]


def test_progress_ends_with_all_reports(folder: Path) -> None:
    seen: list[int] = []
    shuffle(numbered_folder(folder / "reports", 40, 60), folder / "shuffled", progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 100
