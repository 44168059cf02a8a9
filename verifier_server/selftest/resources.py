"""Attacks on memory, processes, time, output, files and descriptors."""

from verifier_server.domain import Outcome
from verifier_server.selftest.attack import CLAIM, KERNEL, SERVER, SHORT_CPU, SHORT_WALL, call, script

MEMORY = [
    call("ten_gigabytes_at_once", "def f(): return len(bytearray(10 << 30))", Outcome.MEMORY_LIMIT, CLAIM),
    call(
        "memory_page_by_page",
        "def f():\n  held = []\n  while True: held.append(bytearray(b'x' * 65536))",
        Outcome.MEMORY_LIMIT,
        KERNEL,
    ),
    call("memory_as_the_first_instruction", "x = bytearray(b'x' * (1 << 30))", Outcome.MEMORY_LIMIT, KERNEL),
    call(
        "memory_in_a_grandchild_parent_survives",
        "import os\ndef f():\n  if os.fork() == 0:\n    held = []\n    while True: held.append(b'x' * 10**6)\n"
        "  os.wait()\n  return 1",
        Outcome.MEMORY_LIMIT,
        KERNEL,
    ),
    script(
        "memory_in_a_child_script_exits_zero",
        "import os, sys\nif os.fork() == 0:\n  held = []\n  while True: held.append(b'x' * 10**6)\nos.wait()\nsys.exit(0)",
        Outcome.MEMORY_LIMIT,
        KERNEL,
    ),
    call(
        "memory_split_over_children",
        "import os, time\ndef f():\n  for _ in range(8):\n    if os.fork() == 0:\n"
        "      held = bytearray(b'x' * (30 << 20))\n      time.sleep(9)\n  time.sleep(9)",
        Outcome.MEMORY_LIMIT,
        KERNEL,
        bound_s=6.0,
    ),
    call(
        "memory_in_files_in_memory",
        "import os\ndef f():\n  while True: os.write(os.memfd_create('x'), b'x' * (4 << 20))",
        Outcome.MEMORY_LIMIT,
        KERNEL,
    ),
    call(
        "memory_in_a_shared_map",
        "import mmap\ndef f():\n  m = mmap.mmap(-1, 1 << 30)\n  for i in range(0, 1 << 30, 4096): m[i] = 1",
        Outcome.MEMORY_LIMIT,
        KERNEL,
    ),
    call(
        "memory_error_then_exit_one",
        "import os\ndef f():\n  try: bytearray(10 << 30)\n  except MemoryError: os._exit(1)",
        Outcome.NO_RESULT,
        KERNEL,
        exit_status=1,
    ),
    call(
        "memory_error_is_caught",
        "def f():\n  try: bytearray(10 << 30)\n  except MemoryError: return 'caught'",
        Outcome.COMPLETED,
        SERVER,
        returns="caught",
    ),
    call("a_list_of_ten_billion", "def f(): return list(range(10**10))", Outcome.MEMORY_LIMIT, CLAIM),
    call("a_number_of_four_gigabytes", "def f(): return 1 << (1 << 36)", Outcome.MEMORY_LIMIT, CLAIM),
    call(
        "recursion_without_limit",
        "import sys\nsys.setrecursionlimit(10**9)\ndef g(): return [g()]\ndef f(): return g()",
        Outcome.MEMORY_LIMIT,
        KERNEL,
        bound_s=8.0,
        limits={"cpu_time_s": 6.0, "wall_time_s": 8.0},
    ),
    call(
        "recursion_in_c",
        "def f():\n  a = []\n  for _ in range(10**5): a = [a]\n  return repr(a)",
        Outcome.EXCEPTION,
        CLAIM,
    ),
    call("recursion_in_json", "import json\ndef f(): return json.loads('[' * 10**6)", Outcome.EXCEPTION, CLAIM),
    call(
        "recursion_in_getattr",
        "class A:\n  def __getattr__(self, name): return getattr(self, name + 'x')\ndef f(): return A().y",
        Outcome.EXCEPTION,
        CLAIM,
    ),
]

