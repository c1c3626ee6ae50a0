"""The installed script as a process of its own: streams, terminals, signals, permissions and memory."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Command

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks into /proc")

SCRIPT = str(Path(sys.executable).with_name("shufflesum"))
QUICK = ("--epsilon", "1", "--delta", "1e-6", "--coordinates", "1", "--levels", "3")


@pytest.fixture
def good(folder: Path) -> str:
    np.save(folder / "good.npy", np.full((1000, 3), 0.25))
    return "good.npy"


def test_in_a_pipe_there_is_the_result_and_one_note(script: Command, good: str) -> None:
    done = script("run", good, *QUICK, "--json")
    assert done.err.startswith("note: running this again is a second release")
    assert done.err.count("\n") == 1
    assert done.estimate["users"] == 1000
    assert script("run", good, *QUICK, "--json", FORCE_COLOR="1", TTY_COMPATIBLE="1").err == done.err


def test_on_a_terminal_there_is_a_progress_bar_beside_the_result(good: str) -> None:
    terminal, inside = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(
        [SCRIPT, "run", good, *QUICK, "--json"], stdout=subprocess.PIPE, stderr=inside, env=environment
    ) as process:
        os.close(inside)
        shown = b""
        try:
            while piece := os.read(terminal, 4096):
                shown += piece
        except OSError:  # how Linux says that the other side is closed
            pass
        os.close(terminal)
        assert process.stdout
        assert msgspec.json.decode(process.stdout.read())["estimate"]["users"] == 1000
    assert process.returncode == 0
    assert b"rows" in shown
    assert b"1000/1000" in shown


def test_a_refusal_is_one_line_on_standard_error(script: Command, folder: Path, good: str) -> None:
    done = script("run", good, *QUICK, "--bounds", "0:0.2", "-o", "o.json", "--plot", "p.html")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"shufflesum: {good}: row 0, coordinate 0: the value is out of bounds")
    assert done.err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == [good]


def test_a_folder_without_write_permission(script: Command, folder: Path, good: str) -> None:
    # The superuser may write anywhere; without that one capability (1, CAP_DAC_OVERRIDE) it is a user like others.
    drop = "import ctypes, os, sys; ctypes.CDLL(None).prctl(24, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    (folder / "locked").mkdir(mode=0o500)
    done = script("run", good, *QUICK, "-o", "locked/o.json", "--plot", "p.png", launcher=(sys.executable, "-c", drop))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("shufflesum: locked/o.json: cannot be written: Permission denied; choose an output in")
    assert sorted(path.name for path in folder.rglob("*")) == [good, "locked"]


def test_a_result_that_cannot_be_printed_ends_without_a_traceback(good: str) -> None:
    arguments = [SCRIPT, "run", good, *QUICK, "--json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("shufflesum: the result cannot be printed: No space left on device")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()  # as `| head` does when it has enough
        assert process.stderr.read() == b""
    assert process.returncode != 0


def test_an_interrupt_leaves_nothing_behind(folder: Path, large_zeros: Callable[..., str]) -> None:
    data = large_zeros(20_000_000, 100, "bool")
    (folder / "o.json").write_text("from before")
    arguments = [SCRIPT, "run", data, *QUICK, "-o", "o.json", "--plot", "p.svg"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while len(list(folder.iterdir())) < 4 and time.monotonic() < deadline:  # both outputs are staged: work begins
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.strip() == "shufflesum: stopped"
    assert sorted(path.name for path in folder.iterdir()) == ["o.json", data]
    assert (folder / "o.json").read_text() == "from before"


@pytest.mark.slow
def test_a_large_mapped_file_needs_little_memory_of_its_own(large_zeros: Callable[..., str]) -> None:
    data = large_zeros(2_000_000, 100)  # 800 MB
    peak, seen = 0, 0
    with subprocess.Popen([SCRIPT, "run", data, *QUICK], stdout=subprocess.PIPE) as process:
        while process.poll() is None:
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    peak, seen = max(peak, int(line.split()[1]) * 1024), seen + 1
            time.sleep(0.005)
    assert process.returncode == 0
    assert seen > 50
    assert 20e6 < peak < 400e6
