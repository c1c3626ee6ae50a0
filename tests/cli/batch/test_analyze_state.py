"""`shufflesum analyze` of batches that come in parts and day by day, with a file of counts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import parquet
from tests.batch.report_folders import shuffle_folder, write_folder
from tests.cli.batch.plans import SMALL
from tests.refusals import lacking

import shufflesum as ss
from shufflesum.batch.identity import Identity

if TYPE_CHECKING:
    from tests.cli.conftest import Command

Rows: TypeAlias = NDArray[np.float64]


@pytest.fixture
def parts(files: Path) -> Path:
    """A batch of 300 users in three files, of a plan for 100, where one user in six puts all reports into one block."""
    plan = ss.plan(
        users=100,
        shape=3,
        epsilon=2.0,
        delta=1e-3,
        mechanism=ss.RandomizedResponse.Options(coordinates=3, levels=1),
        honest_fraction=0.9,
    )
    (files / "small.json").write_text(plan.to_json())
    write_folder(files / "made", Identity.for_plan(plan), [0, 2, 4] * 250 + [0] * 150)
    return shuffle_folder(files / "made", files / "parts", 3)


def test_a_part_of_a_batch_gives_no_estimate_unless_somebody_insists(
    parts: Path, files: Path, command: Command, refused: Callable[..., str]
) -> None:
    (parts / "_shufflesum.json").unlink()
    (parts / "part-2.parquet").unlink()
    unknown = "nobody can see whether enough users were honest"
    assert "[guarantee-broken]" in refused("analyze", parts, "--plan", "small.json", "-o", "mean.csv")
    done = command("analyze", parts, "--plan", "small.json", "--without-guarantee")
    assert unknown in " ".join(done.out.split())
    feed = ("--plan", "small.json", "--state", "counts.db")
    done = command("analyze", parts, *feed, "-o", "mean.csv")
    assert unknown in " ".join(done.out.split())
    assert not (files / "mean.csv").exists()
    done = command("analyze", *feed, "--json", "--without-guarantee")
    assert done.estimate["users"] == 200
    assert done.estimate["guarantee_holds"] is False


def test_a_batch_that_breaks_the_guarantee_is_found_file_by_file_too_and_never_forgotten(
    parts: Path, files: Path, command: Command, refused: Callable[..., str]
) -> None:
    feed = ("--plan", "small.json", "--state", "counts.db")
    for number in (0, 1):
        assert command("analyze", parts / f"part-{number}.parquet", *feed).code == 0
    before = (files / "counts.db").read_bytes()
    assert "[guarantee-broken]" in refused("analyze", parts / "part-2.parquet", *feed)
    assert (files / "counts.db").read_bytes() == before
    done = command("analyze", parts / "part-2.parquet", *feed, "--without-guarantee")
    assert "NO GUARANTEE" in done.out
    plan = ss.Plan.load(files / "small.json")
    write_folder(files / "good", Identity.for_plan(plan), [0, 2, 4] * 3000)
    shuffle_folder(files / "good", files / "honest")
    assert "[guarantee-broken]" in refused("analyze", "honest", *feed)
    assert "[guarantee-broken]" in refused("analyze", *feed)


def test_a_rewritten_file_is_known_again_and_counts_show_without_new_files(
    files: Path, command: Command, refused: Callable[..., str]
) -> None:
    assert command("randomize", "users.npy", "--plan", "plan.json", "-o", "reports").code == 0
    mixed = shuffle_folder(files / "reports", files / "mixed")
    counted = command("analyze", "mixed", "--plan", "plan.json", "--state", "counts.db", "--json")
    again = command("analyze", "--plan", "plan.json", "--state", "counts.db", "--json", "-o", "mean.csv")
    assert again.estimate == counted.estimate
    assert (files / "mean.csv").exists()
    assert lacking(refused("analyze", "--plan", "plan.json"), "[missing-argument]", "SHUFFLED") == []
    (files / "packed").mkdir()
    for path in mixed.glob("*.parquet"):
        parquet.write_table(parquet.read_table(path), files / "packed" / path.name, compression="zstd")
    said = refused("analyze", "packed", "--plan", "plan.json", "--state", "counts.db")
    assert lacking(said, "[counted-twice]", "part-0") == []
    shutil.copy(files / "packed" / "part-0.parquet", mixed / "again.parquet")
    (mixed / "_shufflesum.json").unlink()
    assert "[counted-twice]" in refused("analyze", "mixed", "--plan", "plan.json")


def day(files: Path, command: Command, number: int, rows: Rows) -> str:
    """One day's users of a small plan, randomized and shuffled."""
    (files / "small.json").write_text(SMALL.to_json())
    np.save(files / f"users{number}.npy", rows)
    done = command("randomize", f"users{number}.npy", "--plan", "small.json", "-o", f"reports{number}")
    assert done.code == 0, done.err
    shuffle_folder(files / f"reports{number}", files / f"day{number}")
    return f"day{number}"


