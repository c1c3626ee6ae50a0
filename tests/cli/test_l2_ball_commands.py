"""Vectors with a bounded norm on the command line: `plan`, `run`, `statement`, `audit` and `privacy`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import parquet
from tests.refusals import lacking
from tests.service.client.scripted_shuffler import running, task_for

import shufflesum as ss
from shufflesum._format import margin, upwards
from shufflesum.statement import statement

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Refused

USERS, SIZE = 600, 16
TARGET = ("--epsilon", "4", "--delta", "1e-3", "--max-reports", "64")
PLAN = ("plan", "--users", str(USERS), *TARGET)


@pytest.fixture
def updates(folder: Path) -> NDArray[np.float64]:
    """Vectors whose entries differ from each other by more than the error, none longer than 1; the last is 0.9 long."""
    random = np.random.default_rng(5)
    rows = np.linspace(-0.3, 0.3, SIZE) + random.normal(0.0, 0.02, (USERS, SIZE))
    rows[-1] = 0.9 / np.sqrt(SIZE)
    np.save(folder / "updates.npy", rows)
    header = ",".join(f"w{i}" for i in range(SIZE))
    np.savetxt(folder / "updates.csv", rows, delimiter=",", header=header, comments="")
    return rows


def near(document: dict[str, object], truth: NDArray[np.float64]) -> bool:
    """Within seven standard errors in each entry; of sums of thousands of bounded bits, all 16 fail below 1e-9."""
    mean, error = (np.array(document[name], dtype=float) for name in ("mean", "standard_error"))
    return bool(np.all(np.abs(mean - truth) <= 7 * error))


def test_a_clipping_norm_makes_a_ball_around_zero_or_a_centre(command: Command, folder: Path) -> None:
    np.save(folder / "center.npy", np.arange(6.0).reshape(2, 3))
    given = ("--shape", "2,3", "--clipping-norm", "0.5", "--center", "center.npy")
    shown = command(*PLAN, *given, "--json", "-o", "plan.json").document
    plan = ss.Plan.load(folder / "plan.json")
    assert isinstance(plan.domain, ss.L2Ball)
    assert plan.domain == ss.L2Ball((2, 3), 0.5, np.arange(6.0).reshape(2, 3), plan.domain.seed)
    assert (shown["id"], shown["domain"]["kind"]) == (plan.id, "l2-ball")
    other = command(*PLAN, "--dimension", "6", "--clipping-norm", "0.5", "--json").document
    assert (other["domain"]["shape"], other["domain"]["center"]) == ([6], None)
    assert other["domain"]["seed"] != shown["domain"]["seed"]


def test_the_card_says_norm_error_bits_and_what_malicious_users_can_do(command: Command, folder: Path) -> None:
    done = command(
        *PLAN, "--dimension", SIZE, "--clipping-norm", "0.25", "--details", "-o", "plan.json", "--plot", "parts.svg"
    )
    plan = ss.Plan.load(folder / "plan.json")
    each = (plan.expected_error.total / SIZE) ** 0.5
    facts = (
        "norm of at most 0.25",
        "4 random bits of each of 16 rotated coordinates",
        f"± {margin(each)} in each entry of the mean",
        f"norm of the whole error: {plan.expected_error.total**0.5:.3g}",
        "times that of a curator",
        "an entry of the mean by",
        "if shuffler and analyzer collude",
    )
    assert lacking(" ".join(done.out.split()), *facts) == []
    assert "`Arrays` serve better: plan with shape=16, mechanism='noisy-counts'" in " ".join(done.out.split())
    assert "16 coordinates" in (folder / "parts.svg").read_text()


@pytest.mark.slow  # the same search without the command: planning/test_l2_ball_plans.py
def test_a_target_error_finds_the_users_it_needs(command: Command) -> None:
    asked = ("plan", *TARGET, "--dimension", "64", "--clipping-norm", "2", "--json")
    found = command(*asked, "--target-error", "0.01").document
    assert 0.0099 < found["expected_error"]["total"] <= 0.01  # hardly more users than it takes


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        *(
            (f"--dimension 3 --clipping-norm 1 {other}", f"[conflicting-arguments] {other.split()[0]} --clipping-norm")
            for other in (
                "--bounds 0:1",
                "--labels a,b",
                "--open-vocabulary",
                "--columns x,y,z",
                "--column x",
                "--digits 2",
                "--levels 3",
                "--coordinates 2",
                "--sampling uniform",
                "--assumed-std 0.1",
            )
        ),
        ("--clipping-norm 1", "[conflicting-arguments] --dimension"),
        ("--dimension 3 --clipping-norm 0", "[out-of-range] --clipping-norm"),
        ("--dimension 3 --clipping-norm -1", "[out-of-range] --clipping-norm"),
        ("--dimension 3 --clipping-norm nan", "[out-of-range] --clipping-norm"),
        ("--dimension 3 --clipping-norm inf", "[out-of-range] --clipping-norm"),
        ("--dimension 3 --center none.npy", "[missing-argument] --clipping-norm"),
        ("--dimension 3 --clipping-norm 1 --center none.npy", "[unreadable] none.npy"),
        ("--dimension 3 --clipping-norm 1 --mechanism noisy-counts", "[impossible-combination] 'noisy-counts'"),
    ],
)
def test_what_cannot_be_planned_is_refused(command: Command, folder: Path, options: str, facts: str) -> None:
    done = command(*PLAN, *options.split(), "-o", "plan.json")
    assert (done.code, done.out) == (2, "")
    assert lacking(done.err, *facts.split()) == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "unreadable"),
        (b"\x93NUMPY", "unreadable"),
        (b"PK\x03\x04", "unreadable"),
        (np.array([{}, 1, 2], dtype=object), "unreadable"),
        (np.zeros(4), "wrong-shape"),
        (np.array(["a", "b", "c"]), "not-numbers"),
        (np.array([0.0, np.nan, 0.0]), "bad-bounds"),
    ],
)
def test_a_centre_that_is_none_is_refused(
    command: Command, folder: Path, content: bytes | NDArray[np.float64], problem: str
) -> None:
    path = folder / "center.npy"
    path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content)
    done = command(*PLAN, "--dimension", "3", "--clipping-norm", "1", "--center", "center.npy")
    assert (done.code, done.out, lacking(done.err, f"[{problem}]", "centre")) == (2, "", [])


# run


@pytest.mark.parametrize("file", ["updates.npy", "updates.csv"])
def test_rows_of_a_file_are_vectors(command: Command, updates: NDArray[np.float64], file: str) -> None:
    found = command("run", file, "--clipping-norm", "1", *TARGET, "--json")
    assert found.document["plan"]["domain"]["clipping_norm"] == 1
    assert near(found.estimate, updates.mean(axis=0))
    assert not near(found.estimate, updates.mean(axis=0)[::-1])


def test_a_centre_is_added_again_and_lowers_the_error(
    command: Command, folder: Path, updates: NDArray[np.float64]
) -> None:
    np.save(folder / "center.npy", np.linspace(-0.3, 0.3, SIZE))
    around = command(
        "run", "updates.npy", "--clipping-norm", "0.2", "--center", "center.npy", "--clip", *TARGET, "--json"
    )
    clipped = updates - np.linspace(-0.3, 0.3, SIZE)
    clipped *= np.minimum(1, 0.2 / np.linalg.norm(clipped, axis=1))[:, np.newaxis]
    assert near(around.estimate, np.linspace(-0.3, 0.3, SIZE) + clipped.mean(axis=0))
    alone = command("run", "updates.npy", "--clipping-norm", "1", *TARGET, "--json")
    assert around.estimate["standard_error"][0] < 0.25 * alone.estimate["standard_error"][0]


def test_longer_rows_are_scaled_down_where_that_is_asked_for(command: Command, updates: NDArray[np.float64]) -> None:
    done = command("run", "updates.npy", "--clipping-norm", "0.5", "--clip", *TARGET, "--json")
    factors = np.minimum(1, 0.5 / np.linalg.norm(updates, axis=1))
    assert factors.max() < 1
    assert near(done.estimate, (updates * factors[:, np.newaxis]).mean(axis=0))


def test_every_format_and_picture_is_written(command: Command, folder: Path, updates: NDArray[np.float64]) -> None:
    assert (
        command("plan", "--users", USERS, "--shape", "4,4", "--clipping-norm", "1", *TARGET, "-o", "plan.json").code
        == 0
    )
    for suffix in ("json", "csv", "parquet", "npz"):
        done = command("run", "updates.npy", "--plan", "plan.json", "-o", f"out.{suffix}", "--plot", f"{suffix}.svg")
        assert done.code == 0, done.err
    assert near(json.loads((folder / "out.json").read_text())["estimate"], updates.mean(axis=0).reshape(4, 4))
    with (folder / "out.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == SIZE
    assert parquet.read_table(folder / "out.parquet").num_rows == SIZE
    with np.load(folder / "out.npz") as found:
        assert found["mean"].shape == (4, 4)
    assert (folder / "json.svg").stat().st_size > 1000


def test_columns_keep_their_names(command: Command, folder: Path, updates: NDArray[np.float64]) -> None:
    assert command("run", "updates.csv", "--clipping-norm", "1", *TARGET, "-o", "out.csv").code == 0
    assert "w15" in (folder / "out.csv").read_text()


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ("updates.npy --clipping-norm 0.8", f"[out-of-bounds] row {USERS - 1} 0.8 --clip"),
        ("nan.npy --clipping-norm 9 --clip", "[missing-value] row 3"),
        ("updates.npy --clipping-norm 1 --missing midpoint", "[impossible-combination] --missing"),
        ("updates.npy --clipping-norm 1 --bounds 0:1", "[conflicting-arguments] --bounds"),
        ("updates.npy --clipping-norm 1 --levels 2", "[conflicting-arguments] --levels"),
        ("updates.npy --clipping-norm 1 --labels a,b", "[conflicting-arguments] --labels --clipping-norm"),
        ("updates.npy --clipping-norm 1 --open-vocabulary x", "[conflicting-arguments] --open-vocabulary"),
        ("updates.npy --clipping-norm 0", "[out-of-range] --clipping-norm"),
        ("updates.npy --clipping-norm nan", "[out-of-range] --clipping-norm"),
        ("updates.npy --center nan.npy", "[missing-argument] --clipping-norm"),
        ("updates.npy --clipping-norm 1 --center nan.npy", "[wrong-shape] centre"),
    ],
)
def test_other_rows_and_options_are_refused(
    refused: Refused, folder: Path, updates: NDArray[np.float64], options: str, facts: str
) -> None:
    rows = np.clip(updates * np.minimum(1, 0.7 / np.linalg.norm(updates, axis=1))[:, np.newaxis], -1, 1)
    rows[-1] = updates[-1]
    np.save(folder / "updates.npy", rows)
    rows[3, 1] = np.nan
    np.save(folder / "nan.npy", rows)
    assert lacking(refused(*options.split(), *TARGET), *facts.split()) == []


def test_a_plan_fixes_the_clipping_norm(command: Command, refused: Refused, updates: NDArray[np.float64]) -> None:
    assert command(*PLAN, "--dimension", SIZE, "--clipping-norm", "1", "-o", "plan.json").code == 0
    said = refused("updates.npy", "--plan", "plan.json", "--clipping-norm", "1")
    assert lacking(said, "[conflicting-arguments]", "--clipping-norm", "--plan") == []


# send


def test_rows_are_sent_whatever_their_norm_but_not_what_is_missing(
    command: Command, folder: Path, updates: NDArray[np.float64]
) -> None:
    assert command(*PLAN, "--shape", "4,4", "--clipping-norm", "0.5", "-o", "plan.json").code == 0
    rows = updates[:5].reshape(5, 4, 4) * np.array([1, 9, 1e9, 1, 1]).reshape(5, 1, 1)
    np.save(folder / "rows.npy", rows)
    with running() as shuffler:
        task = task_for(shuffler, plan=ss.Plan.load(folder / "plan.json"))
        (folder / "task.json").write_text(task.to_json())
        sending = ("send", "--task", "task.json", "--contributions", "contributions")
        assert command(*sending, "rows.npy", "--row", 2).code == 0
        assert len(shuffler.bodies) == 1
        assert command(*sending, "rows.npy").code == 0
        assert [len(cells) for cells in shuffler.cells(task)] == [task.plan.reports] * 5
        rows[4, 0, 0] = np.nan
        np.save(folder / "rows.npy", rows)
        for option in ((), ("--row", 4)):
            refused = command(*sending[:-1], "others", "rows.npy", *option)
            assert (refused.code, lacking(refused.err, "[missing-value]")) == (2, [])
        assert len(shuffler.bodies) == 5


# What is said and tried


def test_the_statement_names_the_norm_and_the_coin(command: Command, folder: Path) -> None:
    assert command(*PLAN, "--dimension", SIZE, "--clipping-norm", "0.1", "--rounds", "3", "-o", "plan.json").code == 0
    said = " ".join(command("statement", "plan.json").out.split())
    plan = ss.Plan.load(folder / "plan.json")
    facts = (
        "Euclidean norm of at most 0.1",
        "up to 3 rounds",
        "The coin that rounds is the privacy: devices must draw it freshly and secretly",
        "Clipping norm, centre and plan were chosen without",
        "an entry of the mean",
    )
    assert lacking(said, *facts) == []
    assert plan.local_epsilon is not None
    assert f"{upwards(plan.local_epsilon)} for all reports of a user together" in said
    assert "public centre" in ss.L2Ball(2, 1.0, [0.5, 0.5]).wording.collected()
    assert "coin" not in statement(ss.plan(users=500, shape=2, epsilon=1.0, delta=1e-4))


def test_a_plan_is_bounded_from_both_sides_and_attacked(command: Command) -> None:
    assert command(*PLAN, "--dimension", SIZE, "--clipping-norm", "0.1", "-o", "plan.json").code == 0
    bounds = command("privacy", "--plan", "plan.json", "--delta", "1e-3", "--json").document
    assert 0 < bounds["epsilon_lower"] < bounds["epsilon_upper"] <= 4
    done = command("audit", "--plan", "plan.json", "--samples", "200000", "--seconds", "3", "--trials", "5", "--json")
    assert done.document["passed"]
    assert done.document["epsilon_lower"] <= done.document["epsilon_upper"]
