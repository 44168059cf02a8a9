"""Attacks on the kernel's surface, on the supervisor, and on what lies around a jail. Numbers are those of x86-64."""

from verifier_server.domain import Outcome
from verifier_server.selftest.attack import CLAIM, KERNEL, call, harmless

_SYSCALL = "import ctypes\ndef f():\n  return ctypes.CDLL(None).syscall({}, {})\n"
_ERRNO = (
    "import ctypes\ndef f():\n  libc = ctypes.CDLL(None, use_errno=True)\n"
    "  return [libc.syscall({}, {}), ctypes.get_errno()]\n"
)
_MACHINE_CODE = (
    "import ctypes, mmap\ndef f():\n  code = bytes.fromhex({!r})\n  m = mmap.mmap(-1, 4096, prot=7)\n  m.write(code)\n"
    "  at = ctypes.addressof(ctypes.c_char.from_buffer(m))\n  return ctypes.CFUNCTYPE(ctypes.c_int)(at)()\n"
)
_DENIED: list[tuple[str, int, str, str]] = [
    # name of the attack, number, arguments, name that the kernel's record must give
    ("ptrace", 101, "0", "ptrace"),
    ("process_vm_readv", 310, "1", "process_vm_readv"),
    ("process_vm_writev", 311, "1", "process_vm_writev"),
    ("kcmp", 312, "1", "kcmp"),
    ("pidfd_getfd", 438, "0", "pidfd_getfd"),
    ("mount", 165, "0", "mount"),
    ("umount", 166, "0", "umount2"),
    ("pivot_root", 155, "0", "pivot_root"),
    ("chroot", 161, "0", "chroot"),
    ("unshare_user", 272, "0x10000000", "unshare"),
    ("unshare_network", 272, "0x40000000", "unshare"),
    ("setns", 308, "0", "setns"),
    ("clone_new_user", 56, "0x10000011", "clone"),
    ("clone_new_mounts", 56, "0x20011", "clone"),
    ("bpf", 321, "0", "bpf"),
    ("userfaultfd", 323, "0", "userfaultfd"),
    ("perf_event_open", 298, "0", "perf_event_open"),
    ("io_uring_setup", 425, "1", "io_uring_setup"),
    ("io_uring_enter", 426, "1", "io_uring_enter"),
    ("keyctl", 250, "0", "keyctl"),
    ("add_key", 248, "0", "add_key"),
    ("request_key", 249, "0", "request_key"),
    ("kexec_load", 246, "0", "kexec_load"),
    ("init_module", 175, "0", "init_module"),
    ("finit_module", 313, "0", "finit_module"),
    ("open_by_handle_at", 304, "0", "open_by_handle_at"),
    ("name_to_handle_at", 303, "0", "name_to_handle_at"),
    ("reboot", 169, "0", "reboot"),
    ("swapon", 167, "0", "swapon"),
    ("acct", 163, "0", "acct"),
    ("quotactl", 179, "0", "quotactl"),
    ("syslog", 103, "0", "syslog"),
    ("iopl", 172, "3", "iopl"),
    ("ioperm", 173, "0", "ioperm"),
    ("modify_ldt", 154, "0", "modify_ldt"),
    ("personality", 135, "0x400000", "personality"),
    ("memfd_secret", 447, "0", "memfd_secret"),
    ("open_tree", 428, "0", "open_tree"),
    ("move_mount", 429, "0", "move_mount"),
    ("fsopen", 430, "0", "fsopen"),
    ("mount_setattr", 442, "0", "mount_setattr"),
    ("fanotify_init", 300, "0", "fanotify_init"),
    ("vmsplice", 278, "0", "vmsplice"),
    ("splice", 275, "0", "splice"),
    ("tee", 276, "0", "tee"),
    ("shared_memory_segment", 29, "0", "shmget"),
    ("semaphore_set", 64, "0", "semget"),
    ("message_queue", 68, "0", "msgget"),
    ("posix_message_queue", 240, "0", "mq_open"),
    ("socket_netlink", 41, "16, 3, 0", "socket"),
    ("socket_vsock", 41, "40, 1, 0", "socket"),
    ("socket_alg", 41, "38, 5, 0", "socket"),
    ("socket_packet", 41, "17, 3, 0", "socket"),
]

