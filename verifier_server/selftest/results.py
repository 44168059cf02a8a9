"""Attacks on the verdict: forged, missing, repeated and dishonest results, and source texts that hurt the compiler."""

from verifier_server.domain import Outcome
from verifier_server.selftest.attack import CLAIM, KERNEL, SERVER, call, harmless, script

_OBJECTS = {
    # name -> an expression or class whose instance is returned
    "always_equal": "class A:\n  def __eq__(self, other): return True\n  __hash__ = None\ndef f(): return A()",
    "never_unequal": "class A:\n  def __ne__(self, other): return False\ndef f(): return [A()]",
    "subclass_of_int": "class I(int):\n  def __eq__(self, other): return True\ndef f(): return I(3)",
    "subclass_of_str": "class S(str):\n  def __eq__(self, other): return True\n  __hash__ = str.__hash__\ndef f(): return S('x')",
    "subclass_of_list": "class L(list):\n  def __eq__(self, other): return True\ndef f(): return L([1])",
    "subclass_of_dict": "class D(dict):\n  def __eq__(self, other): return True\ndef f(): return D(a=1)",
    "subclass_of_float": "class F(float):\n  def __eq__(self, other): return True\ndef f(): return F(1.5)",
    "class_lies_about_itself": "class A:\n  __class__ = int\ndef f(): return A()",
    "generator": "def f(): return (x for x in [1])",
    "coroutine": "async def g(): return 1\nimport warnings\nwarnings.simplefilter('ignore')\ndef f(): return g()",
    "function": "def f(): return f",
    "module": "import math\ndef f(): return math",
    "iterator_without_end": "import itertools\ndef f(): return itertools.count()",
    "dict_of_nans": "def f(): return {float('nan'): 1, float('nan'): 2}",
    "object_that_pickles_to_a_command": "import os\nclass A:\n  def __reduce__(self): return os.system, ('id',)\ndef f(): return A()",
    "object_like_an_array": "class A:\n  def __array__(self): return 1\n  def tolist(self): return [1]\ndef f(): return A()",
    "self_reference": "def f():\n  a = []\n  a.append(a)\n  return a",
    "million_deep": "def f():\n  a = []\n  for _ in range(10**6): a = [a]\n  return a",
}

EXITS = [
    call("exit_zero", "import os\ndef f(): os._exit(0)", Outcome.NO_RESULT, KERNEL, exit_status=0),
    call("exit_zero_at_import", "import os\nos._exit(0)", Outcome.NO_RESULT, KERNEL, exit_status=0),
    call("exit_137_like_a_kill", "import os\ndef f(): os._exit(137)", Outcome.NO_RESULT, KERNEL, exit_status=137),
    call("exit_255_like_nsjail", "import os\ndef f(): os._exit(255)", Outcome.NO_RESULT, KERNEL, exit_status=255),
    call("exit_159_like_a_violation", "import os\ndef f(): os._exit(159)", Outcome.NO_RESULT, KERNEL, exit_status=159),
    call("system_exit", "def f(): raise SystemExit(0)", Outcome.NO_RESULT, KERNEL),
    call("system_exit_in_import", "import sys\nsys.exit(0)", Outcome.NO_RESULT, KERNEL),
    script(
        "system_exit_with_text", "import sys\nsys.exit('all tests passed')", Outcome.NO_RESULT, KERNEL, exit_status=1
    ),
    call(
        "exit_in_a_destructor",
        "import os\nclass A:\n  def __del__(self): os._exit(0)\ndef f(): A()",
        Outcome.NO_RESULT,
        KERNEL,
    ),
    call(
        "exit_in_an_exception_text",
        "import os\nclass E(BaseException):\n  def __str__(self): os._exit(0)\ndef f(): raise E",
        Outcome.NO_RESULT,
        KERNEL,
    ),
    script(
        "exit_zero_by_the_exception_hook",
        "import os, sys\nsys.excepthook = lambda *a: os._exit(0)\nraise ValueError",
        Outcome.EXCEPTION,
        CLAIM,
    ),
    call("skip_test", "import unittest\ndef f(): raise unittest.SkipTest", Outcome.EXCEPTION, CLAIM),
    call("keyboard_interrupt", "def f(): raise KeyboardInterrupt", Outcome.EXCEPTION, CLAIM),
    call("exception_with_a_surrogate", "def f(): raise ValueError('\\ud800\\0\\x1b[31m')", Outcome.EXCEPTION, CLAIM),
    call("number_too_long_to_print", "def f(): return str(10**5000)", Outcome.EXCEPTION, CLAIM),
    harmless(
        "exit_in_a_thread",
        "import sys, threading\ndef f():\n  t = threading.Thread(target=sys.exit)\n  t.start()\n  t.join()\n  return 1",
        1,
    ),
    harmless("exit_handler_with_status_zero", "import atexit, os\natexit.register(os._exit, 0)\ndef f(): return 5", 5),
    script("closed_output", "import os, sys\nos.close(1)\nprint('x')", Outcome.NO_RESULT, KERNEL, exit_status=120),
    call(
        "closed_output_of_a_call",
        "import os\ndef f():\n  os.close(1)\n  print('x')\n  return 1",
        Outcome.COMPLETED,
        SERVER,
        returns=1,
    ),
]

