"""One cgroup per run for memory, pids, cpu and cpuacct, on v1, v2 and hybrid hosts.

Each controller is found on its own, because a hybrid host has some on v1 and some on v2. Groups live below the
service's own cgroup, so that a limit on the service also bounds its jails:

    <mount>/<own cgroup>/populora-<instance>/<run>

Every instance holds a lock file that lists its subtrees. A subtree is removed at start only if its lock is free.
"""

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from verifier_server.domain import Limits
from verifier_server.errors import SandboxError, SetupError

CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
_MOUNTS, _MEMBERSHIP = Path("/proc/self/mounts"), Path("/proc/self/cgroup")
_OWN_PROCESSES = 2  # nsjail and the supervisor
_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where a controller lives: the directory of the service's own cgroup, and the cgroup version there."""

    path: Path
    version: int


def find_hierarchies(mounts: str, membership: str, available: "dict[str, str] | None" = None) -> dict[str, Hierarchy]:
    """Find each controller from the texts of /proc/self/mounts and /proc/self/cgroup.

    Args:
        mounts: lines `source directory type options ...`.
        membership: lines `id:controllers:path`.
        available: for tests, mount directory of a v2 hierarchy -> text of its cgroup.controllers.
    """
    own: dict[str, str] = {}
    for line in membership.splitlines():
        _, joined, path = line.split(":", 2)
        own.update(dict.fromkeys(joined.split(","), path))
    found: dict[str, Hierarchy] = {}
    for line in mounts.splitlines():
        _, directory, kind, options = line.split(" ")[:4]
        if kind == "cgroup":
            for name in set(options.split(",")) & set(CONTROLLERS):
                found[name] = Hierarchy(_own_directory(directory, own.get(name, "/")), 1)
        elif kind == "cgroup2":
            names = _read_controllers(directory, available)
            for name in set(names) & set(CONTROLLERS) - set(found):
                found[name] = Hierarchy(_own_directory(directory, own.get("", "/")), 2)
            if "cpu" in names:  # cpu.stat of v2 accounts for time
                found.setdefault("cpuacct", found["cpu"])
    return found


def _own_directory(mount: str, path: str) -> Path:
    directory = Path(mount) / path.lstrip("/")
    return directory if directory.is_dir() else Path(mount)


def _read_controllers(directory: str, available: "dict[str, str] | None") -> list[str]:
    if available is not None:
        return available.get(directory, "").split()
    with contextlib.suppress(OSError):
        return (Path(directory) / "cgroup.controllers").read_text().split()
    return []


