"""What sealing and opening a user's reports takes in Python: `python benchmarks/peers/seals.py REPORTS`."""

from __future__ import annotations

import sys
import time

import numpy as np

from shufflesum.keys import generate_private_key
from shufflesum.sealing import open_many, seal_info, seal_many, seal_with_keys

USERS = 10


def main(reports: int = 607) -> None:
    key, info = generate_private_key(), seal_info("00" * 32, 1)
    cells = np.zeros((USERS * reports, 4), dtype=np.uint8)
    keys = np.random.default_rng(1).integers(256, size=(len(cells), 32), dtype=np.uint8)
    times = [time.process_time()]
    sealed = seal_many(cells, key.public_key(), info)
    times.append(time.process_time())
    assert open_many(sealed, key, info).rejected == 0
    times.append(time.process_time())
    seal_with_keys(cells, keys, key.public_key(), info)
    times.append(time.process_time())
    sealing, opening, given = 1000 * np.diff(times) / USERS
    print(
        f"{reports} reports of a user: {sealing:.2f} ms to seal, {opening:.2f} ms to open; "
        f"{given / sealing:.2f}x to seal with keys that are given, as a shuffler does its dummies"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
