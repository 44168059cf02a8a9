"""Small things that the contract tests share."""

import time
from collections.abc import Callable
from pathlib import Path

from populora.verifier.v1 import verifier_pb2 as pb

SLEEP = b"import time\ntime.sleep(60)"


def value(literal: str) -> pb.Value:
    return pb.Value(literal=literal)


def find_jailed(*, zombies: bool = True) -> list[int]:
    """Host processes with a mapped jail uid."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        uid = int(text.split("Uid:")[1].split()[0])
        if 100_000 <= uid < 105_000 and (zombies or "State:\tZ" not in text):
            found.append(int(status.parent.name))
    return found


def wait_until(condition: Callable[[], object], timeout_s: float = 5.0) -> float:
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < timeout_s
        time.sleep(0.005)
    return time.monotonic() - start
