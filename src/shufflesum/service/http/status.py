"""Where a server stands, in figures: for `shufflesum status` as JSON, for Prometheus as gauges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from shufflesum.errors import ShufflesumError

__all__ = ["GAUGES", "StatusGauges"]

GAUGES = {
    "rounds": "Rounds that the task's plan covers",
    "released_rounds": "Rounds whose batch the analyzer has taken",
    "counted_rounds": "Rounds whose batch was counted",
    "open_round": "The open round; 0 after the last",
    "users": "Users in the open round",
    "smallest_batch": "Users below which nothing is released",
    "release_at": "Users at which a round is released",
    "waiting_round": "The round whose batch the analyzer has not taken yet; 0 for none",
    "waiting_users": "Users in that batch",
    "expires": "When the task expires, in seconds since 1970",
    "store_bytes": "Bytes that the store takes",
    "free_bytes": "Bytes that are free where the store lies; NaN where that cannot be seen",
}
"""Every figure of a status: `shufflesum_status_NAME` is its gauge."""

_READ_SECONDS = 5.0
_UNKNOWN = float("nan")


class StatusGauges:
    """Gauges of a server's status, which `read` returns; it blocks, and may fail where the store is out of reach."""

    def __init__(self, registry: CollectorRegistry, names: tuple[str, ...], read: Callable[[], dict[str, Any]]) -> None:
        self._read = read
        self._gauges = {name: Gauge(f"shufflesum_status_{name}", GAUGES[name], registry=registry) for name in names}

    async def refresh(self) -> None:
        """Set the gauges to what is so now; NaN where nobody knows."""
        try:
            status = await asyncio.wait_for(asyncio.to_thread(self._read), _READ_SECONDS)
        except (ShufflesumError, TimeoutError):
            status = dict.fromkeys(self._gauges, _UNKNOWN)
        for name, gauge in self._gauges.items():
            gauge.set(_figure(name, status[name]))


def _figure(name: str, value: Any) -> float:
    if isinstance(value, str):
        return datetime.fromisoformat(value).timestamp()
    if value is None:
        return _UNKNOWN if name == "free_bytes" else 0.0
    return float(value)
