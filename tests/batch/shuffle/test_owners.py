"""Several owners' folders of reports as one batch."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.batch.report_folders import grid_rows, noiseless_plan, noiseless_task, records_of, write_folder
from tests.refusals import refusal

from shufflesum.batch.files import open_dataset, write_manifest, write_part
from shufflesum.batch.identity import Identity
from shufflesum.batch.local import open_users, randomize
from shufflesum.batch.once import RELEASED, refuse_same_reports
from shufflesum.batch.shuffle import open_source, shuffle
from shufflesum.batch.targets import PlainTarget, SealedTarget
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.ledger import Ledger

PLAN = noiseless_plan(users=30)


def owner(folder: Path, rows: int = 12, seed: int = 1) -> Path:
    """What an owner of some users sends; alone too few for the plan."""
    values, _ = grid_rows(rows, PLAN, seed)
    np.save(folder.with_suffix(".npy"), values)
    randomize(open_users(folder.with_suffix(".npy")), folder, PlainTarget(PLAN))
    return folder


@pytest.fixture
def owners(tmp_path: Path) -> list[Path]:
    return [owner(tmp_path / name, seed=seed) for seed, name in enumerate(("a", "b", "c"))]


def rows_of(*folders: Path) -> Counter[int]:
    tables = [parquet.read_table(path).to_pydict() for folder in folders for path in folder.glob("*.parquet")]
    return Counter(cell for table in tables for cell in table["cell"])


def test_all_reports_of_all_owners_are_in_it_once(owners: list[Path], tmp_path: Path) -> None:
    done = shuffle(owners, tmp_path / "shuffled")
    assert done.rows == 3 * 12 * 3
    assert rows_of(tmp_path / "shuffled") == rows_of(*owners)
    batches = [open_dataset(folder, stage="reports").identity.contribution_ids[0] for folder in owners]
    assert done.identity.contribution_ids == tuple(sorted(batches))


def with_header(folder: Path, names: str, seed: int) -> Path:
    values, _ = grid_rows(15, PLAN, seed)
    np.savetxt(folder.with_suffix(".csv"), values, delimiter=",", header=names, comments="")
    randomize(open_users(folder.with_suffix(".csv")), folder, PlainTarget(PLAN))
    return folder


def test_owners_whose_columns_are_in_another_order_are_not_mixed(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(PLAN.dimension)]
    first = with_header(tmp_path / "a", ",".join(names), 1)
    same = with_header(tmp_path / "b", ",".join(names), 2)
    other = with_header(tmp_path / "c", ",".join(names[::-1]), 3)
    nameless = owner(tmp_path / "d", seed=4)
    with refusal("mixed-reports", error=ReportsError):
        shuffle([first, other], tmp_path / "shuffled")
    assert not (tmp_path / "shuffled").exists()
    assert shuffle([first, nameless, same], tmp_path / "shuffled").rows == 42 * PLAN.reports


def test_one_owner_alone_has_too_few(owners: list[Path], tmp_path: Path) -> None:
    with refusal("too-few-users", "are 36", error=ReportsError):
        shuffle(owners[:1], tmp_path / "shuffled")
    assert not (tmp_path / "shuffled").exists()


def test_a_lost_part_of_one_owner_is_noticed(owners: list[Path], tmp_path: Path) -> None:
    identity = open_dataset(owners[1], stage="reports").identity
    write_part(owners[1], "part-00001", [records_of([1], identity)], identity)
    write_manifest(owners[1], identity)
    (owners[1] / "part-00001.parquet").unlink()
    with refusal("changed-afterwards", "part-00001.parquet", error=ReportsError):
        shuffle(owners, tmp_path / "shuffled")


def test_every_folder_remembers_the_release(owners: list[Path], tmp_path: Path) -> None:
    done = shuffle(owners, tmp_path / "shuffled")
    lists = [Ledger(folder / RELEASED, "shufflesum-released-3", "list", "").read() for folder in owners]
    assert [[release["shuffle"] for release in releases] for releases in lists] == [[done.identity.shuffle_id]] * 3
    late = owner(tmp_path / "late", seed=9)
    for others in ([*owners, late], [owners[2], owner(tmp_path / "large", 40)]):
        with refusal("released-before", error=ReportsError):
            shuffle(others, tmp_path / "again")
    assert not (late / RELEASED).exists()
    assert shuffle(owners[::-1], tmp_path / "again").rows == done.rows


def test_one_list_serves_all_owners(owners: list[Path], tmp_path: Path) -> None:
    shuffle(owners, tmp_path / "shuffled", released=tmp_path / "released.db")
    assert not any((folder / RELEASED).exists() for folder in owners)
    with refusal("released-before", error=ReportsError):
        shuffle([*owners, owner(tmp_path / "late", seed=9)], tmp_path / "again", released=tmp_path / "released.db")


def test_what_does_not_belong_together_is_refused(owners: list[Path], tmp_path: Path) -> None:
    with refusal("counted-twice", "given 2", error=ReportsError):
        shuffle([*owners, tmp_path / "b" / ".." / "a"], tmp_path / "shuffled")
    shutil.copytree(owners[0], tmp_path / "copy")
    with refusal("counted-twice", error=ReportsError):
        shuffle([*owners, tmp_path / "copy"], tmp_path / "shuffled")
    other = write_folder(tmp_path / "other", Identity.for_plan(noiseless_plan(users=31)), [0])
    with refusal("mixed-reports", error=ReportsError):
        shuffle([*owners, other], tmp_path / "shuffled")
    (tmp_path / "uploads").mkdir()
    (tmp_path / "uploads" / "1.upload").touch()
    with refusal("mixed-reports", error=ReportsError):
        shuffle([*owners, tmp_path / "uploads"], tmp_path / "shuffled")
    with refusal("missing-argument", error=ParameterError):
        shuffle([], tmp_path / "shuffled")
    assert not (tmp_path / "shuffled").exists()


@pytest.mark.slow
def test_spark_takes_several_folders_too(owners: list[Path], tmp_path: Path) -> None:
    spark = pytest.importorskip("shufflesum.batch.spark", exc_type=ImportError)
    assert spark.shuffle_folder(owners, tmp_path / "shuffled").rows == 108
    assert rows_of(tmp_path / "shuffled") == rows_of(*owners)
    with refusal("released-before", error=ReportsError):
        shuffle([*owners, owner(tmp_path / "late", seed=9)], tmp_path / "again")


@pytest.mark.parametrize("memory", [10**9, 2000])
def test_a_sealed_report_that_another_owner_copied_is_refused(tmp_path: Path, memory: int) -> None:
    """With little memory the first bytes are compared in several passes."""
    task = noiseless_task(PLAN)
    folders = [tmp_path / "a", tmp_path / "b"]
    tables = []
    for seed, folder in enumerate(folders):
        values, _ = grid_rows(15, PLAN, seed)
        np.save(folder.with_suffix(".npy"), values)
        randomize(open_users(folder.with_suffix(".npy")), folder, SealedTarget(task))
        tables.append(parquet.read_table(next(folder.glob("*.parquet")), columns=["sealed"]))
    look_for_copies(folders, memory)
    identity = open_dataset(folders[1], stage="reports").identity
    shutil.rmtree(folders[1])
    folders[1].mkdir()
    with_copy = pa.concat_tables([tables[1].slice(1), tables[0].slice(7, 1)]).replace_schema_metadata(None)
    write_part(folders[1], "part", with_copy.combine_chunks().to_batches(), identity)
    with refusal("counted-twice", "part.parquet", error=ReportsError):
        look_for_copies(folders, memory)
    with refusal("counted-twice", error=ReportsError):
        shuffle(folders, tmp_path / "shuffled")
    spark = pytest.importorskip("shufflesum.batch.spark", exc_type=ImportError)
    with pytest.raises(ReportsError, match="hold the same sealed report"):
        spark.shuffle_folder(folders, tmp_path / "shuffled")
    assert not (tmp_path / "shuffled").exists()


def look_for_copies(folders: list[Path], memory: int) -> None:
    source = open_source(*folders)
    refuse_same_reports(source.sealed, source.rows, memory)
