"""The clock, handed to whatever needs one, so that tests need neither wait nor reach inside."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock"]


class Clock(Protocol):
    """What time it is, and waiting for it to pass."""

    def now(self) -> datetime:
        """The time of day in UTC, which decides what has expired."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment, which never jump: for measuring."""
        ...

    def wait(self, seconds: float, event: threading.Event | None = None) -> None:
        """Return after so many seconds, or when the event is set."""
        ...

    async def pause(self, seconds: float, event: asyncio.Event | None = None) -> None:
        """The same in an event loop."""
        ...


class SystemClock:
    """This machine's clock."""

    def now(self) -> datetime:
        """The time of day in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def wait(self, seconds: float, event: threading.Event | None = None) -> None:
        """Return after so many seconds, or when the event is set."""
        (event or threading.Event()).wait(seconds)

    async def pause(self, seconds: float, event: asyncio.Event | None = None) -> None:
        """The same in an event loop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await (event or asyncio.Event()).wait()


SYSTEM_CLOCK: Clock = SystemClock()