SYSTEM_CALLS = [
    *(
        call(f"syscall_{name}", _SYSCALL.format(number, rest), Outcome.SYSCALL_DENIED, KERNEL, signal=31, syscall=known)
        for name, number, rest, known in _DENIED
    ),
    call(
        "violation_in_a_thread",
        "import ctypes, threading, time\ndef f():\n"
        "  threading.Thread(target=lambda: ctypes.CDLL(None).syscall(101, 0)).start()\n  time.sleep(9)",
        Outcome.SYSCALL_DENIED,
        KERNEL,
        signal=31,
        syscall="ptrace",
    ),
    # mov eax, 20; int 0x80; ret: getpid by the 32-bit entry
    call(
        "system_call_by_the_32_bit_entry",
        _MACHINE_CODE.format("b814000000cd80c3"),
        Outcome.SYSCALL_DENIED,
        KERNEL,
        signal=31,
        syscall="32-bit syscall 20",
    ),
    harmless("machine_code_of_its_own", _MACHINE_CODE.format("b82a000000c3"), 42),  # mov eax, 42; ret
    harmless("clone3_is_unknown", _ERRNO.format(435, "0, 0"), [-1, 38]),
    harmless("the_x32_entry", _ERRNO.format(0x40000000 + 39, "0"), [-1, 38]),
    harmless("stop_the_time_stamp_counter", _ERRNO.format(157, "26, 2, 0, 0, 0"), [-1, 1]),
    harmless("core_dumps", "import resource\ndef f(): return resource.getrlimit(resource.RLIMIT_CORE)", (0, 0)),
    harmless("priority", _ERRNO.format(141, "0, 0, -20"), [-1, 1]),
    harmless("processor_affinity", _ERRNO.format(203, "0, 8, b'\\1' * 8"), [-1, 1]),
    # The parent completes; the kernel's record of its child names the call all the same.
    harmless(
        "violation_in_a_child",
        "import ctypes, os, time\ndef f():\n  if os.fork() == 0: ctypes.CDLL(None).syscall(101, 0)\n"
        "  status = os.wait()[1]\n  time.sleep(0.05)\n  return status",
        31,
        syscall="ptrace",
    ),
    harmless("an_unknown_system_call", _ERRNO.format(999, "0"), [-1, 38]),
    harmless("execveat_is_unknown", _ERRNO.format(322, "0"), [-1, 38]),
    harmless("seccomp_is_unknown", _ERRNO.format(317, "1, 0, 0"), [-1, 38]),
    harmless("make_itself_dumpable", _ERRNO.format(157, "4, 1, 0, 0, 0"), [-1, 1]),
    harmless("change_its_memory_map", _ERRNO.format(157, "35, 1, 0, 0, 0"), [-1, 1]),
    harmless("lock_all_memory", _ERRNO.format(151, "3"), [-1, 1]),
    harmless("real_time_priority", _ERRNO.format(144, "0, 1, 0"), [-1, 1]),
    harmless("raise_its_limits", _ERRNO.format(302, "0, 7, 1, 0"), [-1, 1]),
    harmless("limits_of_the_supervisor", _ERRNO.format(302, "1, 7, 0, 0"), [-1, 1]),
    harmless("host_name", _ERRNO.format(170, "b'x', 1"), [-1, 1]),
    harmless("capabilities", _ERRNO.format(126, "0, 0"), [-1, 1]),
    harmless("inotify_on_shared_files", _ERRNO.format(294, "0"), [-1, 1]),
    harmless(
        "locks_on_shared_files",
        "import fcntl\ndef f():\n  out = []\n  for lock in (fcntl.flock, fcntl.lockf):\n"
        "    try: lock(open('/guest/run.py'), fcntl.LOCK_SH)\n    except PermissionError: out.append(1)\n  return out",
        [1, 1],
    ),
    call("keys_into_a_terminal", "import fcntl\ndef f(): fcntl.ioctl(0, 0x5412, b'x')", Outcome.EXCEPTION, CLAIM),
]

SIGNALS = [
    call("kill_itself", "import os\ndef f(): os.kill(os.getpid(), 9)", Outcome.SIGNALED, KERNEL, signal=9),
    call(
        "kill_itself_late",
        "import os, time\ndef f():\n  time.sleep(0.25)\n  os.kill(os.getpid(), 9)",
        Outcome.SIGNALED,
        KERNEL,
        signal=9,
        limits={"wall_time_s": 0.4},
    ),
    call("kill_its_group", "import os\ndef f(): os.killpg(0, 9)", Outcome.SIGNALED, KERNEL, signal=9),
    call("abort", "import os\ndef f(): os.abort()", Outcome.SIGNALED, KERNEL, signal=6),
    call("null_pointer", "import ctypes\ndef f(): ctypes.string_at(0)", Outcome.SIGNALED, KERNEL, signal=11),
    # Nothing was denied, so the kernel has nothing to name.
    call(
        "signal_31_to_itself", "import os\ndef f(): os.kill(os.getpid(), 31)", Outcome.SYSCALL_DENIED, KERNEL, signal=31
    ),
    call("signal_24_to_itself", "import os\ndef f(): os.kill(os.getpid(), 24)", Outcome.SIGNALED, KERNEL, signal=24),
    harmless(
        "kill_everybody",
        "import os\ndef f():\n  try: os.kill(-1, 9)\n  except ProcessLookupError: return 'alone'",
        "alone",
    ),
    harmless(
        "kill_the_supervisor",
        "import os\ndef f():\n  for n in range(1, 32): os.kill(1, n)\n  return os.getppid()",
        1,
    ),
]

