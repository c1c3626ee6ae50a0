from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.batch.report_folders import KEY, noiseless_plan, noiseless_task, snapshot
from tests.refusals import refusal

from shufflesum import Randomizer
from shufflesum.batch.files import open_dataset
from shufflesum.batch.local import count
from shufflesum.batch.once import RELEASED
from shufflesum.batch.shuffle import open_source, open_uploads, shuffle
from shufflesum.batch.targets import SealedTarget
from shufflesum.errors import FileError, ReportsError
from shufflesum.reports import Counts
from shufflesum.sealing import SEALED_BYTES
from shufflesum.shuffling import Layout
from shufflesum.wire import Task, Upload

PLAN = noiseless_plan(users=4)
TASK = noiseless_task(PLAN)
ROWS = np.random.default_rng(1).integers(0, 5, (12, 3)) / 4


def sealed(rows: object = ROWS, task: Task = TASK, round_number: int = 1) -> list[bytes]:
    """An upload for each row."""
    randomizer = Randomizer(task.plan, round_number=round_number)
    return [Upload.seal(task, randomizer.randomize(row[None]), round_number).encode() for row in np.asarray(rows)]


def save(folder: Path, *files: list[bytes]) -> Path:
    folder.mkdir()
    for number, uploads in enumerate(files):
        (folder / f"{number:03d}.upload").write_bytes(b"".join(uploads))
    return folder


def counted(shuffled: Path) -> Counts:
    return count(open_dataset(shuffled, stage="shuffled"), SealedTarget(TASK, private_key=KEY), workers=1)[0]


def expected() -> list[int]:
    counts = Counts(PLAN)
    counts.add(Randomizer(PLAN).randomize(ROWS))
    table: list[int] = counts.table.tolist()
    return table


def test_uploads_become_a_sealed_shuffled_folder_that_the_analyzer_opens(tmp_path: Path) -> None:
    uploads = sealed()
    folder = save(tmp_path / "uploads", uploads[:1], uploads[1:8], uploads[8:])
    before = snapshot(folder)
    done = shuffle(folder, tmp_path / "shuffled", task=TASK)
    assert (done.rows, open_source(folder, task=TASK).repeated) == (36, 0)
    assert (done.identity.task_id, done.identity.round_number) == (TASK.id, 1)
    counts = counted(tmp_path / "shuffled")
    assert counts.table.tolist() == expected()
    assert counts.rejected == 0
    after = snapshot(folder)
    assert after.pop(RELEASED)
    assert after == before


def test_reports_of_one_upload_are_torn_apart_and_its_id_is_gone(tmp_path: Path) -> None:
    uploads = sealed()
    shuffle(save(tmp_path / "uploads", uploads), tmp_path / "shuffled", task=TASK, format="arrow")
    written = b"".join(path.read_bytes() for path in (tmp_path / "shuffled").iterdir())
    for data in uploads:
        upload = Upload.decode(data, TASK)
        assert upload.upload_id not in written
        assert upload.sealed[:SEALED_BYTES] in written
    # all twelve together with probability below 1e-15
    assert not all(Upload.decode(data, TASK).sealed in written for data in uploads)


def test_an_upload_sent_again_counts_once(tmp_path: Path) -> None:
    uploads = sealed()
    folder = save(tmp_path / "uploads", uploads + uploads[3:4], uploads[:2], uploads[:1])
    source = open_uploads([folder], TASK)
    assert (source.users, source.repeated, source.rows) == (12, 4, 36)
    layout = Layout(rows=36, buckets=4, parts=2, run_rows=5, in_memory=False, workers=2)
    assert shuffle(source, tmp_path / "shuffled", layout=layout).rows == 36
    assert counted(tmp_path / "shuffled").table.tolist() == expected()


def test_one_id_with_other_bytes_is_refused(tmp_path: Path) -> None:
    one, other = sealed()[:2]
    forged = Upload(TASK.id, 1, Upload.decode(one, TASK).upload_id, Upload.decode(other, TASK).sealed).encode()
    folder = save(tmp_path / "uploads", [one, other], [*sealed(), forged])
    with refusal("counted-twice", "000.upload", "upload 1", "001.upload", "upload 13", error=ReportsError):
        open_uploads([folder], TASK)


