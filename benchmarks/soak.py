"""A soak: many runs, some hostile, far more calls in flight than fit; is every verdict right, and does anything leak?

    make soak        (python -m benchmarks.soak --runs 10000)

Calls in flight are 10 x (slots + queue), so most are refused at first and come again when the service says; refusals
are counted. Every program has limits of one second of CPU and of wall clock. Honest programs need under 20 % of that
and have a known verdict; hostile ones are those of the self-test, and none may get CORRECT. Memory of the server is
compared between the first and the last thousand runs, residue by the counts of GetServerInfo.
"""

import asyncio
import random
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from populora.verifier.client import read_retry_delay_s
from populora.verifier.v1 import verifier_pb2 as pb
from populora.verifier.v1 import verifier_pb2_grpc as pb_grpc
from rich.console import Console
from rich.progress import Progress

from benchmarks import harness
from verifier_server.selftest.attack import LIMITS
from verifier_server.selftest.suite import ATTACKS

C, W, F = pb.VERDICT_CORRECT, pb.VERDICT_WRONG, pb.VERDICT_FAILED
_SECOND = {"cpu_time_s": 1.0, "wall_time_s": 1.0}
_COUNTS = ("live_jails", "live_run_cgroups", "open_descriptors", "zombies", "mounts")
_IMPORTS = (
    "import bisect, collections, datetime, decimal, fractions, functools, heapq, itertools, json, math, random, re, "
    "string, typing"
)
# name, program, argument, expected literal, verdict
HONEST = [
    ("trivial", "def f(x): return x + 1", "1", "2", C),
    ("wrong", "def f(x): return x + 2", "1", "2", W),
    ("raises", "def f(x): return 1 / 0", "1", "2", F),
    ("imports", f"{_IMPORTS}\ndef f(x): return math.comb(x, 2)", "10", "45", C),
    ("a tenth of a second", "def f(x): return sum(i * i for i in range(x))", "700000", "114333088333450000", C),
    ("prints", "def f(x):\n  print('a' * 10000)\n  return x", "'b'", "'b'", C),
    ("a large value", "def f(x): return list(range(x))", "3000", str(list(range(3000))), C),
    (
        "threads",
        "import threading\ndef f(x):\n  t = [threading.Thread(target=int) for _ in range(x)]\n"
        "  [i.start() for i in t]\n  [i.join() for i in t]\n  return x",
        "8",
        "8",
        C,
    ),
    ("sleeps", "import time\ndef f(x):\n  time.sleep(x)\n  return x", "0.1", "0.1", C),
    ("ten megabytes", "def f(x): return len(bytearray(b'x' * x))", "10000000", "10000000", C),
]
_ALLOWED: dict[int, set[int]] = {C: {C}, W: {W}, F: {F}}


@dataclass(slots=True)
class Tally:
    """What came out so far."""

    done: int = 0
    hostile: int = 0
    refused: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    false_verdicts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    memory_bytes: list[int] = field(default_factory=list)


def make_request(draw: random.Random, hostile_share: float) -> tuple[str, pb.RunCasesRequest, set[int]]:
    """Draw a program: its name, the request, and the verdicts that are right for it."""
    if draw.random() < hostile_share:
        attack = draw.choice(ATTACKS)
        case = pb.TestCase(stdin=attack.stdin)
        if attack.is_script:
            case.expected_stdout = secrets.token_bytes(16)
        else:
            case.expected.literal = repr(secrets.token_hex(16))
        request = pb.RunCasesRequest(reads_stdin=attack.is_script, cases=[case], limits=_make_limits(attack.limits))
        request.program = attack.program if isinstance(attack.program, bytes) else attack.program.encode()
        return f"hostile {attack.name}", request, {W, F}
    name, program, argument, expected, verdict = draw.choice(HONEST)
    case = pb.TestCase(arguments=argument, expected=pb.Value(literal=expected))
    request = pb.RunCasesRequest(program=program.encode(), cases=[case], limits=_make_limits({}))
    return name, request, _ALLOWED[verdict]


def _make_limits(changes: dict[str, float]) -> pb.Limits:
    limits = pb.Limits()
    for name, value in {**LIMITS, **changes, **_SECOND}.items():
        setattr(limits, name, value if name.endswith("_s") else int(value))
    return limits