SURROUNDINGS = [
    *(
        harmless(
            f"socket_{name}",
            f"import socket\ndef f():\n  try: socket.socket({family}, socket.SOCK_STREAM)\n"
            "  except PermissionError: return True",
            True,
        )
        for name, family in [("inet", "socket.AF_INET"), ("inet6", "socket.AF_INET6"), ("unix", "socket.AF_UNIX")]
    ),
    call(
        "cloud_metadata",
        "import socket\ndef f(): socket.create_connection(('169.254.169.254', 80))",
        Outcome.EXCEPTION,
        CLAIM,
    ),
    call("name_resolution", "import socket\ndef f(): socket.getaddrinfo('example.org', 80)", Outcome.EXCEPTION, CLAIM),
    harmless(
        "places_of_secrets",
        "import os\ndef f(): return [p for p in ('/proc', '/sys', '/etc/passwd', '/etc/shadow', '/root', '/home', '/var',"
        " '/run/secrets', '/dev/shm', '/dev/mem', '/dev/kmsg', '/dev/tty', '/sys/fs/cgroup') if os.path.exists(p)]",
        [],
    ),
    call("memory_through_proc", "def f(): open('/proc/self/mem', 'wb')", Outcome.EXCEPTION, CLAIM),
    call("its_own_cgroup", "import os\ndef f(): os.mkdir('/sys/fs/cgroup/x')", Outcome.EXCEPTION, CLAIM),
    harmless(
        "secrets_in_the_environment",
        "import os\ndef f(): return [n for n in os.environ if any(w in n for w in ('KEY', 'TOKEN', 'SECRET', 'PASS', 'HASH'))]",
        [],
    ),
    harmless(
        "inherited_descriptors",
        "import os\ndef f():\n  found = []\n  for fd in range(1024):\n    try: os.fstat(fd)\n    except OSError: continue\n"
        "    found.append(fd)\n  return found",
        [0, 1, 2, 3],
    ),
    harmless(
        "write_anywhere",
        "import os\ndef f():\n  written = []\n  for top, _, _ in os.walk('/'):\n    if not top.startswith('/tmp'):\n"
        "      try: open(top + '/x', 'w')\n      except OSError: continue\n      written.append(top)\n  return written",
        [],
    ),
    harmless(
        "links_to_the_host",
        "import os\ndef f():\n  os.symlink('/etc/passwd', 'out')\n  os.symlink('../../../../../../etc', 'up')\n"
        "  return [os.path.exists('out'), os.path.exists('up/passwd')]",
        [False, False],
    ),
    call("hard_link_to_the_image", "import os\ndef f(): os.link('/guest/run.py', 'x')", Outcome.EXCEPTION, CLAIM),
    call("device_file", "import os\ndef f(): os.mknod('x', 0o60600, 0x801)", Outcome.EXCEPTION, CLAIM),
    call("set_user_id", "import os\ndef f():\n  open('x', 'w')\n  os.chmod('x', 0o4755)", Outcome.EXCEPTION, CLAIM),
    call("become_root", "import os\ndef f(): os.setuid(0)", Outcome.EXCEPTION, CLAIM),
    call(
        "run_a_file_from_tmp",
        "import os, shutil\ndef f():\n  shutil.copy('/usr/bin/python3.11', 'x') if 0 else open('x', 'wb').write(b'#!/bin/x')\n"
        "  os.execv('x', ['x'])",
        Outcome.EXCEPTION,
        CLAIM,
    ),
    call(
        "run_a_file_in_memory",
        "import os\ndef f():\n  fd = os.memfd_create('x', 0)\n  os.write(fd, open('/lib64/ld-linux-x86-64.so.2', 'rb').read())\n"
        "  os.execve(fd, ['x'], {})",
        Outcome.EXCEPTION,
        CLAIM,
    ),
    call(
        "run_a_file_by_the_linker",
        "import os\ndef f():\n  open('x', 'wb').write(open('/lib64/ld-linux-x86-64.so.2', 'rb').read())\n"
        "  os.execv('/lib64/ld-linux-x86-64.so.2', ['ld', os.path.abspath('x')])",
        Outcome.NO_RESULT,
        KERNEL,
        exit_status=127,
    ),
    call(
        "a_shell",
        "import subprocess\ndef f(): return subprocess.run('id', shell=True).returncode",
        Outcome.EXCEPTION,
        CLAIM,
    ),
    harmless(
        "remove_its_own_folder",
        "import os\ndef f():\n  os.rmdir(os.getcwd())\n  try: os.getcwd()\n  except FileNotFoundError: return 'gone'",
        "gone",
    ),
    # Listing interfaces goes through a netlink socket.
    call(
        "network_interfaces",
        "import socket\ndef f(): return socket.if_nameindex()",
        Outcome.SYSCALL_DENIED,
        KERNEL,
        signal=31,
        syscall="socket",
    ),
]

ATTACKS = [*SYSTEM_CALLS, *SIGNALS, *SURROUNDINGS]
