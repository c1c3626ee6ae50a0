from __future__ import annotations

import os
import threading
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.batch.report_folders import noiseless_plan, records_of
from tests.refusals import refusal

from shufflesum.batch.files import open_dataset, write_part
from shufflesum.batch.identity import Identity
from shufflesum.batch.once import RELEASED, Members, Released
from shufflesum.batch.shuffle import shuffle
from shufflesum.errors import FileError, ReportsError
from shufflesum.ledger import Ledger

PLAN = noiseless_plan(users=4)


def add(folder: Path, name: str, identity: Identity | None = None, reports: int = 3) -> Path:
    """One more file of reports, by default of a user who came alone."""
    identity = identity or Identity.for_plan(PLAN)
    folder.mkdir(exist_ok=True)
    write_part(folder, name, [records_of([1] * reports, identity)], identity)
    return folder


def listed(path: Path) -> tuple[Any, ...]:
    return Ledger(path, "shufflesum-released-3", "list", "").read()


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Two owners' files."""
    return add(add(tmp_path / "reports", "one", reports=12), "two", reports=12)


def test_the_difference_of_two_outputs_is_refused(reports: Path, tmp_path: Path) -> None:
    shuffle(reports, tmp_path / "before")
    add(reports, "late")
    with refusal("released-before", error=ReportsError):
        shuffle(reports, tmp_path / "after")
    (reports / "late.parquet").unlink()
    (reports / "two.parquet").rename(tmp_path / "two.parquet")
    with refusal("released-before", error=ReportsError):
        shuffle(reports, tmp_path / "after")
    assert {path.name for path in tmp_path.iterdir()} == {"reports", "before", "two.parquet"}


def test_exactly_the_same_files_may_be_shuffled_again(reports: Path, tmp_path: Path) -> None:
    done = [shuffle(reports, tmp_path / name).identity for name in ("one", "two")]
    first, again = listed(reports / RELEASED)
    assert first["contributions"] == "".join(done[0].contribution_ids)
    assert [record["shuffle"] for record in (first, again)] == [identity.shuffle_id for identity in done]
    assert again["again"] == first["shuffle"]
    assert (reports / RELEASED).stat().st_mode & 0o777 == 0o600
    (reports / "two.parquet").rename(reports / "renamed.parquet")
    assert shuffle(reports, tmp_path / "three").rows == 24


def test_another_part_of_a_released_batch_is_refused(tmp_path: Path) -> None:
    """Its batch ids are those of the release: only the files tell that a user came in addition."""
    identity = Identity.for_plan(PLAN)
    reports = add(tmp_path / "reports", "part-0", identity, reports=12)
    shuffle(reports, tmp_path / "before")
    add(reports, "part-1", identity)
    with refusal("released-before", error=ReportsError):
        shuffle(reports, tmp_path / "after")


def test_spark_asks_the_same_list(reports: Path, tmp_path: Path) -> None:
    spark = pytest.importorskip("shufflesum.batch.spark", exc_type=ImportError)
    shuffle(reports, tmp_path / "before", released=tmp_path / "released.db")
    add(reports, "late")
    with refusal("released-before", error=ReportsError):
        spark.shuffle_folder(reports, tmp_path / "after", released=tmp_path / "released.db")
    assert not (tmp_path / "after").exists()


def test_one_list_for_all_folders(reports: Path, tmp_path: Path) -> None:
    known = tmp_path / "released.db"
    shuffle(reports, tmp_path / "before", released=known)
    assert not (reports / RELEASED).exists()
    moved = reports.rename(tmp_path / "moved")
    add(moved, "late")
    with refusal("released-before", error=ReportsError):
        shuffle(moved, tmp_path / "after", released=known)
    assert shuffle(add(tmp_path / "next", "late", reports=12), tmp_path / "after", released=known).rows == 12
    assert len(listed(known)) == 2


def test_the_list_in_the_folder_counts_where_another_is_named(reports: Path, tmp_path: Path) -> None:
    shuffle(reports, tmp_path / "before")
    add(reports, "late")
    with refusal("released-before", error=ReportsError):
        shuffle(reports, tmp_path / "after", released=tmp_path / "released.db")


def test_one_file_shares_the_list_of_its_folder(reports: Path, tmp_path: Path) -> None:
    shuffle(reports / "one.parquet", tmp_path / "before")
    with refusal("released-before", error=ReportsError):
        shuffle(reports, tmp_path / "after")


