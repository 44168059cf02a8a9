"""Sends every attack to a running verifier and says whether it was contained, exactly, and without residue.

An attack asks for a random 128-bit value that it cannot know, so a verdict of CORRECT would be a fooled judge. Contained
means: answered in time, not CORRECT, nothing completed that was to be stopped, no other value than the one that proves
the attack void, and a second program of a pair saw nothing of the first. Exact means also: the very outcome, evidence,
signal, exit status, system call and value that the attack states for the Python of the reference image (3.11); another
Python may end the same program in another harmless way.
"""

import json
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from populora.verifier import VerifierClient, VerifierUnavailableError
from populora.verifier.errors import RequestRefusedError, VerifierDefectError, VerifierTimeoutError
from populora.verifier.v1 import verifier_pb2 as pb
from rich.console import Console
from rich.table import Table

from verifier_server.domain import Outcome
from verifier_server.errors import SetupError
from verifier_server.judging import codec
from verifier_server.selftest.attack import AFTERWARDS, LIMITS, START_S, Attack
from verifier_server.selftest.suite import ATTACKS, CLASSES

_READY_S = 60.0
_IDLE_S = 10.0
_ERRORS = (RequestRefusedError, VerifierDefectError, VerifierTimeoutError, VerifierUnavailableError)
_COUNTS = ("live_jails", "live_run_cgroups", "open_descriptors", "zombies", "mounts")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one attack; empty texts where all is well."""

    attack: Attack
    breach: str
    """Why the attack was not contained."""
    deviation: str
    """How a contained attack differs from what was stated."""
    elapsed_s: float


def run_selftest(address: str, *, only: str | None = None) -> int:
    """Run the suite against `address`, print a table and one JSON line; 0 if all was contained without residue.

    Raises:
        SetupError: no verifier answers, or it is not ready within a minute.
    """
    _check_choice(only)
    with VerifierClient(address, timeout_s=120, patience_s=_READY_S) as client:
        info = _wait_until_ready(client)
        before = _count(_wait_until_idle(client))
        start = time.monotonic()
        results: dict[str, list[Result]] = {}
        with ThreadPoolExecutor(max(1, info.slots)) as pool:
            for name, attacks in CLASSES.items():
                chosen = [attack for attack in attacks if only in (None, attack.name, name)]
                results[name] = list(pool.map(lambda attack: run_attack(client, attack), chosen))
        after = _count(_wait_until_idle(client))
    residue = {name: max(0, after[name] - before[name]) for name in _COUNTS}
    return _report(results, residue, info, time.monotonic() - start)


def _check_choice(only: str | None) -> None:
    if only is not None and only not in CLASSES and all(attack.name != only for attack in ATTACKS):
        raise SetupError(f"--only {only}: no such attack. Classes are: {', '.join(CLASSES)}")


def run_attack(client: VerifierClient, attack: Attack) -> Result:
    """Run one attack, and its second program if it is a pair."""
    expected = secrets.token_hex(16)
    case = pb.TestCase(stdin=attack.stdin)
    if attack.is_script:
        case.expected_stdout = expected.encode()
    else:
        case.expected.canonical = codec.encode_str(expected)
    request = pb.RunCasesRequest(
        context=pb.RequestContext(run="selftest", task_type=attack.name[:256]),
        program=_to_bytes(attack.program),
        reads_stdin=attack.is_script,
        cases=[case],
        limits=make_limits(attack),
        return_outputs=True,
    )
    try:
        start = time.monotonic()
        response = client.run_cases(request)
        # By our own clock: a service that freezes cannot tell.
        elapsed_s = time.monotonic() - start - response.provenance.queue_s
        breach = find_breach(attack, response, elapsed_s) or _find_leak(client, attack)
    except _ERRORS as error:
        return Result(attack, f"no answer: {error}", "", 0.0)
    return Result(attack, breach, find_deviation(attack, response.cases[0].result), elapsed_s)


def make_limits(attack: Attack) -> pb.Limits:
    """Return the limits of an attack."""
    limits = pb.Limits()
    for name, value in {**LIMITS, **attack.limits}.items():
        setattr(limits, name, value if name.endswith("_s") else int(value))
    return limits


def find_breach(attack: Attack, response: pb.RunCasesResponse, elapsed_s: float) -> str:
    """Return why an attack was not contained, or an empty text."""
    result = response.cases[0].result
    if response.verdict == pb.VERDICT_CORRECT:
        return "CORRECT for a value that it cannot know"
    if result.outcome == pb.OUTCOME_COMPLETED:
        if attack.outcome is not Outcome.COMPLETED:
            return f"completed ({result.value.literal[:80]}), stated {attack.outcome}"
        if attack.returns is not ... and result.value.canonical != codec.encode(attack.returns, 1 << 20):
            return f"returned {result.value.literal[:80]}, stated {attack.returns!r}"
    if elapsed_s > attack.bound_s + START_S:
        return f"took {elapsed_s:.2f} s, bound {attack.bound_s:g} + {START_S:g} s"
    return ""


def _find_leak(client: VerifierClient, attack: Attack) -> str:
    """Run the second program of a pair, or an honest one: it must be right."""
    request = pb.RunCasesRequest(
        program=(attack.then or AFTERWARDS).encode(),
        cases=[pb.TestCase(expected=pb.Value(literal="True"))],
        limits=make_limits(attack),
    )
    response = client.run_cases(request)
    result = response.cases[0].result
    return "" if response.verdict == pb.VERDICT_CORRECT else f"the next program was affected: {_describe(result)}"


def find_deviation(attack: Attack, result: pb.RunResult) -> str:
    """Return how a result differs from what the attack states."""
    stated: list[tuple[str, object, object]] = [
        ("outcome", pb.Outcome.Name(result.outcome), f"OUTCOME_{attack.outcome.name}"),
        ("evidence", pb.Evidence.Name(result.evidence), f"EVIDENCE_{attack.evidence.name}"),
        # Empty where the service has no right to read the kernel's records.
        ("system call", result.denied_syscall, attack.syscall if result.denied_syscall else ""),
    ]
    if attack.signal is not None:
        stated.append(("signal", result.signal, attack.signal))
    if attack.exit_status is not None:
        stated.append(("exit status", result.exit_status, attack.exit_status))
    if attack.returns is not ...:
        same = result.value.canonical == codec.encode(attack.returns, 1 << 20)
        stated.append(("value", result.value.literal[:80], result.value.literal[:80] if same else attack.returns))
    return "; ".join(f"{name} {found}, stated {wanted}" for name, found, wanted in stated if found != wanted)


def _describe(result: pb.RunResult) -> str:
    return f"{pb.Outcome.Name(result.outcome)} {result.exception} {result.value.literal}"[:200]


def _to_bytes(program: str | bytes) -> bytes:
    return program if isinstance(program, bytes) else program.encode("utf-8", "surrogatepass")


# --- the deployment ----------------------------------------------------------------------------------------


def _wait_until_ready(client: VerifierClient) -> pb.ServerInfo:
    return _wait_for(client, lambda info: bool(info.protections), _READY_S, "is not ready")


def _wait_until_idle(client: VerifierClient) -> pb.ServerInfo:
    """Wait until nothing runs; on a deployment in use, counts are taken as they are."""
    try:
        return _wait_for(
            client, lambda i: not (i.running or i.queued or i.live_jails or i.live_run_cgroups), _IDLE_S, "is busy"
        )
    except SetupError:
        return client.server_info()


def _wait_for(
    client: VerifierClient, condition: Callable[[pb.ServerInfo], bool], patience_s: float, problem: str
) -> pb.ServerInfo:
    deadline = time.monotonic() + patience_s
    try:
        while not condition(info := client.server_info()):
            if time.monotonic() > deadline:
                raise SetupError(f"the verifier at {client.address} {problem} after {patience_s:g} s")
            time.sleep(0.1)
    except _ERRORS as error:
        raise SetupError(f"no verifier at {client.address}: {error}. Start one with `make serve-verifier`") from error
    return info


def _count(info: pb.ServerInfo) -> dict[str, int]:
    return {name: getattr(info, name) for name in _COUNTS}


def _report(results: dict[str, list[Result]], residue: dict[str, int], info: pb.ServerInfo, seconds: float) -> int:
    table = Table("class", "attacks", "contained", "exact", "slowest s")
    for name, found in results.items():
        contained = [result for result in found if not result.breach]
        exact = [result for result in contained if not result.deviation]
        slowest = max((result.elapsed_s for result in found), default=0.0)
        table.add_row(name, str(len(found)), str(len(contained)), str(len(exact)), f"{slowest:.2f}")
    console = Console(width=100, markup=False, highlight=False)
    console.print(f"{info.engine}, Python {info.python_version}, image {info.image_digest[:12]}")
    console.print(table)
    everything = [result for found in results.values() for result in found]
    for result in everything:
        problem = f"NOT CONTAINED {result.breach}" if result.breach else result.deviation
        if problem:
            print(f"{result.attack.name}: {ascii(problem)[1:-1]}")
    print(f"residue after the run: {', '.join(f'{name} {count}' for name, count in residue.items())}")
    summary = summarise(everything, residue, seconds)
    print(json.dumps({**summary, "degraded": list(info.degraded), "python": info.python_version}))
    return 0 if summary["contained"] == summary["attacks"] and summary["residue"] == 0 else 1


def summarise(results: Sequence[Result], residue: dict[str, int], seconds: float) -> dict[str, object]:
    """Return the figures of the JSON line."""
    contained = [result for result in results if not result.breach]
    return {
        "attacks": len(results),
        "contained": len(contained),
        "exact": sum(not result.deviation for result in contained),
        "residue": sum(residue.values()),
        "seconds": round(seconds, 1),
    }
