from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.batch.report_folders import noiseless_plan
from tests.refusals import refusal

from shufflesum.batch.identity import Identity
from shufflesum.batch.once import Counted
from shufflesum.errors import FileError, ReportsError
from shufflesum.ledger import Ledger
from shufflesum.release import release
from shufflesum.reports import Counts

PLAN = noiseless_plan()
DAY = Identity.for_plan(PLAN).shuffled(99)
THREE = Identity.for_plan(PLAN).shuffled(3)


def counts_of(*cells: int, rejected: int = 0) -> Counts:
    counts = Counts(PLAN)
    counts.table[list(cells)] = 1
    counts.rejected = rejected
    return counts


def add_and_save(path: Path, counts: Counts, identity: Identity, digest: str, name: str = "part-0.parquet") -> None:
    with Counted(path, PLAN) as counted:
        counted.check(identity)
        counted.add(counts, identity, {Path(name): digest})
        counted.save()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "counts.db"
    add_and_save(path, counts_of(0, 7, rejected=3), DAY, "a" * 64)
    return path


def test_days_whose_columns_are_in_another_order_are_not_added_up(saved: Path) -> None:
    first, second = (Identity.for_plan(PLAN, names).shuffled(99) for names in (["a", "b"], ["b", "a"]))
    add_and_save(saved, counts_of(7), first, "d" * 64)
    with refusal("mixed-reports", error=ReportsError):
        add_and_save(saved, counts_of(7), second, "b" * 64)
    add_and_save(saved, counts_of(7), Identity.for_plan(PLAN).shuffled(99), "c" * 64)


def test_counts_grow_day_by_day(saved: Path) -> None:
    add_and_save(saved, counts_of(7, 14, rejected=1), Identity.for_plan(PLAN).shuffled(99), "b" * 64)
    with Counted(saved, PLAN) as counted:
        assert counted.counts.table.tolist() == [1, *[0] * 6, 2, *[0] * 6, 1]
        assert (counted.counts.rejected, counted.shuffles) == (4, 2)
    assert [path.name for path in saved.parent.iterdir()] == ["counts.db"]


def test_the_first_reports_say_which_round_is_counted_and_others_are_refused(tmp_path: Path) -> None:
    plan = replace(PLAN, guarantee=replace(PLAN.guarantee, rounds=3))
    first, second = (Identity.for_plan(plan, None, number).shuffled(3) for number in (1, 2))
    counts = Counts(plan, 2)
    counts.table[:2] = 1
    with Counted(tmp_path / "c.db", plan) as counted:
        with refusal("round-mismatch", error=ReportsError):
            counted.add(Counts(plan), second, {Path("x"): "a" * 64})
        counted.add(counts, second, {Path("x"): "a" * 64})
        counted.save()
    with Counted(tmp_path / "c.db", plan) as counted:
        assert (counted.counts.round_number, counted.counts.accepted, counted.whole) == (2, 2, False)
        with refusal("round-mismatch", "round 2", "round 1", error=ReportsError):
            counted.check(first)
        rest = Counts(plan, 2)
        rest.table[3] = 1
        counted.add(rest, second, {Path("y"): "b" * 64})
        assert counted.whole
        assert counted.counts.accepted == 3


def test_the_same_bytes_are_refused_under_any_name(saved: Path) -> None:
    before = saved.read_bytes()
    with refusal("counted-twice", "copy.parquet", "part-0.parquet", error=ReportsError):
        add_and_save(saved, counts_of(1), Identity.for_plan(PLAN).shuffled(99), "a" * 64, "copy.parquet")
    assert saved.read_bytes() == before


def test_another_shuffle_of_the_same_batch_is_refused(saved: Path) -> None:
    both = Identity.for_plan(PLAN).merge(Identity("reports", PLAN.id, PLAN.users, PLAN.reports, DAY.contribution_ids))
    for identity in (DAY.shuffled(99), both.shuffled(99)):
        with Counted(saved, PLAN) as counted:
            with refusal("counted-twice", error=ReportsError):
                counted.check(identity)
            with refusal("counted-twice", error=ReportsError):
                counted.add(counts_of(1), identity, {Path("x"): "c" * 64})
            assert counted.counts.accepted == 2


def test_another_file_of_the_same_shuffle_is_welcome(saved: Path) -> None:
    add_and_save(saved, counts_of(1), DAY, "b" * 64)
    with Counted(saved, PLAN) as counted:
        assert (counted.counts.accepted, counted.shuffles) == (3, 1)


def test_counts_are_whole_once_all_that_was_written_has_come(tmp_path: Path) -> None:
    with Counted(tmp_path / "c.db", PLAN) as counted:
        assert counted.whole
        counted.add(counts_of(1, 2), THREE, {Path("a"): "a" * 64})
        assert not counted.whole
        counted.save()
    with Counted(tmp_path / "c.db", PLAN) as counted:
        assert not counted.whole
        counted.add(counts_of(rejected=1), THREE, {Path("b"): "b" * 64})
        assert counted.whole
        counted.add(counts_of(5), Identity.for_plan(PLAN).shuffled(2), {Path("c"): "c" * 64})
        assert not counted.whole, "that shuffle wrote more"


