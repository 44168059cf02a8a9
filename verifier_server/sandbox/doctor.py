"""The self-test at start: the service attacks itself and is not ready if a protection is missing.

Each probe is a hostile program with the one outcome that proves a protection; `inspect_host` looks at a running
jail from the outside, where a program cannot lie.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from verifier_server.domain import CaseInput, CaseRun, Limits, Mode, Outcome, Run
from verifier_server.errors import SandboxError
from verifier_server.judging import codec
from verifier_server.sandbox.nsjail import ENVIRONMENT, NsjailEngine

_MIB = 1 << 20
_LIMITS = Limits(
    cpu_time_s=2.0, wall_time_s=4.0, memory_bytes=64 * _MIB, processes=8, tmp_bytes=4 * _MIB, output_bytes=4096
)
_ATTEMPTS = 3  # a protection does not come and go, but a busy host can make a probe late
_NAMESPACES = ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup")

Check = Callable[[CaseRun], bool]

# What to look at when a protection is off; the empty name is for all others.
ADVICE = {
    "runs_python": "is --python readable for other users, and are user namespaces allowed (see above)?",
    "memory_limit": "the memory controller does not limit: see `cgroup memory` above",
    "memory_limit_of_grandchild": "the memory controller does not limit: see `cgroup memory` above",
    "process_limit": "the pids controller does not limit: see `cgroup pids` above",
    "cpu_limit": "the cpuacct controller does not count: see `cgroup cpuacct` above",
    "host_view": "nsjail did not set up ids or namespaces as asked: use the nsjail of `make setup`",
    "no_leftovers": "another process holds the run cgroups: look for it with `cat <cgroup>/cgroup.procs`",
    "": "nsjail does not do what it was asked to: use the nsjail of `make setup`, on a kernel of 5.10 or later",
}


@dataclass(frozen=True, slots=True)
class Protection:
    """Result of one probe."""

    name: str
    active: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Probe:
    """A program that attacks one protection."""

    name: str
    program: str
    holds: Check
    limits: Limits = _LIMITS


def _ends_as(outcome: Outcome) -> Check:
    return lambda result: result.outcome is outcome


def _returns(value: object) -> Check:
    expected = codec.encode(value, 4096)
    return lambda result: result.value == expected


_SYSCALL = "import ctypes\ndef f():\n    ctypes.CDLL(None).syscall({number}, 0, 0, 0, 0)\n    return 'survived'"

PROBES = (
    Probe("runs_python", "def f():\n    return [1, 'a', {2: None}]", _returns([1, "a", {2: None}])),
    Probe(
        "memory_limit",
        "def f():\n    held = []\n    while True:\n        held.append(bytearray(1 << 20))",
        _ends_as(Outcome.MEMORY_LIMIT),
    ),
    Probe(
        "memory_limit_of_grandchild",
        "import os\ndef f():\n    if os.fork() == 0:\n        held = []\n        while True:\n"
        "            held.append(bytearray(b'x' * (1 << 20)))\n    os.wait()\n    return 1",
        _ends_as(Outcome.MEMORY_LIMIT),
    ),
    Probe("process_limit", "import os\ndef f():\n    while True:\n        os.fork()", _ends_as(Outcome.PROCESS_LIMIT)),
    Probe(
        "cpu_limit",
        "def f():\n    while True:\n        pass",
        _ends_as(Outcome.CPU_TIMEOUT),
        replace(_LIMITS, cpu_time_s=0.2),
    ),
    Probe(
        "wall_limit",
        "import time\ndef f():\n    time.sleep(60)",
        lambda r: r.outcome is Outcome.WALL_TIMEOUT and r.usage.wall_s < 0.5,
        replace(_LIMITS, wall_time_s=0.2),
    ),
    Probe("output_limit", "def f():\n    while True:\n        print('x' * 100)", _ends_as(Outcome.OUTPUT_LIMIT)),
    Probe(
        "tmp_limit",
        "def f():\n    try:\n        with open('x', 'wb') as file:\n            file.write(bytes(8 << 20))\n"
        "    except OSError as error:\n        return error.errno in (27, 28)",
        _returns(True),
    ),
    Probe(
        "read_only_root",
        "import os\ndef f():\n    written = []\n    for top, _, _ in os.walk('/'):\n"
        "        if not top.startswith('/tmp'):\n            try:\n                open(top + '/x', 'w')\n"
        "                written.append(top)\n            except OSError:\n                pass\n    return written",
        _returns([]),
    ),
    Probe(
        "no_host_files",
        "import os\ndef f():\n    names = ['/proc', '/sys', '/etc', '/root', '/home', '/var', '/run', '/dev/shm']\n"
        "    return [n for n in names if os.path.exists(n)] + sorted(set(os.listdir('/dev')) - "
        "{'null', 'zero', 'urandom'})",
        _returns([]),
    ),
    Probe(
        "clean_environment",
        f"import os\ndef f():\n    return sorted(set(os.environ) - {{'LC_CTYPE', *{sorted(ENVIRONMENT)}}})",
        _returns([]),
    ),
    Probe(
        "few_descriptors",
        "import os\ndef f():\n    found = []\n    for fd in range(256):\n        try:\n            os.fstat(fd)\n"
        "            found.append(fd)\n        except OSError:\n            pass\n    return found",
        _returns([0, 1, 2, 3]),
    ),
    Probe(
        "no_network",
        "import socket\ndef f():\n    try:\n        socket.socket()\n    except PermissionError:\n        return True",
        _returns(True),
    ),
    Probe(
        "no_supervisor_kill",
        "import os\ndef f():\n    try:\n        os.kill(1, 9)\n    except PermissionError:\n        pass\n"
        "    return os.getpid() > 1",
        _returns(True),
    ),
    # System-call numbers of x86-64.
    Probe("seccomp_ptrace", _SYSCALL.format(number=101), _ends_as(Outcome.SYSCALL_DENIED)),
    Probe("seccomp_unshare", _SYSCALL.format(number=272), _ends_as(Outcome.SYSCALL_DENIED)),
    Probe("seccomp_mount", _SYSCALL.format(number=165), _ends_as(Outcome.SYSCALL_DENIED)),
    Probe("seccomp_io_uring", _SYSCALL.format(number=425), _ends_as(Outcome.SYSCALL_DENIED)),
    Probe("seccomp_bpf", _SYSCALL.format(number=321), _ends_as(Outcome.SYSCALL_DENIED)),
)


async def examine(engine: NsjailEngine, slots: int) -> list[Protection]:
    """Run every probe, `slots` at a time, and look at one jail from the host."""
    free: asyncio.Queue[int] = asyncio.Queue()
    for slot in range(slots):
        free.put_nowait(slot)

    async def guarded(probe: Probe) -> Protection:
        slot = await free.get()
        try:
            for _ in range(_ATTEMPTS):
                result = await _try(engine, probe, slot)
                if result.active:
                    break
            return result
        finally:
            free.put_nowait(slot)

    results = await asyncio.gather(*(guarded(probe) for probe in PROBES))
    results.append(await _inspect_host(engine))
    counts = engine.count_live()
    clean = counts.jails == 0 and counts.run_cgroups == 0
    return [*results, Protection("no_leftovers", clean, f"{counts.jails} jails, {counts.run_cgroups} cgroups")]


async def _try(engine: NsjailEngine, probe: Probe, slot: int) -> Protection:
    run = _make_run(probe.program, probe.limits)
    try:
        result = (await engine.run(run, slot=slot))[0]
    except SandboxError as error:
        return Protection(probe.name, False, str(error))
    detail = f"{result.outcome} {result.claim}".strip()
    return Protection(probe.name, probe.holds(result), detail)


def _make_run(program: str, limits: Limits) -> Run:
    return Run(mode=Mode.CALL, program=program.encode(), entry_point="f", cases=(CaseInput(),), limits=limits)


async def _inspect_host(engine: NsjailEngine) -> Protection:
    """Look at a sleeping program through /proc: ids, capabilities, filters, namespaces."""
    run = _make_run("import time\ndef f():\n    time.sleep(60)", _LIMITS)
    task = asyncio.ensure_future(engine.run(run, slot=0))
    try:
        problems = ["no jailed process seen"]
        for _ in range(1000):
            await asyncio.sleep(0.01)
            views = [view for pid in engine.list_processes() if (view := _inspect(pid)) is not None]
            if len(views) >= 2:  # supervisor and program
                problems = [problem for view in views for problem in view]
                break
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return Protection("host_view", not problems, "; ".join(problems) or "ids, capabilities, seccomp, namespaces")


def _inspect(pid: int) -> list[str] | None:
    """Return what is wrong with a jailed process; None if it is not jailed yet, or gone already."""
    status = _read_status(pid)
    if len(status.get("NSpid", "").split()) < 2 or status.get("Seccomp") != "2":
        return None
    problems = []
    if "0" in status["Uid"].split() or "0" in status["Gid"].split():
        problems.append("host uid or gid is 0")
    if int(status["CapEff"], 16) or int(status["CapBnd"], 16):
        problems.append("has capabilities")
    if status["NoNewPrivs"] != "1":
        problems.append("may gain privileges")
    try:
        for name in _NAMESPACES:
            if os.readlink(f"/proc/{pid}/ns/{name}") == os.readlink(f"/proc/self/ns/{name}"):
                problems.append(f"shares the {name} namespace")
    except FileNotFoundError:  # it ended meanwhile
        return None
    return problems


def _read_status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
