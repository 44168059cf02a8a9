"""All attacks, by class."""

from verifier_server.selftest import kernel, pairs, resources, results
from verifier_server.selftest.attack import Attack

CLASSES: dict[str, list[Attack]] = {
    "memory": resources.MEMORY,
    "processes": resources.PROCESSES,
    "time": resources.TIME,
    "output": resources.OUTPUT,
    "files": resources.FILES,
    "system calls": kernel.SYSTEM_CALLS,
    "signals": kernel.SIGNALS,
    "surroundings": kernel.SURROUNDINGS,
    "exits": results.EXITS,
    "objects": results.OBJECTS,
    "frames": results.FRAMES,
    "patches": results.PATCHES,
    "sources": results.SOURCES,
    "pairs": pairs.ATTACKS,
}
ATTACKS: list[Attack] = [attack for attacks in CLASSES.values() for attack in attacks]