FRAMES = [
    call(
        "two_results",
        "import os\ndef f():\n  os.write(3, b'V\\1\\0\\0\\0N')\n  return None",
        Outcome.INVALID_RESULT,
        SERVER,
    ),
    call(
        "result_from_a_child",
        "import os\ndef f():\n  pid = os.fork()\n  if pid: os.waitpid(pid, 0)\n  return 1",
        Outcome.INVALID_RESULT,
        SERVER,
    ),
    call(
        "result_after_exit",
        "import os, time\ndef f():\n  if os.fork() == 0:\n    time.sleep(0.05)\n    os.write(3, b'V\\1\\0\\0\\0N')\n    time.sleep(9)\n"
        "  os._exit(0)",
        Outcome.NO_RESULT,
        KERNEL,
    ),
    call(
        "result_then_kill",
        "import os\ndef f():\n  os.write(3, b'V\\1\\0\\0\\0N')\n  os.kill(os.getpid(), 9)",
        Outcome.SIGNALED,
        KERNEL,
        signal=9,
    ),
    call(
        "result_then_exit_one",
        "import os\ndef f():\n  os.write(3, b'V\\1\\0\\0\\0N')\n  os._exit(1)",
        Outcome.NO_RESULT,
        KERNEL,
    ),
    call(
        "noise_before_a_result",
        "import os\ndef f():\n  os.write(3, b'\\xff' * 100)\n  return 1",
        Outcome.INVALID_RESULT,
        SERVER,
    ),
    call(
        "noise_and_silence",
        "import os\ndef f():\n  os.write(3, b'V\\1')\n  os._exit(0)",
        Outcome.INVALID_RESULT,
        SERVER,
    ),
    call(
        "a_length_of_two_gigabytes",
        "import os\ndef f():\n  os.write(3, b'V\\xff\\xff\\xff\\x7f')\n  return 1",
        Outcome.INVALID_RESULT,
        SERVER,
    ),
    call(
        "result_that_is_not_canonical",
        "import os\ndef f():\n  os.write(3, b'V\\4\\0\\0\\0I\\0\\1\\0')\n  os._exit(0)",
        Outcome.INVALID_RESULT,
        SERVER,
    ),
    call(
        "an_opaque_value_where_none_is_allowed",
        "import os\ndef f():\n  os.write(3, b'V\\3\\0\\0\\0O\\1A')\n  os._exit(0)",
        Outcome.INVALID_RESULT,
        SERVER,
    ),
    call(
        "an_analysis_as_a_result",
        "import os\ndef f():\n  os.write(3, b'A\\2\\0\\0\\0{}')\n  os._exit(0)",
        Outcome.INVALID_RESULT,
        SERVER,
    ),
    call(
        "an_end_of_script_as_a_result",
        "import os\ndef f():\n  os.write(3, b'D\\0\\0\\0\\0')\n  os._exit(0)",
        Outcome.INVALID_RESULT,
        SERVER,
    ),
    call("closed_frame_socket", "import os\ndef f(): os.close(3)", Outcome.NO_RESULT, KERNEL),
    harmless(
        "hook_events_that_are_no_events",
        "import os\ndef f():\n  os.write(3, b'H\\1\\0\\0\\0' + b'1' + b'H\\2\\0\\0\\0[]')\n  return 1",
        1,
    ),
    harmless(
        "hook_event_with_a_surrogate",
        'import os\ndef f():\n  data = b\'["\\\\ud800", "x", 1]\'\n'
        "  os.write(3, b'H' + len(data).to_bytes(4, 'little') + data)\n  return 1",
        1,
    ),
    harmless(
        "reading_the_frame_socket",
        "import os\ndef f():\n  os.set_blocking(3, False)\n  try: return os.read(3, 99)\n  except BlockingIOError: return 'empty'",
        "empty",
    ),
    call(
        "a_result_by_the_guests_own_function",
        "import sys\ndef f():\n  sys._getframe(1).f_locals['send'](b'V', b'N')\n  return 1",
        Outcome.INVALID_RESULT,
        SERVER,
    ),
]

