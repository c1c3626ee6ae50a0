"""Whether a server's store can be written to, found out by writing, and not for everybody who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shufflesum._clock import SYSTEM_CLOCK, Clock
from shufflesum.errors import ShufflesumError

__all__ = ["StoreReady"]

_CHECK_SECONDS = 5
_KEPT_SECONDS = 1  # whoever asks all the time must not keep the disk busy


class StoreReady:
    """Asks `check`, which writes and raises where it cannot; one at a time, and not for a second after it could."""

    def __init__(self, check: Callable[[], None], clock: Clock = SYSTEM_CLOCK) -> None:
        self._check = check
        self._clock = clock
        self._asking = asyncio.Lock()
        self._until = -1.0

    async def __call__(self) -> bool:
        """Whether the store could be written to just now."""
        async with self._asking:
            if self._clock.monotonic() >= self._until:
                try:
                    await asyncio.wait_for(asyncio.to_thread(self._check), _CHECK_SECONDS)
                except (ShufflesumError, TimeoutError):
                    return False
                self._until = self._clock.monotonic() + _KEPT_SECONDS
        return True