PROCESSES = [
    call("fork_bomb", "import os\ndef f():\n  while True: os.fork()", Outcome.PROCESS_LIMIT, KERNEL),
    call(
        "fork_bomb_that_catches",
        "import os, time\ndef f():\n  while True:\n    try: os.fork()\n    except OSError: time.sleep(1)",
        Outcome.WALL_TIMEOUT,
        SERVER,
        limits={"wall_time_s": 0.5, "cpu_time_s": 60.0},
    ),
    call(
        "thread_bomb",
        "import threading, time\ndef f():\n  while True: threading.Thread(target=time.sleep, args=(9,)).start()",
        Outcome.PROCESS_LIMIT,
        KERNEL,
    ),
    call(
        "busy_children",
        "import os\ndef f():\n  for _ in range(8):\n    if os.fork() == 0:\n      while True: pass\n  os.wait()",
        Outcome.CPU_TIMEOUT,
        KERNEL,
        limits=SHORT_CPU,
    ),
    call(
        "work_in_short_lived_children",
        "import os\ndef f():\n  while True:\n    if os.fork() == 0:\n      sum(range(10**5))\n      os._exit(0)\n    os.wait()",
        Outcome.CPU_TIMEOUT,
        KERNEL,
        limits=SHORT_CPU,
    ),
    call(
        "daemon_that_stays",
        "import os, time\ndef f():\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(99)\n"
        "    os._exit(0)\n  os.wait()\n  return 1",
        Outcome.COMPLETED,
        SERVER,
        returns=1,
    ),
    script(
        "daemon_that_holds_the_output",
        "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(99)\n  os._exit(0)\nprint('done')",
        Outcome.COMPLETED,
        KERNEL,
    ),
]

TIME = [
    call("busy_loop", "def f():\n  while True: pass", Outcome.CPU_TIMEOUT, KERNEL, limits=SHORT_CPU, bound_s=1.2),
    call("busy_loop_in_c", "def f(): return 10**10**8", Outcome.CPU_TIMEOUT, KERNEL, limits=SHORT_CPU, bound_s=1.2),
    call(
        "endless_iteration_in_c",
        "import collections, itertools\ndef f(): collections.deque(itertools.repeat(0), maxlen=0)",
        Outcome.CPU_TIMEOUT,
        KERNEL,
        limits=SHORT_CPU,
    ),
    call(
        "regular_expression_bomb",
        "import re\ndef f(): return re.match('(a+)+$', 'a' * 40 + 'b')",
        Outcome.CPU_TIMEOUT,
        KERNEL,
        limits=SHORT_CPU,
    ),
    call(
        "hashing_outside_of_the_interpreter_lock",
        "import hashlib, threading\ndef g(): hashlib.pbkdf2_hmac('sha256', b'x', b'y', 10**9)\n"
        "def f():\n  for _ in range(4): threading.Thread(target=g).start()\n  g()",
        Outcome.CPU_TIMEOUT,
        KERNEL,
        limits=SHORT_CPU,
    ),
    call(
        "swallow_everything",
        "def f():\n  while True:\n    try:\n      while True: pass\n    except BaseException: pass",
        Outcome.CPU_TIMEOUT,
        KERNEL,
        limits=SHORT_CPU,
    ),
    call(
        "ignore_all_signals",
        "import signal\ndef f():\n  for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n  while True: pass",
        Outcome.CPU_TIMEOUT,
        KERNEL,
        limits=SHORT_CPU,
    ),
    call(
        "block_all_signals",
        "import signal\ndef f():\n  signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n  while True: pass",
        Outcome.CPU_TIMEOUT,
        KERNEL,
        limits=SHORT_CPU,
    ),
    call(
        "patched_clocks",
        "import time\ntime.time = time.monotonic = time.process_time = lambda: 0\ndef f():\n  while True: pass",
        Outcome.CPU_TIMEOUT,
        KERNEL,
        limits=SHORT_CPU,
    ),
    call("sleep", "import time\ndef f(): time.sleep(10**6)", Outcome.WALL_TIMEOUT, SERVER, limits=SHORT_WALL),
    call(
        "select_for_ever",
        "import select\ndef f(): select.select([], [], [])",
        Outcome.WALL_TIMEOUT,
        SERVER,
        limits=SHORT_WALL,
    ),
    call("pause", "import signal\ndef f(): signal.pause()", Outcome.WALL_TIMEOUT, SERVER, limits=SHORT_WALL),
    call(
        "deadlock",
        "import threading\ndef f():\n  lock = threading.Lock()\n  lock.acquire()\n  lock.acquire()",
        Outcome.WALL_TIMEOUT,
        SERVER,
        limits=SHORT_WALL,
    ),
    call(
        "stop_itself", "import os\ndef f(): os.kill(os.getpid(), 19)", Outcome.WALL_TIMEOUT, SERVER, limits=SHORT_WALL
    ),
    script(
        "a_thread_that_never_ends",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()\nprint('done', flush=True)",
        Outcome.WALL_TIMEOUT,
        SERVER,
        limits=SHORT_WALL,
    ),
    script(
        "an_exit_handler_that_never_ends",
        "import atexit, time\natexit.register(time.sleep, 99)",
        Outcome.WALL_TIMEOUT,
        SERVER,
        limits=SHORT_WALL,
    ),
    call(
        "half_a_frame_and_silence",
        "import os, time\ndef f():\n  os.write(3, b'V\\4\\0\\0\\0N')\n  time.sleep(99)",
        Outcome.WALL_TIMEOUT,
        SERVER,
        limits=SHORT_WALL,
    ),
]

