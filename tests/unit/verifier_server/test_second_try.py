"""A case that ran twice: the second try decides, nothing of the first is lost."""

from verifier_server.domain import CaseRun, Evidence, HookEvent, Outcome, Usage
from verifier_server.sandbox.nsjail import _join


def test_what_the_first_try_did_stays_on_record() -> None:
    first = CaseRun(
        outcome=Outcome.SIGNALED,
        evidence=Evidence.KERNEL,
        signal=9,
        denied_syscall="ptrace",
        hook_events=(HookEvent(event="open", detail="/etc/mark", count=4), HookEvent(event="x", detail="y", count=8)),
        usage=Usage(wall_s=1.0, cpu_s=0.5, peak_memory_bytes=200),
    )
    second = CaseRun(
        outcome=Outcome.COMPLETED,
        evidence=Evidence.SERVER,
        value=b"N",
        hook_events=(HookEvent(event="x", detail="y", count=1),),
        usage=Usage(wall_s=2.0, cpu_s=0.25, peak_memory_bytes=100),
    )
    joined = _join(first, second)
    assert (joined.outcome, joined.value, joined.signal, joined.tries) == (Outcome.COMPLETED, b"N", 0, 2)
    assert joined.denied_syscall == "ptrace"
    assert {(e.event, e.count) for e in joined.hook_events} == {("open", 4), ("x", 8)}
    assert (joined.usage.wall_s, joined.usage.cpu_s, joined.usage.peak_memory_bytes) == (3.0, 0.75, 200)
