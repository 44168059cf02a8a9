"""Every module of the standard library can be imported in a jail, and nothing of it ends by SIGSYS."""

import sys
from dataclasses import replace

import pytest

from tests.conftest import EngineThread, make_run
from verifier_server.domain import CaseInput, Outcome
from verifier_server.judging import codec, literals

# Left out of the image (tests, graphics, installers), for other systems, or not built by Debian.
ABSENT = {
    *(
        "_gdbm",
        "_msi",
        "_overlapped",
        "_scproxy",
        "_tkinter",
        "_winapi",
        "ensurepip",
        "idlelib",
        "msilib",
        "msvcrt",
        "nt",
    ),
    *("tkinter", "turtle", "turtledemo", "winreg", "winsound"),
}
PROGRAM = """
import warnings
warnings.simplefilter("ignore")
def f(name):
    try:
        __import__(name)
    except ImportError as error:
        return f"{type(error).__name__}: {error}"
    return "imported"
"""


def test_every_standard_module_imports_and_none_dies_of_a_denied_call(engine: EngineThread) -> None:
    # Opening a browser or a page of jokes at import is what these two are for.
    names = sorted(set(sys.stdlib_module_names) - {"antigravity", "this"})
    cases = tuple(CaseInput(positional=literals.parse_arguments(repr(name)).positional) for name in names)
    run = replace(make_run(PROGRAM, memory_bytes=256 << 20, cpu_time_s=5.0), cases=cases)
    results = dict(zip(names, engine.run(run), strict=True))
    assert {name: r.outcome for name, r in results.items() if r.outcome is not Outcome.COMPLETED} == {}
    failed = {name: codec.decode(r.value) for name, r in results.items() if codec.decode(r.value) != "imported"}
    assert set(failed) <= ABSENT, failed
    assert len(names) - len(failed) > 270


@pytest.mark.parametrize(
    ("name", "program"),
    {
        "threads": "import threading\ndef f():\n  t = [threading.Thread(target=int) for _ in range(8)]\n  [x.start() for x in t]\n  [x.join() for x in t]\n  return True",
        "thread_pool": "from concurrent.futures import ThreadPoolExecutor as P\ndef f():\n  with P(4) as p: return list(p.map(abs, [-1, 2])) == [1, 2]",
        "asyncio": "import asyncio\nasync def g(x):\n  await asyncio.sleep(0.01)\n  return x\nasync def h(): return await asyncio.gather(*map(g, range(5)))\ndef f(): return asyncio.run(h()) == [0, 1, 2, 3, 4]",
        "asyncio_threads": "import asyncio\nasync def g(): return await asyncio.to_thread(abs, -3)\ndef f(): return asyncio.run(g()) == 3",
        "fork": "import os\ndef f():\n  r, w = os.pipe()\n  if os.fork() == 0:\n    os.write(w, b'x')\n    os._exit(0)\n  os.wait()\n  return os.read(r, 1) == b'x'",
        "multiprocessing_pipe": "import multiprocessing as m\ndef g(c): c.send(5)\ndef f():\n  a, b = m.Pipe()\n  p = m.get_context('fork').Process(target=g, args=(b,))\n  p.start()\n  p.join()\n  return a.recv() == 5",
        "timers": "import signal, time\ndef f():\n  seen = []\n  signal.signal(signal.SIGALRM, lambda *a: seen.append(1))\n  signal.setitimer(signal.ITIMER_REAL, 0.02)\n  time.sleep(0.1)\n  return seen == [1]",
        "tempfile": "import tempfile\ndef f():\n  with tempfile.NamedTemporaryFile('w+') as t:\n    t.write('x')\n    t.seek(0)\n    return t.read() == 'x'",
        "sqlite": "import sqlite3\ndef f(): return sqlite3.connect(':memory:').execute('select 1 + 1').fetchone() == (2,)",
        "compression": "import bz2, lzma, zlib\ndef f(): return all(m.decompress(m.compress(b'abc')) == b'abc' for m in (bz2, lzma, zlib))",
        "selectors": "import selectors, socket\ndef f():\n  s = selectors.DefaultSelector()\n  a, b = socket.socketpair()\n  s.register(a, selectors.EVENT_READ)\n  b.send(b'x')\n  return len(s.select(1)) == 1",
        "decimal_and_locale": "import decimal, locale\ndef f(): return str(decimal.Decimal(1) / 3).startswith('0.333') and locale.getlocale() is not None",
        "zoneinfo_missing_is_an_exception": "import zoneinfo\ndef f():\n  try: zoneinfo.ZoneInfo('Europe/Paris')\n  except zoneinfo.ZoneInfoNotFoundError: return True",
        "platform": "import os, platform\ndef f(): return platform.system() == 'Linux' and os.cpu_count() is not None or True",
    }.items(),
)
def test_what_programs_use_works(engine: EngineThread, name: str, program: str) -> None:
    result = engine.run(make_run(program))[0]
    assert result.value == b"T", result
