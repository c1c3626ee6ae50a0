"""Where an analyzer stands: nothing that estimates would not tell, but the room that its store has."""

from __future__ import annotations

from typing import Any

from shufflesum.service.stores.tables import TableStore
from shufflesum.wire import Task

__all__ = ["FIGURES", "analyzer_status"]

FIGURES = ("rounds", "counted_rounds", "expires", "store_bytes", "free_bytes")


def analyzer_status(task: Task, store: TableStore) -> dict[str, Any]:
    """All figures, as of now; blocks."""
    usage = store.usage()
    return {
        "task": task.id,
        "rounds": task.rounds,
        "counted_rounds": len(store.batch_ids()),
        "expires": task.expires.isoformat(),
        "store_bytes": usage.used,
        "free_bytes": usage.free,
    }
