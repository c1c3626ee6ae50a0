from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
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
    every_byte_changed,
    noiseless_plan,
    noiseless_task,
    records_of,
    snapshot,
    write_folder,
)
from tests.batch.test_batch_scatter import WordsBelow
from tests.chances import FALSE_ALARM, chi_square
from tests.refusals import refusal

from shufflesum import Randomizer
from shufflesum.batch.count import count
from shufflesum.batch.files import Format, open_dataset, read_records, write_part
from shufflesum.batch.identity import Identity
from shufflesum.batch.once import RELEASED
from shufflesum.batch.shuffle import shuffle
from shufflesum.batch.shuffle.layout import Layout
from shufflesum.batch.shuffle.passes import run
from shufflesum.batch.shuffle.sources import FileSource, open_source
from shufflesum.batch.targets import PlainTarget, SealedTarget
from shufflesum.cells import BLANK
from shufflesum.errors import FileError, ParameterError, ReportsError
from shufflesum.randomness import RandomSource
from shufflesum.reports import Counts
from shufflesum.testing import SeededSource, unprotected_plan

PLAN = unprotected_plan(users=5, shape=1 << 20, levels=9)
IDENTITY = Identity.for_plan(PLAN)
MEMORY = 42 * 10**6


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder where waiting for the disk takes no time, if there is one."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as name:
        yield Path(name)


def numbered_folder(path: Path, *sizes: int, kind: Format = "parquet") -> Path:
    """Files of reports whose cells number them through."""
    ends = np.cumsum((0, *sizes)).tolist()
    return write_folder(path, IDENTITY, *(range(a, b) for a, b in pairwise(ends)), kind=kind)


def read(path: Path) -> list[int]:
    """The cells of a shuffled folder, in order."""
    files = open_dataset(path, stage="shuffled").files
    return [cell for file in files for records in read_records(file, 1 << 20) for cell in records["cell"].to_pylist()]


def orders(reports: Path, layout: Layout, randomness: RandomSource, times: int) -> Iterator[list[int]]:
    """Shuffle the same folder again and again."""
    source, output = open_source(reports), reports.with_name("shuffled")
    for _ in range(times):
        run(source, output, layout, randomness=lambda: randomness)
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


@pytest.mark.parametrize("layout", [IN_MEMORY, SPILLED], ids=["in memory", "two buckets"])
def test_every_permutation_of_four_reports_is_equally_likely_through_files(folder: Path, layout: Layout) -> None:
    """Chi-square over 24 permutations at false alarm 1e-6."""
    assert permutation_chance(folder, layout, SeededSource(1), 250) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("layout", [IN_MEMORY, SPILLED, SEVERAL], ids=["in memory", "two buckets", "four buckets"])
def test_every_permutation_of_four_reports_is_equally_likely_in_many_shuffles(folder: Path, layout: Layout) -> None:
    """Chi-square over 24 permutations at false alarm 1e-6."""
    assert permutation_chance(folder, layout, SeededSource(2), 6000) > FALSE_ALARM


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
        run(source, output, layout, randomness=lambda: randomness)
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
        run(open_source(reports), folder / "shuffled", layout, randomness=lambda: randomness)
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
    run(open_source(reports), folder / "shuffled", layout)
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
        assert replace(identity, shuffle_id=None, stage="reports") == IDENTITY
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
    assert (done.reports, done.parts, done.repeated) == (90, 1, 0)


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
    run(open_source(folder / "reports", task=task), folder / "shuffled", layout)
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
    assert shuffle(folder / "reports", folder / "shuffled").reports == 8
    counts, _ = count(open_dataset(folder / "shuffled", stage="shuffled"), PlainTarget(plan))
    assert (counts.blanks, counts.rejected) == (1, 4)
    assert counts.table.tolist() == [1, 0, 0, 1, 0, 0, 0, 1]


