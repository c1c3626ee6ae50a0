"""Running the command: in this process for speed, or as the installed script where only that shows the truth."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from tests.cli.budgets import USERS

import shufflesum as ss
from shufflesum.cli import main

SCRIPT = Path(sys.executable).with_name("shufflesum")
OUTPUTS = ("-o", "out/estimate.json", "--plot", "out/plot.svg")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a finished command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Standard output, read by a parser that knows no NaN and nothing before or after the one object."""
        assert self.code == 0, self.err
        return msgspec.json.decode(self.out, type=dict[str, Any])

    @property
    def estimate(self) -> dict[str, Any]:
        estimate: dict[str, Any] = self.document["estimate"]
        return estimate


Command: TypeAlias = Callable[..., Outcome]
Refused: TypeAlias = Callable[..., str]
Within: TypeAlias = Callable[[Mapping[str, Any], ArrayLike], bool]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command in this process, through the same entry point as the script."""

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["shufflesum", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capfd.readouterr()
        assert isinstance(stopped.value.code, int)
        return Outcome(stopped.value.code, out, err)

    return call


@pytest.fixture
def script(folder: Path) -> Command:
    """The installed script, as a process of its own with both streams in pipes."""

    def call(*arguments: object, launcher: tuple[str, ...] = (), **environment: str) -> Outcome:
        done = subprocess.run(
            [*launcher, SCRIPT, *map(str, arguments)],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def refused(command: Command, folder: Path) -> Refused:
    """Runs `run` with what must be refused, and returns what it says; one output exists before and must not change."""
    (folder / "out").mkdir()
    (folder / "out" / "estimate.json").write_text("from before")

    def call(*arguments: object, outputs: tuple[str, ...] = OUTPUTS) -> str:
        before = contents(folder)
        done = command("run", *arguments, *outputs)
        assert done.code == 2
        assert done.out == ""
        assert re.fullmatch(r"shufflesum: [^\n]+\n", done.err), done.err
        assert contents(folder) == before
        return done.err

    return call


def contents(folder: Path) -> dict[Path, tuple[int, int] | None]:
    """Every file with its size and time of change; of folders only that they are there."""
    return {
        path: (path.stat().st_size, path.stat().st_mtime_ns) if path.is_file() else None for path in folder.rglob("*")
    }


@pytest.fixture
def good(folder: Path) -> str:
    np.save(folder / "good.npy", np.full((1000, 3), 0.25))
    return "good.npy"


@pytest.fixture
def large_zeros(folder: Path) -> Iterator[Callable[..., str]]:
    """Makes .npy files of zeros that take no room on the disk, and removes them."""
    made: list[Path] = []

    def make(rows: int, columns: int, dtype: str = "float32") -> str:
        made.append(folder / f"zeros{len(made)}.npy")
        np.lib.format.open_memmap(made[-1], mode="w+", dtype=dtype, shape=(rows, columns))
        return made[-1].name

    yield make
    for path in made:
        path.unlink()


@pytest.fixture(scope="session")
def crowd() -> NDArray[np.float64]:
    """5,000 users with three values each; the columns' means, about 0.2, 0.5 and 0.8, tell them apart."""
    values = np.random.default_rng(20).uniform((0.0, 0.25, 0.6), (0.4, 0.75, 1.0), (5000, 3))
    values.setflags(write=False)
    return values


@pytest.fixture(scope="session")
def within() -> Within:
    """Whether every estimated mean is at most 7 standard errors from the truth.

    By Bernstein's inequality a mean of the (at least 1,400) bounded reports used here is farther off with probability
    below 2 exp(-49/2 / 1.3) = 2e-8; over the at most 24 coordinates of a test that is a false alarm below 1e-6.
    """

    def check(estimate: Mapping[str, Any], truth: ArrayLike) -> bool:
        mean, error = (np.array(estimate[key], dtype=np.float64) for key in ("mean", "standard_error"))
        assert mean.shape == error.shape == np.shape(truth)
        return bool(np.all(np.abs(mean - np.asarray(truth, dtype=np.float64)) <= 7 * error))

    return check


@pytest.fixture
def budget(command: Command, folder: Path) -> ss.Budget:
    """A budget that holds one plan of PRIVACY, and no second one."""
    np.savetxt(folder / "answers.csv", np.arange(USERS) % 3, fmt="%d", header="answer", comments="")
    done = command("budget", "create", "budget.db", "--epsilon", "1", "--delta", "4e-4")
    assert (done.code, done.err) == (0, "")
    return ss.Budget.open("budget.db")


@pytest.fixture
def plan(folder: Path) -> ss.Plan:
    made = ss.plan(users=USERS, domain=ss.Categories(3), epsilon=0.8, delta=1e-4)
    (folder / "plan.json").write_text(made.to_json())
    return made