def test_links_share_the_list_of_the_files_they_point_to(reports: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    for file in list(reports.iterdir()):
        (tmp_path / "links" / file.name).symlink_to(file)
    shuffle(tmp_path / "links", tmp_path / "before")
    add(reports, "late")
    with refusal("released-before", error=ReportsError):
        shuffle(reports, tmp_path / "after")


def test_nothing_is_released_that_was_not_written_down(reports: Path, tmp_path: Path) -> None:
    """The list breaks while the shuffle runs: no output; mended, the same command goes on."""

    def spoil(done: int) -> None:
        (reports / RELEASED).mkdir(exist_ok=True)

    with refusal("unwritable", "released=", error=FileError):
        shuffle(reports, tmp_path / "after", progress=spoil)
    assert not (tmp_path / "after").exists()
    (reports / RELEASED).rmdir()
    done = shuffle(reports, tmp_path / "after")
    assert [record["shuffle"] for record in listed(reports / RELEASED)] == [done.identity.shuffle_id]
    assert open_dataset(tmp_path / "after", stage="shuffled").rows == 24


def test_a_release_in_the_meantime_is_refused_at_the_end(reports: Path, tmp_path: Path) -> None:
    other = add(tmp_path / "other", "late")
    (other / "one.parquet").write_bytes((reports / "one.parquet").read_bytes())
    known = tmp_path / "released.db"

    def overtake(done: int) -> None:
        if not (tmp_path / "first").exists():
            shuffle(other, tmp_path / "first", released=known)

    with refusal("released-before", error=ReportsError):
        shuffle(reports, tmp_path / "second", released=known, progress=overtake, workers=1)
    assert {path.name for path in tmp_path.iterdir()} == {"reports", "other", "first", "released.db"}


@pytest.mark.parametrize("text", ["", '{"format": "other"}'])
def test_a_damaged_list_is_refused(reports: Path, tmp_path: Path, text: str) -> None:
    (reports / RELEASED).write_text(text)
    with refusal("damaged", RELEASED, error=FileError):
        shuffle(reports, tmp_path / "after")
    assert (reports / RELEASED).read_text() == text
    assert {path.name for path in tmp_path.iterdir()} == {"reports"}


@pytest.mark.parametrize("record", [{"shuffle": "a", "contributions": "abc"}, {"shuffle": "b", "again": "a"}])
def test_a_list_that_makes_no_sense_is_refused_whatever_its_checksum(reports: Path, record: dict[str, str]) -> None:
    Ledger(reports / RELEASED, "shufflesum-released-3", "list", "").create(record)
    with refusal("damaged", RELEASED, error=FileError):
        shuffle(reports, reports.with_name("after"))


def test_with_an_id_in_the_list_changed_nothing_is_released(tmp_path: Path) -> None:
    ids = [f"{number:032x}" for number in range(3)]
    Released(Members.of(ids[0] + ids[1]), [tmp_path]).record("5" * 32)
    overlapping, same = (Released(Members.of(ids[0] + other), [tmp_path]) for other in (ids[2], ids[1]))
    with refusal("released-before", error=ReportsError):
        overlapping.check()
    same.check()
    whole = (tmp_path / RELEASED).read_bytes()
    (tmp_path / RELEASED).write_bytes(whole.replace(ids[0].encode(), ids[2].encode()))
    for released, step in product((overlapping, same), (Released.check, lambda known: known.record("6" * 32))):
        with refusal("damaged", RELEASED, error=FileError):
            step(released)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_needs_a_list_elsewhere(reports: Path, tmp_path: Path) -> None:
    reports.chmod(0o500)
    try:
        with refusal("unwritable", "released=", error=FileError):
            shuffle(reports, tmp_path / "after")
        assert shuffle(reports, tmp_path / "after", released=tmp_path / "released.db").rows == 24
    finally:
        reports.chmod(0o700)


def test_many_at_once_lose_no_release(tmp_path: Path) -> None:
    ids = [f"{number:032x}" for number in range(40)]
    lists = [Released(Members.of(name), [tmp_path]) for name in ids]
    threads = [
        threading.Thread(target=released.record, args=(str(number) * 32,)) for number, released in enumerate(lists)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entry["contributions"] for entry in listed(tmp_path / RELEASED)) == ids
    assert [path.name for path in tmp_path.iterdir()] == [RELEASED]
    with refusal("released-before", error=ReportsError):
        Released(Members.of(ids[1] + ids[0]), [tmp_path]).check()
