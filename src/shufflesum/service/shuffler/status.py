"""Where a shuffler stands: for its operator alone, since a live count tells when somebody takes part."""

from __future__ import annotations

from typing import Any

from shufflesum.service.stores.store import Store
from shufflesum.wire import Task

__all__ = ["FIGURES", "shuffler_status"]

FIGURES = (
    *("rounds", "released_rounds", "open_round", "users", "smallest_batch", "release_at"),
    *("waiting_round", "waiting_users", "expires", "store_bytes", "free_bytes"),
)


def shuffler_status(task: Task, store: Store, release_at: int | None) -> dict[str, Any]:
    """All figures, as of now; blocks."""
    rounds, waiting, usage = store.rounds(), store.pending(), store.usage()
    return {
        "task": task.id,
        "rounds": task.rounds,
        "released_rounds": rounds.released,
        "open_round": rounds.open_round,
        "users": rounds.users,
        "smallest_batch": task.smallest_batch,
        "release_at": max(task.smallest_batch, release_at or 0),
        "waiting_round": None if waiting is None else waiting.round_number,
        "waiting_users": None if waiting is None else waiting.users,
        "expires": task.expires.isoformat(),
        "store_bytes": usage.used,
        "free_bytes": usage.free,
    }
