"""Keeps the service's memory from staying at what its largest requests needed.

None of it is in use: glibc keeps freed blocks of a few MiB, and the pieces in which gRPC receives them, in one heap per
thread; the heaps fragment, and only their tops go back. So large blocks are mapped on their own, threads share one
heap, and what is free in it is handed back on a timer. Measured in docs/log.md.
"""

import asyncio
import ctypes

_M_MMAP_THRESHOLD, _THRESHOLD_BYTES = -3, 128 << 10  # glibc's own default, but no longer moved by what is freed
_M_ARENA_MAX, _ARENAS = -8, 1
_PERIOD_S = 5.0


def share_heap() -> None:
    """Tune glibc's allocator (mallopt(3)); to be called before threads start, for each keeps the heap it first used."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc
        libc.mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
        libc.mallopt(_M_ARENA_MAX, _ARENAS)


async def return_free_memory() -> None:
    """Hand free memory back to the system every few seconds, until cancelled (malloc_trim(3))."""
    libc = ctypes.CDLL(None)
    while hasattr(libc, "malloc_trim"):
        await asyncio.sleep(_PERIOD_S)
        await asyncio.to_thread(libc.malloc_trim, 0)