def test_progress_ends_with_all_reports(folder: Path) -> None:
    seen: list[int] = []
    shuffle(numbered_folder(folder / "reports", 40, 60), folder / "shuffled", progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 100


CHILD = """
import sys, time
from shufflesum.batch.shuffle.passes import run
from shufflesum.batch.shuffle.layout import Layout
from shufflesum.batch.shuffle.sources import open_source

def progress(done):
    print(done, flush=True)
    time.sleep(0.002)

layout = Layout(rows=60_000, buckets=16, parts=8, run_rows=2000, in_memory=sys.argv[3] == "True", workers=2)
run(open_source(sys.argv[1]), sys.argv[2], layout, progress=progress)
"""


def run_until(folder: Path, done: int | None, in_memory: bool = False) -> int:
    """Shuffle in a process of its own, killed without warning when it has done so much; its exit code."""
    arguments = [sys.executable, "-c", CHILD, str(folder / "reports"), str(folder / "shuffled"), str(in_memory)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if done is not None and int(line) >= done:
                process.send_signal(signal.SIGKILL)
                break
    return process.returncode


@pytest.mark.parametrize("in_memory", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_shuffle_killed_at_any_moment_is_taken_up_and_loses_nothing(folder: Path, in_memory: bool) -> None:
    reports = numbered_folder(folder / "reports", 20_000, 39_999, 1)
    before = snapshot(reports)
    kept: dict[Path, bytes] = {}
    partial = folder / ".shuffled.partial"
    for done in (20_000, 45_000) if in_memory else (1, 9_000, 20_000, 33_000, 58_000):
        assert run_until(folder, done, in_memory) == -signal.SIGKILL
        assert not (folder / "shuffled").exists()
        assert partial.stat().st_mode & 0o777 == 0o700
        if not in_memory:
            assert (partial / "_spill").stat().st_mode & 0o777 == 0o700
            assert all(path.read_bytes() == data for path, data in kept.items()), "finished units and parts stay"
            finished = [*partial.glob("*/unit-*.index"), *partial.glob("part-*")]
            kept = {path: path.read_bytes() for path in finished}
    assert in_memory or kept
    assert run_until(folder, None, in_memory) == 0
    order = read(folder / "shuffled")
    assert order != sorted(order)
    assert sorted(order) == list(range(60_000))
    assert {path.name for path in folder.iterdir()} == {"reports", "shuffled"}
    assert {path.suffix for path in (folder / "shuffled").iterdir()} == {".parquet", ".json"}
    after = snapshot(reports)
    assert after.pop(RELEASED)
    assert after == before


@pytest.mark.slow
def test_after_a_restart_of_the_machine_spilled_reports_are_not_believed(folder: Path) -> None:
    numbered_folder(folder / "reports", 60_000)
    run_until(folder, 45_000)
    spilled = folder / ".shuffled.partial" / "_spill"
    (spilled / "boot").write_text("another start")
    for path in spilled.glob("unit-*[0-9]"):
        path.write_bytes(bytes(path.stat().st_size))
    assert run_until(folder, None) == 0
    assert sorted(read(folder / "shuffled")) == list(range(60_000))


@pytest.mark.parametrize("parts_done", [0, 1])
def test_with_any_byte_of_the_spilled_work_changed_no_report_changes(folder: Path, parts_done: int) -> None:
    """An interrupted shuffle with damaged files is refused or does that work again; what was drawn before is kept."""
    reports = numbered_folder(folder / "reports", 3, 2)
    layout = Layout(rows=5, buckets=2, parts=2, run_rows=3, in_memory=False, workers=1)
    partial, kept = folder / ".shuffled.partial", folder / "kept"

    def interrupt(done: int) -> None:
        if len(list(partial.glob("part-*"))) == parts_done and len(list(partial.glob("*/unit-*.index"))) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(open_source(reports), folder / "shuffled", layout, progress=interrupt, randomness=lambda: SeededSource(7))
    partial.rename(kept)
    spilled = sorted(path.name for path in (kept / "_spill").iterdir())
    assert spilled == ["boot", *(f"unit-00000{unit}{end}" for unit in range(2) for end in ("", ".index"))]
    for name in spilled:
        refusals = []
        for _ in every_byte_changed(kept / "_spill" / name):
            shutil.copytree(kept, partial)
            try:
                run(open_source(reports), folder / "shuffled", layout)
            except FileError as error:
                refusals.append(str(error))
            else:
                assert sorted(read(folder / "shuffled")) == list(range(5))
                shutil.rmtree(folder / "shuffled")
                (reports / RELEASED).unlink()
            assert {path.name for path in folder.iterdir()} == {"reports", "kept"}
        assert all(f"{name}: is not as it was written" in text and "begins anew" in text for text in refusals)
        # Another start of the machine: all is done again. What is in finished parts already is not read again.
        size = (kept / "_spill" / name).stat().st_size
        assert len(refusals) == (0 if name == "boot" else 2 * size) or (parts_done and not name.endswith("index"))
    shutil.copytree(kept, partial)
    run(open_source(reports), folder / "shuffled", layout)
    assert sorted(read(folder / "shuffled")) == list(range(5))


@pytest.mark.parametrize("in_memory", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_full_disk_keeps_what_was_done_for_the_next_run(folder: Path, in_memory: bool) -> None:
    numbered_folder(folder / "reports", 60_000)
    room = 10_000
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))\n{CHILD}"
    arguments = [sys.executable, "-c", limited, str(folder / "reports"), str(folder / "shuffled"), str(in_memory)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert "WriteError" in done.stderr
    assert "run the same again" in done.stderr
    assert not (folder / "shuffled").exists()
    assert run_until(folder, None, in_memory) == 0
    assert sorted(read(folder / "shuffled")) == list(range(60_000))


def test_an_interrupted_shuffle_is_not_taken_up_with_other_input(folder: Path) -> None:
    reports = numbered_folder(folder / "reports", 60_000)
    run_until(folder, 20_000)
    os.utime(reports / "part-0.parquet")
    with refusal("other-work", "--restart", error=FileError):
        shuffle(reports, folder / "shuffled")
    assert shuffle(reports, folder / "shuffled", restart=True).reports == 60_000
    assert sorted(read(folder / "shuffled")) == list(range(60_000))


def mixed_plans(reports: Path) -> None:
    other = Identity.for_plan(unprotected_plan(users=5, shape=7))
    write_part(reports, "other", [records_of([1], other)], other)


def shuffled_already(reports: Path) -> None:
    other = IDENTITY.shuffled()
    write_part(reports, "other", [records_of([1], other)], other)


def damaged_inside(reports: Path) -> None:
    data = bytearray((reports / "part-1.parquet").read_bytes())
    data[200:220] = bytes(20)
    (reports / "part-1.parquet").write_bytes(data)


def cut_short(reports: Path) -> None:
    os.truncate(reports / "part-1.parquet", 500)


def copied(reports: Path) -> None:
    shutil.copy(reports / "part-1.parquet", reports / "zzz.parquet")


def rewritten(reports: Path) -> None:
    """By a program that keeps the metadata and writes other bytes."""
    table = parquet.read_table(reports / "part-1.parquet")
    parquet.write_table(table, reports / "zzz.parquet", compression="zstd")


@pytest.mark.parametrize(
    ("spoil", "refused"),
    [
        (mixed_plans, ("mixed-reports",)),
        (shuffled_already, ("wrong-stage",)),
        (damaged_inside, ("damaged", "part-1.parquet")),
        (cut_short, ("damaged", "part-1.parquet")),
        (copied, ("counted-twice", "part-1.parquet", "zzz.parquet")),
        (rewritten, ("counted-twice", "part-1.parquet", "zzz.parquet", "part-1,")),
    ],
)
@pytest.mark.parametrize("in_memory", [True, False])
def test_bad_input_is_refused_and_leaves_nothing(
    folder: Path, spoil: Callable[[Path], None], refused: tuple[str, ...], in_memory: bool
) -> None:
    reports = numbered_folder(folder / "reports", 5000, 5000)
    spoil(reports)
    before = snapshot(reports)
    layout = Layout(rows=10_000, buckets=2, parts=2, run_rows=1000, in_memory=in_memory, workers=2)
    with refusal(*refused, error=(FileError, ReportsError)):
        run(open_source(reports), folder / "shuffled", layout)
    assert snapshot(reports) == before
    assert {path.name for path in folder.iterdir()} == {"reports"}


def test_input_that_changes_while_it_is_read_is_refused(folder: Path) -> None:
    reports = numbered_folder(folder / "reports", 100)

    def touch(done: int) -> None:
        os.utime(reports / "part-0.parquet", (1, 1))

    with refusal("changed-meanwhile", "part-0.parquet", error=FileError):
        shuffle(reports, folder / "shuffled", progress=touch)
    assert {path.name for path in folder.rglob("*")} == {"reports", "part-0.parquet"}
    assert shuffle(reports, folder / "shuffled").reports == 100


def test_empty_files_of_one_part_are_no_copies(folder: Path) -> None:
    reports = numbered_folder(folder / "reports", 100, 0)
    shutil.copy(reports / "part-1.parquet", reports / "zzz.parquet")
    assert shuffle(reports, folder / "shuffled").reports == 100


def test_a_batch_that_is_too_small_is_refused(folder: Path) -> None:
    identity = Identity.for_plan(unprotected_plan(users=50, shape=4, coordinates=2))
    write_folder(folder / "reports", identity, [0] * 99)
    with refusal("too-few-users", "99 reports", "50 users", "with 2", "for 1", error=ReportsError):
        shuffle(folder / "reports", folder / "shuffled")
    assert {path.name for path in folder.iterdir()} == {"reports"}


def test_an_output_that_exists_is_never_touched(folder: Path) -> None:
    reports = numbered_folder(folder / "reports", 100)
    (folder / "shuffled").mkdir()
    (folder / "shuffled" / "mine").write_text("mine")
    with refusal("exists", error=FileError):
        shuffle(reports, folder / "shuffled")
    assert snapshot(folder / "shuffled")["mine"][1] == b"mine"


def test_plain_reports_are_not_those_of_a_task(folder: Path) -> None:
    with refusal("other-task", error=ReportsError):
        open_source(numbered_folder(folder / "reports", 10), task=noiseless_task(noiseless_plan()))


def test_memory_and_workers_are_checked(folder: Path) -> None:
    reports = numbered_folder(folder / "reports", 10)
    with refusal("out-of-range", "is 1", error=ParameterError):
        shuffle(reports, folder / "shuffled", memory=10**6)
    with refusal("out-of-range", "is 0", error=ParameterError):
        shuffle(reports, folder / "shuffled", workers=0)
    with refusal("unknown-choice", "is 'csv'", error=ParameterError):
        shuffle(reports, folder / "shuffled", format="csv")  # type: ignore[arg-type]
    assert {path.name for path in folder.iterdir()} == {"reports"}


def test_units_cover_every_group_once(folder: Path) -> None:
    dataset = open_dataset(numbered_folder(folder / "reports", 5, 0, 300, 20, kind="arrow"), stage="reports")
    source = FileSource(dataset, [])
    for rows in (1, 10, 1000):
        groups = Counter((file.path, group) for unit in source.units(rows) for file, found in unit for group in found)
        assert set(groups.values()) == {1}
        assert len(groups) == sum(file.groups for file in dataset.files)


MEASURE = """
import sys
from pathlib import Path
import numba, pyarrow.parquet
from shufflesum.batch.shuffle import shuffle

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024

bare = peak()
few, many, output, memory = sys.argv[1:]
shuffle(few, output + "few", memory=int(memory))
warm = peak()
shuffle(many, output, memory=int(memory))
print(bare, warm, peak())
"""


def peak_memory(folder: Path, batches: int, memory: int) -> tuple[int, int]:
    """The most that a real process held above the import of the libraries, and above having shuffled a few reports.

    The second leaves out the compiler of the kernels, which is loaded when the first of them runs.
    """
    rng = np.random.default_rng(1)
    batch = records_of(rng.integers(0, 10 << 20, 1 << 20), IDENTITY)
    numbered_folder(folder / "few", 100)
    (folder / "many").mkdir()
    for number, size in enumerate((batches // 3, batches - batches // 3)):
        write_part(folder / "many", f"part-{number}", (batch for _ in range(size)), IDENTITY, "arrow")
    arguments = [*(str(folder / name) for name in ("few", "many", "shuffled")), str(memory)]
    done = subprocess.run([sys.executable, "-c", MEASURE, *arguments], capture_output=True, text=True, check=True)
    bare, warm, most = map(int, done.stdout.split())
    assert open_dataset(folder / "shuffled", stage="shuffled").rows == batches << 20
    return most - bare, most - warm


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
@pytest.mark.slow
def test_memory_stays_within_the_limit(tmp_path: Path) -> None:
    """200 MB of reports within 42 MB."""
    _, above_kernels = peak_memory(tmp_path, 32, MEMORY)
    assert above_kernels < 1.5 * MEMORY


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
def test_memory_stays_within_the_limit_for_ten_times_as_much(tmp_path: Path) -> None:
    """2 GB of reports within 200 MB."""
    above_import, _ = peak_memory(tmp_path, 320, 200 * 10**6)
    assert above_import < 1.5 * 200 * 10**6
