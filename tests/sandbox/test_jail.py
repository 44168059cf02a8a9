"""What a program sees and gets in a jail, and what one case does to the next."""

import os
import time
from pathlib import Path

import pytest

from benchmarks.harness import MemoryCap
from tests.conftest import MIB, EngineThread, make_run
from verifier_server.domain import Mode, Outcome

VALUES = {
    "nothing_but_the_image": (
        "import os\ndef f(): return sorted(os.listdir('/'))",
        ["dev", "guest", "lib", "lib64", "tmp", "usr"],
    ),
    "no_proc_no_sys": (
        "import os\ndef f(): return [os.path.exists(p) for p in ('/proc', '/sys', '/etc/passwd', '/root', '/dev/shm')]",
        [False] * 5,
    ),
    "three_devices": ("import os\ndef f(): return sorted(os.listdir('/dev'))", ["null", "urandom", "zero"]),
    "no_secrets_in_the_environment": (
        "import os\ndef f(): return sorted(os.environ)",
        ["HOME", "LANG", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH", "PYTHONUTF8"],
    ),
    "four_descriptors": (
        "import os\ndef f():\n  found = []\n  for fd in range(1024):\n    try: os.fstat(fd)\n    except OSError: continue\n    found.append(fd)\n  return found",
        [0, 1, 2, 3],
    ),
    "not_root_inside": ("import os\ndef f(): return [os.getuid(), os.geteuid(), os.getgid()]", [65534] * 3),
    "not_pid_one": ("import os\ndef f(): return os.getpid() > 1 and os.getppid() == 1", True),
    "limits_seen_from_inside": (
        "import resource as r\ndef f(): return [r.getrlimit(r.RLIMIT_CORE), r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_FSIZE)]",
        [(0, 0), (256, 256), (8 * MIB, 8 * MIB)],
    ),
    "limits_cannot_be_raised": (
        "import resource as r\ndef f():\n  try: r.setrlimit(r.RLIMIT_NOFILE, (9, 9))\n  except (PermissionError, ValueError): return 'denied'",
        "denied",
    ),
    "no_priority_change": (
        "import os\ndef f():\n  try: os.nice(-5)\n  except PermissionError: return 'denied'",
        "denied",
    ),
    "no_affinity_change": (
        "import os\ndef f():\n  try: os.sched_setaffinity(0, {0})\n  except PermissionError: return 'denied'",
        "denied",
    ),
    "root_is_read_only": (
        "def f():\n  try: open('/guest/run.py', 'a')\n  except OSError as e: return e.errno in (13, 30)",
        True,
    ),
    "socketpair_works": (
        "import socket\ndef f():\n  a, b = socket.socketpair()\n  a.send(b'x')\n  return b.recv(1)",
        b"x",
    ),
    "asyncio_works": (
        "import asyncio\nasync def g(): await asyncio.sleep(0.01); return 7\ndef f(): return asyncio.run(g())",
        7,
    ),
    "threads_work": (
        "import threading\ndef f():\n  out = []\n  t = threading.Thread(target=out.append, args=(1,))\n  t.start(); t.join()\n  return out",
        [1],
    ),
    "random_is_fresh": (
        "import random, os, uuid\ndef f(): return len({random.random(), os.urandom(4), uuid.uuid1(), uuid.uuid4()})",
        4,
    ),
    "main_is_not_the_program": ("def f(): return __name__", "program"),
    "no_guest_code_on_the_path": ("import sys\ndef f(): return [p for p in sys.path if 'guest' in p]", []),
    "exit_status_zero_device": (
        "def f(): return open('/dev/zero', 'rb').read(2) + open('/dev/null', 'rb').read()",
        b"\0\0",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_a_program_sees(engine: EngineThread, name: str) -> None:
    from verifier_server.judging import codec

    program, expected = VALUES[name]
    result = engine.run(make_run(program))[0]
    assert result.value is not None, result
    assert codec.decode(result.value) == expected


def test_cases_of_one_call_lose_only_the_bad_one(engine: EngineThread) -> None:
    """[ok, hang, ok], [ok, out of memory, ok] and [ok, kill(-1), ok]: the jail is replaced, the rest goes on."""
    from dataclasses import replace

    from verifier_server.domain import CaseInput
    from verifier_server.judging import literals

    program = (
        "import os\nheld = []\ndef f(what):\n  if what == 'hang':\n    while True: pass\n"
        "  while what == 'memory': held.append(b'x' * 10**6)\n  if what == 'kill': os.kill(-1, 9), os.kill(os.getpid(), 9)\n  return what"
    )
    words = ["a", "hang", "b", "memory", "c", "kill", "d"]
    cases = tuple(CaseInput(positional=literals.parse_arguments(repr(word)).positional) for word in words)
    results = engine.run(replace(make_run(program, cpu_time_s=0.3), cases=cases))
    assert [r.outcome for r in results] == [
        Outcome.COMPLETED,
        Outcome.CPU_TIMEOUT,
        Outcome.COMPLETED,
        Outcome.MEMORY_LIMIT,
        Outcome.COMPLETED,
        Outcome.EXCEPTION,
        Outcome.COMPLETED,
    ]


def test_nothing_of_one_case_is_seen_by_the_next(engine: EngineThread) -> None:
    program = (
        "import builtins, os, time\ndef f():\n  seen = [hasattr(builtins, 'mark'), os.path.exists('mark'), os.environ.get('MARK')]\n"
        "  builtins.mark = 1\n  open('mark', 'w').close()\n  os.environ['MARK'] = '1'\n"
        "  if os.fork() == 0:\n    os.setsid()\n    time.sleep(9)\n  return seen"
    )
    results = engine.run(make_run(program, cases=3))
    assert {r.value for r in results} == {b"L\3FFN"}


def test_standard_input_is_real(engine: EngineThread) -> None:
    program = "import sys, os\na = input()\nb = sys.stdin.buffer.readline()\nprint(a, b, open(0).read(), sep='|')"
    result = engine.run(make_run(program, mode=Mode.SCRIPT, stdin=b"one\ntwo\nthree"))[0]
    assert result.outcome is Outcome.COMPLETED
    assert result.stdout == b"one|b'two\\n'|three\n" or result.stdout.startswith(b"one|")


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 131_072, 200_000, 1 << 20])
def test_output_of_any_size_below_the_limit_is_complete(engine: EngineThread, size: int) -> None:
    program = f"import sys\nsys.stdout.write('a' * {size})"
    result = engine.run(make_run(program, mode=Mode.SCRIPT, output_bytes=2 * MIB))[0]
    assert (result.outcome, len(result.stdout)) == (Outcome.COMPLETED, size)


def test_a_large_standard_input_that_nobody_reads_is_no_error(engine: EngineThread) -> None:
    result = engine.run(make_run("print('done')", mode=Mode.SCRIPT, stdin=b"x" * MIB))[0]
    assert (result.outcome, result.stdout) == (Outcome.COMPLETED, b"done\n")


def test_output_before_a_timeout_is_kept(engine: EngineThread) -> None:
    result = engine.run(make_run("print('hi', flush=True)\nwhile True: pass", mode=Mode.SCRIPT, cpu_time_s=0.2))[0]
    assert (result.outcome, result.stdout) == (Outcome.CPU_TIMEOUT, b"hi\n")


@pytest.mark.parametrize("limit", [0.1, 0.25, 0.5])
def test_limits_below_a_second_are_kept_within_50_ms(engine: EngineThread, limit: float) -> None:
    slept = engine.run(make_run("import time\ndef f(): time.sleep(9)", wall_time_s=limit))[0]
    spun = engine.run(make_run("def f():\n  while True: pass", cpu_time_s=limit))[0]
    assert limit <= slept.usage.wall_s < limit + 0.05
    assert limit <= spun.usage.cpu_s < limit + 0.05


def test_a_busy_neighbour_causes_no_false_timeout(engine: EngineThread) -> None:
    """32 spinning processes in the other slot: a program of a few milliseconds of CPU still completes."""
    spinner = make_run(
        "import os\ndef f():\n  for _ in range(5): os.fork()\n  while True: pass",
        processes=40,
        cpu_time_s=3.0,
        wall_time_s=8.0,
    )
    neighbour = engine.submit(spinner, slot=1)
    time.sleep(0.3)
    results = [engine.run(make_run("def f(): return sum(range(10**5))", cpu_time_s=1.0))[0] for _ in range(5)]
    assert {r.outcome for r in results} == {Outcome.COMPLETED}
    assert neighbour.result(timeout=30)[0].outcome is Outcome.CPU_TIMEOUT


def test_what_a_program_tries_is_recorded(engine: EngineThread) -> None:
    program = "import socket, os\ndef f():\n  try: socket.socket()\n  except OSError: pass\n  try: open('/etc/shadow')\n  except OSError: pass"
    events = engine.run(make_run(program))[0].hook_events
    assert {"socket.__new__", "open"} <= {event.event for event in events}
    assert any("/etc/shadow" in event.detail for event in events)


def test_hash_seeds_differ_as_asked_and_are_not_visible(engine: EngineThread) -> None:
    program = "import os\ndef f(): return [hash('x'), os.environ.get('PYTHONHASHSEED')]"
    one, same, other = (engine.run(make_run(program, hash_seed=seed))[0].value for seed in (1, 1, 2))
    assert one == same != other
    assert one.endswith(b"N")


def test_the_clock_can_be_shifted(engine: EngineThread) -> None:
    program = "import time, datetime\ndef f(): return [int(time.time()), datetime.datetime.now().year, time.localtime().tm_year]"
    from verifier_server.judging import codec

    now, then = (codec.decode(engine.run(make_run(program, clock_shift_s=s))[0].value) for s in (0, 800 * 86_400))
    assert 800 * 86_400 - 60 <= then[0] - now[0] <= 800 * 86_400 + 60
    assert then[1] > now[1]
    assert then[2] > now[2]


def test_files_of_one_case_are_not_seen_by_the_next(engine: EngineThread) -> None:
    program = "import os\ndef f():\n  open('/tmp/mark', 'w').close()\n  return len(os.listdir('/tmp'))"
    results = engine.run(make_run(program, cases=3))
    assert {r.value for r in results} == {b"I\0\1\2"}  # the working folder and the mark


def test_a_case_that_uses_up_all_files_does_not_fail_the_next(engine: EngineThread) -> None:
    program = (
        "def f():\n  try:\n    for i in range(10**6): open(f'/tmp/{i}', 'w').close()\n  except OSError: return 'full'"
    )
    assert [r.outcome for r in engine.run(make_run(program, cases=2))] == [Outcome.COMPLETED] * 2


def test_a_closed_frame_socket_costs_the_service_nothing(engine: EngineThread) -> None:
    """An end of file must not make the event loop spin while the program sleeps."""
    program = "import socket, time\ndef f():\n  socket.socket(fileno=3).shutdown(socket.SHUT_WR)\n  time.sleep(9)"
    before = time.process_time()
    result = engine.run(make_run(program, wall_time_s=1.5))[0]
    assert result.outcome is Outcome.WALL_TIMEOUT
    assert time.process_time() - before < 0.5


def test_datetime_under_a_shifted_clock_is_still_datetime(engine: EngineThread) -> None:
    program = (
        "import datetime as d\nfrom datetime import date, datetime\ndef f():\n  x = datetime(2020, 1, 2, 3)\n"
        "  return [repr(x), str([x.date()]), isinstance(x, date), isinstance(x.date(), date), isinstance(d.datetime.now(), datetime),"
        " issubclass(datetime, date), (x - datetime(2020, 1, 1)).days, datetime.fromisoformat('2020-01-01').year, type(x).__name__]"
    )
    plain, shifted = (engine.run(make_run(program, clock_shift_s=s))[0] for s in (0, 86_400))
    assert plain.value == shifted.value is not None


def test_folders_of_one_case_are_not_seen_by_the_next(engine: EngineThread) -> None:
    program = "import os\ndef f():\n  for i in range(5): os.mkdir(f'/tmp/left{i}')\n  return len(os.listdir('/tmp'))"
    results = engine.run(make_run(program, cases=3))
    assert {r.value for r in results} == {b"I\0\1\6"}  # the working folder and five others


@pytest.mark.parametrize(
    "harm",
    [
        "s = socket.socket(fileno=3); s.shutdown(socket.SHUT_RD); s.detach()",
        "s = socket.socket(fileno=3); s.shutdown(socket.SHUT_RDWR); s.detach()",
        "os.set_blocking(3, False)",
        "os.close(3)",
        "os.dup2(1, 3)",
    ],
)
def test_what_a_case_does_to_the_frame_socket_does_not_reach_the_next(engine: EngineThread, harm: str) -> None:
    from dataclasses import replace

    from verifier_server.domain import CaseInput
    from verifier_server.judging import literals

    program = f"import os, socket\ndef f(x):\n  if x == 1:\n    {harm}\n  return x"
    cases = tuple(CaseInput(positional=literals.parse_arguments(str(n)).positional) for n in (0, 1, 2, 3))
    results = engine.run(replace(make_run(program), cases=cases))
    assert [results[n].value for n in (0, 2, 3)] == [b"I\0\0", b"I\0\1\2", b"I\0\1\3"]


def test_a_service_with_many_descriptors_hands_none_of_them_over(state_dir: Path, memory_cap: MemoryCap) -> None:
    """Numbers beyond 256 once stayed open in the program: it could end its own case, or the jail."""
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(400)]
    try:
        with memory_cap.inside():
            busy = EngineThread(state_dir)
        program = "import os\ndef f():\n  found = []\n  for fd in range(4096):\n    try: os.fstat(fd)\n    except OSError: continue\n    found.append(fd)\n  return found"
        assert busy.run(make_run(program))[0].value == b"L\4I\0\0I\0\1\1I\0\1\2I\0\1\3"
        busy.close()
    finally:
        for fd in held:
            os.close(fd)


def test_a_flood_of_small_frames_does_not_hold_up_the_service(engine: EngineThread) -> None:
    program = "import os\nD = b'H\\0\\0\\0\\0' * 100000\ndef f():\n  while True: os.write(3, D)"
    before = time.process_time()
    result = engine.run(make_run(program, value_bytes=16 * MIB, memory_bytes=256 * MIB))[0]
    assert result.outcome is Outcome.OUTPUT_LIMIT
    assert time.process_time() - before < 0.5