def test_a_batch_that_breaks_the_guarantee_breaks_it_for_good_however_it_came(tmp_path: Path) -> None:
    """File by file nothing is seen until the last one is there; then it stays."""
    broken = Identity.for_plan(PLAN).shuffled(15)
    with Counted(tmp_path / "c.db", PLAN) as counted:
        counted.add(counts_of(*range(12)), broken, {Path("a"): "a" * 64})
        assert not counted.flaws
        counted.add(counts_of(rejected=3), broken, {Path("b"): "b" * 64})
        assert list(counted.flaws) == [broken.shuffle_id]
        counted.save()
    with Counted(tmp_path / "c.db", PLAN) as counted:
        counted.add(counts_of(4), Identity.for_plan(PLAN).shuffled(1), {Path("c"): "c" * 64})
        assert next(iter(counted.flaws)) == broken.shuffle_id
        with refusal("guarantee-broken", str(broken.shuffle_id)[:12], "3 were rejected"):
            release(counted.counts, whole=counted.whole, flaws=counted.flaws.values())


@pytest.mark.parametrize(
    "change",
    [
        {"counts": {}},
        {"counts": {"cells": [0, 1], "counts": [1], "blanks": 0, "rejected": 0}},
        {"counts": {"cells": [0], "counts": [-1], "blanks": 0, "rejected": 0}},
        {"counts": {"cells": [10**9], "counts": [1], "blanks": 0, "rejected": 0}},
        {"pending": None},
        {"task": [None, 2]},
        {"task": [None, "1"]},
        {"task": None},
        {"task": [None]},
        {"counts": {"cells": ["x"], "counts": [1], "blanks": 0, "rejected": 0}},
    ],
)
def test_counts_that_make_no_sense_are_refused_whatever_their_checksum(saved: Path, change: dict[str, Any]) -> None:
    ledger = Ledger(saved, "shufflesum-counts-4", "counts", "")
    (content,) = ledger.read()
    with ledger.change() as written:
        written.replace(content | change)
    with refusal("damaged", "counts.db", error=FileError):
        Counted(saved, PLAN).__enter__()


def test_unshuffled_reports_are_never_added(saved: Path) -> None:
    with Counted(saved, PLAN) as counted, refusal("wrong-stage", error=ReportsError):
        counted.add(counts_of(1), Identity.for_plan(PLAN), {Path("x"): "c" * 64})


def test_what_is_not_saved_is_forgotten(saved: Path) -> None:
    before = saved.read_bytes()

    def run() -> None:
        with Counted(saved, PLAN) as counted:
            counted.add(counts_of(1), Identity.for_plan(PLAN).shuffled(99), {Path("x"): "c" * 64})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["counts.db"]


def test_where_nothing_is_saved_no_file_is_made(tmp_path: Path) -> None:
    path = tmp_path / "counts.db"
    with Counted(path, PLAN):
        assert path.exists()
        late = sqlite3.connect(path, isolation_level=None)  # of somebody who came just before it went
        late.execute("SELECT * FROM head").fetchall()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        late.execute("UPDATE head SET count = 1")
    late.close()


def test_another_plan_is_refused(saved: Path) -> None:
    with refusal("plan-mismatch", "state=", error=ReportsError), Counted(saved, noiseless_plan(levels=9)):
        pass


@pytest.mark.parametrize("text", ["", "{}", "SQLite format 3"])
def test_what_is_no_state_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "counts.db"
    path.write_text(text)
    with refusal("damaged", error=FileError), Counted(path, PLAN):
        pass
    assert path.read_text() == text
    assert [found.name for found in tmp_path.iterdir()] == ["counts.db"]


def test_two_runs_cannot_add_at_once(saved: Path) -> None:
    with Counted(saved, PLAN) as counted:
        with refusal("in-use", error=FileError), Counted(saved, PLAN):
            pass
        counted.add(counts_of(1), Identity.for_plan(PLAN).shuffled(99), {Path("x"): "c" * 64})
        counted.save()
    with Counted(saved, PLAN) as counted:
        assert counted.counts.accepted == 3


def test_a_link_leads_to_the_same_counts_and_the_same_lock(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "today.db"
    link.symlink_to(saved)
    with Counted(saved, PLAN), refusal("in-use", error=FileError), Counted(link, PLAN):
        pass
    add_and_save(link, counts_of(1), Identity.for_plan(PLAN).shuffled(99), "b" * 64)
    assert link.is_symlink()
    with Counted(saved, PLAN) as counted:
        assert counted.counts.accepted == 3


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with refusal("unwritable", error=FileError), Counted(tmp_path / "no" / "c.db", PLAN):
        pass


def test_large_counts_are_kept_exactly(tmp_path: Path) -> None:
    counts = Counts(PLAN)
    counts.table[:] = np.arange(15) * (1 << 50) + 1
    counts.blanks = (1 << 40) + 1
    add_and_save(tmp_path / "c.db", counts, DAY, "a" * 64)
    with Counted(tmp_path / "c.db", PLAN) as counted:
        np.testing.assert_array_equal(counted.counts.table, counts.table)
        assert counted.counts.blanks == counts.blanks


def test_copies_among_new_files_are_refused(saved: Path) -> None:
    digests = {Path("a.parquet"): "1", Path("c.parquet"): "2", Path("b.parquet"): "1"}
    with Counted(saved, PLAN) as counted, refusal("counted-twice", "b.parquet", "a.parquet", error=ReportsError):
        counted.add(counts_of(1), Identity.for_plan(PLAN).shuffled(99), digests)
