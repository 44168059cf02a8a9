"""How severe what a program tried is, and that telemetry never decides anything."""

import pytest

from verifier_server.audit.events import rate, rate_run
from verifier_server.domain import CaseRun, Evidence, HookEvent, Outcome, Severity


@pytest.mark.parametrize(
    ("event", "detail", "severity"),
    [
        ("open", "'/etc/shadow', 'r'", Severity.WARNING),
        ("open", "'/proc/self/mem', 'wb'", Severity.WARNING),
        ("open", "'out.txt', 'w'", Severity.INFO),
        ("socket.connect", "('169.254.169.254', 80)", Severity.WARNING),
        ("socket.socketpair", "", Severity.INFO),
        ("subprocess.Popen", "'id'", Severity.WARNING),
        ("ctypes.dlopen", "", Severity.WARNING),
        ("import", "ctypes", Severity.WARNING),
        ("import", "multiprocessing", Severity.NOTICE),
        ("os.fork", "", Severity.NOTICE),
        ("something.new", "", Severity.INFO),
    ],
)
def test_events_have_a_severity(event: str, detail: str, severity: Severity) -> None:
    assert rate(event, detail) is severity


def test_a_run_is_as_severe_as_the_worst_of_it() -> None:
    events = (HookEvent(event="os.fork", detail="", count=1), HookEvent(event="ctypes.dlopen", detail="", count=2))
    run = CaseRun(outcome=Outcome.COMPLETED, evidence=Evidence.SERVER, hook_events=events)
    assert rate_run(run) is Severity.WARNING
    denied = CaseRun(outcome=Outcome.SYSCALL_DENIED, evidence=Evidence.KERNEL, denied_syscall="bpf")
    assert rate_run(denied) is Severity.ALERT
    assert rate_run(CaseRun(outcome=Outcome.EXCEPTION, evidence=Evidence.GUEST_CLAIM)) is Severity.INFO