def test_ids_that_differ_only_at_the_end_are_two_users(tmp_path: Path) -> None:
    contents = [Upload.decode(upload, TASK).sealed for upload in sealed()[:4]]
    ids = [bytes(16), bytes(15) + b"\1", b"\1" + bytes(15), bytes(8) + b"\1" + bytes(7)]
    uploads = [
        Upload(TASK.id, 1, upload_id, content).encode() for upload_id, content in zip(ids, contents, strict=True)
    ]
    assert open_uploads([save(tmp_path / "uploads", uploads, uploads)], TASK).users == 4


def test_a_report_copied_into_another_upload_is_refused(tmp_path: Path) -> None:
    uploads, size = sealed(), SEALED_BYTES
    victim, attacker = (Upload.decode(upload, TASK) for upload in uploads[4:6])
    whole = Upload(TASK.id, 1, bytes(16), victim.sealed).encode()
    one = Upload(TASK.id, 1, bytes(16), attacker.sealed[:size] + victim.sealed[size : 2 * size] + bytes(size)).encode()
    twice = Upload(TASK.id, 1, bytes(16), attacker.sealed[:size] + bytes(size) + attacker.sealed[:size]).encode()
    rest = uploads[:5] + uploads[6:]
    for name, copy, places in (
        ("whole", whole, ("000.upload, upload 5", "001.upload, upload 1")),
        ("one", one, ("000.upload, upload 5", "001.upload, upload 1")),
        ("twice", twice, ("001.upload, upload 1 and",)),
    ):
        folder = save(tmp_path / name, rest, [copy])
        with refusal("counted-twice", *places, error=ReportsError):
            shuffle(folder, tmp_path / "shuffled", task=TASK)
    assert not (tmp_path / "shuffled").exists()
    # What only begins like another's report cannot be opened, and nobody is refused for it.
    alike = Upload(TASK.id, 1, bytes(16), victim.sealed[:8] + attacker.sealed[8:]).encode()
    assert shuffle(save(tmp_path / "alike", rest, [alike]), tmp_path / "shuffled", task=TASK).rows == 36


def test_folders_of_uploads_are_one_batch(tmp_path: Path) -> None:
    uploads = sealed()
    one, two = save(tmp_path / "one", uploads[:7]), save(tmp_path / "two", uploads[7:], uploads[:1])
    done = shuffle([one, two], tmp_path / "shuffled", task=TASK)
    assert (done.rows, open_source(one, two, task=TASK).repeated) == (36, 1)
    assert counted(tmp_path / "shuffled").table.tolist() == expected()
    with refusal("released-before", error=ReportsError):
        shuffle(two, tmp_path / "later", task=TASK)


def test_another_content_under_a_released_id_is_refused(tmp_path: Path) -> None:
    uploads = sealed()
    folder = save(tmp_path / "uploads", uploads)
    shuffle(folder, tmp_path / "one", task=TASK)
    replaced = Upload(TASK.id, 1, Upload.decode(uploads[0], TASK).upload_id, Upload.decode(sealed()[0], TASK).sealed)
    (folder / "000.upload").write_bytes(b"".join([replaced.encode(), *uploads[1:]]))
    with refusal("released-before", error=ReportsError):
        shuffle(folder, tmp_path / "two", task=TASK)


def test_two_shuffles_of_the_same_uploads_are_of_one_batch(tmp_path: Path) -> None:
    uploads = sealed()
    one = open_uploads([save(tmp_path / "one", uploads)], TASK).identity
    again = open_uploads([save(tmp_path / "again", uploads[6:], uploads[:7])], TASK).identity
    other = open_uploads([save(tmp_path / "other", uploads[1:])], TASK).identity
    assert one.contribution_ids == again.contribution_ids != other.contribution_ids


def test_every_unit_has_its_own_uploads(tmp_path: Path) -> None:
    uploads = sealed()
    source = open_uploads([save(tmp_path / "uploads", uploads[:5], uploads[5:6], uploads[6:], uploads[2:4])], TASK)
    for rows in (1, 6, 10, 1000):
        for at_once in (1, 7, 1000):
            items = [
                item.tobytes() for unit in source.units(rows) for found in source.read(unit, at_once) for item in found
            ]
            sent = [Upload.decode(data, TASK).sealed[i * 52 : i * 52 + 52] for data in uploads for i in range(3)]
            assert items == sent


