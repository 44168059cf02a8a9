"""Keeps the service's memory from growing with the largest requests it ever saw."""

import contextlib
import ctypes

_M_MMAP_THRESHOLD = -3
_THRESHOLD_BYTES = 128 << 10


def return_large_blocks() -> None:
    """Have glibc map large blocks on their own and give each back when it is freed.

    By default its threshold follows the largest block freed so far; blocks of a few MiB then come from heaps, one per
    thread, which fragment and are never returned. Setting the threshold to its own default ends that (mallopt(3)).
    """
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
