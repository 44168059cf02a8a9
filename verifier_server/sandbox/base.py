"""What every sandbox engine promises; one conformance suite checks each."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from verifier_server.domain import CaseRun, Run

Until = Callable[[CaseRun], Awaitable[bool]]
"""Is told each result and says whether to stop there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What an engine runs programs with."""

    engine: str
    image_digest: str
    """SHA-256 over interpreter, standard library, guest code and seccomp policy."""
    python_version: str
    degraded: tuple[str, ...] = ()
    """Protections that the host cannot give; shown in every response."""
    packages: tuple[str, ...] = ()
    """Top-level modules of the image besides the standard library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCounts:
    """What is alive on the host because of the engine."""

    jails: int
    run_cgroups: int


class Sandbox(Protocol):
    """Runs untrusted programs, each in a fresh jail that leaves nothing behind."""

    def start(self) -> EngineInfo:
        """Prepare the host: image, cgroups, clean-up of what a dead instance left.

        Raises:
            SetupError: the host lacks something; the message says what and how to get it.
        """
        ...

    async def run(self, run: Run, *, slot: int, until: Until | None = None) -> list[CaseRun]:
        """Run the cases of `run`, in order, and return what the program did on each; stop early if `until` says so.

        At most one run per slot at a time. If a case ends the jail, the following cases go on in a fresh one.
        Cancelling the call kills the jail before the cancellation goes on. Wall-clock limits are kept within
        50 ms plus the time the kernel needs to kill; stdout, stderr and frames are bounded.

        Raises:
            SandboxError: the machinery failed; nothing is known about the program.
        """
        ...

    def count_live(self) -> LiveCounts:
        """Count what is alive now."""
        ...

    def close(self) -> None:
        """Kill what runs and remove what `start` made."""
        ...
