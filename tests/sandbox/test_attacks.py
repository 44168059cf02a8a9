"""Hostile programs: one property each, the exact outcome, and a bound on the time until the reply.

All run under a memory limit of their own cgroup (128 MiB unless said otherwise).
"""

import time
from dataclasses import dataclass, field

import pytest

from tests.conftest import EngineThread, make_run
from verifier_server.domain import Evidence, Outcome

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
    Attack(
        "frame_from_a_child",
        "import os\ndef f():\n  pid = os.fork()\n  if pid: os.waitpid(pid, 0)\n  return 1",
        Outcome.INVALID_RESULT,
        S,
    ),
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
