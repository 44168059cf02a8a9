"""One running jail: starts it, feeds it cases, watches its limits, ends it without leftovers.

All waiting is on the event loop; nothing here blocks for longer than the kernel needs to kill.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from typing import Self

from verifier_server.domain import CaseInput, CaseRun, Limits, Mode, Outcome, Run, Usage
from verifier_server.errors import SandboxError
from verifier_server.sandbox.cgroups import RunCgroup
from verifier_server.sandbox.denials import DenialLog
from verifier_server.sandbox.outcome import Observation, classify
from verifier_server.sandbox.streams import Capture, FrameReader

_START_TIMEOUT_S = 20.0
_REAP_TIMEOUT_S = 0.5
_STATUS = struct.Struct("<ciB")
_FRAME_SLACK = 1 << 16
_ANALYSIS_BYTES = 1 << 18
_LARGE_BYTES = 1 << 15
# So many that the number of a process does not tell how many cases ran before it in the same jail: a task must not know
# whether it is being validated, in many cases, or judged, in one.
_MAX_BURNED_PIDS = 127
_MAX_BURNED_PIDS_BETWEEN = 3
_CPU_CHECK_MIN_S = 0.005


class Jail:
    """A spawned jail. Use: `wait_ready`, then `run_case` for each case, then `close`, always."""

    def __init__(
        self,
        cgroup: RunCgroup,
        process: subprocess.Popen[bytes],
        fds: "_Descriptors",
        run: Run,
        denials: DenialLog,
        uid: int,
    ) -> None:
        self.cgroup = cgroup
        self._denials = denials
        self._uid = uid
        self._process = process
        self._fds = fds
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._control = bytearray()
        self._control_closed = False
        self._spent = False
        self._is_new = True
        self._is_fed = True
        self._overflowed = False
        self._captures = tuple(Capture(fd, run.limits.output_bytes, self._note_overflow) for fd in fds.outputs)
        self._frames = FrameReader(fds.case, self._note_overflow)
        self._loop.add_reader(fds.control, self._read_control)
        self._loop.add_reader(fds.case, self._read_frames)
        for fd, capture in zip(fds.outputs, self._captures, strict=True):
            self._loop.add_reader(fd, self._read_output, fd, capture)

    @classmethod
    def spawn(
        cls,
        cgroup: RunCgroup,
        make_command: Callable[[tuple[int, int]], list[str]],
        run: Run,
        *,
        denials: DenialLog,
        uid: int,
    ) -> Self:
        """Start the process.

        Args:
            make_command: gets the numbers of the two sockets that the jail inherits.
            denials: where the kernel's records of denied system calls arrive.
            uid: the jail's user as the host sees it.
        """
        fds = _Descriptors()
        try:
            process = subprocess.Popen(
                make_command(fds.inherited),
                stdin=fds.guest_stdin,
                stdout=fds.guest_outputs[0],
                stderr=fds.guest_outputs[1],
                pass_fds=fds.inherited,
                env={"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            fds.close()
            raise
        finally:
            fds.close_guest_ends()
        return cls(cgroup, process, fds, run, denials, uid)

    @property
    def alive(self) -> bool:
        """Whether the jail can take another case: not killed, and nothing in it remembers the last one."""
        return self._is_fed and not (self._control_closed or self._spent or self._frames.ended)

    async def wait_ready(self) -> None:
        """Wait until the supervisor can take a case.

        Raises:
            SandboxError: the jail ended or did not come up.
        """
        if not await self._wait_for(lambda: bool(self._control) or self._control_closed, _START_TIMEOUT_S):
            raise SandboxError(f"the jail did not start within {_START_TIMEOUT_S:.0f} s")
        if self._control[:1] != b"R":
            self._captures[1].read_available()
            raise SandboxError(f"the jail did not start: {_pick_reason(self._captures[1].take()[0])}")
        del self._control[:1]
        for capture in self._captures:  # notes of the dynamic linker are not the program's output
            capture.read_available()
            capture.take()

    async def run_case(self, run: Run, case: CaseInput) -> CaseRun | None:
        """Run one case to its end or to a limit; None if it was lost for a reason that is not the program's."""
        limit = _ANALYSIS_BYTES if run.mode is Mode.ANALYZE else run.limits.value_bytes
        self._frames.reset(limit + _FRAME_SLACK)
        self._overflowed = False
        self.cgroup.reset_peaks()
        self._denials.forget(self._uid)
        before, start = _Counters(self.cgroup), time.monotonic()
        feeder = self._loop.create_task(self._feed(run, case))
        self._is_fed = True
        try:
            stopped_by = await self._watch(run.limits, before, start)
        finally:
            feeder.cancel()
            await asyncio.gather(feeder, return_exceptions=True)
        wall_s = time.monotonic() - start
        if stopped_by is not None:
            self.kill()
        status = self._take_status()
        self._drain()
        after = _Counters(self.cgroup)
        if after.oom_kills > before.oom_kills and not self.cgroup.has_filled_memory(run.limits):
            return None  # the counter also rises when the host, or a group above, is out of memory
        if stopped_by is None and after.oom_kills == before.oom_kills and (status is None or not self._is_fed):
            return None
        denied = await self._denials.find(self._uid, wait=_is_denied(status))
        seen = self._observe(run, status, stopped_by, before, after, wall_s, denied)
        if sum(len(payload) for _, payload in seen.frames) > _LARGE_BYTES:
            # Checking takes a microsecond per byte: not on the event loop.
            return await self._loop.run_in_executor(None, classify, seen, run)
        return classify(seen, run)

    def kill(self) -> None:
        """Kill everything in the jail now; nsjail itself then reaps it and ends (see `bury`)."""
        self._control_closed = True
        jailed = self.cgroup.list_processes() - {self._process.pid}
        if not jailed and self._process.poll() is None:  # a reaped pid may belong to somebody else by now
            jailed = {self._process.pid}
        for pid in jailed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def close(self) -> None:
        """Kill, reap and remove everything. The kill is immediate; a second cancellation does not stop the rest.

        Raises:
            SandboxError: a process of the jail cannot be killed.
        """
        self.kill()
        for end in (self._fds.control, self._fds.case):
            self._loop.remove_reader(end)
        for fd in self._fds.outputs:
            self._loop.remove_reader(fd)
        self._fds.close()
        # Tearing down a jail with much memory takes a while; the event loop goes on.
        await asyncio.shield(self._loop.run_in_executor(None, self.bury))

    def bury(self) -> None:
        """Wait for the end of a killed jail and remove its cgroups. Blocks.

        nsjail is killed only if it does not end by itself: then the host's init would have to reap the jail.
        """
        try:
            self._process.wait(timeout=_REAP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.cgroup.kill()
            self._process.kill()
            self._process.wait()
        self.cgroup.remove()

    async def _feed(self, run: Run, case: CaseInput) -> None:
        """Send the case."""
        calls = run.mode is Mode.CALL
        blobs = [run.program, *((case.positional, case.keywords) if calls else (case.stdin, case.script))]
        header = {
            "mode": str(run.mode),
            "entry_point": run.entry_point,
            "cwd": f"/tmp/{secrets.token_hex(4)}",  # noqa: S108 - inside the jail
            "value_bytes": run.limits.value_bytes,
            "clock_shift_s": run.clock_shift_s,
            "lenient": run.lenient,
            "allowed_modules": run.allowed_modules,
            "blobs": [len(blob) for blob in blobs],
        }
        head = json.dumps(header).encode()
        request = struct.pack("<I", len(head)) + head + b"".join(blobs)
        most = _MAX_BURNED_PIDS if self._is_new else _MAX_BURNED_PIDS_BETWEEN
        self._is_new = False
        try:
            await self._loop.sock_sendall(self._fds.control, b"C" + bytes([secrets.randbelow(most + 1)]))
            await self._loop.sock_sendall(self._fds.case, request)
        except ConnectionError:  # the case before did something to the shared socket
            self._is_fed = False

    async def _watch(self, limits: Limits, before: "_Counters", start: float) -> Outcome | None:
        """Wait for the end of the case; return the limit that was exceeded, if one was."""
        deadline = start + limits.wall_time_s
        while True:
            cpu_left = limits.cpu_time_s - (self.cgroup.read_cpu_s() - before.cpu_s)
            if self._overflowed:
                return Outcome.OUTPUT_LIMIT
            if len(self._control) >= _STATUS.size or self._control_closed:
                return Outcome.CPU_TIMEOUT if cpu_left <= 0 else None
            if cpu_left <= 0:
                return Outcome.CPU_TIMEOUT
            wall_left = deadline - time.monotonic()
            if wall_left <= 0:
                return Outcome.WALL_TIMEOUT
            # A quota of one core: CPU time cannot run faster than the clock, so this is early enough.
            await self._wait_for(self._has_ended, min(wall_left, max(cpu_left, _CPU_CHECK_MIN_S)))

    def _has_ended(self) -> bool:
        return len(self._control) >= _STATUS.size or self._control_closed or self._overflowed

    async def _wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._wake.clear()
                    await self._wake.wait()
        return condition()

    def _read_control(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            data = self._fds.control.recv(64)
            self._control += data
            if not data:
                self._control_closed = True
                self._loop.remove_reader(self._fds.control)
        self._wake.set()

    def _read_output(self, fd: int, capture: Capture) -> None:
        before = capture.count
        capture.read_available()
        if capture.count == before:  # end of file: all writers are gone
            self._loop.remove_reader(fd)

    def _read_frames(self) -> None:
        self._frames.read_available()
        if self._frames.ended:  # or the loop would spin on the end of file
            self._loop.remove_reader(self._fds.case)

    def _note_overflow(self) -> None:
        self._overflowed = True
        self._wake.set()

    def _take_status(self) -> int | None:
        if len(self._control) < _STATUS.size:
            return None
        _, status, clean = _STATUS.unpack_from(self._control)
        del self._control[: _STATUS.size]
        self._spent = not clean
        return int(status)

    def _drain(self) -> None:
        self._frames.drain()
        for capture in self._captures:
            capture.drain()

    def _observe(
        self,
        run: Run,
        status: int | None,
        stopped_by: Outcome | None,
        before: "_Counters",
        after: "_Counters",
        wall_s: float,
        denied_syscall: str,
    ) -> Observation:
        (stdout, stdout_count), (stderr, stderr_count) = (capture.take() for capture in self._captures)
        usage = Usage(
            wall_s=wall_s,
            cpu_s=max(0.0, after.cpu_s - before.cpu_s),
            peak_memory_bytes=self.cgroup.read_peak_memory_bytes(),
            peak_processes=self.cgroup.read_peak_processes(),
            output_bytes=stdout_count + stderr_count,
        )
        overflowed = max(stdout_count, stderr_count) > run.limits.output_bytes
        return Observation(
            wait_status=status,
            stopped_by=stopped_by or (Outcome.OUTPUT_LIMIT if overflowed else None),
            oom_kills=after.oom_kills - before.oom_kills,
            process_refusals=after.process_refusals - before.process_refusals,
            frames=tuple(self._frames.frames),
            frames_broken=self._frames.broken,
            usage=usage,
            hook_events=self._frames.hook_events,
            denied_syscall=denied_syscall,
            stdout=stdout,
            stderr=stderr,
        )


def _is_denied(status: int | None) -> bool:
    return status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSYS


def _pick_reason(stderr: bytes) -> str:
    """Return what nsjail said last, without the notes of the dynamic linker."""
    lines = stderr.decode("utf-8", "backslashreplace").splitlines()
    telling = [line for line in lines if "no version information available" not in line]
    return " | ".join(telling[-3:])[-400:] or "nsjail gave no reason"


class _Counters:
    """Kernel counters of a run's cgroup at one moment."""

    def __init__(self, cgroup: RunCgroup) -> None:
        self.cpu_s = cgroup.read_cpu_s()
        self.oom_kills = cgroup.read_oom_kills()
        self.process_refusals = cgroup.read_process_refusals()


class _Descriptors:
    """Both ends of everything that connects service and jail."""

    def __init__(self) -> None:
        self.case, self._guest_case = socket.socketpair()
        self.control, self._guest_control = socket.socketpair()
        self.guest_stdin = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        self.outputs = tuple(read for read, _ in pipes)
        self.guest_outputs = tuple(write for _, write in pipes)
        self._guest_ends = [self.guest_stdin, *self.guest_outputs]
        for end in (self.case, self.control):
            end.setblocking(False)
        for fd in self.outputs:
            os.set_blocking(fd, False)

    @property
    def inherited(self) -> tuple[int, int]:
        return self._guest_case.fileno(), self._guest_control.fileno()

    def close_guest_ends(self) -> None:
        for fd in self._guest_ends:
            os.close(fd)
        self._guest_ends = []
        self._guest_case.close()
        self._guest_control.close()

    def close(self) -> None:
        for end in (self.case, self.control):
            end.close()
        for fd in self.outputs:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.outputs = ()
