"""Bounded readers for what comes out of a jail. They always drain and never keep more than their limit."""

import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable

from verifier_server.domain import HookEvent

_CHUNK = 1 << 16
_MAX_HOOK_EVENTS = 64
_MAX_HOOK_FRAMES = 2048  # counts go up in powers of two, one frame each
_MAX_HOOK_BYTES = 2048
_HEADER = struct.Struct("<cI")


class Capture:
    """Keeps the first `limit` bytes of a pipe and counts all of them."""

    def __init__(self, fd: int, limit: int, on_overflow: Callable[[], None]) -> None:
        self._fd = fd
        self._limit = limit
        self._on_overflow = on_overflow
        self._kept = bytearray()
        self.count = 0

    def read_available(self) -> None:
        """Read what is there now; call when the pipe is readable, and once more after the program's end.

        Bounded to a few chunks, so that an endless writer cannot hold the event loop.
        """
        for _ in range(8):
            try:
                data = os.read(self._fd, _CHUNK)
            except (BlockingIOError, InterruptedError):
                return
            if not data:
                return
            self._kept += data[: max(0, self._limit - len(self._kept))]
            self.count += len(data)
            if self.count > self._limit:
                self._on_overflow()

    def drain(self) -> None:
        """Read everything that is there; only when no process can write any more."""
        before = -1
        while before != self.count:
            before = self.count
            self.read_available()

    def take(self) -> tuple[bytes, int]:
        """Return the kept bytes and the count since the last call, and start anew."""
        result = bytes(self._kept), self.count
        self._kept, self.count = bytearray(), 0
        return result


class FrameReader:
    """Splits bytes from the frame socket into frames; anything else marks it broken and is dropped.

    A flood of bytes calls `on_flood`, so that a program cannot keep the service busy with reading.
    """

    def __init__(self, sock: socket.socket, on_flood: Callable[[], None]) -> None:
        self._sock = sock
        self._on_flood = on_flood
        self.reset(0)

    def reset(self, max_payload: int) -> None:
        """Forget everything; accept payloads of up to `max_payload` bytes from now on."""
        self._buffer = bytearray()
        self._max_payload = max_payload
        self._budget = 2 * max_payload + _MAX_HOOK_FRAMES * 256
        self.frames: list[tuple[bytes, bytes]] = []
        self._events: dict[tuple[str, str], int] = {}
        self._hook_frames = 0
        self.broken = False
        self.ended = False

    @property
    def hook_events(self) -> tuple[HookEvent, ...]:
        """What the program tried, as it says."""
        return tuple(HookEvent(event=e, detail=d, count=count) for (e, d), count in self._events.items())

    def read_available(self) -> None:
        """Read what is there now; bounded like `Capture.read_available`."""
        for _ in range(8):
            if not self._read_chunk():
                return

    def drain(self) -> None:
        """Read everything that is there; only when no process can write any more."""
        while self._read_chunk():
            pass
        self.broken |= bool(self._buffer)

    def _read_chunk(self) -> bool:
        try:
            data = self._sock.recv(_CHUNK)
        except (BlockingIOError, InterruptedError, ConnectionError):
            return False
        self.ended |= not data
        self._budget -= len(data)
        if self._budget < 0:
            self.broken = True
            self._on_flood()
        if not self.broken:
            self._buffer += data
            self._split()
        return bool(data)

    def _split(self) -> None:
        while len(self._buffer) >= _HEADER.size and not self.broken:
            kind, size = _HEADER.unpack_from(self._buffer)
            if size > self._max_payload or len(self.frames) > 1:
                self.broken = True
            elif len(self._buffer) < _HEADER.size + size:
                return
            else:
                payload = bytes(self._buffer[_HEADER.size : _HEADER.size + size])
                del self._buffer[: _HEADER.size + size]
                self._accept(kind, payload)
        if self.broken:
            self._buffer.clear()

    def _accept(self, kind: bytes, payload: bytes) -> None:
        if kind != b"H":
            self.frames.append((kind, payload))
            return
        self._hook_frames += 1
        if self._hook_frames > _MAX_HOOK_FRAMES:  # more than our own hook can send: a flood of small frames
            self.broken = True
            self._on_flood()
        elif len(payload) <= _MAX_HOOK_BYTES:
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                event, detail, count = json.loads(payload)
                key = _disarm(str(event)[:100])[:100], _disarm(str(detail)[:200])[:200]
                if type(count) is int and (key in self._events or len(self._events) < _MAX_HOOK_EVENTS):
                    self._events[key] = max(1, min(count, 1 << 30))


def _disarm(text: str) -> str:
    """Escape lone surrogates: they come from JSON, and protobuf would refuse them."""
    return text.encode("utf-8", "backslashreplace").decode()
