"""How severe an event is that a program's own interpreter reported (PEP 578 audit hooks), or its outcome.

A program that owns its process can forge or suppress events, so nothing here ever decides a verdict. The table is read
from the top; the first prefix that fits counts.
"""

from verifier_server.domain import CaseRun, Outcome, Severity

_EVENTS: tuple[tuple[str, Severity], ...] = (
    # event or "event detail" prefix
    ("sys._current_frames", Severity.WARNING),
    ("sys.addaudithook", Severity.WARNING),
    ("sys.set", Severity.NOTICE),
    ("sys._getframe", Severity.INFO),
    ("socket.socketpair", Severity.INFO),
    ("socket.__new__", Severity.WARNING),
    ("socket.", Severity.WARNING),
    ("subprocess.", Severity.WARNING),
    ("os.system", Severity.WARNING),
    ("os.exec", Severity.WARNING),
    ("os.posix_spawn", Severity.WARNING),
    ("os.fork", Severity.NOTICE),
    ("os.kill", Severity.WARNING),
    ("signal.pthread_kill", Severity.NOTICE),
    ("ctypes.", Severity.WARNING),
    ("gc.get_", Severity.WARNING),
    ("pty.", Severity.WARNING),
    ("code.__new__", Severity.NOTICE),
    ("mmap.", Severity.NOTICE),
    ("fcntl.", Severity.NOTICE),
    ("resource.setrlimit", Severity.NOTICE),
    ("import ctypes", Severity.WARNING),
    ("import _ctypes", Severity.WARNING),
    ("import ", Severity.NOTICE),
)
_SECRETS = ("/proc", "/sys", "/etc", "/root", "/home", "/var", "/run", "/dev/shm", ".ssh", "/guest")  # noqa: S108
_OUTCOMES = {
    Outcome.SYSCALL_DENIED: Severity.ALERT,
    Outcome.PROCESS_LIMIT: Severity.WARNING,
    Outcome.INVALID_RESULT: Severity.NOTICE,
    Outcome.OUTPUT_LIMIT: Severity.NOTICE,
    Outcome.SIGNALED: Severity.NOTICE,
    Outcome.NO_RESULT: Severity.NOTICE,
}
_ORDER = list(Severity)


def rate(event: str, detail: str) -> Severity:
    """Return the severity of one event."""
    if event == "open":
        return Severity.WARNING if any(place in detail for place in _SECRETS) else Severity.INFO
    text = f"{event} {detail}"
    return next((severity for prefix, severity in _EVENTS if text.startswith(prefix)), Severity.INFO)


def rate_run(run: CaseRun) -> Severity:
    """Return the highest severity of a run: of its events and of its outcome."""
    severities = [rate(event.event, event.detail) for event in run.hook_events]
    severities.append(_OUTCOMES.get(run.outcome, Severity.INFO))
    if run.denied_syscall:  # from the kernel, so no program can hide it by ending otherwise
        severities.append(Severity.ALERT)
    return max(severities, key=_ORDER.index)
