"""Pid 1 of a jail: forks one child per case, reaps everything, reports wait statuses.

User code is never pid 1, because pid 1 ignores its own signals and misreports them. The supervisor never reads a
program. Descriptors of the child are 0, 1, 2 and 3 (requests in, frames out); the supervisor alone holds 4, on
which it talks to the service:

    supervisor -> service   b"R"                    ready for a case
                            b"S" + int32 + uint8    the case ended with this wait status, nothing of it lives; 1 if
                                                    /tmp is clean again, 0 if the jail must not be used again
    service -> supervisor   b"C" + uint8 n          start a case after burning n process ids

End of file on 4 means that the service is gone: exit, and the kernel kills the rest of the jail.
"""

import _thread
import gc
import os
import signal
import struct
import sys

# What most programs of benchmarks import; none of them keeps random state or an open file.
PRELOADED = (
    *(
        "bisect",
        "collections",
        "copy",
        "datetime",
        "decimal",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "itertools",
    ),
    *("itertools", "json", "math", "operator", "re", "string", "typing"),
)
TMP = "/tmp"  # noqa: S108 - the jail has its own
CASE_FD = 3
CONTROL_FD = 4


def move_descriptors(case_fd: int, control_fd: int) -> None:
    """Put the two inherited sockets at their fixed numbers, whatever numbers they came with."""
    case_fd, control_fd = (os.dup(fd) for fd in (case_fd, control_fd))
    high = [fcntl_dup(fd) for fd in (case_fd, control_fd)]
    os.dup2(high[0], CASE_FD)
    os.dup2(high[1], CONTROL_FD)
    os.closerange(CONTROL_FD + 1, 1 << 30)  # a busy service hands over high numbers, beyond RLIMIT_NOFILE


def fcntl_dup(fd: int) -> int:
    """Duplicate to a number of at least 64, out of the way of the fixed ones."""
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD, 64)


def burn_process_ids(count: int) -> None:
    """Use up `count` process ids, so that a program cannot tell from its pid which run it is in.

    Threads take their ids from the same row and cost a tenth of a process. Each is waited for until the kernel has
    forgotten it: forking is safe only from the one thread, and a lingering one would count against the process limit.
    """
    for _ in range(count):
        numbers: list[int] = []
        started = _thread.allocate_lock()
        started.acquire()
        _thread.start_new_thread(report_number, (numbers, started))
        started.acquire()
        try:
            while True:
                os.kill(numbers[0], 0)
                os.sched_yield()
        except ProcessLookupError:
            pass


def burn_inodes(count: int) -> None:
    """Use up inode numbers of /tmp, for the same reason."""
    for _ in range(count):
        os.mkdir(f"{TMP}/burned")
        os.rmdir(f"{TMP}/burned")


def report_number(numbers: list[int], started: _thread.LockType) -> None:
    """Say which id this thread has, and end."""
    numbers.append(_thread.get_native_id())
    started.release()


def wait_for(pid: int) -> int:
    """Reap until `pid` ends; then kill and reap whatever it left. Returns its wait status."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            break
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            os.wait()
        except ChildProcessError:
            return status


def clean_tmp() -> int:
    """Remove the case's empty folder; return 0 if anything else is left (never walk what a program made)."""
    names = os.listdir(TMP)
    try:
        for name in names[:2]:
            os.rmdir(f"{TMP}/{name}")
    except OSError:
        return 0
    return int(len(names) <= 2)


def supervise() -> None:
    """Serve cases until the control socket ends. Returns only in a child, which then runs its case."""
    os.write(CONTROL_FD, b"R")
    burn_inodes(os.urandom(1)[0] % 128)
    while True:
        command = os.read(CONTROL_FD, 2)
        if len(command) < 2:
            os._exit(0)
        try:
            burn_process_ids(command[1])
            burn_inodes(os.urandom(1)[0] % 4)
            pid = os.fork()
        except (OSError, RuntimeError):
            os._exit(70)
        if pid == 0:
            os.close(CONTROL_FD)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            return
        status = wait_for(pid)
        os.write(CONTROL_FD, b"S" + struct.pack("<iB", status, clean_tmp()))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    move_descriptors(int(sys.argv[1]), int(sys.argv[2]))
    if os.path.isdir("/packages"):
        sys.path.append("/packages")
    sys.path.insert(0, "/guest")  # `run` takes it out again before a program starts
    import run

    for name in PRELOADED if sys.argv[3:] == ["preload"] else ():
        __import__(name)
    # The first compilation in a process sets the compiler up; here once, for all cases.
    compile("def f(x): return [x]", "warm-up", "exec")
    gc.freeze()
    supervise()
    run.run_case(CASE_FD)
