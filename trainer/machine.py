"""What this machine offers to a run."""

from pathlib import Path

import psutil

_UNLIMITED = 1 << 60


def find_memory_cgroup() -> Path | None:
    """Return the folder of the memory cgroup that this process lives in (v1 or v2); None if there is none."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if names and "memory" not in names.split(","):
            continue
        folder = Path("/sys/fs/cgroup" + path) if not names else Path("/sys/fs/cgroup/memory" + path)
        if (folder / "memory.max").exists() or (folder / "memory.limit_in_bytes").exists():
            return folder
    return None


def measure_available_memory() -> int:
    """Return the bytes of main memory that a run could take: what is free, within the limit of the cgroup."""
    available = int(psutil.virtual_memory().available)
    folder = find_memory_cgroup()
    if folder is None:
        return available
    version2 = (folder / "memory.max").exists()
    limit = (folder / ("memory.max" if version2 else "memory.limit_in_bytes")).read_text().strip()
    used = (folder / ("memory.current" if version2 else "memory.usage_in_bytes")).read_text()
    if limit == "max" or int(limit) > _UNLIMITED:
        return available
    # Cached files count as used, but give way.
    statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    cached = int(statistics.get("file", statistics.get("total_cache", "0"))) - int(statistics.get("shmem", "0"))
    return min(available, int(limit) - int(used) + cached)
