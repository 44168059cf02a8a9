"""Runs one case in a child of the supervisor: reads the request, runs the program, writes frames.

A request is `uint32 n`, n bytes of JSON, then the blobs whose lengths the JSON lists. A frame is one kind byte,
`uint32 n` and n bytes:

    V canonical value       X exception (claimed class and message)     S syntax error
    E no entry point        I value without canonical form              L value over the limit
    A analysis as JSON      H audit-hook event as JSON                  M MemoryError

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

_HOOK_EVENTS_MAX = 32
_WATCHED = (
    "ctypes.",
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
    "pty.",
    "shutil.",
    "signal.pthread_kill",
    "socket.",
    "subprocess.",
    "sys._current_frames",
    "sys.setprofile",
    "sys.settrace",
    "syslog.",
)
_QUIET_ROOTS = (sys.prefix + "/lib", "/usr/lib", "/guest")


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
    write, pack = os.write, struct.pack

    def send(kind: bytes, payload: bytes) -> None:
        data = kind + pack("<I", len(payload)) + payload
        while data:
            data = data[write(fd, data) :]

    return send


def describe(error: BaseException) -> bytes:
    """Return class and message of an exception, bounded; a hostile __str__ is replaced by its class."""
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:
        text = type(error).__name__
    return text[:500].encode("utf-8", "backslashreplace")


def watch_events(send: Send) -> None:
    """Report what the program tries, once per distinct event. Telemetry, not protection."""
    seen: set[tuple[str, str]] = set()

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if len(seen) >= _HOOK_EVENTS_MAX:
            return
        if event == "open":
            path, mode = args[0], args[1] or "r"
            if not isinstance(path, str) or ("w" not in mode and path.startswith(_QUIET_ROOTS)):
                return
        elif not event.startswith(_WATCHED):
            return
        detail = ", ".join(repr(arg) for arg in args[:3] if type(arg) in (str, bytes, int, tuple, list))[:200]
        if (event, detail) not in seen:
            seen.add((event, detail))
            send(b"H", json.dumps([event, detail]).encode())

    sys.addaudithook(hook)


def run_case(fd: int) -> None:
    """Run one case and end the process."""
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

        send(b"A", analyze.analyze(blobs[0], header["entry_point"]))
        os._exit(0)
    sys.path.remove("/guest")
    code = compile_program(blobs[0], send)
    watch_events(send)
    if mode == "script":
        run_script(code, send)
    else:
        call_entry_point(code, header, blobs[1], blobs[2], send)


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
    code: CodeType, header: dict[str, Any], positional: bytes, keywords: bytes, send: Send
) -> NoReturn:
    """Define the program, call its entry point once, send the encoded result, end at once."""
    end, encode = os._exit, codec.encode
    too_large, no_form = codec.TooLargeError, codec.EncodingError
    args: Any = codec.decode(positional)
    kwargs: Any = codec.decode(keywords)
    try:
        namespace = make_module("program")
        exec(code, namespace)
        entry = namespace.get(header["entry_point"])
        if not callable(entry):
            send(b"E", header["entry_point"].encode())
            end(1)
        value = entry(*args, **kwargs)
        send(b"V", encode(value, header["value_bytes"]))
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


def flush_quietly() -> None:
    """Hand buffered output over; the program may have closed or replaced its streams."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            pass


def run_script(code: CodeType, send: Send) -> None:
    """Run as `__main__`; afterwards the interpreter ends as usual (threads joined, atexit run)."""
    namespace = make_module("__main__")
    namespace["exit"] = namespace["quit"] = sys.exit  # `site` is not loaded
    try:
        exec(code, namespace)
    except SystemExit:
        raise
    except BaseException as error:
        send(b"M" if isinstance(error, MemoryError) else b"X", describe(error))
        trace = error.__traceback__
        error.__traceback__ = trace.tb_next if trace else None  # this file's own frame
        sys.excepthook(type(error), error, error.__traceback__)
        raise SystemExit(1) from None