@dataclass(slots=True)
class RunCgroup:
    """The cgroups of one run."""

    directories: dict[str, Path]
    versions: dict[str, int]

    @property
    def procs_files(self) -> list[str]:
        """The files a process writes 0 to in order to join."""
        return [str(path / "cgroup.procs") for path in dict.fromkeys(self.directories.values())]

    def set_limits(self, limits: Limits) -> None:
        """Write memory, pids and cpu limits."""
        memory, pids, cpu = (self.directories[name] for name in ("memory", "pids", "cpu"))
        if self.versions["memory"] == 1:
            _write(memory / "memory.limit_in_bytes", limits.memory_bytes)
            with contextlib.suppress(OSError):  # only where swap accounting is on
                _write(memory / "memory.memsw.limit_in_bytes", limits.memory_bytes)
        else:
            _write(memory / "memory.max", limits.memory_bytes)
            with contextlib.suppress(OSError):
                _write(memory / "memory.swap.max", 0)
        _write(pids / "pids.max", limits.processes + _OWN_PROCESSES)
        if self.versions["cpu"] == 1:
            _write(cpu / "cpu.cfs_period_us", _PERIOD_US)
            _write(cpu / "cpu.cfs_quota_us", _PERIOD_US)
        else:
            _write(cpu / "cpu.max", f"{_PERIOD_US} {_PERIOD_US}")

    def read_cpu_s(self) -> float:
        """CPU time of all processes that ever were in the group, in seconds."""
        directory = self.directories["cpuacct"]
        if self.versions["cpuacct"] == 1:
            return int(_read(directory, "cpuacct.usage")) / 1e9
        return _read_keyed(directory, "cpu.stat").get("usage_usec", 0) / 1e6

    def read_oom_kills(self) -> int:
        """How many processes the kernel killed here for memory."""
        directory = self.directories["memory"]
        name = "memory.oom_control" if self.versions["memory"] == 1 else "memory.events"
        return _read_keyed(directory, name).get("oom_kill", 0)

    def has_filled_memory(self, limits: Limits) -> bool:
        """Whether the run came to its own limit since `reset_peaks`, and not only a group above it to its own.

        By the peak: the counter of failures on v1 stays at 0 on recent kernels. The kernel charges in batches, so the
        peak stays a little below the limit.
        """
        return self.read_peak_memory_bytes() >= limits.memory_bytes - limits.memory_bytes // 16

    def read_process_refusals(self) -> int:
        """How often the kernel refused a process or thread."""
        return _read_keyed(self.directories["pids"], "pids.events").get("max", 0)

    def read_peak_memory_bytes(self) -> int:
        """Highest memory use since the last `reset_peaks` (on v2: since the run began)."""
        directory = self.directories["memory"]
        name = "memory.max_usage_in_bytes" if self.versions["memory"] == 1 else "memory.peak"
        return _read_int(directory, name)

    def read_peak_processes(self) -> int:
        """Highest number of processes and threads of the program (0 where the kernel does not count)."""
        return max(0, _read_int(self.directories["pids"], "pids.peak") - _OWN_PROCESSES)

    def reset_peaks(self) -> None:
        """Start counting peak memory anew, where the kernel can."""
        if self.versions["memory"] == 1:
            with contextlib.suppress(OSError):
                _write(self.directories["memory"] / "memory.max_usage_in_bytes", 0)

    def list_processes(self) -> set[int]:
        """Host process ids in the group."""
        pids: set[int] = set()
        for file in self.procs_files:
            with contextlib.suppress(OSError):
                pids.update(int(pid) for pid in Path(file).read_text().split())
        return pids

    def kill(self) -> None:
        """Send SIGKILL to everything in the group. Killing pid 1 of the jail ends its whole namespace."""
        for pid in self.list_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def remove(self, *, patience_s: float = 5.0) -> None:
        """Remove the directories; the processes must be dying already.

        Raises:
            SandboxError: something still lives after `patience_s`.
        """
        deadline = time.monotonic() + patience_s
        for directory in dict.fromkeys(self.directories.values()):
            while not _remove_directory(directory):
                if time.monotonic() > deadline:
                    raise SandboxError(f"cgroup {directory} is still busy")
                self.kill()
                time.sleep(0.002)


