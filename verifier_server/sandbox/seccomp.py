"""The system-call table of the jail, and the kafel policy made from it.

An allow-list: what is not named answers ENOSYS, so that a newer libc falls back to older calls. Calls that only an
attack would make end the process (KILL_PROCESS: plain KILL would end one thread and let the rest run on).
"""

ALLOWED = """
access arch_prctl brk chdir clock_getres clock_gettime clock_nanosleep close close_range copy_file_range creat dup
dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_wait eventfd eventfd2 execve exit exit_group
faccessat faccessat2 fadvise64 fallocate fchdir fdatasync fork fstat fstatfs fsync ftruncate futex
getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpgid getpgrp getpid getppid getpriority
getrandom getresgid getresuid getrusage getsid gettid gettimeofday getuid kill link linkat lseek lstat
madvise membarrier memfd_create mincore mkdir mkdirat
mlock mlock2 mmap mprotect mremap msync munlock munmap nanosleep newfstatat open openat openat2 pause pidfd_open
pidfd_send_signal pipe pipe2 poll ppoll pread64 preadv preadv2 pselect6 pwrite64 pwritev pwritev2 read readahead
readlink readlinkat readv recvfrom recvmmsg recvmsg rename renameat renameat2 restart_syscall rmdir rseq
rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
sched_getscheduler sched_yield select sendfile sendmmsg sendmsg sendto set_robust_list set_tid_address setitimer
setpgid setsid shutdown sigaltstack signalfd signalfd4 stat statfs statx symlink symlinkat sync_file_range
sysinfo tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
timerfd_gettime timerfd_settime times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork
wait4 waitid write writev getsockopt setsockopt getsockname getpeername
""".split()

# Refused with an errno: nothing here needs them (OpenBLAS tries mbind and goes on without). Locks and watches on the
# shared read-only image would let programs of different runs signal to each other.
REFUSED: dict[int, list[str]] = {
    1: """
    chmod chown fchmod fchmodat fchown fchownat lchown mknod mknodat setpriority sched_setaffinity sched_setattr
    sched_setparam sched_setscheduler setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid
    setrlimit mlockall munlockall ioprio_set setxattr lsetxattr fsetxattr vhangup sethostname setdomainname
    settimeofday clock_settime clock_adjtime adjtimex capset
    mbind set_mempolicy get_mempolicy
    flock inotify_add_watch inotify_init inotify_init1 inotify_rm_watch
    """.split(),
}

# Only an attack makes these. With their numbers on x86-64, so that the kernel's records can be read.
# fmt: off
HOSTILE: dict[str, int] = {
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "pidfd_getfd": 438,
    "process_madvise": 440, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272,
    "setns": 308, "bpf": 321, "userfaultfd": 323, "perf_event_open": 298, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "keyctl": 250, "add_key": 248, "request_key": 249,
    "kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176,
    "open_by_handle_at": 304, "name_to_handle_at": 303, "reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163,
    "quotactl": 179, "syslog": 103, "move_pages": 279, "migrate_pages": 256,
    "iopl": 172, "ioperm": 173, "modify_ldt": 154, "lookup_dcookie": 212, "fanotify_init": 300, "fanotify_mark": 301,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432, "fsconfig": 431, "fspick": 433,
    "mount_setattr": 442, "memfd_secret": 447, "vmsplice": 278, "uselib": 134, "ustat": 136, "sysfs": 139,
    "personality": 135, "shmget": 29, "shmat": 30, "shmctl": 31, "shmdt": 67, "semget": 64, "semop": 65, "semctl": 66,
    "semtimedop": 220, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "mq_open": 240, "mq_unlink": 241,
    "mq_timedsend": 242, "mq_timedreceive": 243, "mq_notify": 244, "mq_getsetattr": 245, "quotactl_fd": 443,
    "splice": 275, "tee": 276,
}
# fmt: on
# Calls that are ended depending on their arguments.
_FILTERED_NUMBERS = {41: "socket", 56: "clone"}
_X86_64 = 0xC000003E

