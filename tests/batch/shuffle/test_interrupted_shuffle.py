from __future__ import annotations

import os
import shutil
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from tests.batch.report_folders import (
    every_byte_changed,
    snapshot,
)
from tests.batch.shuffle.numbered_reports import numbered_folder, read
from tests.batch.shuffle.slow_shuffle import shuffle_slowly
from tests.forked_processes import forked, start_forked
from tests.refusals import refusal

from shufflesum.batch.once import RELEASED
from shufflesum.batch.shuffle import open_source, shuffle
from shufflesum.errors import FileError
from shufflesum.shuffling import Layout
from shufflesum.testing import SeededSource


def run_until(folder: Path, log: Path, done: int | None, in_memory: bool = False) -> int | None:
    """Shuffle in a process of its own, killed without warning when it has done so much; its exit code."""
    log.unlink(missing_ok=True)
    process = start_forked(log, partial(shuffle_slowly, folder, in_memory))
    while process.is_alive():
        said = log.read_text().split("\n")[:-1] if log.exists() else []
        if done is not None and any(line.isdigit() and int(line) >= done for line in said):
            process.kill()
            break
        time.sleep(0.001)
    process.join(60)
    return process.exitcode


@pytest.mark.parametrize("in_memory", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_shuffle_killed_at_any_moment_is_taken_up_and_loses_nothing(
    folder: Path, tmp_path: Path, in_memory: bool
) -> None:
    reports = numbered_folder(folder / "reports", 20_000, 39_999, 1)
    before = snapshot(reports)
    kept: dict[Path, bytes] = {}
    partial = folder / ".shuffled.partial"
    for done in (20_000, 45_000) if in_memory else (1, 9_000, 20_000, 33_000, 58_000):
        assert run_until(folder, tmp_path / "log", done, in_memory) == -signal.SIGKILL
        assert not (folder / "shuffled").exists()
        assert partial.stat().st_mode & 0o777 == 0o700
        if not in_memory:
            assert (partial / "_spill").stat().st_mode & 0o777 == 0o700
            assert all(path.read_bytes() == data for path, data in kept.items()), "finished units and parts stay"
            finished = [*partial.glob("*/unit-*.index"), *partial.glob("part-*")]
            kept = {path: path.read_bytes() for path in finished}
    assert in_memory or kept
    assert run_until(folder, tmp_path / "log", None, in_memory) == 0
    order = read(folder / "shuffled")
    assert order != sorted(order)
    assert sorted(order) == list(range(60_000))
    assert {path.name for path in folder.iterdir()} == {"reports", "shuffled"}
    assert {path.suffix for path in (folder / "shuffled").iterdir()} == {".parquet", ".json"}
    after = snapshot(reports)
    assert after.pop(RELEASED)
    assert after == before


@pytest.mark.slow
def test_after_a_restart_of_the_machine_spilled_reports_are_not_believed(folder: Path, tmp_path: Path) -> None:
    numbered_folder(folder / "reports", 60_000)
    run_until(folder, tmp_path / "log", 45_000)
    spilled = folder / ".shuffled.partial" / "_spill"
    (spilled / "boot").write_text("another start")
    for path in spilled.glob("unit-*[0-9]"):
        path.write_bytes(bytes(path.stat().st_size))
    assert run_until(folder, tmp_path / "log", None) == 0
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
        shuffle(
            open_source(reports),
            folder / "shuffled",
            layout=layout,
            progress=interrupt,
            randomness=lambda: SeededSource(7),
        )
    partial.rename(kept)
    spilled = sorted(path.name for path in (kept / "_spill").iterdir())
    assert spilled == ["boot", *(f"unit-00000{unit}{end}" for unit in range(2) for end in ("", ".index"))]
    for name in spilled:
        refusals = []
        for _ in every_byte_changed(kept / "_spill" / name):
            shutil.copytree(kept, partial)
            try:
                shuffle(open_source(reports), folder / "shuffled", layout=layout)
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
    shuffle(open_source(reports), folder / "shuffled", layout=layout)
    assert sorted(read(folder / "shuffled")) == list(range(5))
    # A unit whose index vanished is dealt out anew, which must not put a report into two parts, or into none.
    for _ in range(20):
        shutil.rmtree(folder / "shuffled")
        (reports / RELEASED).unlink()
        shutil.copytree(kept, partial)
        (partial / "_spill" / "unit-000000.index").unlink()
        shuffle(open_source(reports), folder / "shuffled", layout=layout)
        assert sorted(read(folder / "shuffled")) == list(range(5))


@pytest.mark.parametrize("in_memory", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_full_disk_keeps_what_was_done_for_the_next_run(folder: Path, tmp_path: Path, in_memory: bool) -> None:
    numbered_folder(folder / "reports", 60_000)
    log = tmp_path / "full"
    assert forked(log, partial(shuffle_slowly, folder, in_memory, room=10_000)) == 1
    said = log.read_text()
    assert "WriteError" in said
    assert "run the same again" in said
    assert not (folder / "shuffled").exists()
    assert run_until(folder, tmp_path / "log", None, in_memory) == 0
    assert sorted(read(folder / "shuffled")) == list(range(60_000))


def test_an_interrupted_shuffle_is_not_taken_up_with_other_input(folder: Path, tmp_path: Path) -> None:
    reports = numbered_folder(folder / "reports", 60_000)
    run_until(folder, tmp_path / "log", 20_000)
    os.utime(reports / "part-0.parquet")
    with refusal("resume-mismatch", "restart=True", error=FileError):
        shuffle(reports, folder / "shuffled")
    assert shuffle(reports, folder / "shuffled", restart=True).rows == 60_000
    assert sorted(read(folder / "shuffled")) == list(range(60_000))
