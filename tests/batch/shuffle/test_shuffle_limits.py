from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from tests.batch.report_folders import (
    noiseless_plan,
    noiseless_task,
    records_of,
    snapshot,
    write_folder,
)
from tests.batch.shuffle.numbered_reports import IDENTITY, MEMORY, numbered_folder
from tests.refusals import refusal

from shufflesum.batch.files import open_dataset, write_part
from shufflesum.batch.identity import Identity
from shufflesum.batch.shuffle import FileSource, open_source, shuffle
from shufflesum.errors import FileError, ParameterError, ReportsError
from shufflesum.shuffling import Layout
from shufflesum.testing import unprotected_plan


def mixed_plans(reports: Path) -> None:
    other = Identity.for_plan(unprotected_plan(users=5, shape=7))
    write_part(reports, "other", [records_of([1], other)], other)


def shuffled_already(reports: Path) -> None:
    other = IDENTITY.shuffled(1)
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
        shuffle(open_source(reports), folder / "shuffled", layout=layout)
    assert snapshot(reports) == before
    assert {path.name for path in folder.iterdir()} == {"reports"}


def test_input_that_changes_while_it_is_read_is_refused(folder: Path) -> None:
    reports = numbered_folder(folder / "reports", 100)

    def touch(done: int) -> None:
        os.utime(reports / "part-0.parquet", (1, 1))

    with refusal("changed-meanwhile", "part-0.parquet", error=FileError):
        shuffle(reports, folder / "shuffled", progress=touch)
    assert {path.name for path in folder.rglob("*")} == {"reports", "part-0.parquet"}
    assert shuffle(reports, folder / "shuffled").rows == 100


def test_empty_files_of_one_part_are_no_copies(folder: Path) -> None:
    reports = numbered_folder(folder / "reports", 100, 0)
    shutil.copy(reports / "part-1.parquet", reports / "zzz.parquet")
    assert shuffle(reports, folder / "shuffled").rows == 100


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
    with refusal("task-mismatch", error=ReportsError):
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
