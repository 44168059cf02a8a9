"""What an attack is: a hostile program, the exact outcome that contains it, and a bound on the time until the reply.

The same attacks are the project's own tests (tests/sandbox) and the `selftest` command. Every one runs under a memory
limit of 128 MiB unless it says otherwise; without one a hostile program must never run.
"""

from dataclasses import dataclass, field

from verifier_server.domain import Evidence, Outcome

KERNEL, SERVER, CLAIM = Evidence.KERNEL, Evidence.SERVER, Evidence.GUEST_CLAIM
MIB = 1 << 20
LIMITS: dict[str, float] = {
    "cpu_time_s": 2.0,
    "wall_time_s": 4.0,
    "memory_bytes": 128 * MIB,
    "processes": 16,
    "tmp_bytes": 8 * MIB,
}
SHORT_CPU = {"cpu_time_s": 0.3}
SHORT_WALL = {"wall_time_s": 0.3}
AFTERWARDS = "def f(): return 6 * 7 == 42"
"""What runs after every attack that is no pair, and must be right."""
START_S = 1.0
"""Allowance for starting jails on a busy machine; comes on top of an attack's bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """A hostile program and what must come of it. `f()` is called, or the program runs as a script."""

    name: str
    program: str | bytes
    outcome: Outcome
    evidence: Evidence
    bound_s: float = 1.5
    """Longest time until the reply, besides START_S."""
    limits: dict[str, float] = field(default_factory=dict)
    """Changes to LIMITS."""
    is_script: bool = False
    stdin: bytes = b""
    signal: int | None = None
    exit_status: int | None = None
    syscall: str = ""
    """Name that must be given for a denied system call, where the kernel tells it."""
    returns: object = ...
    """The value that a completed call must return."""
    then: str = ""
    """A second program for the same slot; `f()` must return True, which means that it saw nothing of the first."""


def call(name: str, program: str | bytes, outcome: Outcome, evidence: Evidence, **rest: object) -> Attack:
    """Return an attack by a call of `f`."""
    return Attack(name=name, program=program, outcome=outcome, evidence=evidence, **rest)  # type: ignore[arg-type]


def script(name: str, program: str | bytes, outcome: Outcome, evidence: Evidence, **rest: object) -> Attack:
    """Return an attack by a script."""
    return Attack(
        name=name,
        program=program,
        outcome=outcome,
        evidence=evidence,
        is_script=True,
        **rest,  # type: ignore[arg-type]
    )


def harmless(name: str, program: str | bytes, returns: object, **rest: object) -> Attack:
    """Return an attack that completes, because what it tries does nothing; `returns` proves it."""
    return call(name, program, Outcome.COMPLETED, SERVER, returns=returns, **rest)


def pair(name: str, first: str, then: str, outcome: Outcome = Outcome.COMPLETED, **rest: object) -> Attack:
    """Return a pair of programs: what the first leaves behind must not reach the second."""
    evidence = rest.pop("evidence", SERVER)
    return call(name, first, outcome, evidence, then=then, **rest)  # type: ignore[arg-type]
