"""`shufflesum randomize` and `shufflesum analyze`, by way of files, as a data team would run them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyarrow import parquet
from tests.batch.report_folders import records_of, shuffle_folder, write_folder
from tests.cli.batch.plans import OTHER, PLAN, SMALL
from tests.refusals import lacking
from tests.round_dependent import turn_boxes

import shufflesum as ss
from shufflesum.batch.files import open_dataset, write_part
from shufflesum.batch.identity import Identity
from shufflesum.keys import generate_private_key, write_key_pair
from shufflesum.wire import Task

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Within

Rows: TypeAlias = NDArray[np.float64]


def test_from_a_file_of_users_to_their_mean(
    files: Path, command: Command, within: Within, crowd: Rows, shuffled: Path
) -> None:
    done = command("analyze", shuffled, "--plan", "plan.json", "--json", "-o", "mean.json", "--plot", "mean.svg")
    assert done.err == ""
    assert done.estimate["users"] == 5000
    assert within(done.estimate, crowd.mean(axis=0))
    assert not within(done.estimate, crowd.mean(axis=0) + 0.3)
    assert json.loads((files / "mean.json").read_text())["estimate"]["mean"] == done.estimate["mean"]
    assert (files / "mean.svg").stat().st_size > 1000
    shown = command("analyze", shuffled, "--plan", "plan.json", "-o", "mean.csv")
    assert "5,000 users" in shown.out
    assert "epsilon 1" in shown.out
    assert "wrote mean.csv" in shown.out


def test_randomize_says_what_it_wrote(files: Path, command: Command) -> None:
    done = command("randomize", "users.npy", "--plan", "plan.json", "-o", "reports", "--format", "arrow")
    assert (done.code, done.err) == (0, "")
    assert done.out == "wrote reports: 15,000 reports of 5,000 users in 1 file\n"
    again = command("randomize", "users.npy", "--plan", "plan.json", "-o", "reports", "--format", "arrow")
    assert (again.code, again.err) == (0, "")
    assert lacking(again.out, "finished before", "reports: 15,000 reports") == []
    other = command("randomize", "users.npy", "--plan", "other.json", "-o", "reports", "--format", "arrow")
    assert (other.code, "[exists]" in other.err) == (2, True)
    assert sorted(path.name for path in (files / "reports").iterdir()) == ["_shufflesum.json", "part-000000.arrow"]


def test_a_folder_of_csv_files_with_chosen_columns(files: Path, command: Command, within: Within, crowd: Rows) -> None:
    (files / "days").mkdir()
    for day, rows in enumerate(np.array_split(crowd, 4)):
        ids = np.arange(len(rows)) + 10_000 * day
        np.savetxt(
            files / "days" / f"{day}.csv",
            np.column_stack((ids, rows, np.zeros(len(rows)))),
            delimiter=",",
            header="id,a,b,c,zero",
            comments="",
        )
    options = (
        "--plan",
        "plan.json",
        "--columns",
        "a,b,c",
        "--user-column",
        "id",
        "--workers",
        "2",
        "--memory",
        "400MB",
    )
    assert command("randomize", "days", *options, "-o", "reports").code == 0
    shuffle_folder(files / "reports", files / "shuffled")
    done = command("analyze", "shuffled", "--plan", "plan.json", "--json", "--memory", "0.2GiB")
    assert within(done.estimate, crowd.mean(axis=0))


def test_fewer_rows_than_the_plan_needs_are_noted_not_refused(files: Path, command: Command, crowd: Rows) -> None:
    np.save(files / "few.npy", crowd[:10])
    done = command("randomize", "few.npy", "--plan", "plan.json", "-o", "reports")
    assert done.code == 0
    assert done.err.startswith("note: 10 rows, but nothing is released for fewer than 5000 users")


@pytest.fixture
def sealed(files: Path, command: Command) -> Path:
    """A task for few users, its key, and their reports, sealed and shuffled."""
    private_key = generate_private_key()
    write_key_pair(files / "analyzer", private_key)
    task = Task(
        name="sealed",
        plan=SMALL,
        analyzer_key=private_key.public_key().public_bytes_raw(),
        shuffler="https://shuffler.example.org",
        expires=datetime(2099, 1, 1, tzinfo=UTC),
    )
    (files / "task.json").write_text(task.to_json())
    np.save(files / "hundred.npy", np.full((100, 3), 0.5))
    done = command("randomize", "hundred.npy", "--task", "task.json", "--round", "2", "-o", "sealed", "--workers", "1")
    assert done.code == 0, done.err
    return shuffle_folder(files / "sealed", files / "mixed")


def test_sealed_reports_are_opened_with_the_key(sealed: Path, command: Command, files: Path) -> None:
    assert open_dataset(sealed, stage="shuffled").identity.round_number == 2
    done = command("analyze", sealed, "--task", "task.json", "--key", "analyzer.key", "--workers", "1", "--json")
    assert done.estimate["users"] == 100
    assert done.estimate["rejected_reports"] == 0


def test_plain_reports_are_of_a_round_and_two_rounds_are_not_mixed(
    files: Path, command: Command, refused: Callable[..., str], within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_boxes(monkeypatch)
    (files / "small.json").write_text(SMALL.to_json())
    for number in (1, 2):
        np.save(files / "hundred.npy", np.full((100, 3), 1.0 * number))
        done = command("randomize", "hundred.npy", "--plan", "small.json", "--round", str(number), "-o", f"r{number}")
        assert done.code == 0, done.err
        shuffle_folder(files / f"r{number}", files / f"s{number}")
        assert open_dataset(files / f"s{number}", stage="shuffled").identity.round_number == number
    assert "[out-of-bounds]" in refused("randomize", "hundred.npy", "--plan", "small.json", "-o", "r3")
    assert "[round-mismatch]" in refused("shuffle", "r1", "r2", "-o", "both")
    done = command("analyze", "s2", "--plan", "small.json", "--state", "counts.db", "--json")
    assert within(done.estimate, np.full(3, 2.0))
    assert done.estimate["round"] == 2
    assert "[round-mismatch]" in refused("analyze", "s1", "--plan", "small.json", "--state", "counts.db")


def test_sealed_reports_need_task_and_key(sealed: Path, refused: Callable[..., str], files: Path) -> None:
    write_key_pair(files / "stranger", generate_private_key())
    assert lacking(refused("analyze", sealed, "--task", "task.json"), "[conflicting-arguments]", "--key") == []
    said = refused("analyze", sealed, "--plan", "plan.json", "--key", "analyzer.key")
    assert lacking(said, "[conflicting-arguments]", "--task") == []
    wrong_key = refused("analyze", sealed, "--task", "task.json", "--key", "stranger.key", "--workers", "1")
    assert "[key-mismatch]" in wrong_key
    (files / "small.json").write_text(SMALL.to_json())
    assert "[sealed]" in refused("analyze", sealed, "--plan", "small.json")


def test_a_batch_of_too_few_honest_users_gives_no_estimate(
    files: Path, command: Command, refused: Callable[..., str]
) -> None:
    """Half of the users put all their reports into the first block: no report is bad, but the others hide fewer."""
    plan = ss.plan(
        users=100, shape=3, epsilon=2.0, delta=1e-3, mechanism=ss.RandomizedResponse.Options(coordinates=3, levels=1)
    )
    (files / "small.json").write_text(plan.to_json())
    honest = [0, 2, 4] * (plan.users // 2)
    hostile = [0] * (plan.least_reports - len(honest))
    write_folder(files / "made", Identity.for_plan(plan), honest + hostile)
    shuffle_folder(files / "made", files / "mixed")
    said = refused("analyze", "mixed", "--plan", "small.json", "--state", "counts.db")
    assert lacking(said, "[guarantee-broken]", f"{plan.users // 2} of {plan.users} users") == []
    assert not (files / "counts.db").exists()
    assert "[guarantee-broken]" in refused("analyze", "mixed", "--plan", "small.json")
    done = command("analyze", "mixed", "--plan", "small.json", "--without-guarantee")
    assert "NO GUARANTEE" in done.out


def test_users_files_that_are_copies_or_missing_are_refused(files: Path, refused: Callable[..., str]) -> None:
    (files / "twice").mkdir()
    for name in ("a.npy", "b.npy"):
        shutil.copy(files / "users.npy", files / "twice" / name)
    said = refused("randomize", "twice", "--plan", "plan.json", "-o", "r")
    assert lacking(said, "[counted-twice]", "a.npy", "b.npy") == []
    said = refused("randomize", "nowhere", "--plan", "plan.json", "-o", "r")
    assert lacking(said, "[unreadable]", "nowhere") == []


def test_targets_that_are_missing_or_too_many(files: Path, refused: Callable[..., str]) -> None:
    assert "[missing-argument]" in refused("randomize", "users.npy", "-o", "r")
    assert "[conflicting-arguments]" in refused(
        "randomize", "users.npy", "--plan", "plan.json", "--task", "t", "-o", "r"
    )
    said = refused("randomize", "users.npy", "--plan", "plan.json", "--round", "2", "-o", "r")
    assert lacking(said, "[out-of-range]", "round_number is 2") == []
    assert "--engine spark" in refused("randomize", "users.npy", "--plan", "plan.json", "--master", "x", "-o", "r")
    assert "200MB, 2GB" in refused("randomize", "users.npy", "--plan", "plan.json", "--memory", "much", "-o", "r")
    said = refused("randomize", "users.npy", "--plan", "plan.json", "--memory", "1MB", "-o", "r")
    assert lacking(said, "[out-of-range]", "--memory") == []
    assert "[out-of-range]" in refused("analyze", "x", "--plan", "plan.json", "--confidence", "1")


def test_bad_rows_leave_no_output(files: Path, refused: Callable[..., str], crowd: Rows) -> None:
    rows = crowd.copy()
    rows[4321, 1] = np.nan
    np.save(files / "bad.npy", rows)
    said = refused("randomize", "bad.npy", "--plan", "plan.json", "-o", "reports")
    assert said.startswith("shufflesum: bad.npy: row 4321, coordinate 1: ")
    assert "[missing-value]" in said
    rows[4321, 1] = 1.5
    np.save(files / "bad.npy", rows)
    said = refused("randomize", "bad.npy", "--plan", "plan.json", "-o", "reports")
    assert lacking(said, "[out-of-bounds]", "row 4321", "coordinate 1") == []


def test_bad_rows_can_be_clipped_and_filled(files: Path, command: Command, crowd: Rows) -> None:
    rows = crowd.copy()
    rows[0, 0], rows[1, 1] = 7, np.nan
    np.save(files / "bad.npy", rows)
    options = ("--plan", "plan.json", "--clip", "--missing", "midpoint", "-o", "reports")
    assert command("randomize", "bad.npy", *options).code == 0


def test_users_that_cannot_be_read_and_outputs_that_exist(files: Path, refused: Callable[..., str]) -> None:
    assert "[unreadable]" in refused("randomize", "nobody.npy", "--plan", "plan.json", "-o", "r")
    np.save(files / "wide.npy", np.zeros((10, 4)))
    said = refused("randomize", "wide.npy", "--plan", "plan.json", "-o", "r")
    assert lacking(said, "[wrong-shape]", "wide.npy", "(4,)") == []
    (files / "cut.npy").write_bytes((files / "users.npy").read_bytes()[:1000])
    said = refused("randomize", "cut.npy", "--plan", "plan.json", "-o", "r")
    assert lacking(said, "[damaged]", "cut.npy") == []
    (files / "days").mkdir()
    assert "[exists]" in refused("randomize", "users.npy", "--plan", "plan.json", "-o", "days")
    assert "[no-rows]" in refused("randomize", "days", "--plan", "plan.json", "-o", "r")


def test_a_user_in_two_files_of_a_folder_is_refused(files: Path, refused: Callable[..., str]) -> None:
    (files / "days").mkdir()
    for day in "ab":
        (files / "days" / f"{day}.csv").write_text(f"id,x,y,z\nanna,0,0,0\n{day},0,0,0\n")
    said = refused("randomize", "days", "--plan", "plan.json", "--user-column", "id", "-o", "r")
    assert lacking(said, "[repeated-user]", "2 rows") == []


def test_reports_that_were_not_shuffled_are_refused(shuffled: Path, refused: Callable[..., str]) -> None:
    said = refused("analyze", "reports", "--plan", "plan.json", "-o", "m.csv")
    assert lacking(said, "[wrong-stage]", "shufflesum shuffle") == []


def test_another_plan_is_refused(shuffled: Path, refused: Callable[..., str]) -> None:
    said = refused("analyze", shuffled, "--plan", "other.json", "-o", "m.csv", "--plot", "m.png")
    assert lacking(said, "[plan-mismatch]", PLAN.id[:12], OTHER.id[:12]) == []


def test_a_part_of_the_reports_is_too_few(shuffled: Path, refused: Callable[..., str]) -> None:
    said = refused("analyze", shuffled / "part-0.parquet", "--plan", "plan.json", "-o", "m.csv")
    assert lacking(said, "[too-few-users]", "7500 reports", "5000 users") == []


def test_an_incomplete_a_damaged_and_a_doubled_folder_are_refused(shuffled: Path, refused: Callable[..., str]) -> None:
    part = shuffled / "part-1.parquet"
    whole = part.read_bytes()
    part.unlink()
    assert lacking(refused("analyze", shuffled, "--plan", "plan.json"), "[changed-afterwards]", "part-1.parquet") == []
    part.write_bytes(whole[: len(whole) // 2])
    assert "[damaged]" in refused("analyze", shuffled, "--plan", "plan.json")
    flipped = bytearray(whole)
    flipped[100] ^= 1
    part.write_bytes(flipped)
    assert lacking(refused("analyze", shuffled, "--plan", "plan.json"), "[damaged]", "part-1.parquet") == []
    part.write_bytes(whole)
    shutil.copy(part, shuffled / "part-2.parquet")
    assert lacking(refused("analyze", shuffled, "--plan", "plan.json"), "[changed-afterwards]", "part-2.parquet") == []
    (shuffled / "_shufflesum.json").unlink()
    said = refused("analyze", shuffled, "--plan", "plan.json", "--state", "counts.db")
    assert lacking(said, "[counted-twice]", "part-1.parquet", "part-2.parquet") == []


def test_mixed_plans_and_wrong_columns_are_refused(shuffled: Path, refused: Callable[..., str]) -> None:
    (shuffled / "_shufflesum.json").unlink()
    other = Identity.for_plan(OTHER).shuffled(99)
    write_part(shuffled, "zz", [records_of([0], other)], other)
    assert "[mixed-reports]" in refused("analyze", shuffled, "--plan", "plan.json")
    identity = open_dataset(shuffled / "part-0.parquet", stage="shuffled").identity
    for columns, named in (
        ({"coordinate": pa.array([1])}, ("[unknown-column]", "'coordinate'", "'cell'")),
        ({"cell": pa.array(["1"])}, ("[wrong-type]", "'cell'", "string")),
    ):
        table = pa.table(columns).replace_schema_metadata({"shufflesum": identity.to_json()})
        parquet.write_table(table, shuffled / "zz.parquet")
        assert lacking(refused("analyze", shuffled, "--plan", "plan.json"), "zz.parquet", *named) == []


def test_what_names_no_cell_is_counted_and_rejected(shuffled: Path, command: Command) -> None:
    (shuffled / "_shufflesum.json").unlink()
    identity = open_dataset(shuffled, stage="shuffled").identity
    write_part(shuffled, "zz", [records_of([12, 1 << 31, 4294967294, 4294967295], identity)], identity)
    done = command("analyze", shuffled, "--plan", "plan.json", "--json", "--without-guarantee")
    assert done.estimate["rejected_reports"] == 3
    assert sum(done.estimate["report_counts"]) == 15_000
    assert "3 reports are unreadable or name no cell, and were rejected" in done.err


def test_outputs_never_replace_inputs(shuffled: Path, refused: Callable[..., str], files: Path) -> None:
    for name in ("plan.json", "counts.json"):
        said = refused("analyze", shuffled, "--plan", "plan.json", "--state", "counts.json", "-o", name)
        assert lacking(said, "[conflicting-arguments]", name) == []


@pytest.mark.slow  # the start of Spark
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_spark_does_the_same(
    files: Path, command: Command, within: Within, crowd: Rows, refused: Callable[..., str]
) -> None:
    parquet.write_table(pa.table({f"x{i}": crowd[:, i] for i in range(3)}), files / "users.parquet")
    engine = ("--plan", "plan.json", "--engine", "spark", "--master", "local[2]")
    done = command("randomize", "users.parquet", *engine, "-o", "reports")
    assert "15,000 reports of 5,000 users" in done.out, done.err
    shuffle_folder(files / "reports", files / "shuffled")
    spark = command("analyze", "shuffled", *engine, "--state", "counts.db", "--json")
    assert within(spark.estimate, crowd.mean(axis=0))
    assert spark.estimate == command("analyze", "shuffled", "--plan", "plan.json", "--json").estimate
    again = command("analyze", "shuffled", *engine, "--state", "counts.db", "--json")
    assert again.estimate == spark.estimate
    assert "has counted all of shuffled before" in again.err


def test_what_spark_cannot_do_is_refused(files: Path, refused: Callable[..., str]) -> None:
    engine = ("--plan", "plan.json", "--engine", "spark")
    for option in (("--format", "arrow"), ("--header",), ("--array", "a")):
        said = refused("randomize", "users.npy", *engine, *option, "-o", "r")
        assert lacking(said, "[conflicting-arguments]", "--engine local") == []


def test_help_of_the_commands(command: Command) -> None:
    for name, option in (("randomize", "--user-column"), ("analyze", "--state")):
        done = command(name, "--help")
        assert done.code == 0
        assert option in done.out
