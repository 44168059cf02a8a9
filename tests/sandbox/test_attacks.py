"""Hostile programs: one property each, the exact outcome, and a bound on the time until the reply.

All run under a memory limit of their own cgroup (128 MiB unless said otherwise).
"""

import time
from dataclasses import dataclass, field

import pytest

from tests.conftest import MIB, EngineThread, make_run
from verifier_server.domain import Evidence, Mode, Outcome

K, S, G = Evidence.KERNEL, Evidence.SERVER, Evidence.GUEST_CLAIM
SYSCALL = "import ctypes\ndef f():\n    return ctypes.CDLL(None).syscall({}, {})\n"


@dataclass(frozen=True)
class Attack:
    name: str
    program: str
    outcome: Outcome
    evidence: Evidence
    bound_s: float = 1.5
    limits: dict = field(default_factory=dict)
    signal: int | None = None


ATTACKS = [
    # --- resources
    Attack("fork_bomb", "import os\ndef f():\n  while True: os.fork()", Outcome.PROCESS_LIMIT, K),
    Attack(
        "fork_bomb_that_catches",
        "import os, time\ndef f():\n  while True:\n    try: os.fork()\n    except OSError: time.sleep(1)",
        Outcome.WALL_TIMEOUT,
        S,
        1.5,
        {"wall_time_s": 0.5, "cpu_time_s": 60.0},
    ),
    Attack(
        "thread_bomb",
        "import threading, time\ndef f():\n  while True: threading.Thread(target=time.sleep, args=(9,)).start()",
        Outcome.PROCESS_LIMIT,
        K,
    ),
    Attack("ten_gigabytes_at_once", "def f(): return len(bytearray(10 << 30))", Outcome.MEMORY_LIMIT, G),
    Attack(
        "memory_page_by_page",
        "def f():\n  held = []\n  while True: held.append(bytearray(b'x' * 65536))",
        Outcome.MEMORY_LIMIT,
        K,
    ),
    Attack(
        "memory_in_a_grandchild_parent_survives",
        "import os\ndef f():\n  if os.fork() == 0:\n    held = []\n    while True: held.append(b'x' * 10**6)\n  os.wait()\n  return 1",
        Outcome.MEMORY_LIMIT,
        K,
    ),
    Attack(
        "memory_split_over_children",
        "import os, time\ndef f():\n  for _ in range(8):\n    if os.fork() == 0:\n      held = bytearray(b'x' * (30 << 20))\n      time.sleep(9)\n  time.sleep(9)",
        Outcome.MEMORY_LIMIT,
        K,
        6.0,
    ),
    Attack(
        "memory_in_tmp",
        "def f():\n  for i in range(60):\n    open(str(i), 'wb').write(b'x' * (1 << 20))",
        Outcome.EXCEPTION,
        G,
    ),
    Attack(
        "memory_error_is_caught",
        "def f():\n  try: bytearray(10 << 30)\n  except MemoryError: return 'caught'",
        Outcome.COMPLETED,
        S,
    ),
    Attack(
        "recursion_without_limit",
        "import sys\nsys.setrecursionlimit(10**9)\ndef g(): return [g()]\ndef f(): return g()",
        Outcome.MEMORY_LIMIT,
        K,
        8.0,
        {"cpu_time_s": 6.0, "wall_time_s": 8.0},
    ),
    Attack("print_forever", "def f():\n  while True: print('x' * 1000)", Outcome.OUTPUT_LIMIT, S),
    Attack("one_endless_line", "import os\ndef f():\n  while True: os.write(1, b'x' * 10**6)", Outcome.OUTPUT_LIMIT, S),
    Attack("stderr_flood", "import sys\ndef f():\n  while True: sys.stderr.write('x' * 1000)", Outcome.OUTPUT_LIMIT, S),
    Attack("busy_loop", "def f():\n  while True: pass", Outcome.CPU_TIMEOUT, K, 1.2, {"cpu_time_s": 0.3}),
    Attack("busy_loop_in_c", "def f(): return 10**10**8", Outcome.CPU_TIMEOUT, K, 1.2, {"cpu_time_s": 0.3}),
    Attack(
        "regular_expression_bomb",
        "import re\ndef f(): return re.match('(a+)+$', 'a' * 40 + 'b')",
        Outcome.CPU_TIMEOUT,
        K,
        1.2,
        {"cpu_time_s": 0.3},
    ),
    Attack(
        "busy_children",
        "import os\ndef f():\n  for _ in range(8):\n    if os.fork() == 0:\n      while True: pass\n  os.wait()",
        Outcome.CPU_TIMEOUT,
        K,
        1.5,
        {"cpu_time_s": 0.3},
    ),
    Attack("sleep", "import time\ndef f(): time.sleep(10**6)", Outcome.WALL_TIMEOUT, S, 0.8, {"wall_time_s": 0.2}),
    Attack(
        "stop_itself",
        "import os\ndef f(): os.kill(os.getpid(), 19)",
        Outcome.WALL_TIMEOUT,
        S,
        0.8,
        {"wall_time_s": 0.2},
    ),
    Attack(
        "swallow_everything",
        "def f():\n  while True:\n    try:\n      while True: pass\n    except BaseException: pass",
        Outcome.CPU_TIMEOUT,
        K,
        1.2,
        {"cpu_time_s": 0.3},
    ),
    Attack(
        "ignore_all_signals",
        "import signal\ndef f():\n  for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n  while True: pass",
        Outcome.CPU_TIMEOUT,
        K,
        1.2,
        {"cpu_time_s": 0.3},
    ),
    Attack(
        "fill_tmp",
        "def f():\n  with open('x', 'wb') as file:\n    while True: file.write(b'x' * 65536)",
        Outcome.EXCEPTION,
        G,
    ),
    Attack(
        "sparse_petabyte",
        "import os\ndef f(): os.truncate(os.open('x', os.O_CREAT | os.O_WRONLY), 1 << 50)",
        Outcome.EXCEPTION,
        G,
    ),
    Attack("inode_flood", "def f():\n  for i in range(10**6): open(str(i), 'w').close()", Outcome.EXCEPTION, G),
    Attack(
        "descriptor_flood", "def f():\n  held = []\n  while True: held.append(open('/dev/null'))", Outcome.EXCEPTION, G
    ),
    Attack("value_too_large", "def f(): return 'x' * 10**6", Outcome.VALUE_LIMIT, G),
    # --- results
    Attack("exit_zero", "import os\ndef f(): os._exit(0)", Outcome.NO_RESULT, K),
    Attack("exit_zero_at_import", "import os\nos._exit(0)", Outcome.NO_RESULT, K),
    Attack("system_exit", "def f(): raise SystemExit(0)", Outcome.NO_RESULT, K),
    Attack("system_exit_in_import", "import sys\nsys.exit(0)", Outcome.NO_RESULT, K),
    Attack("skip_test", "import unittest\ndef f(): raise unittest.SkipTest", Outcome.EXCEPTION, G),
    Attack(
        "always_equal",
        "class A:\n  def __eq__(self, other): return True\n  __hash__ = None\ndef f(): return A()",
        Outcome.INVALID_RESULT,
        G,
    ),
    Attack(
        "subclass_of_int",
        "class I(int):\n  def __eq__(self, other): return True\ndef f(): return I(3)",
        Outcome.INVALID_RESULT,
        G,
    ),
    Attack("class_lies_about_itself", "class A:\n  __class__ = int\ndef f(): return A()", Outcome.INVALID_RESULT, G),
    Attack("generator", "def f(): return (x for x in [1])", Outcome.INVALID_RESULT, G),
    Attack("self_reference", "def f():\n  a = []\n  a.append(a)\n  return a", Outcome.INVALID_RESULT, G),
    Attack(
        "million_deep", "def f():\n  a = []\n  for _ in range(10**6): a = [a]\n  return a", Outcome.INVALID_RESULT, G
    ),
    Attack(
        "two_frames", "import os\ndef f():\n  os.write(3, b'V\\1\\0\\0\\0N')\n  return None", Outcome.INVALID_RESULT, S
    ),
    Attack("frame_from_a_child", "import os\ndef f():\n  os.fork()\n  return 1", Outcome.INVALID_RESULT, S),
    Attack(
        "noise_on_the_frame_socket",
        "import os\ndef f():\n  os.write(3, b'\\xff' * 100)\n  return 1",
        Outcome.INVALID_RESULT,
        S,
    ),
    Attack(
        "noise_and_silence", "import os\ndef f():\n  os.write(3, b'V\\1')\n  os._exit(0)", Outcome.INVALID_RESULT, S
    ),
    Attack(
        "result_that_is_not_canonical",
        "import os\ndef f():\n  os.write(3, b'V\\4\\0\\0\\0I\\0\\1\\0')\n  os._exit(0)",
        Outcome.INVALID_RESULT,
        S,
    ),
    Attack("closed_frame_socket", "import os\ndef f(): os.close(3)", Outcome.NO_RESULT, K),
    Attack(
        "frames_without_end",
        "import os\ndef f():\n  while True: os.write(3, b'H\\2\\0\\0\\0[]' * 1000)",
        Outcome.OUTPUT_LIMIT,
        S,
    ),
    Attack(
        "hook_events_that_are_no_events",
        "import os\ndef f():\n  os.write(3, b'H\\1\\0\\0\\0' + b'1' + b'H\\2\\0\\0\\0[]')\n  return 1",
        Outcome.COMPLETED,
        S,
    ),
    Attack(
        "hook_event_with_a_surrogate",
        "import os\ndef f():\n  data = b'[\"\\\\ud800\", \"x\"]'\n  os.write(3, b'H' + len(data).to_bytes(4, 'little') + data)\n  return 1",
        Outcome.COMPLETED,
        S,
    ),
    Attack(
        "locks_and_watches_are_refused",
        "import fcntl, ctypes\ndef f():\n  out = []\n  for call in (fcntl.flock, fcntl.lockf):\n    try: call(open('/guest/run.py'), fcntl.LOCK_SH)\n"
        "    except PermissionError: out.append(1)\n  return [*out, ctypes.CDLL(None).inotify_init()]",
        Outcome.COMPLETED,
        S,
    ),
    Attack("signal_31_to_itself", "import os\ndef f(): os.kill(os.getpid(), 31)", Outcome.SYSCALL_DENIED, K),
    Attack("signal_24_to_itself", "import os\ndef f(): os.kill(os.getpid(), 24)", Outcome.SIGNALED, K, 1.5, {}, 24),
    Attack(
        "patched_builtins",
        "import builtins\nbuiltins.type = lambda x: int\nbuiltins.len = lambda x: 0\ndef f(): return [1, 2]",
        Outcome.INVALID_RESULT,
        S,
    ),
    Attack(
        "patched_codec",
        "import sys\nsys.modules['codec'].encode = lambda v, n: b'N'\ndef f(): return 1",
        Outcome.COMPLETED,
        S,
    ),
    # --- signals and the supervisor
    Attack("kill_itself", "import os\ndef f(): os.kill(os.getpid(), 9)", Outcome.SIGNALED, K, 1.5, {}, 9),
    Attack("abort", "import os\ndef f(): os.abort()", Outcome.SIGNALED, K, 1.5, {}, 6),
    Attack("null_pointer", "import ctypes\ndef f(): ctypes.string_at(0)", Outcome.SIGNALED, K, 1.5, {}, 11),
    Attack(
        "kill_everybody",
        "import os\ndef f():\n  try: os.kill(-1, 9)\n  except ProcessLookupError: return 'alone'",
        Outcome.COMPLETED,
        S,
    ),
    Attack(
        "kill_supervisor",
        "import os, signal\ndef f():\n  for n in range(1, 32): os.kill(1, n)\n  return os.getppid()",
        Outcome.COMPLETED,
        S,
    ),
    Attack(
        "daemon_that_stays",
        "import os, time\ndef f():\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(99)\n    os._exit(0)\n  os.wait()\n  return 1",
        Outcome.COMPLETED,
        S,
    ),
    # --- the kernel's surface (system-call numbers of x86-64)
    *(
        Attack(f"syscall_{name}", SYSCALL.format(number, arguments), Outcome.SYSCALL_DENIED, K, 1.5, {}, 31)
        for name, number, arguments in [
            ("ptrace", 101, "0"),
            ("process_vm_readv", 310, "1"),
            ("kcmp", 312, "1"),
            ("pidfd_getfd", 438, "0"),
            ("mount", 165, "0"),
            ("umount", 166, "0"),
            ("pivot_root", 155, "0"),
            ("chroot", 161, "0"),
            ("unshare_user", 272, "0x10000000"),
            ("setns", 308, "0"),
            ("clone_newuser", 56, "0x10000011"),
            ("bpf", 321, "0"),
            ("userfaultfd", 323, "0"),
            ("perf_event_open", 298, "0"),
            ("io_uring_setup", 425, "1"),
            ("keyctl", 250, "0"),
            ("add_key", 248, "0"),
            ("kexec_load", 246, "0"),
            ("init_module", 175, "0"),
            ("open_by_handle_at", 304, "0"),
            ("reboot", 169, "0"),
            ("swapon", 167, "0"),
            ("syslog", 103, "0"),
            ("iopl", 172, "3"),
            ("modify_ldt", 154, "0"),
            ("personality", 135, "0x400000"),
            ("memfd_secret", 447, "0"),
            ("open_tree", 428, "0"),
            ("move_mount", 429, "0"),
            ("fsopen", 430, "0"),
            ("vmsplice", 278, "0"),
            ("shmget", 29, "0"),
            ("mq_open", 240, "0"),
            ("socket_netlink", 41, "16, 3, 0"),
            ("socket_vsock", 41, "40, 1, 0"),
            ("socket_alg", 41, "38, 5, 0"),
            ("socket_packet", 41, "17, 3, 0"),
        ]
    ),
    Attack(
        "violation_in_a_thread",
        "import ctypes, threading, time\ndef f():\n  threading.Thread(target=lambda: ctypes.CDLL(None).syscall(101, 0)).start()\n  time.sleep(9)",
        Outcome.SYSCALL_DENIED,
        K,
        1.5,
        {},
        31,
    ),
    Attack(
        "clone3_is_unknown",
        "import ctypes\ndef f():\n  libc = ctypes.CDLL(None, use_errno=True)\n  return [libc.syscall(435, 0, 0), ctypes.get_errno()]",
        Outcome.COMPLETED,
        S,
    ),
    # --- network and files
    *(
        Attack(
            f"socket_{name}",
            f"import socket\ndef f():\n  try: socket.socket({family}, socket.SOCK_STREAM)\n  except PermissionError: return True",
            Outcome.COMPLETED,
            S,
        )
        for name, family in [("inet", "socket.AF_INET"), ("inet6", "socket.AF_INET6"), ("unix", "socket.AF_UNIX")]
    ),
    Attack(
        "socket_uncaught",
        "import socket\ndef f(): socket.create_connection(('169.254.169.254', 80))",
        Outcome.EXCEPTION,
        G,
    ),
    Attack(
        "run_a_file_from_tmp",
        "import os\ndef f():\n  open('x', 'wb').write(b'#!/usr/bin/python3')\n  os.chmod('x', 0o755)",
        Outcome.EXCEPTION,
        G,
    ),
    Attack(
        "subprocess_shell",
        "import subprocess\ndef f(): return subprocess.run('id', shell=True).returncode",
        Outcome.EXCEPTION,
        G,
    ),
    # --- source text
    Attack("null_byte_in_source", "x = 1\0", Outcome.SYNTAX_ERROR, G),
    Attack("nested_brackets", "(" * 5000, Outcome.SYNTAX_ERROR, G),
    Attack("endless_sum", "x = " + "1+" * 100_000 + "1", Outcome.SYNTAX_ERROR, G, 4.0, {"cpu_time_s": 4.0}),
    Attack("no_entry_point", "def g(): return 1", Outcome.NO_ENTRY_POINT, G),
    Attack("entry_point_is_no_function", "f = 3", Outcome.NO_ENTRY_POINT, G),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_ends_with_its_outcome_in_time(engine: EngineThread, attack: Attack) -> None:
    start = time.monotonic()
    result = engine.run(make_run(attack.program, **attack.limits))[0]
    elapsed = time.monotonic() - start
    assert (result.outcome, result.evidence) == (attack.outcome, attack.evidence), result
    if attack.signal is not None:
        assert result.signal == attack.signal
    assert elapsed < attack.bound_s + 1.0, "one second is for the start of a jail on a busy machine"
    after = engine.run(make_run("def f(x): return x + 1", "41"))[0]
    assert after.value == b"I\0\1\x2a"  # 42


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
        ["HOME", "LANG", "PATH", "PYTHONUTF8"],
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
    assert {"socket.__new__", "open"} <= {event for event, _ in events}
    assert any("/etc/shadow" in detail for _, detail in events)


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
