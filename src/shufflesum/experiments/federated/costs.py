"""What a client sends in a round, and how long sealing and opening take on one core."""

from __future__ import annotations

import time
from datetime import timedelta

import numpy as np

from shufflesum._clock import SYSTEM_CLOCK
from shufflesum.experiments.rows import Row
from shufflesum.plans import Plan
from shufflesum.protocol import Randomizer
from shufflesum.wire import SEALED_BYTES, Opener, Task, Upload, generate_private_key

__all__ = ["cost_row"]

_MOST_OPENED = 20_000  # reports: enough to time them


def cost_row(name: str, plan: Plan) -> Row:
    """One user's update randomized, sealed, and opened again; times are those that one core was busy."""
    key = generate_private_key()
    task = Task(
        name="costs",
        plan=plan,
        analyzer_key=key.public_key().public_bytes_raw(),
        shuffler="http://127.0.0.1:1",
        expires=SYSTEM_CLOCK.now().replace(microsecond=0) + timedelta(hours=1),
    )
    update = np.zeros((1, plan.dimension), dtype=np.float32)
    randomizer = Randomizer(plan)
    randomizer.randomize(update)  # the first call compiles
    started = time.process_time()
    reports = randomizer.randomize(update)
    randomized = time.process_time()
    upload = Upload.seal(task, reports, 1)
    sealed = time.process_time()
    piece = upload.sealed[: SEALED_BYTES * min(_MOST_OPENED, plan.reports)]
    with Opener(key, processes=1) as opener:
        task.open_reports(piece[:SEALED_BYTES], 1, opener)
        opening = time.process_time()
        task.open_reports(piece, 1, opener)
        opened = time.process_time()
    each = (opened - opening) / (len(piece) // SEALED_BYTES)
    return {
        "model": name,
        "parameters": plan.dimension,
        "reports": plan.reports,
        "bytes raw": plan.bytes_per_user["raw"],
        "bytes sealed": plan.bytes_per_user["sealed"],
        "bytes of the update itself (float32)": 4 * plan.dimension,
        "seconds to randomize": randomized - started,
        "seconds to seal": sealed - randomized,
        "seconds to open": each * plan.reports,
        "core hours to open a round": each * plan.reports * plan.users / 3600,
    }
