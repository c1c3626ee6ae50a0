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
from tests.batch.report_folders import records_of, shuffle_folder, snapshot, write_folder
from tests.refusals import lacking

import shufflesum as ss
from shufflesum.batch.files import open_dataset, write_part
from shufflesum.batch.identity import Identity
from shufflesum.wire import Task, generate_private_key, write_key_pair

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Within

Rows: TypeAlias = NDArray[np.float64]
PLAN = ss.plan(users=5000, shape=3, epsilon=1.0, delta=1e-6, coordinates=3, levels=3)
OTHER = ss.plan(users=5000, shape=3, epsilon=1.0, delta=1e-6, coordinates=1, levels=3)
SMALL = ss.plan(users=100, shape=3, epsilon=2.0, delta=1e-3, coordinates=1, levels=1, rounds=2)


@pytest.fixture
def files(folder: Path, crowd: Rows) -> Path:
    """5,000 users in a file, and two plans."""
    np.save(folder / "users.npy", crowd)
    (folder / "plan.json").write_text(PLAN.to_json())
    (folder / "other.json").write_text(OTHER.to_json())
    return folder


@pytest.fixture
def shuffled(files: Path, command: Command) -> Path:
    assert command("randomize", "users.npy", "--plan", "plan.json", "-o", "reports").code == 0
    return shuffle_folder(files / "reports", files / "shuffled")


@pytest.fixture
def refused(command: Command, folder: Path) -> Callable[..., str]:
    """What a command says that refuses; it prints no result and changes no file."""

    def call(*arguments: object) -> str:
        before = snapshot(folder)
        done = command(*arguments)
        assert (done.code, done.out) == (2, "")
        assert snapshot(folder) == before
        assert not list(folder.glob(".*"))
        return done.err

    return call


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


def test_sealed_reports_need_task_and_key(sealed: Path, refused: Callable[..., str], files: Path) -> None:
    write_key_pair(files / "stranger", generate_private_key())
    assert lacking(refused("analyze", sealed, "--task", "task.json"), "[conflicting-arguments]", "--key") == []
    said = refused("analyze", sealed, "--plan", "plan.json", "--key", "analyzer.key")
    assert lacking(said, "[conflicting-arguments]", "--task") == []
    wrong_key = refused("analyze", sealed, "--task", "task.json", "--key", "stranger.key", "--workers", "1")
    assert "[other-key]" in wrong_key
    (files / "small.json").write_text(SMALL.to_json())
    assert "[sealed]" in refused("analyze", sealed, "--plan", "small.json")


