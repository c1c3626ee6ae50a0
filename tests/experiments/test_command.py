from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from tests.refusals import lacking

from experiments.__main__ import main
from experiments.measurements import FILE_NAME
from experiments.trials import Errors, Trial, measure
from shufflesum.synthetic import heartbeats

Call: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """`python -m experiments` in this process: its exit code, standard output and standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["experiments", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capfd.readouterr()
        assert isinstance(stopped.value.code, int)
        return stopped.value.code, out, err

    return run


@pytest.fixture
def beats(folder: Path) -> str:
    """10,000 made-up beats in a file, the fewest that are accepted."""
    np.save(folder / "beats.npy", heartbeats(10_000, 150))
    return "beats.npy"


@pytest.mark.slow
def test_a_quick_run_is_whole_and_says_that_its_beats_are_made_up(folder: Path) -> None:
    """As a process, as `make reproduce-quick` runs it."""
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-m", "experiments", "paper", "--quick", "-o", "results"],
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "data: synthetic heartbeats (made up, nobody's data), 100,000 rows" in done.stdout
    assert "At the paper's defaults the squared error of the mean is 0.0" in done.stdout
    assert "With a certified guarantee at δ = 1e-6" in done.stdout
    assert "report: results/report.html" in done.stdout
    page = (folder / "results/report.html").read_text(encoding="utf-8")
    assert "python -m experiments paper --quick -o results" in page
    assert len(list((folder / "results/figures").glob("*.png"))) == page.count("<figcaption>") >= 10


@pytest.mark.slow
def test_a_stopped_run_says_so_and_goes_on_where_it_was(
    call: Call, folder: Path, beats: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    def interrupted(rows: np.ndarray, trial: Trial, seed: int, repeat: int) -> Errors:
        nonlocal made
        made += 1
        if made == 10:
            raise KeyboardInterrupt
        return measure(rows, trial, seed, repeat)

    arguments = ("paper", "--quick", "--repeats", 1, "--data", beats, "-o", "out", "--encoding", "authors")
    with monkeypatch.context() as patched:
        patched.setattr("experiments.experiment.measure", interrupted)
        code, _, said = call(*arguments)
    assert code == 130
    assert "what is done was kept, the same command goes on in out" in said
    assert [path.name for path in (folder / "out").iterdir()] == [FILE_NAME]
    code, printed, said = call(*arguments)
    assert (code, said) == (0, "")
    assert "measurements were kept from an earlier run" in printed
    assert "beats.npy, 10,000 rows" in printed
    assert "Comparing classes needs two" in printed
    assert "Unit of privacy: one row of beats.npy" in (folder / "out/report.html").read_text(encoding="utf-8")
    assert "the authors' encoding" in (folder / "out/figures/by_k.svg").read_text(encoding="utf-8")
    assert "the authors' encoding" not in (folder / "out/figures/certified_by_n.svg").read_text(encoding="utf-8")
    code, _, said = call(*arguments[:-2])
    assert code == 2
    assert lacking(said, "[measurements-mismatch]", "encoding") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--data nowhere.npy", ("[unreadable]", "nowhere.npy")),
        ("--data empty", ("[unreadable]", "mitbih_test.csv", "--data")),
        ("--data narrow.npy", ("[wrong-shape]", "narrow.npy", "100", "150")),
        ("--data outside.npy", ("[out-of-bounds]", "row 3", "column 5", "[0, 1]")),
        ("--data few.npy", ("[too-few-users]", "few.npy", "30 rows", "10,000")),
        ("--data beats.txt", ("[unknown-file-type]", "beats.txt", "'.txt'")),
        ("--data beats.npy -o file", ("[unwritable]", "file:")),
        ("--data beats.npy -o full", ("[exists]", "full:", "measurements.json")),
        ("--data beats.npy -o half", ("[damaged]", "half/measurements.json")),
        ("--repeats 0", ("--repeats",)),
        ("--encoding none", ("--encoding",)),
    ],
)
def test_bad_input_ends_with_one_message_and_changes_nothing(
    call: Call, folder: Path, beats: str, arguments: str, said: tuple[str, ...]
) -> None:
    outside = np.zeros((30, 150))
    np.save(folder / "few.npy", outside)
    outside[3, 5] = 1.5
    np.save(folder / "outside.npy", outside)
    np.save(folder / "narrow.npy", np.zeros((30, 100)))
    for name in ("empty", "full", "half"):
        (folder / name).mkdir()
    (folder / "beats.txt").write_text("1")
    (folder / "file").touch()
    (folder / "full/report.html").write_text("of somebody")
    (folder / "half" / FILE_NAME).write_text('{"format": "shuff')
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, _, message = call("paper", "--quick", "-o", "reproduction", *arguments.split())
    assert code == 2
    assert lacking(message, *said) == []
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert not (folder / "reproduction").exists()
