"""`-` for standard input: kept as a file that nobody else can read, and gone afterwards."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import SCRIPT
from tests.slow_params import slow_but_for

import shufflesum as ss

RUN = ("run", "-", "--epsilon", "1", "--delta", "1e-6", "--digits", "2", "--json")
ROWS = b"age;member\n" + b"0,5;True\n" * 1500 + b"0,25;False\n" * 1500


def piped(folder: Path, data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.run(
        [SCRIPT, *arguments],
        input=data,
        capture_output=True,
        check=False,
        env=os.environ | {"TMPDIR": str(folder / "tmp")},
        timeout=120,
    )


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("kind", slow_but_for(["text", "gzip", "npy"], ["text"]))
def test_what_comes_in_is_read_and_not_kept(folder: Path, kind: str) -> None:
    data = {"text": ROWS, "gzip": gzip.compress(ROWS), "npy": saved(np.full((3000, 2), 0.5))}[kind]
    done = piped(folder, data, *RUN)
    assert done.returncode == 0, done.stderr
    assert b'"users": 3000' in done.stdout
    assert list((folder / "tmp").iterdir()) == []


def test_what_is_wrong_in_it_is_named_by_its_line(folder: Path) -> None:
    done = piped(folder, b"age\n0.5\nforty\n", *RUN)
    assert done.returncode == 2
    assert b"standard-input.csv, line 3, column 'age'" in done.stderr
    assert b"forty" not in done.stderr
    assert list((folder / "tmp").iterdir()) == []


def test_a_copy_is_for_its_owner_alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    from shufflesum.cli.options import _input_file

    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(ROWS)))
    with _input_file(Path("-")) as copy:
        assert copy.read_bytes() == ROWS
        assert isinstance(copy, Path)
        assert copy.parent.stat().st_mode & 0o077 == 0
    assert not copy.parent.exists()


def test_rows_are_randomized_from_standard_input(folder: Path) -> None:
    plan = ss.plan(
        users=3000,
        shape=2,
        columns=["age", "member"],
        epsilon=1.0,
        delta=1e-6,
        mechanism=ss.NoisyCounts.Options(digits=2),
    )
    (folder / "plan.json").write_text(plan.to_json())
    done = piped(folder, ROWS, "randomize", "-", "--plan", "plan.json", "-o", "reports")
    assert done.returncode == 0, done.stderr
    assert b"3,000 users" in done.stdout
    assert list((folder / "tmp").iterdir()) == []