# kafel follows the kernel's own names.
_KAFEL_NAMES = {
    "umount2": "umount",
    "stat": "newstat",
    "fstat": "newfstat",
    "lstat": "newlstat",
    "uname": "newuname",
    "sendfile": "sendfile64",
}

# All CLONE_NEW* flags that clone accepts.
_NEW_NAMESPACES = 0x7E020080
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_EACCES, _EPERM, _ENOSYS, _ENOTTY = 13, 1, 38, 25
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# fcntl commands for locks, leases and directory notes: F_GETLK .. F_SETLKW, F_OFD_GETLK .. F_OFD_SETLKW, F_SETLEASE ..
_LOCK_COMMANDS = (5, 6, 7, 36, 37, 38, 1024, 1025, 1026)
# prctl options that change nothing outside the thread: name, death signal, no-new-privs, dumpable read.
_PRCTL_ALLOWED = (1, 2, 3, 15, 16, 38, 39)

_FILTERED = f"""
  ALLOW {{
    clone(flags) {{ (flags & {_NEW_NAMESPACES:#x}) == 0 }},
    socketpair(family) {{ family == {_AF_UNIX} }},
    prctl(option) {{ {" || ".join(f"option == {n}" for n in _PRCTL_ALLOWED)} }},
    prlimit64(pid, resource, new_limit) {{ pid == 0 && new_limit == 0 }},
    fcntl(fd, command) {{ {" && ".join(f"command != {n}" for n in _LOCK_COMMANDS)} }},
    ioctl(fd, request) {{ request != {_TIOCSTI:#x} && request != {_TIOCLINUX:#x} }}
  }},
  ERRNO({_EACCES}) {{
    socket(family) {{ family == {_AF_UNIX} || family == {_AF_INET} || family == {_AF_INET6} }},
    socketpair(family) {{ family != {_AF_UNIX} }}
  }},
  ERRNO({_EPERM}) {{
    prlimit64(pid, resource, new_limit) {{ pid != 0 || new_limit != 0 }},
    fcntl(fd, command) {{ {" || ".join(f"command == {n}" for n in _LOCK_COMMANDS)} }},
    prctl(option) {{ {" && ".join(f"option != {n}" for n in _PRCTL_ALLOWED)} }}
  }},
  ERRNO({_ENOTTY}) {{
    ioctl(fd, request) {{ request == {_TIOCSTI:#x} || request == {_TIOCLINUX:#x} }}
  }},
  KILL_PROCESS {{
    clone(flags) {{ (flags & {_NEW_NAMESPACES:#x}) != 0 }},
    socket(family) {{ family != {_AF_UNIX} && family != {_AF_INET} && family != {_AF_INET6} }}
  }}
"""


def make_policy() -> str:
    """Return the kafel text. clone3 is not listed and so answers ENOSYS: its flags cannot be inspected."""
    blocks = [_make_block("ALLOW", ALLOWED)]
    blocks += [_make_block(f"ERRNO({number})", names) for number, names in REFUSED.items()]
    blocks.append(_make_block("KILL_PROCESS", list(HOSTILE)))
    return "POLICY jail {\n" + ",\n".join(blocks) + ",\n" + _FILTERED + f"}}\nUSE jail DEFAULT ERRNO({_ENOSYS})\n"


def name_syscall(architecture: int, number: int) -> str:
    """Return the name of a call that the policy ends, else its number; 32-bit calls are marked as such."""
    if architecture != _X86_64:
        return f"32-bit syscall {number}"
    names = _FILTERED_NUMBERS | {value: name for name, value in HOSTILE.items()}
    return names.get(number, f"syscall {number}")


def _make_block(action: str, names: list[str]) -> str:
    return f"  {action} {{ {', '.join(_KAFEL_NAMES.get(name, name) for name in names)} }}"
