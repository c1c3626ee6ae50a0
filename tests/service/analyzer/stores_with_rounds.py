"""An analyzer's store with rounds in it, without a shuffler: for tests of what is shown of them."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.service.analyzer.analyzer_in_thread import task_of

import shufflesum as ss
from shufflesum.reports import Counts
from shufflesum.service.stores.tables import CountedBatch, open_tables
from shufflesum.wire import Task

__all__ = ["collected"]


def collected(
    folder: Path, plan: ss.Plan, rows: Any, *, rounds: int = 1, unreadable: int = 0, name: str = "analyzer test"
) -> tuple[Task, str]:
    """A task under a plan, and the address of a store with the reports of these rows, counted in each round."""
    task, address = replace(task_of(plan), name=name), f"sqlite:{folder}/tables.db"
    store = open_tables(address, task)
    for number in range(1, rounds + 1):
        counts = Counts(plan, number)
        counts.add(ss.Randomizer(plan, round_number=number).randomize(rows))
        counts.rejected += unreadable
        batch = CountedBatch(
            number, secrets.token_hex(16), len(rows), counts.blanks, counts.rejected, unreadable, np.array(counts.table)
        )
        assert store.record(batch)
    return task, address
