"""From observations to outcomes: order of attribution, and that claims never improve a result."""

import pytest

from verifier_server.domain import Evidence, Limits, Mode, Outcome, Run, Usage
from verifier_server.judging import codec
from verifier_server.sandbox.outcome import Observation, classify

ONE = codec.encode_int(1)
V = ((b"V", ONE),)


def see(mode: Mode = Mode.CALL, **changes: object) -> tuple[Outcome, Evidence]:
    fields = {
        "wait_status": 0,
        "stopped_by": None,
        "oom_kills": 0,
        "process_refusals": 0,
        "frames": (),
        "frames_broken": False,
        "usage": Usage(),
        "hook_events": (),
        "stdout": b"",
        "stderr": b"",
    }
    run = Run(mode=mode, program=b"", entry_point="f", cases=(), limits=Limits())
    result = classify(Observation(**{**fields, **changes}), run)
    assert (result.value is None) == (result.outcome is not Outcome.COMPLETED or mode is not Mode.CALL)
    return result.outcome, result.evidence


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"frames": V}, (Outcome.COMPLETED, Evidence.SERVER)),
        # A kernel kill wins over a returned value: the parent may have survived its child.
        ({"frames": V, "oom_kills": 1}, (Outcome.MEMORY_LIMIT, Evidence.KERNEL)),
        ({"frames": V, "stopped_by": Outcome.OUTPUT_LIMIT}, (Outcome.OUTPUT_LIMIT, Evidence.SERVER)),
        ({"wait_status": None, "stopped_by": Outcome.CPU_TIMEOUT}, (Outcome.CPU_TIMEOUT, Evidence.KERNEL)),
        ({"wait_status": None, "stopped_by": Outcome.WALL_TIMEOUT}, (Outcome.WALL_TIMEOUT, Evidence.SERVER)),
        ({"wait_status": 31}, (Outcome.SYSCALL_DENIED, Evidence.KERNEL)),
        ({"wait_status": 24}, (Outcome.SIGNALED, Evidence.KERNEL)),
        ({"wait_status": 11, "frames": V}, (Outcome.SIGNALED, Evidence.KERNEL)),
        ({"wait_status": 0}, (Outcome.NO_RESULT, Evidence.KERNEL)),
        ({"wait_status": 3 << 8}, (Outcome.NO_RESULT, Evidence.KERNEL)),
        ({"wait_status": 1 << 8, "frames": V}, (Outcome.NO_RESULT, Evidence.KERNEL)),
        ({"frames": V + V}, (Outcome.INVALID_RESULT, Evidence.SERVER)),
        ({"frames": V, "frames_broken": True}, (Outcome.INVALID_RESULT, Evidence.SERVER)),
        ({"frames": ((b"V", b"junk"),)}, (Outcome.INVALID_RESULT, Evidence.SERVER)),
        ({"frames": ((b"A", b"{}"),)}, (Outcome.INVALID_RESULT, Evidence.SERVER)),
        ({"frames": ((b"X", b"E: e"),)}, (Outcome.EXCEPTION, Evidence.GUEST_CLAIM)),
        ({"frames": ((b"M", b"MemoryError"),)}, (Outcome.MEMORY_LIMIT, Evidence.GUEST_CLAIM)),
        ({"frames": ((b"X", b"E"),), "process_refusals": 2}, (Outcome.PROCESS_LIMIT, Evidence.KERNEL)),
        ({"frames": ((b"X", b"E"),) * 3, "process_refusals": 2}, (Outcome.PROCESS_LIMIT, Evidence.KERNEL)),
        # A refusal that the program survived is no failure.
        ({"frames": V, "process_refusals": 2}, (Outcome.COMPLETED, Evidence.SERVER)),
        ({"frames": ((b"V", codec.encode("x" * 20_000, 1 << 20)),)}, (Outcome.VALUE_LIMIT, Evidence.SERVER)),
    ],
)
def test_calls_are_attributed(seen: dict[str, object], expected: tuple[Outcome, Evidence]) -> None:
    assert see(**seen) == expected


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({}, (Outcome.COMPLETED, Evidence.KERNEL)),
        ({"wait_status": 256}, (Outcome.NO_RESULT, Evidence.KERNEL)),
        ({"frames": V}, (Outcome.INVALID_RESULT, Evidence.SERVER)),
        ({"frames": ((b"X", b"E"),), "wait_status": 256}, (Outcome.EXCEPTION, Evidence.GUEST_CLAIM)),
    ],
)
def test_scripts_are_attributed(seen: dict[str, object], expected: tuple[Outcome, Evidence]) -> None:
    assert see(Mode.SCRIPT, **seen) == expected
