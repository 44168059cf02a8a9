"""What the guest reports of a program: each kind of attempt, with counts, bounded, and without effect on outcomes."""

import pytest

from tests.conftest import EngineThread, make_run
from verifier_server.domain import Outcome

TRIES = {
    "open": "open('/etc/passwd')",
    "socket.__new__": "import socket; socket.socket()",
    "socket.getaddrinfo": "import socket; socket.getaddrinfo('example.org', 80)",
    "subprocess.Popen": "import subprocess; subprocess.run(['id'])",
    "os.system": "import os; os.system('id')",
    "os.exec": "import os; os.execv('/bin/sh', ['sh'])",
    "os.fork": "import os; os.fork() or os._exit(0)",
    "os.kill": "import os; os.kill(1, 0)",
    "ctypes.dlopen": "import ctypes; ctypes.CDLL(None)",
    "import": "import telnetlib",
    "gc.get_objects": "import gc; gc.get_objects()",
    "sys.addaudithook": "import sys; sys.addaudithook(lambda *a: None)",
    "sys.settrace": "import sys; sys.settrace(None)",
    "mmap.__new__": "import mmap; mmap.mmap(-1, 4096)",
}


@pytest.mark.parametrize("event", TRIES)
def test_an_attempt_is_reported(engine: EngineThread, event: str) -> None:
    program = f"def f():\n  try:\n    {TRIES[event]}\n  except OSError: pass\n  return 1"
    result = engine.run(make_run(program))[0]
    assert event in {found.event for found in result.hook_events}, result


def test_counts_grow_in_powers_of_two(engine: EngineThread) -> None:
    program = "def f():\n  for _ in range(300):\n    try: open('/etc/mark')\n    except OSError: pass"
    events = {found.detail: found.count for found in engine.run(make_run(program))[0].hook_events}
    assert events == {"'/etc/mark', 'r'": 256}  # 256 <= 300 < 512


def test_a_flood_of_different_events_is_bounded_and_costs_no_result(engine: EngineThread) -> None:
    program = "def f():\n  for i in range(5000):\n    try: open(f'/etc/{i}')\n    except OSError: pass\n  return 'done'"
    result = engine.run(make_run(program))[0]
    assert result.outcome is Outcome.COMPLETED
    assert 10 < len(result.hook_events) <= 64
    assert all(len(event.detail) <= 200 for event in result.hook_events)


def test_an_ordinary_program_reports_nothing(engine: EngineThread) -> None:
    program = (
        "import math, re, json, collections, itertools\ndef f(): return json.dumps([math.pi, re.sub('a', 'b', 'aa')])"
    )
    assert engine.run(make_run(program))[0].hook_events == ()


def test_events_before_a_sudden_end_are_kept(engine: EngineThread) -> None:
    result = engine.run(make_run("import os\ndef f():\n  try: open('/etc/mark')\n  except OSError: os._exit(3)"))[0]
    assert [(event.event, event.count) for event in result.hook_events] == [("open", 1)]


def test_forged_events_change_no_outcome(engine: EngineThread) -> None:
    forge = (
        "import json, os\ndef f():\n  for event in (['open', '/etc/shadow', 10**9], ['x', 'y', -5], ['x', 'y', True], ['a'], {}, 7):\n"
        "    data = json.dumps(event).encode()\n    os.write(3, b'H' + len(data).to_bytes(4, 'little') + data)\n  return 1"
    )
    result = engine.run(make_run(forge))[0]
    assert (result.outcome, result.value) == (Outcome.COMPLETED, b"I\0\1\1")
    assert {(e.event, e.count) for e in result.hook_events} == {("open", 10**9), ("x", 1)}
