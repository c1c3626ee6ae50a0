from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import lacking

from shufflesum import Estimate, Plan
from shufflesum.aggregation import aggregate_batches

if TYPE_CHECKING:
    from tests.cli.conftest import Command

ERROR = re.compile(r"squared error of the whole mean beat: (\S+) \(expected: (\S+) ")


def as_predicted(out: str) -> bool:
    """Whether the squared error is below 3 times its prediction.

    It is a sum of 100 nearly equal squares of normal errors: more than 3 times its mean, chi-square(100) > 300, has
    probability below 1e-20; a false alarm below 1e-6 even if only 20 of the coordinates made all of the error.
    """
    found = ERROR.search(out)
    assert found, out
    return float(found[1]) < 3 * float(found[2])


def test_the_demo_tells_its_plan_its_result_and_draws_it(command: Command, folder: Path) -> None:
    done = command("demo", "--users", 3000, "-o", "new/folder")
    assert (done.code, done.err) == (0, "")
    assert as_predicted(done.out)
    for expected in ("3,000 people", "3,000 users", "guarantee for one row: epsilon 1", " ± "):
        assert expected in done.out
    assert "picture: new/folder/heartbeat.png" in done.out
    assert [path.name for path in (folder / "new/folder").iterdir()] == ["heartbeat.png"]
    picture = (folder / "new/folder/heartbeat.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000


def test_a_demo_of_other_beats_than_the_true_ones_would_be_noticed(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def backwards(batches: Iterable[NDArray[np.float32]], plan: Plan, **options: Any) -> Estimate:
        found: Estimate = aggregate_batches((batch[:, ::-1] for batch in batches), plan, **options)
        return found

    monkeypatch.setattr("shufflesum.cli.simulate.aggregate_batches", backwards)
    assert not as_predicted(command("demo", "--users", 3000, "-o", "here").out)


def test_the_demo_needs_no_arguments(script: Command, folder: Path) -> None:
    done = script("demo")
    assert (done.code, done.err) == (0, "")
    assert as_predicted(done.out)
    assert (folder / "demo-output/heartbeat.png").is_file()


@pytest.mark.slow
def test_a_crowd_too_small_is_noted_in_plain_words(command: Command) -> None:
    done = command("demo", "--users", 100, "--epsilon", 0.01, "-o", "here")
    assert done.code == 0
    notes = done.err.splitlines()
    assert any("worse than guessing" in line for line in notes)
    assert all(line.startswith("note: ") for line in notes)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--epsilon 0", ("[out-of-range]", "epsilon is 0.0")),
        ("--delta 1", ("[out-of-range]", "delta is 1.0", "0 and 1")),
        ("--users 99", ("--users", "99")),
        ("-o file/below", ("[unwritable]", "file/below")),
        ("-o file", ("[unwritable]", "folder file")),
        ("-o taken", ("[unwritable]", "taken/heartbeat.png")),
    ],
)
def test_a_refused_demo_writes_nothing(command: Command, folder: Path, arguments: str, said: tuple[str, ...]) -> None:
    (folder / "file").touch()
    (folder / "taken/heartbeat.png").mkdir(parents=True)
    before = sorted(folder.rglob("*"))
    done = command("demo", *arguments.split())
    assert done.code == 2
    assert lacking(done.err, *said) == []
    assert sorted(folder.rglob("*")) == before