def test_counts_grow_day_by_day(files: Path, command: Command, refused: Callable[..., str], crowd: Rows) -> None:
    days = [day(files, command, number, crowd[60 * number : 60 * number + 60]) for number in range(3)]
    feed = ("--plan", "small.json", "--state", "counts.db")
    first = command("analyze", days[0], *feed, "-o", "mean.csv")
    assert first.code == 0
    assert first.out == "60 reports so far; 40 more are needed before there is an estimate\n"
    assert not (files / "mean.csv").exists()
    again = command("analyze", days[0], *feed)
    assert (again.code, again.out) == (0, first.out)
    assert f"has counted all of {days[0]} before" in again.err
    shutil.copytree(days[0], "a copy")
    assert "[counted-twice]" in refused("analyze", "a copy", *feed)
    second = command("analyze", days[1], *feed, "-o", "mean.csv", "--json")
    assert second.estimate["users"] == 120
    assert second.err == ""
    assert (files / "mean.csv").exists()
    third = command("analyze", days[2], *feed, "--json")
    assert third.estimate["users"] == 180
    assert "counts of 3 batches; the guarantee holds only if no user is in more than 2 of them" in third.err


def test_below_the_smallest_batch_the_json_says_what_is_missing(files: Path, command: Command, crowd: Rows) -> None:
    name = day(files, command, 0, crowd[:60])
    done = command("analyze", name, "--plan", "small.json", "--state", "counts.db", "--json")
    assert done.document["estimate"] is None
    assert (done.document["reports"], done.document["missing"]) == (60, 40)


def test_files_of_one_shuffle_can_come_one_by_one_but_not_twice(
    files: Path, command: Command, refused: Callable[..., str], crowd: Rows
) -> None:
    name = day(files, command, 0, crowd[:200])
    feed = ("--plan", "small.json", "--state", "counts.db")
    done = command("analyze", f"{name}/part-0.parquet", *feed, "--json")
    assert (done.document["estimate"], done.document["reports"], done.document["missing"]) == (None, 100, 0)
    shutil.copy(files / name / "part-0.parquet", files / "renamed.parquet")
    assert lacking(refused("analyze", "renamed.parquet", *feed), "[counted-twice]", "part-0.parquet") == []
    assert "[counted-twice]" in refused("analyze", name, *feed)  # all or nothing
    assert command("analyze", f"{name}/part-1.parquet", *feed, "--json").estimate["users"] == 200
    shuffle_folder(files / "reports0", files / "again")
    assert "[counted-twice]" in refused("analyze", "again", *feed)


def test_a_state_of_another_plan_or_damaged_is_refused(
    files: Path, command: Command, refused: Callable[..., str], shuffled: Path, crowd: Rows
) -> None:
    name = day(files, command, 0, crowd[:200])
    assert command("analyze", shuffled, "--plan", "plan.json", "--state", "counts.db").code == 0
    said = refused("analyze", name, "--plan", "small.json", "--state", "counts.db", "-o", "m.csv")
    assert lacking(said, "[plan-mismatch]", "--state") == []
    data = (files / "counts.db").read_bytes()
    assert b'"rejected":0' in data
    (files / "counts.db").write_bytes(data.replace(b'"rejected":0', b'"rejected":1'))
    assert "[damaged]" in refused("analyze", shuffled, "--plan", "plan.json", "--state", "counts.db")
    (files / "counts.db").write_bytes(data[:-40])
    assert "[damaged]" in refused("analyze", shuffled, "--plan", "plan.json", "--state", "counts.db")


def test_a_refused_batch_leaves_the_state_as_it_was(
    files: Path, command: Command, refused: Callable[..., str], crowd: Rows
) -> None:
    first, second = (day(files, command, number, crowd[:150]) for number in range(2))
    feed = ("--plan", "small.json", "--state", "counts.db")
    assert command("analyze", first, *feed).code == 0
    part = files / second / "part-1.parquet"
    data = bytearray(part.read_bytes())
    data[20] ^= 0xFF
    part.write_bytes(data)
    assert lacking(refused("analyze", second, *feed, "-o", "m.csv"), "[damaged]", "part-1.parquet") == []