class CgroupTree:
    """The subtrees of one service instance."""

    def __init__(self, state_dir: Path) -> None:
        self._locks = state_dir / "instances"
        self._instance = f"populora-{secrets.token_hex(6)}"
        self._lock_fd = -1
        self._roots: dict[str, Path] = {}
        self._versions: dict[str, int] = {}
        self._count = 0

    @property
    def folder(self) -> Path:
        """A folder for files of this instance; removed with its leftovers."""
        return self._locks / self._instance

    def start(self) -> None:
        """Clean up after dead instances, then make this instance's subtrees.

        Raises:
            SetupError: a controller is missing, or the service may not make cgroups.
        """
        self._locks.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self._locks)
        found = find_hierarchies(_MOUNTS.read_text(), _MEMBERSHIP.read_text())
        missing = [name for name in CONTROLLERS if name not in found]
        if missing:
            raise SetupError(
                f"no cgroup controller for {', '.join(missing)}: mount it (v1 or v2), or on systemd start the "
                "service in a unit with Delegate=yes"
            )
        self._versions = {name: found[name].version for name in CONTROLLERS}
        self._roots = {name: found[name].path / self._instance for name in CONTROLLERS}
        self._take_lock()
        try:
            for name, root in self._roots.items():
                if found[name].version == 2:
                    _delegate(found[name].path)
                root.mkdir(exist_ok=True)
                if found[name].version == 2:
                    _enable_controllers(root)
        except OSError as error:
            self.close()
            raise SetupError(
                f"no right to make cgroups: {error}. Run the service as root; or, with systemd and cgroup v2, type "
                "systemd-run --user --scope -p Delegate=yes -- python -m verifier_server serve"
            ) from error

    def _take_lock(self) -> None:
        """Make the lock file under another name first: a starting neighbour must never see it unlocked."""
        path = self._locks / f"{self._instance}.lock"
        draft = path.with_suffix(".draft")
        self._lock_fd = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(self._lock_fd, json.dumps(sorted({str(p) for p in self._roots.values()})).encode())
        draft.rename(path)

    def make_run(self, limits: Limits) -> RunCgroup:
        """Make the cgroups of one run with its limits.

        Raises:
            SandboxError: the kernel refused.
        """
        self._count += 1
        directories = {name: root / f"run-{self._count}" for name, root in self._roots.items()}
        run = RunCgroup(directories, self._versions)
        try:
            for directory in dict.fromkeys(directories.values()):
                directory.mkdir()
            run.set_limits(limits)
        except OSError as error:
            run.remove()
            raise SandboxError(f"cannot make a cgroup: {error}") from error
        return run

    def count_runs(self) -> int:
        """How many run cgroups exist."""
        root = self._roots.get("memory")
        return sum(1 for _ in root.glob("run-*")) if root and root.is_dir() else 0

    def close(self) -> None:
        """Kill what runs and remove the subtrees and the lock."""
        for root in dict.fromkeys(self._roots.values()):
            _remove_subtree(root)
        if self._lock_fd >= 0:
            (self._locks / f"{self._instance}.lock").unlink(missing_ok=True)
            os.close(self._lock_fd)
            self._lock_fd = -1


def remove_leftovers(locks: Path) -> list[str]:
    """Remove the subtrees of instances whose lock is free; return what was removed."""
    removed: list[str] = []
    for path in locks.glob("*.lock"):
        with contextlib.suppress(FileNotFoundError), path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            with contextlib.suppress(json.JSONDecodeError):
                for root in json.loads(file.read() or "[]"):
                    _remove_subtree(Path(root))
                    removed.append(root)
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)
    return removed


def _remove_subtree(root: Path) -> None:
    if not root.name.startswith("populora-") or not root.is_dir():
        return
    for directory in [*root.glob("run-*"), root]:
        with contextlib.suppress(SandboxError):
            RunCgroup({"any": directory}, {}).remove()


def _remove_directory(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.ENOTEMPTY):
            return False
        raise
    return True


def _delegate(directory: Path) -> None:
    """Let children of a v2 cgroup have controllers; its own processes then must sit in a leaf."""
    try:
        _enable_controllers(directory)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        leaf = directory / "populora-service"
        leaf.mkdir(exist_ok=True)
        for pid in (directory / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                _write(leaf / "cgroup.procs", pid)
        _enable_controllers(directory)


def _enable_controllers(directory: Path) -> None:
    names = set((directory / "cgroup.controllers").read_text().split()) & set(CONTROLLERS)
    _write(directory / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(names)))


def _write(path: Path, value: object) -> None:
    # One write call per value, as the kernel wants it.
    with path.open("w") as file:
        file.write(str(value))


def _read(directory: Path, name: str) -> str:
    """Read a small file of the kernel; these reads happen several times per case, so without file objects."""
    fd = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 14).decode()
    finally:
        os.close(fd)


def _read_int(directory: Path, name: str) -> int:
    try:
        return int(_read(directory, name))
    except (OSError, ValueError):
        return 0


def _read_keyed(directory: Path, name: str) -> dict[str, int]:
    """Read lines of `key number`; an absent file has no keys."""
    try:
        pairs = [line.split() for line in _read(directory, name).splitlines()]
    except OSError:
        return {}
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