def test_a_batch_of_too_few_honest_users_gives_no_estimate(
    files: Path, command: Command, refused: Callable[..., str]
) -> None:
    """Half of the users put all their reports into the first block: no report is bad, but the others hide fewer."""
    plan = ss.plan(users=100, shape=3, epsilon=2.0, delta=1e-3, coordinates=3, levels=1)
    (files / "small.json").write_text(plan.to_json())
    honest = [0, 2, 4] * (plan.users // 2)
    hostile = [0] * (plan.least_reports - len(honest))
    write_folder(files / "made", Identity.for_plan(plan), honest + hostile)
    shuffle_folder(files / "made", files / "mixed")
    said = refused("analyze", "mixed", "--plan", "small.json", "--state", "counts.json")
    assert lacking(said, "[guarantee-broken]", f"{plan.users // 2} of {plan.users} users") == []
    assert not (files / "counts.json").exists()
    assert "[guarantee-broken]" in refused("analyze", "mixed", "--plan", "small.json")
    done = command("analyze", "mixed", "--plan", "small.json", "--without-guarantee")
    assert "NO GUARANTEE" in done.out


@pytest.fixture
def parts(files: Path) -> Path:
    """A batch of 300 users in three files, of a plan for 100, where one user in six puts all reports into one block."""
    plan = ss.plan(users=100, shape=3, epsilon=2.0, delta=1e-3, coordinates=3, levels=1, honest_fraction=0.9)
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
    feed = ("--plan", "small.json", "--state", "counts.json")
    done = command("analyze", parts, *feed, "-o", "mean.csv")
    assert unknown in " ".join(done.out.split())
    assert not (files / "mean.csv").exists()
    done = command("analyze", *feed, "--json", "--without-guarantee")
    assert done.estimate["users"] == 200
    assert done.estimate["guarantee_holds"] is False


def test_a_batch_that_breaks_the_guarantee_is_found_file_by_file_too_and_never_forgotten(
    parts: Path, files: Path, command: Command, refused: Callable[..., str]
) -> None:
    feed = ("--plan", "small.json", "--state", "counts.json")
    for number in (0, 1):
        assert command("analyze", parts / f"part-{number}.parquet", *feed).code == 0
    before = (files / "counts.json").read_bytes()
    assert "[guarantee-broken]" in refused("analyze", parts / "part-2.parquet", *feed)
    assert (files / "counts.json").read_bytes() == before
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
    counted = command("analyze", "mixed", "--plan", "plan.json", "--state", "counts.json", "--json")
    again = command("analyze", "--plan", "plan.json", "--state", "counts.json", "--json", "-o", "mean.csv")
    assert again.estimate == counted.estimate
    assert (files / "mean.csv").exists()
    assert lacking(refused("analyze", "--plan", "plan.json"), "[missing-argument]", "SHUFFLED") == []
    (files / "packed").mkdir()
    for path in mixed.glob("*.parquet"):
        parquet.write_table(parquet.read_table(path), files / "packed" / path.name, compression="zstd")
    said = refused("analyze", "packed", "--plan", "plan.json", "--state", "counts.json")
    assert lacking(said, "[counted-twice]", "part-0") == []
    shutil.copy(files / "packed" / "part-0.parquet", mixed / "again.parquet")
    (mixed / "_shufflesum.json").unlink()
    assert "[counted-twice]" in refused("analyze", "mixed", "--plan", "plan.json")


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
    said = refused("randomize", "users.npy", "--plan", "plan.json", "--round", "1", "-o", "r")
    assert lacking(said, "[conflicting-arguments]", "--round", "--task") == []
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
    assert lacking(said, "[out-of-bounds]", "row 4321", "coordinate 1", "1.5") == []


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
    assert lacking(said, "[repeated-user]", "user 'anna'") == []


def test_reports_that_were_not_shuffled_are_refused(shuffled: Path, refused: Callable[..., str]) -> None:
    said = refused("analyze", "reports", "--plan", "plan.json", "-o", "m.csv")
    assert lacking(said, "[wrong-stage]", "shufflesum shuffle") == []


def test_another_plan_is_refused(shuffled: Path, refused: Callable[..., str]) -> None:
    said = refused("analyze", shuffled, "--plan", "other.json", "-o", "m.csv", "--plot", "m.png")
    assert lacking(said, "[other-plan]", PLAN.id[:12], OTHER.id[:12]) == []


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
    said = refused("analyze", shuffled, "--plan", "plan.json", "--state", "counts.json")
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
    feed = ("--plan", "small.json", "--state", "counts.json")
    first = command("analyze", days[0], *feed, "-o", "mean.csv")
    assert first.code == 0
    assert first.out == "60 reports so far; 40 more are needed before there is an estimate\n"
    assert not (files / "mean.csv").exists()
    assert "[counted-twice]" in refused("analyze", days[0], *feed)
    second = command("analyze", days[1], *feed, "-o", "mean.csv", "--json")
    assert second.estimate["users"] == 120
    assert second.err == ""
    assert (files / "mean.csv").exists()
    third = command("analyze", days[2], *feed, "--json")
    assert third.estimate["users"] == 180
    assert "counts of 3 batches; the guarantee holds only if no user is in more than 2 of them" in third.err


def test_below_the_smallest_batch_the_json_says_what_is_missing(files: Path, command: Command, crowd: Rows) -> None:
    name = day(files, command, 0, crowd[:60])
    done = command("analyze", name, "--plan", "small.json", "--state", "counts.json", "--json")
    assert done.document["estimate"] is None
    assert (done.document["reports"], done.document["missing"]) == (60, 40)


def test_files_of_one_shuffle_can_come_one_by_one_but_not_twice(
    files: Path, command: Command, refused: Callable[..., str], crowd: Rows
) -> None:
    name = day(files, command, 0, crowd[:200])
    feed = ("--plan", "small.json", "--state", "counts.json")
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
    assert command("analyze", shuffled, "--plan", "plan.json", "--state", "counts.json").code == 0
    said = refused("analyze", name, "--plan", "small.json", "--state", "counts.json", "-o", "m.csv")
    assert lacking(said, "[other-plan]", "--state") == []
    text = (files / "counts.json").read_text()
    (files / "counts.json").write_text(text.replace('"rejected":0', '"rejected":1'))
    assert "[damaged]" in refused("analyze", shuffled, "--plan", "plan.json", "--state", "counts.json")
    (files / "counts.json").write_text(text[:-40])
    assert "[damaged]" in refused("analyze", shuffled, "--plan", "plan.json", "--state", "counts.json")


def test_outputs_never_replace_inputs(shuffled: Path, refused: Callable[..., str], files: Path) -> None:
    for name in ("plan.json", "counts.json"):
        said = refused("analyze", shuffled, "--plan", "plan.json", "--state", "counts.json", "-o", name)
        assert lacking(said, "[conflicting-arguments]", name) == []


def test_a_refused_batch_leaves_the_state_as_it_was(
    files: Path, command: Command, refused: Callable[..., str], crowd: Rows
) -> None:
    first, second = (day(files, command, number, crowd[:150]) for number in range(2))
    feed = ("--plan", "small.json", "--state", "counts.json")
    assert command("analyze", first, *feed).code == 0
    part = files / second / "part-1.parquet"
    data = bytearray(part.read_bytes())
    data[20] ^= 0xFF
    part.write_bytes(data)
    assert lacking(refused("analyze", second, *feed, "-o", "m.csv"), "[damaged]", "part-1.parquet") == []


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
    spark = command("analyze", "shuffled", *engine, "--state", "counts.json", "--json")
    assert within(spark.estimate, crowd.mean(axis=0))
    assert spark.estimate == command("analyze", "shuffled", "--plan", "plan.json", "--json").estimate
    again = command("analyze", "shuffled", *engine, "--state", "counts.json")
    assert (again.code, again.out) == (2, "")
    assert "[counted-twice]" in again.err


def test_what_spark_cannot_do_is_refused(files: Path, refused: Callable[..., str]) -> None:
    engine = ("--plan", "plan.json", "--engine", "spark")
    for option in (("--restart",), ("--format", "arrow"), ("--header",), ("--array", "a")):
        said = refused("randomize", "users.npy", *engine, *option, "-o", "r")
        assert lacking(said, "[conflicting-arguments]", "--engine local") == []


def test_help_of_the_commands(command: Command) -> None:
    for name, option in (("randomize", "--user-column"), ("analyze", "--state")):
        done = command(name, "--help")
        assert done.code == 0
        assert option in done.out
