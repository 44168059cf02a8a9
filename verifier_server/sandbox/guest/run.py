"""Runs one case in a child of the supervisor: reads the request, runs the program, writes frames.

A request is `uint32 n`, n bytes of JSON, then the blobs whose lengths the JSON lists. A frame is one kind byte,
`uint32 n` and n bytes:

    V canonical value       X exception (claimed class and message)     S syntax error
    E no entry point        I value without canonical form              L value over the limit
    A analysis as JSON      H audit-hook event as JSON                  M MemoryError
    D the script after the program reached its end

Whatever a program writes here itself is only a claim; the service accepts at most one result frame per case.
"""

from __future__ import annotations

import json
import os
import struct
import sys

import codec

TYPE_CHECKING = False  # `typing` would cost every run three milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Any, NoReturn

    Send = Callable[[bytes, bytes], None]

_HOOK_EVENTS_MAX = 48
_WATCHED = (
    "ctypes.",
    "code.__new__",
    "fcntl.",
    "mmap.",
    "gc.get_",
    "os.chmod",
    "os.chown",
    "os.exec",
    "os.fork",
    "os.kill",
    "os.link",
    "os.posix_spawn",
    "os.putenv",
    "os.remove",
    "os.rename",
    "os.symlink",
    "os.system",
    "os.truncate",
    "pty.",
    "resource.setrlimit",
    "shutil.",
    "signal.pthread_kill",
    "socket.",
    "subprocess.",
    "sys._current_frames",
    "sys._getframe",
    "sys.addaudithook",
    "sys.setprofile",
    "sys.settrace",
    "syslog.",
)
_QUIET_ROOTS = (sys.prefix + "/lib", "/usr/lib", "/guest", "/packages")
# Modules whose import says something of what a program is after; pure ones and their helpers do not.
_ODD_MODULES = {
    *("_ctypes", "_posixshmem", "_posixsubprocess", "_socket", "cffi", "code", "codeop", "ctypes", "fcntl", "ftplib"),
    *("http", "mmap", "multiprocessing", "pdb", "pickle", "posix", "pty", "pwd", "resource", "shelve", "signal"),
    *("smtplib", "socket", "socketserver", "ssl", "subprocess", "syslog", "telnetlib", "termios", "tty", "urllib"),
    *("webbrowser", "xmlrpc"),
}


def read_exactly(fd: int, count: int) -> bytes:
    """Read `count` bytes."""
    pieces = []
    while count:
        piece = os.read(fd, min(count, 1 << 16))
        if not piece:
            os._exit(71)
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def read_request(fd: int) -> tuple[dict[str, Any], list[bytes]]:
    """Read one request: its header and its blobs (program, positional, keywords)."""
    size = struct.unpack("<I", read_exactly(fd, 4))[0]
    header = json.loads(read_exactly(fd, size))
    return header, [read_exactly(fd, count) for count in header["blobs"]]


def make_sender(fd: int) -> Send:
    """Return a function that writes one frame and does not depend on names a program can rebind."""
    write, pack, view = os.write, struct.pack, memoryview

    def send(kind: bytes, payload: bytes) -> None:
        rest = view(kind + pack("<I", len(payload)) + payload)
        while rest:  # without copies: a large value goes out in hundreds of pieces
            rest = rest[write(fd, rest) :]

    return send


def describe(error: BaseException) -> bytes:
    """Return class and message of an exception, bounded; a hostile __str__ is replaced by its class."""
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:
        text = type(error).__name__
    return text[:500].encode("utf-8", "backslashreplace")


def choose_detail(event: str, args: tuple[Any, ...]) -> str | None:
    """Return what is worth reporting of an event, or None if nothing is."""
    if event == "import":
        name = args[0]
        return name if type(name) is str and name.partition(".")[0] in _ODD_MODULES else None
    if event == "open":
        path, mode = args[0], args[1] or "r"
        if not isinstance(path, str) or ("w" not in mode and path.startswith(_QUIET_ROOTS)):
            return None
        return f"{path!r}, {mode!r}"[:200]
    if event.startswith(_WATCHED):
        return ", ".join(repr(arg)[:200] for arg in args[:3] if type(arg) in (str, bytes, int, tuple, list))[:200]
    return None


def watch_events(send: Send) -> Callable[[], None]:
    """Report what the program tries, each event when its count reaches a power of two. Telemetry, not protection.

    A process that ends suddenly has reported what it did up to then; a flood costs few frames. Returns a function that
    ends the reports, so that other threads do not write into a long result.
    """
    counts: dict[tuple[str, str], int] = {}
    dumps = json.dumps
    is_over = False

    def end() -> None:
        nonlocal is_over
        is_over = True

    def hook(event: str, args: tuple[Any, ...]) -> None:
        detail = None if is_over else choose_detail(event, args)
        if detail is None:
            return
        count = counts.get((event, detail), 0) + 1
        if count == 1 and len(counts) >= _HOOK_EVENTS_MAX:
            return
        counts[event, detail] = count
        if count & (count - 1) == 0:
            send(b"H", dumps([event, detail, count]).encode())

    sys.addaudithook(hook)
    return end