async def ask(stub: Any, request: pb.RunCasesRequest, tally: Tally) -> pb.RunCasesResponse | None:
    """Ask until the service has room; None if it failed otherwise."""
    while True:
        try:
            response: pb.RunCasesResponse = await stub.RunCases(request, timeout=600)
            return response
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                tally.errors[f"{error.code().name}: {error.details()}"[:200]] += 1
                return None
            tally.refused += 1
            # Spread, so that those who were refused together do not come back together.
            await asyncio.sleep(read_retry_delay_s(error) * random.uniform(0.5, 1.5))


async def work(
    stub: Any, requests: list[tuple[str, pb.RunCasesRequest, set[int]]], tally: Tally, pid: int | None
) -> None:
    """Send requests one after another until none are left."""
    while requests:
        name, request, right = requests.pop()
        response = await ask(stub, request, tally)
        tally.done += 1
        tally.hostile += name.startswith("hostile")
        if response is not None:
            result = response.cases[0].result
            tally.outcomes[pb.Outcome.Name(result.outcome)] += 1
            if response.verdict not in right:
                tally.false_verdicts[f"{name}: {pb.Outcome.Name(result.outcome)} {result.exception}"[:200]] += 1
        if pid is not None and tally.done % 10 == 0:
            tally.memory_bytes.append(_read_memory_bytes(pid))


def _read_memory_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


async def soak(verifier: harness.Verifier, runs: int, hostile_share: float, seed: int) -> dict[str, object]:
    """Run the soak and return its figures."""
    draw = random.Random(seed)
    requests = [make_request(draw, hostile_share) for _ in range(runs)]
    options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_concurrent_streams", 1 << 20)]
    async with grpc.aio.insecure_channel(verifier.address, options=options) as channel:
        stub: Any = pb_grpc.VerifierStub(channel)  # type: ignore[no-untyped-call]
        before = await stub.GetServerInfo(pb.GetServerInfoRequest())
        in_flight = 10 * (before.slots + before.queue_capacity)
        tally, start = Tally(), time.monotonic()
        workers = [asyncio.create_task(work(stub, requests, tally, verifier.pid)) for _ in range(in_flight)]
        await _show_progress(workers, tally, runs)
        seconds = time.monotonic() - start
        await asyncio.sleep(1.0)
        after = await stub.GetServerInfo(pb.GetServerInfoRequest())
    residue = {name: max(0, getattr(after, name) - getattr(before, name)) for name in _COUNTS}
    harness.print_table("outcomes", ("outcome", "runs"), tally.outcomes.most_common())
    harness.print_table("false verdicts", ("what", "runs"), tally.false_verdicts.most_common())
    harness.print_table("statuses other than RESOURCE_EXHAUSTED", ("status", "calls"), tally.errors.most_common())
    harness.print_table("residue", ("what", "left"), residue.items())
    # One sample per ten runs: a hundred samples are a thousand runs.
    first, last = tally.memory_bytes[:100], tally.memory_bytes[-100:]
    return {
        "runs": tally.done,
        "hostile": tally.hostile,
        "in_flight": in_flight,
        "refused_and_retried": tally.refused,
        "false_verdicts": tally.false_verdicts.total(),
        "errors": tally.errors.total(),
        "residue": sum(residue.values()),
        "memory_first_thousand_mib": round(sum(first) / max(1, len(first)) / 2**20, 1),
        "memory_last_thousand_mib": round(sum(last) / max(1, len(last)) / 2**20, 1),
        "seconds": round(seconds, 1),
        "runs_per_second": round(tally.done / seconds, 1),
    }


async def _show_progress(workers: "list[asyncio.Task[None]]", tally: Tally, runs: int) -> None:
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("runs", total=runs)
        while not all(worker.done() for worker in workers):
            progress.update(task, completed=tally.done)
            await asyncio.sleep(0.5)
    await asyncio.gather(*workers)


def main() -> None:
    """Run the soak; exit status 1 if a verdict was false or something is left."""
    parser = harness.make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--hostile", type=float, default=0.05, help="share of hostile programs")
    parser.add_argument("--queue", type=int, default=64, help="queue capacity of the verifier that is started")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with harness.open_verifier(options.address, "--queue-capacity", str(options.queue)) as verifier:
        figures = asyncio.run(soak(verifier, options.runs, options.hostile, options.seed))
    harness.print_result(benchmark="soak", seed=options.seed, **figures)
    raise SystemExit(bool(figures["false_verdicts"] or figures["errors"] or figures["residue"]))


if __name__ == "__main__":
    main()
