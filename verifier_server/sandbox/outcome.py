"""From what was observed of a case to its outcome. Pure.

Order of attribution: kernel memory kill, output, time, seccomp, signal, then what the program says of itself. A
claim of the program can label a failure; a COMPLETED call needs a value that passes the strict check.
"""

import os
import signal
from dataclasses import dataclass

from verifier_server.domain import CaseRun, Evidence, HookEvent, Mode, Outcome, Run, Usage
from verifier_server.judging import codec

Conclusion = tuple[Outcome, Evidence]

_CLAIMS = {
    b"X": Outcome.EXCEPTION,
    b"S": Outcome.SYNTAX_ERROR,
    b"E": Outcome.NO_ENTRY_POINT,
    b"I": Outcome.INVALID_RESULT,
    b"L": Outcome.VALUE_LIMIT,
    b"M": Outcome.MEMORY_LIMIT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything known about a case when it is over."""

    wait_status: int | None
    """Of the program's process, from the supervisor; None if the jail was killed first."""
    stopped_by: Outcome | None
    """The limit for which the service killed the jail, if it did."""
    oom_kills: int
    process_refusals: int
    frames: tuple[tuple[bytes, bytes], ...]
    """Result frames (kind, payload), without hook events."""
    frames_broken: bool
    """Bytes on the frame descriptor were not frames, or too many."""
    usage: Usage
    hook_events: tuple[HookEvent, ...]
    stdout: bytes
    stderr: bytes
    denied_syscall: str = ""


def classify(seen: Observation, run: Run) -> CaseRun:
    """Return what the program did."""
    mode = run.mode
    value = analysis = None
    outcome, evidence = _by_kernel_or_service(seen) or _by_claim(seen, mode)
    if outcome is Outcome.COMPLETED and mode is Mode.CALL:
        value = seen.frames[0][1]
        try:
            codec.check(value, max_bytes=run.limits.value_bytes, lenient=run.lenient)
        except codec.TooLargeError:
            outcome, evidence, value = Outcome.VALUE_LIMIT, Evidence.SERVER, None
        except codec.EncodingError:
            outcome, evidence, value = Outcome.INVALID_RESULT, Evidence.SERVER, None
    if outcome is Outcome.COMPLETED and mode is Mode.ANALYZE:
        analysis = seen.frames[0][1]
    status = seen.wait_status
    return CaseRun(
        outcome=outcome,
        evidence=evidence,
        value=value,
        analysis=analysis,
        claim=_read_claim(seen),
        exit_status=os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else 0,
        signal=os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else 0,
        usage=seen.usage,
        denied_syscall=seen.denied_syscall,
        hook_events=seen.hook_events,
        stdout=seen.stdout,
        stderr=seen.stderr,
    )


def _by_kernel_or_service(seen: Observation) -> Conclusion | None:
    if seen.oom_kills:
        return Outcome.MEMORY_LIMIT, Evidence.KERNEL
    if seen.stopped_by is not None:
        evidence = Evidence.KERNEL if seen.stopped_by is Outcome.CPU_TIMEOUT else Evidence.SERVER
        return seen.stopped_by, evidence
    status = seen.wait_status
    if status is None or not os.WIFSIGNALED(status):
        return None
    if os.WTERMSIG(status) == signal.SIGSYS:
        return Outcome.SYSCALL_DENIED, Evidence.KERNEL
    return Outcome.SIGNALED, Evidence.KERNEL


def _by_claim(seen: Observation, mode: Mode) -> Conclusion:
    """The process exited by itself: read its frames with suspicion."""
    exit_status = os.WEXITSTATUS(seen.wait_status or 0)
    kinds = [kind for kind, _ in seen.frames]
    expected = {Mode.CALL: [b"V"], Mode.ANALYZE: [b"A"], Mode.SCRIPT: [], Mode.ASSERT: [b"D"]}[mode]
    if kinds == expected and exit_status == 0 and not seen.frames_broken:
        return Outcome.COMPLETED, Evidence.SERVER if mode is Mode.CALL else Evidence.KERNEL
    if seen.process_refusals and kinds != [b"S"]:
        return Outcome.PROCESS_LIMIT, Evidence.KERNEL
    if seen.frames_broken or len(kinds) > 1:
        return Outcome.INVALID_RESULT, Evidence.SERVER
    if kinds and kinds[0] in _CLAIMS:
        return _CLAIMS[kinds[0]], Evidence.GUEST_CLAIM
    if kinds and kinds != expected:
        return Outcome.INVALID_RESULT, Evidence.SERVER
    return Outcome.NO_RESULT, Evidence.KERNEL


def _read_claim(seen: Observation) -> str:
    for kind, payload in seen.frames:
        if kind in _CLAIMS:
            return payload[:500].decode("utf-8", "backslashreplace")
    return ""