OUTPUT = [
    call("print_for_ever", "def f():\n  while True: print('x' * 1000)", Outcome.OUTPUT_LIMIT, SERVER),
    call(
        "one_endless_line", "import os\ndef f():\n  while True: os.write(1, b'x' * 10**6)", Outcome.OUTPUT_LIMIT, SERVER
    ),
    call("single_bytes", "import os\ndef f():\n  while True: os.write(1, b'x')", Outcome.OUTPUT_LIMIT, SERVER),
    call(
        "stderr_flood", "import sys\ndef f():\n  while True: sys.stderr.write('x' * 1000)", Outcome.OUTPUT_LIMIT, SERVER
    ),
    call(
        "both_streams_flood",
        "import os\ndef f():\n  while True:\n    os.write(1, b'x' * 999)\n    os.write(2, b'y' * 999)",
        Outcome.OUTPUT_LIMIT,
        SERVER,
    ),
    script("one_chunk_over_the_limit", "import os\nos.write(1, b'x' * 10**7)", Outcome.OUTPUT_LIMIT, SERVER),
    call(
        "frames_without_end",
        "import os\ndef f():\n  while True: os.write(3, b'H\\2\\0\\0\\0[]' * 1000)",
        Outcome.OUTPUT_LIMIT,
        SERVER,
    ),
    call("value_too_large", "def f(): return 'x' * 10**6", Outcome.VALUE_LIMIT, CLAIM),
    call("value_of_a_hundred_million", "def f(): return b'x' * (90 << 20)", Outcome.VALUE_LIMIT, CLAIM),
]

FILES = [
    call(
        "fill_tmp",
        "def f():\n  with open('x', 'wb') as file:\n    while True: file.write(b'x' * 65536)",
        Outcome.EXCEPTION,
        CLAIM,
    ),
    call(
        "fill_tmp_with_many_files",
        "def f():\n  for i in range(60): open(str(i), 'wb').write(b'x' * (1 << 20))",
        Outcome.EXCEPTION,
        CLAIM,
    ),
    call(
        "sparse_petabyte",
        "import os\ndef f(): os.truncate(os.open('x', os.O_CREAT | os.O_WRONLY), 1 << 50)",
        Outcome.EXCEPTION,
        CLAIM,
    ),
    call("inode_flood", "def f():\n  for i in range(10**6): open(str(i), 'w').close()", Outcome.EXCEPTION, CLAIM),
    call(
        "ten_thousand_folders_deep",
        "import os\ndef f():\n  for _ in range(10**4):\n    os.mkdir('d')\n    os.chdir('d')",
        Outcome.EXCEPTION,
        CLAIM,
    ),
    call("a_name_of_256_bytes", "def f(): open('x' * 256, 'w')", Outcome.EXCEPTION, CLAIM),
    call(
        "descriptor_flood",
        "def f():\n  held = []\n  while True: held.append(open('/dev/null'))",
        Outcome.EXCEPTION,
        CLAIM,
    ),
    call(
        "pipes_full_of_data",
        "import os\ndef f():\n  while True:\n    _, w = os.pipe()\n    os.set_blocking(w, False)\n    os.write(w, b'x' * 65536)",
        Outcome.EXCEPTION,
        CLAIM,
    ),
    call(
        "epoll_flood",
        "import select\ndef f():\n  held = []\n  while True: held.append(select.epoll())",
        Outcome.EXCEPTION,
        CLAIM,
    ),
    call("eventfd_flood", "import os\ndef f():\n  while True: os.eventfd(0)", Outcome.EXCEPTION, CLAIM),
    call("shared_memory_folder", "def f(): open('/dev/shm/x', 'w')", Outcome.EXCEPTION, CLAIM),
    script(
        "input_larger_than_tmp",
        "import sys\nassert len(sys.stdin.read()) == 3 << 20",
        Outcome.COMPLETED,
        KERNEL,
        stdin=b"x" * (3 << 20),
        limits={"tmp_bytes": 1 << 20},
    ),
    script("input_from_nothing", "input()", Outcome.EXCEPTION, CLAIM),
]

ATTACKS = [*MEMORY, *PROCESSES, *TIME, *OUTPUT, *FILES]
