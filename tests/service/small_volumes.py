"""A file system of a few kilobytes, to fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["fill", "small_volume"]


@contextmanager
def small_volume(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A volume of its own at `folder`; the test is skipped where none can be mounted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "shufflesum-test", str(folder)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def fill(folder: Path) -> Path:
    """Fill a volume to its last block; delete the file to make room."""
    ballast = folder / "ballast"
    descriptor = os.open(ballast, os.O_CREAT | os.O_WRONLY)
    try:
        while os.write(descriptor, bytes(4096)):
            pass
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return ballast
