"""Pairs of programs on one slot: nothing of the first may reach the second, whose `f()` returns True if it saw nothing."""

from verifier_server.domain import Outcome
from verifier_server.selftest.attack import KERNEL, SERVER, SHORT_CPU, pair

ATTACKS = [
    pair(
        "files_in_tmp",
        "def f():\n  open('/tmp/mark', 'w').close()\n  return 1",
        "import os\ndef f(): return os.listdir('/tmp') == [os.path.basename(os.getcwd())] and os.listdir('.') == []",
    ),
    pair(
        "files_in_shared_memory",
        "def f():\n  try: open('/dev/shm/mark', 'w')\n  except OSError: return 1",
        "import os\ndef f(): return not os.path.exists('/dev/shm')",
    ),
    pair(
        "environment",
        "import os\ndef f():\n  os.putenv('MARK', '1')\n  os.environ['MARK2'] = '1'\n  return 1",
        "import os\ndef f(): return 'MARK' not in os.environ and 'MARK2' not in os.environ",
    ),
    pair(
        "builtins",
        "import builtins\ndef f():\n  builtins.len = lambda x: 0\n  return 1",
        "def f(): return len('abc') == 3",
        Outcome.INVALID_RESULT,
    ),
    pair(
        "modules",
        "import sys, types\ndef f():\n  sys.modules['json'] = types.ModuleType('json')\n  return 1",
        "import json\ndef f(): return json.dumps([1]) == '[1]'",
    ),
    pair(
        "compiled_modules",
        "import glob\ndef f():\n  for path in glob.glob('/usr/lib/python3*/__pycache__/json*.pyc') + ['/usr/lib/python3/x.pth']:\n"
        "    try: open(path, 'wb')\n    except OSError: pass\n  return 1",
        "import json, os\ndef f(): return json.loads('[1]') == [1] and not os.path.exists('/usr/lib/python3/x.pth')",
    ),
    pair(
        "random_state",
        "import random\ndef f():\n  random.seed(7)\n  return 1",
        "import random\ndef f():\n  fresh = random.random()\n  return fresh != random.Random(7).random()",
    ),
    pair(
        "a_process_that_stays",
        "import os, time\ndef f():\n  if os.fork() == 0:\n    os.setsid()\n    time.sleep(99)\n  return 1",
        "import os\ndef f():\n  try: os.kill(-1, 0)\n  except ProcessLookupError: return True",
    ),
    pair(
        "lowered_limits",
        "import resource\ndef f():\n  try: resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))\n  except (OSError, ValueError): return 1",
        "import os\ndef f(): return len([os.open('/dev/null', 0) for _ in range(100)]) == 100",
    ),
    pair(
        "a_removed_working_folder",
        "import os, shutil\ndef f():\n  shutil.rmtree(os.getcwd(), ignore_errors=True)\n  return 1",
        "import os\ndef f():\n  open('x', 'w').close()\n  return os.listdir('.') == ['x']",
    ),
    pair(
        "host_name_left_behind",
        "import socket\ndef f():\n  try: socket.sethostname('mark')\n  except PermissionError: return 1",
        "import socket\ndef f(): return socket.gethostname().startswith('jail-')",
    ),
    pair(
        "signals_and_umask",
        "import os, signal\ndef f():\n  signal.signal(signal.SIGTERM, signal.SIG_IGN)\n  os.umask(0o777)\n  return 1",
        "import os, signal\ndef f(): return signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and os.umask(0) == 0o22",
    ),
    pair(
        "a_time_out",
        "def f():\n  while True: pass",
        "def f(): return sum(range(10**5)) == 4999950000",
        Outcome.CPU_TIMEOUT,
        evidence=KERNEL,
        limits=SHORT_CPU,
    ),
    pair(
        "used_up_memory",
        "def f():\n  held = []\n  while True: held.append(b'x' * 10**6)",
        "def f(): return len(b'x' * (90 << 20)) == 90 << 20",
        Outcome.MEMORY_LIMIT,
        evidence=KERNEL,
    ),
    pair(
        "used_up_processes",
        "import os, time\ndef f():\n  try:\n    while os.fork(): pass\n    time.sleep(9)\n  except OSError: os._exit(0)",
        "import threading\ndef f():\n  all_ = [threading.Thread(target=int) for _ in range(10)]\n  [t.start() for t in all_]\n"
        "  [t.join() for t in all_]\n  return True",
        Outcome.PROCESS_LIMIT,
        evidence=KERNEL,
    ),
    pair(
        "used_up_tmp",
        "def f():\n  try:\n    with open('/tmp/x', 'wb') as x:\n      while True: x.write(b'x' * 65536)\n  except OSError: return 1",
        "def f():\n  with open('x', 'wb') as x: return x.write(b'x' * (4 << 20)) == 4 << 20",
    ),
    pair(
        "a_closed_frame_socket",
        "import os\ndef f(): os.close(3)",
        "def f(): return True",
        Outcome.NO_RESULT,
        evidence=KERNEL,
    ),
    pair(
        "half_a_frame",
        "import os\ndef f():\n  os.write(3, b'V\\xff')\n  os._exit(0)",
        "def f(): return True",
        Outcome.INVALID_RESULT,
        evidence=SERVER,
    ),
    pair(
        "an_audit_hook",
        "import sys\ndef f():\n  def hook(*a): raise RuntimeError\n  sys.addaudithook(hook)\n  return 1",
        "import tempfile\ndef f():\n  with tempfile.TemporaryFile() as file: return file.write(b'x') == 1",
        Outcome.COMPLETED,
    ),
    pair(
        "a_trace_function",
        "import sys, threading\ndef f():\n  threading.settrace(lambda *a: 1 / 0)\n  sys.settrace(lambda *a: None)\n  return 1",
        "import sys\ndef f(): return sys.gettrace() is None and sys.getprofile() is None",
    ),
]
