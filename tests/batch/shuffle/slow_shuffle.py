"""A shuffle in small steps, for processes that are killed in the middle of it."""

from __future__ import annotations

import resource
import time
from pathlib import Path

from shufflesum.batch.shuffle import open_source, shuffle
from shufflesum.shuffling import Layout

__all__ = ["shuffle_slowly"]


def shuffle_slowly(folder: Path, in_memory: bool, room: int | None = None) -> None:
    """Shuffle 60,000 reports, and say on standard output how many are done; no file takes more than `room` bytes."""
    if room is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    def progress(done: int) -> None:
        print(done, flush=True)
        time.sleep(0.002)

    layout = Layout(rows=60_000, buckets=16, parts=8, run_rows=2000, in_memory=in_memory, workers=2)
    shuffle(open_source(folder / "reports"), folder / "shuffled", layout=layout, progress=progress)
