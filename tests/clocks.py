"""Clocks to hand in: one whose time passes only where somebody waits, and one for servers that are processes."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shufflesum._machine import SystemClock

__all__ = ["FakeClock", "ServerClock"]


class FakeClock:
    """Nobody waits for real: waiting moves the time."""

    def __init__(self, now: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._start, self._passed = now, 0.0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        return self._passed

    def wait(self, seconds: float, event: threading.Event | None = None) -> None:
        if event is None or not event.is_set():
            with self._lock:
                self._passed += seconds

    async def pause(self, seconds: float, event: asyncio.Event | None = None) -> None:
        if event is None or not event.is_set():
            self._passed += seconds
        await asyncio.sleep(0)


class ServerClock(SystemClock):
    """This machine's; once the file `over` exists it is ahead by so much, and a second by it is an hour.

    A server never pauses for long by it.
    """

    def __init__(self, over: Path | None = None, ahead: timedelta = timedelta(days=1, hours=2)) -> None:
        self._over, self._ahead = over, ahead

    def now(self) -> datetime:
        over = self._over is not None and self._over.exists()
        return super().now() + self._ahead * over

    def monotonic(self) -> float:
        if self._over is None or not self._over.exists():
            return super().monotonic()
        return super().monotonic() + 3600 * max(0.0, time.time() - self._over.stat().st_mtime)

    async def pause(self, seconds: float, event: asyncio.Event | None = None) -> None:
        await super().pause(min(seconds, 0.05), event)