def run_case(fd: int) -> None:
    """Run one case and end the process."""
    os.set_blocking(fd, True)  # shared with the case before, which may have changed it
    header, blobs = read_request(fd)
    os.makedirs(header["cwd"], exist_ok=True)
    os.chdir(header["cwd"])
    sys.argv = ["program.py"]
    os.environ.pop("PYTHONHASHSEED", None)  # would tell a program which run it is in
    send = make_sender(fd)
    if header["clock_shift_s"] and b"time" in blobs[0]:
        import clock

        clock.shift(header["clock_shift_s"])
    mode = header["mode"]
    if mode == "analyze":
        import analyze

        send(b"A", analyze.analyze(blobs[0], header["entry_point"], header["allowed_modules"]))
        os._exit(0)
    sys.path.remove("/guest")
    if mode == "call":
        program, positional, keywords = blobs
        code = compile_program(program, send)
        call_entry_point(code, header, positional, keywords, send, watch_events(send))
    else:
        program, stdin, script = blobs
        feed_stdin(stdin)
        del blobs[1]
        codes = [compile_program(text, send) for text in ([program, script] if mode == "assert" else [program])]
        watch_events(send)
        run_script(codes, send)


def feed_stdin(data: bytes) -> None:
    """Put `data` behind descriptor 0, as a file in memory that is charged to the case.

    So `input()`, `sys.stdin.buffer`, `open(0)` and `os.read(0, n)` all work, and nobody has to feed while others drain.
    """
    fd = os.memfd_create("stdin", 0)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    os.dup2(fd, 0)
    os.close(fd)


def compile_program(source: bytes, send: Send) -> CodeType:
    """Compile, or report a syntax error and end."""
    try:
        return compile(source, "program.py", "exec", dont_inherit=True)
    except MemoryError as error:
        send(b"M", describe(error))
    except (SyntaxError, ValueError, RecursionError, SystemError) as error:
        send(b"S", describe(error))
    os._exit(1)


def make_module(name: str) -> dict[str, Any]:
    """Register a fresh module and return its namespace."""
    module = type(sys)(name)
    module.__file__ = "program.py"
    module.__dict__["__builtins__"] = __builtins__
    sys.modules[name] = module
    return module.__dict__


def call_entry_point(
    code: CodeType,
    header: dict[str, Any],
    positional: bytes,
    keywords: bytes,
    send: Send,
    end_reports: Callable[[], None],
) -> NoReturn:
    """Define the program, call its entry point once, send the encoded result, end at once."""
    end, encode = os._exit, codec.encode
    too_large, no_form = codec.TooLargeError, codec.EncodingError
    args: Any = codec.decode(positional)
    kwargs: Any = codec.decode(keywords)
    try:
        namespace = make_module("program")
        exec(code, namespace)
        entry = find_entry_point(namespace, header["entry_point"])
        if entry is None:
            send(b"E", header["entry_point"].encode())
            end(1)
        value = entry(*args, **kwargs)
        data = encode(value, header["value_bytes"], lenient=header["lenient"])
        end_reports()
        send(b"V", data)
    except too_large as error:
        send(b"L", describe(error))
    except no_form as error:
        send(b"I", describe(error))
    except SystemExit as error:
        end(error.code & 255 if isinstance(error.code, int) else 1 if error.code else 0)
    except MemoryError as error:
        send(b"M", describe(error))
    except BaseException as error:
        send(b"X", describe(error))
    flush_quietly()
    end(0)


def find_entry_point(namespace: dict[str, Any], name: str) -> Callable[..., Any] | None:
    """Return the function, or the method of a fresh instance for `Class.method`; None if there is nothing to call."""
    first, *rest = name.split(".")
    found = namespace.get(first)
    for attribute in rest:
        if isinstance(found, type):
            found = found()
        found = getattr(found, attribute, None)
    return found if callable(found) else None


def flush_quietly() -> None:
    """Hand buffered output over; the program may have closed or replaced its streams."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            pass


def run_script(codes: list[CodeType], send: Send) -> None:
    """Run as `__main__`; afterwards the interpreter ends as usual (threads joined, atexit run)."""
    namespace = make_module("__main__")
    namespace["exit"] = namespace["quit"] = sys.exit  # `site` is not loaded
    try:
        for code in codes:
            exec(code, namespace)
        if len(codes) > 1:
            send(b"D", b"")
    except SystemExit:
        raise
    except BaseException as error:
        send(b"M" if isinstance(error, MemoryError) else b"X", describe(error))
        trace = error.__traceback__
        error.__traceback__ = trace.tb_next if trace else None  # this file's own frame
        sys.excepthook(type(error), error, error.__traceback__)
        raise SystemExit(1) from None
