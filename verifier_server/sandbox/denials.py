"""Which system call was denied: the kernel's own audit records, where the service may read them.

When the seccomp filter ends a process, the kernel writes an audit record (type 1326) with the user, the architecture
and the number of the call, and offers it to listeners of a netlink group. Listening needs CAP_AUDIT_READ outside of any
user namespace, that is, root of the host; unlike the kernel's log, the group is not rate-limited. Without that right,
or if the record does not come in time, the name stays empty: better unknown than guessed. Records are matched by user,
because every slot has a user of its own and one program at a time.
"""

import asyncio
import contextlib
import errno
import re
import socket
import time

from verifier_server.sandbox.seccomp import name_syscall

_NETLINK_AUDIT = 9
_GROUP_READLOG = 1
_PATIENCE_S = 0.1
_POLL_S = 0.002
_RECORD = re.compile(rb"uid=(\d+) gid=.* sig=31 arch=([0-9a-f]+) syscall=(\d+)")


class DenialLog:
    """Listens to the kernel's records; silent where that is not allowed."""

    def __init__(self) -> None:
        self._latest: dict[int, str] = {}
        self._socket: socket.socket | None = None

    def start(self) -> bool:
        """Begin to listen; whether the host allows it."""
        with contextlib.suppress(OSError):
            listener = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_AUDIT)
            try:
                listener.setblocking(False)
                listener.bind((0, _GROUP_READLOG))
                self._socket = listener
            except OSError:
                listener.close()
                raise
        return self._socket is not None

    def forget(self, uid: int) -> None:
        """Drop what is known of a user; call before its next program starts."""
        self._drain()
        self._latest.pop(uid, None)

    async def find(self, uid: int, *, wait: bool) -> str:
        """Return the name of the last call for which a process of `uid` was ended, or an empty text.

        Args:
            wait: a process did end so, and its record may come a little later.
        """
        deadline = time.monotonic() + (_PATIENCE_S if wait else 0.0)
        while self._socket is not None:
            self._drain()
            if uid in self._latest or time.monotonic() >= deadline:
                break
            await asyncio.sleep(_POLL_S)
        return self._latest.pop(uid, "")

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _drain(self) -> None:
        while self._socket is not None:
            try:
                record = self._socket.recv(1 << 14)
            except OSError as error:
                if error.errno == errno.ENOBUFS:  # records were lost: the host writes more than we read
                    continue
                return
            self._note(record)

    def _note(self, record: bytes) -> None:
        found = _RECORD.search(record)
        if found is not None:
            self._latest[int(found[1])] = name_syscall(int(found[2], 16), int(found[3]))
