"""Whose doing it was: what the host does to a run is trouble of the service, never a verdict on the program."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.harness import MemoryCap
from tests.conftest import MIB, EngineThread, make_run
from tests.contract.helpers import wait_until
from verifier_server.domain import Evidence, Outcome
from verifier_server.errors import SandboxError
from verifier_server.judging import codec
from verifier_server.sandbox.denials import DenialLog
from verifier_server.sandbox.seccomp import HOSTILE, name_syscall

SLOW = "import time\ndef f():\n  time.sleep(0.5)\n  return 'done'"


def read_status(pid: int, key: str) -> str:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""
    return text.split(f"{key}:")[1].split("\n")[0].strip()


def find_program(engine: EngineThread, inner_pid: Callable[[int], bool]) -> int:
    """The host's number of the jailed process whose number inside satisfies `inner_pid`."""
    for pid in engine.engine.list_processes():
        numbers = read_status(pid, "NSpid").split()
        if len(numbers) > 1 and inner_pid(int(numbers[-1])) and "sleep" in Path(f"/proc/{pid}/wchan").read_text():
            return pid
    return 0


def test_a_program_that_the_host_kills_is_run_again(engine: EngineThread) -> None:
    future = engine.submit(make_run(SLOW))
    wait_until(lambda: find_program(engine, lambda number: number > 1))
    os.kill(find_program(engine, lambda number: number > 1), signal.SIGKILL)
    result = future.result(timeout=20)[0]
    assert (result.outcome, result.value) == (Outcome.COMPLETED, codec.encode("done", 99))


def test_a_jail_that_the_host_kills_again_and_again_is_trouble_of_the_service(engine: EngineThread) -> None:
    future = engine.submit(make_run(SLOW))
    while not future.done():
        for jail in list(engine.engine._jails):
            if jail._process.poll() is None:
                jail._process.kill()
        time.sleep(0.01)
    with pytest.raises(SandboxError):
        future.result()
    assert engine.run(make_run("def f(): return 1"))[0].outcome is Outcome.COMPLETED


def test_a_program_that_kills_itself_is_not_the_host(engine: EngineThread) -> None:
    result = engine.run(make_run("import os\ndef f(): os.kill(os.getpid(), 9)"))[0]
    assert (result.outcome, result.evidence, result.signal) == (Outcome.SIGNALED, Evidence.KERNEL, 9)


def test_memory_that_runs_out_above_the_run_is_trouble_of_the_service(tmp_path: Path, state_dir: Path) -> None:
    """The group above has 96 MiB, the run may use 512: the kernel kills in the run's group, but not for its limit."""
    cap = MemoryCap(96 * MIB)
    with cap.inside():
        small = EngineThread(state_dir)
    try:
        hungry = "def f():\n  held = []\n  while True: held.append(bytearray(b'x' * 65536))"
        with pytest.raises(SandboxError, match="lost"):
            small.run(make_run(hungry, memory_bytes=512 * MIB))
        own = small.run(make_run(hungry, memory_bytes=48 * MIB, tmp_bytes=MIB))[0]
        assert (own.outcome, own.evidence) == (Outcome.MEMORY_LIMIT, Evidence.KERNEL)
    finally:
        small.close()
        cap.remove()


def test_threads_may_use_more_cpu_than_the_clock_shows_only_up_to_one_core(engine: EngineThread) -> None:
    program = (
        "import hashlib, threading\ndef g(): hashlib.pbkdf2_hmac('sha256', b'x', b'y', 150000)\n"
        "def f():\n  all_ = [threading.Thread(target=g) for _ in range(4)]\n  [t.start() for t in all_]\n  [t.join() for t in all_]\n  return 1"
    )
    usage = engine.run(make_run(program, cpu_time_s=5.0, wall_time_s=15.0))[0].usage
    assert 0.05 < usage.cpu_s < usage.wall_s + 0.25  # the quota is one core per 100 ms


@pytest.mark.parametrize("limit_s", [0.99, 1.0, 1.01])
def test_a_program_that_ends_exactly_at_its_limit_is_no_trouble(engine: EngineThread, limit_s: float) -> None:
    outcome = engine.run(make_run("import time\ndef f(): time.sleep(1)", wall_time_s=limit_s))[0].outcome
    assert outcome in (Outcome.COMPLETED, Outcome.WALL_TIMEOUT)


def test_two_slots_do_not_mix_up_their_denied_calls(engine: EngineThread) -> None:
    form = "import ctypes, time\ndef f():\n  time.sleep(0.05)\n  ctypes.CDLL(None).syscall({}, 0, 0, 0, 0)"
    numbers = {0: HOSTILE["bpf"], 1: HOSTILE["mount"]}
    for _ in range(5):
        futures = {slot: engine.submit(make_run(form.format(n)), slot) for slot, n in numbers.items()}
        names = {slot: future.result(timeout=20)[0].denied_syscall for slot, future in futures.items()}
        assert names == {0: "bpf", 1: "mount"}


def test_without_the_right_to_read_records_the_call_stays_unnamed() -> None:
    import asyncio

    log = DenialLog()  # not started, as for a user without the right
    assert asyncio.run(log.find(100_000, wait=True)) == ""


@pytest.mark.parametrize(
    ("architecture", "number", "name"),
    [
        (0xC000003E, 101, "ptrace"),
        (0xC000003E, 56, "clone"),
        (0xC000003E, 1000, "syscall 1000"),
        (0x40000003, 20, "32-bit syscall 20"),
    ],
)
def test_denied_calls_have_names(architecture: int, number: int, name: str) -> None:
    assert name_syscall(architecture, number) == name


def test_a_burst_of_programs_has_no_false_outcome(engine: EngineThread) -> None:
    """100 trivial programs with a limit of one second, two slots: all complete (start-up is not their time)."""
    outcomes: list[Outcome] = []

    def work(slot: int) -> None:
        for _ in range(50):
            outcomes.append(engine.run(make_run("def f(): pass", wall_time_s=1.0, cpu_time_s=1.0), slot)[0].outcome)

    threads = [threading.Thread(target=work, args=(slot,)) for slot in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [Outcome.COMPLETED] * 100


def test_a_kill_hides_nothing_of_the_first_try(engine: EngineThread) -> None:
    """A second try starts in a fresh jail; what the first one tried and used stays on record."""
    program = (
        "import ctypes, os, time\ndef f():\n  if os.getpid() % 2 or True:\n    try: open('/etc/mark')\n    except OSError: pass\n"
        "    if os.fork() == 0: ctypes.CDLL(None).syscall(101, 0)\n    os.wait()\n    time.sleep(0.1)\n    os.kill(os.getpid(), 9)"
    )
    result = engine.run(make_run(program))[0]
    assert (result.outcome, result.signal, result.tries, result.denied_syscall) == (Outcome.SIGNALED, 9, 2, "ptrace")
    assert any("/etc/mark" in event.detail for event in result.hook_events)
    assert result.usage.wall_s > 0.2  # twice a tenth of a second


def test_the_number_of_a_process_does_not_tell_its_case(engine: EngineThread) -> None:
    """First cases are spread over 128 numbers, so that later ones are not beyond what a first one can have."""
    first = [codec.decode(engine.run(make_run("import os\ndef f(): return os.getpid()"))[0].value) for _ in range(12)]
    assert max(first) - min(first) > 20
    assert max(first) <= 2 + 2 + 127
