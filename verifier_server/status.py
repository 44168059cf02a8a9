"""What GetServerInfo answers: versions, limits, load, and what is alive on the host."""

import os
import time
from pathlib import Path
from typing import Any

from populora.verifier.v1 import verifier_pb2 as pb

from verifier_server import __version__, validation
from verifier_server.judging import literals
from verifier_server.sandbox import limits
from verifier_server.sandbox.base import LiveCounts
from verifier_server.scheduler import Scheduler


def describe_server(state: Any, scheduler: Scheduler, live: LiveCounts) -> pb.ServerInfo:
    """Return the state of the service now."""
    return pb.ServerInfo(
        server_version=__version__,
        engine=state.info.engine,
        image_digest=state.info.image_digest,
        python_version=state.info.python_version,
        protections=state.protections,
        degraded=state.info.degraded,
        limits=_describe_limits(),
        slots=scheduler.slots,
        running=scheduler.running,
        queued=scheduler.queued,
        queue_capacity=scheduler.capacity,
        uptime_s=time.monotonic() - state.started,
        requests=state.requests,
        live_jails=live.jails,
        live_run_cgroups=live.run_cgroups,
        open_descriptors=len(os.listdir("/proc/self/fd")),
        zombies=count_zombies(),
        mounts=Path("/proc/self/mounts").read_text().count("\n"),
        packages=state.info.packages,
    )


def _describe_limits() -> list[pb.LimitRange]:
    rows = [
        pb.LimitRange(name=name, default=default or 0.0, maximum=maximum)
        for name, (default, _, maximum) in limits.TABLE.items()
    ]
    counts = [
        pb.LimitRange(name="runs", default=validation.RUNS, maximum=limits.MAX_RUNS),
        pb.LimitRange(name="draws", default=limits.DEFAULT_DRAWS, maximum=limits.MAX_DRAWS),
    ]
    fixed = {
        "program_bytes": limits.MAX_PROGRAM_BYTES,
        "argument_bytes": literals.MAX_TEXT_BYTES,
        "stdin_bytes": limits.MAX_STDIN_BYTES,
        "cases": limits.MAX_CASES,
        "test_cases": limits.MAX_TEST_CASES,
        "message_bytes": limits.MAX_MESSAGE_BYTES,
    }
    return [*rows, *counts] + [pb.LimitRange(name=name, default=value, maximum=value) for name, value in fixed.items()]


def count_zombies() -> int:
    """Count dead children that this process has not reaped."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            try:
                stat = Path(f"/proc/{child}/stat").read_text()
            except OSError:
                continue
            count += stat.rpartition(")")[2].split()[0] == "Z"
    return count