def other_task(folder: Path) -> None:
    task = noiseless_task(noiseless_plan(users=5))
    (folder / "other.upload").write_bytes(sealed(ROWS[:1], task)[0])


def cut_short(folder: Path) -> None:
    data = (folder / "000.upload").read_bytes()
    (folder / "000.upload").write_bytes(data[:-1])


def emptied(folder: Path) -> None:
    (folder / "empty.upload").touch()


def stray(folder: Path) -> None:
    (folder / "notes.txt").write_text("x")


@pytest.mark.parametrize(
    ("spoil", "refused"),
    [
        (other_task, ("wrong-task", "other.upload", "upload 1")),
        (cut_short, ("damaged", "000.upload")),
        (emptied, ("damaged", "empty.upload", "0 bytes")),
        (stray, ("unknown-file-type", "notes.txt")),
    ],
)
def test_bad_uploads_are_refused_by_name(
    tmp_path: Path, spoil: Callable[[Path], None], refused: tuple[str, ...]
) -> None:
    folder = save(tmp_path / "uploads", sealed())
    spoil(folder)
    before = snapshot(folder)
    with refusal(*refused, error=(FileError, ReportsError)):
        shuffle(folder, tmp_path / "shuffled", task=TASK)
    assert snapshot(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["uploads"]


def test_uploads_of_two_rounds_are_not_mixed(tmp_path: Path) -> None:
    task = noiseless_task(replace(PLAN, guarantee=replace(PLAN.guarantee, rounds=2)))
    folder = save(tmp_path / "uploads", sealed(task=task), sealed(ROWS[:2], task, 2))
    with refusal("round-mismatch", "001.upload", "upload 1", "round 2", error=ReportsError):
        open_uploads([folder], task)
    (folder / "000.upload").unlink()
    assert open_uploads([folder], task).identity.round_number == 2


def test_a_folder_with_hidden_uploads_only_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "uploads", sealed())
    (tmp_path / "uploads" / "000.upload").rename(tmp_path / "uploads" / ".x.upload")
    with refusal("no-rows", error=FileError):
        shuffle(tmp_path / "uploads", tmp_path / "shuffled", task=TASK)


def test_an_upload_that_comes_late_is_not_shuffled_with_those_released(tmp_path: Path) -> None:
    uploads = sealed()
    folder = save(tmp_path / "uploads", uploads[:11])
    shuffle(folder, tmp_path / "one", task=TASK)
    (folder / "late.upload").write_bytes(uploads[11])
    with refusal("released-before", error=ReportsError):
        shuffle(folder, tmp_path / "two", task=TASK)
    (folder / "late.upload").write_bytes(uploads[3])  # sent again: the same uploads as before
    assert shuffle(folder, tmp_path / "two", task=TASK).rows == 33
    later = save(tmp_path / "later", uploads[7:])
    with refusal("released-before", error=ReportsError):
        shuffle(later, tmp_path / "three", task=TASK, released=folder / RELEASED)
    assert {path.name for path in tmp_path.iterdir()} == {"uploads", "later", "one", "two"}


def test_uploads_need_their_task(tmp_path: Path) -> None:
    with refusal("missing-argument", "task=", error=ReportsError):
        open_source(save(tmp_path / "uploads", sealed()))


def test_fewer_users_than_the_plan_needs_are_refused_however_often_they_send(tmp_path: Path) -> None:
    uploads = sealed(ROWS[:3])
    with refusal("too-few-users", "9 reports", error=ReportsError):
        shuffle(save(tmp_path / "uploads", uploads, uploads), tmp_path / "shuffled", task=TASK)
    assert [path.name for path in tmp_path.iterdir()] == ["uploads"]


def test_an_upload_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "uploads", sealed())
    source = open_uploads([folder], TASK)
    cut_short(folder)
    with refusal("changed-meanwhile", error=ReportsError):
        list(source.read(range(12), 1000))
