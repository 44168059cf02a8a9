"""A fixed number of slots and one bounded first-in-first-out queue in front of them."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from verifier_server.errors import QueueFullError

_RETRY_MIN_S = 0.1
_SMOOTHING = 0.1


@dataclass(frozen=True, slots=True)
class Turn:
    """A slot that was given to a request, and how long the request waited for it."""

    slot: int
    queue_s: float


class Scheduler:
    """Hands out slots in order of arrival; refuses when the queue is full instead of growing."""

    def __init__(self, *, slots: int, capacity: int) -> None:
        self.slots = slots
        self.capacity = capacity
        self._free = list(range(slots))
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._mean_run_s = 0.2

    @property
    def queued(self) -> int:
        """Requests that wait now."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Slots in use now."""
        return self.slots - len(self._free)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """Wait for a slot and hold it for the block. Cancellation gives queue place or slot back.

        Raises:
            QueueFullError: `capacity` requests wait already.
        """
        start = time.monotonic()
        slot = await self._acquire()
        begin = time.monotonic()
        try:
            yield Turn(slot, begin - start)
        finally:
            self._mean_run_s += _SMOOTHING * (time.monotonic() - begin - self._mean_run_s)
            self._release(slot)

    async def _acquire(self) -> int:
        if self._free and not self._waiting:
            return self._free.pop()
        if len(self._waiting) >= self.capacity:
            raise QueueFullError(max(_RETRY_MIN_S, self._mean_run_s * self.capacity / (2 * self.slots)))
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._release(future.result())  # the slot came at the same moment
            else:
                with contextlib.suppress(ValueError):  # `_release` may have dropped it already
                    self._waiting.remove(future)
            raise

    def _release(self, slot: int) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(slot)
                return
        self._free.append(slot)