PATCHES = [
    call(
        "patched_builtins",
        "import builtins\nbuiltins.type = lambda x: int\nbuiltins.len = lambda x: 0\ndef f(): return [1, 2]",
        Outcome.INVALID_RESULT,
        SERVER,
    ),
    harmless("patched_codec", "import sys\nsys.modules['codec'].encode = lambda v, n, **k: b'N'\ndef f(): return 1", 1),
    harmless("patched_write", "import os\nos.write = lambda fd, data: len(data)\ndef f(): return 2", 2),
    harmless(
        "patched_comparisons",
        "import builtins, json, math, operator, unittest\nbuiltins.all = builtins.isinstance = lambda *a: True\n"
        "json.dumps = lambda *a, **k: 'PASSED'\nmath.isclose = operator.eq = lambda *a, **k: True\n"
        "unittest.TestCase.assertEqual = lambda *a: None\ndef f(): return 3",
        3,
    ),
    harmless(
        "tracing_the_guest",
        "import sys\ndef trace(frame, event, arg): return trace\nsys.settrace(trace)\nsys.setprofile(lambda *a: None)\ndef f(): return 4",
        4,
    ),
    harmless(
        "markers_of_other_judges",
        "def f():\n  print('PASSED\\n@@E@@E\\n{\"passed\": true}\\nOK')\n  return 'wrong'",
        "wrong",
    ),
    # Looks for anything that might be an expected value: 32 hexadecimal digits, as `selftest` draws them.
    harmless(
        "search_for_the_expected_value",
        "import gc, os, re, sys\nPATTERN = re.compile('[0-9a-f]' * 32)\ndef f():\n  texts = [repr(o) for o in gc.get_objects()"
        " if type(o) in (dict, list, tuple) and len(o) < 50]\n  frame = sys._getframe()\n  while frame:\n"
        "    texts.append(repr(frame.f_locals)[:10**5])\n    frame = frame.f_back\n"
        "  texts += [repr(os.environ), repr(sys.argv), repr(os.listdir('.')), repr(os.listdir('/tmp'))]\n"
        "  found = PATTERN.findall(' '.join(texts))\n  return found[0] if found else None",
        None,
    ),
    harmless("a_pickle_as_the_value", "import pickle\ndef f(): return type(pickle.dumps(f)) is bytes", True),
    harmless("walk_of_all_classes", "def f(): return len(().__class__.__base__.__subclasses__()) > 50", True),
    harmless("surrogate_and_null", "def f(): return '\\ud800\\0'", "\ud800\0"),
    harmless("a_number_beyond_decimal_text", "def f(): return 10**5000", 10**5000),
    harmless("colliding_numbers_in_a_set", "def f(): return len({i * (2**61 - 1) for i in range(2000)})", 2000),
    harmless(
        "exec_into_a_fresh_interpreter",
        "import os, sys\ndef f(): os.execv(sys.executable, ['x', '-S', '-c', "
        "\"import os; os.write(3, b'V\\\\1\\\\0\\\\0\\\\0N')\"])",
        None,
    ),
]

SOURCES = [
    call("null_byte_in_source", "x = 1\0", Outcome.SYNTAX_ERROR, CLAIM),
    call("source_that_is_not_utf8", b"x = '\xff\xfe'", Outcome.SYNTAX_ERROR, CLAIM),
    call("unknown_encoding", b"# -*- coding: nonsense -*-\nx = 1", Outcome.SYNTAX_ERROR, CLAIM),
    call("nested_brackets", "(" * 5000, Outcome.SYNTAX_ERROR, CLAIM),
    call("a_megabyte_of_brackets", "(" * (1 << 20), Outcome.SYNTAX_ERROR, CLAIM, bound_s=3.0),
    # The parser reports its own stack overflow as MemoryError.
    call("nested_minus_signs", "x = " + "-" * 50_000 + "1", Outcome.MEMORY_LIMIT, CLAIM),
    call("nested_lambdas", "x = " + "lambda: " * 5000 + "1", Outcome.MEMORY_LIMIT, CLAIM),
    call("nested_f_strings", "x = " + "f'{" * 50 + "1" + "}'" * 50, Outcome.SYNTAX_ERROR, CLAIM),
    call(
        "endless_sum",
        "x = " + "1+" * 100_000 + "1",
        Outcome.SYNTAX_ERROR,
        CLAIM,
        bound_s=4.0,
        limits={"cpu_time_s": 4.0},
    ),
    call(
        "a_hundred_thousand_lines",
        "x = 1\n" * 100_000,
        Outcome.NO_ENTRY_POINT,
        CLAIM,
        bound_s=6.0,
        limits={"memory_bytes": 512 << 20, "cpu_time_s": 6.0, "wall_time_s": 9.0},
    ),
    call(
        "a_literal_of_half_a_million",
        "x = [" + "1," * 500_000 + "]",
        Outcome.MEMORY_LIMIT,
        KERNEL,
        bound_s=6.0,
        limits={"memory_bytes": 64 << 20, "cpu_time_s": 6.0, "wall_time_s": 9.0},
    ),
    call("no_entry_point", "def g(): return 1", Outcome.NO_ENTRY_POINT, CLAIM),
    call("entry_point_is_no_function", "f = 3", Outcome.NO_ENTRY_POINT, CLAIM),
]

OBJECTS = [call(name, program, Outcome.INVALID_RESULT, CLAIM) for name, program in _OBJECTS.items()]
ATTACKS = [*EXITS, *OBJECTS, *FRAMES, *PATCHES, *SOURCES]
