"""A bounded fuzz of a live server: it never dies, never leaks, never answers INTERNAL for a candidate's fault.

The seed is drawn anew each time and printed on failure; POPULORA_FUZZ_SEED repeats a run.
"""

import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import yaml
from google.protobuf.message import Message
from populora.verifier import VerifierClient
from populora.verifier.v1 import verifier_pb2 as pb

from tests.conftest import ROOT, ServerProcess
from verifier_server.selftest.suite import ATTACKS

pytestmark = pytest.mark.nsjail
SECONDS = 9
LIMITS = pb.Limits(cpu_time_s=0.2, wall_time_s=0.5, memory_bytes=64 << 20, processes=8, tmp_bytes=1 << 20)
SERVICE = "/populora.verifier.v1.Verifier/"
PROGRAM_STATUSES = {grpc.StatusCode.OK}
REQUEST_STATUSES = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
REQUESTS: dict[str, type[Message]] = {
    "ValidateTask": pb.ValidateTaskRequest,
    "JudgeAnswer": pb.JudgeAnswerRequest,
    "RunCases": pb.RunCasesRequest,
    "RunScript": pb.RunScriptRequest,
    "Execute": pb.ExecuteRequest,
    "GetServerInfo": pb.GetServerInfoRequest,
}
REAL = [task["program"].encode() for task in yaml.safe_load((ROOT / "trainer/tasks/seeds.yaml").read_text())]
HOSTILE = [a.program if isinstance(a.program, bytes) else a.program.encode("utf-8", "surrogatepass") for a in ATTACKS]


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> random.Random:
    seed = int(os.environ.get("POPULORA_FUZZ_SEED") or secrets.randbelow(2**32))
    print(f"POPULORA_FUZZ_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(autouse=True)
def the_server_is_unharmed(server: ServerProcess, client: VerifierClient) -> Iterator[None]:
    def count() -> tuple[int, ...]:
        info = client.server_info()
        return info.live_jails, info.live_run_cgroups, info.zombies, info.mounts

    def memory() -> int:
        return int(Path(f"/proc/{server.process.pid}/status").read_text().split("VmRSS:")[1].split()[0])

    before, memory_before = count(), memory()
    yield
    assert server.process.poll() is None
    deadline = time.monotonic() + 5
    while count() != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert count() == before
    assert memory() - memory_before < 64 << 10, "KiB: the server keeps what it was sent"
    assert client.judge_induction("def f(x): return x", [("1", pb.Value(literal="1"))]).verdict == pb.VERDICT_CORRECT


def mutate(draw: random.Random, data: bytes) -> bytes:
    """Change a few bytes, cut, repeat or swap pieces."""
    data = bytearray(data)
    for _ in range(draw.randint(1, 6)):
        if not data:
            break
        a, b = sorted(draw.randrange(len(data) + 1) for _ in range(2))
        piece = bytes(data[a:b])[:200]
        match draw.randrange(5):
            case 0:
                data[draw.randrange(len(data))] = draw.randrange(256)
            case 1:
                del data[a:b]
            case 2:
                data[a:a] = piece * draw.randint(1, 5)
            case 3:
                data[a:a] = draw.choice(
                    [b"(", b"\0", b"\xff\xfe", b"\n", b"    ", b"os._exit(0)", b"1" * 500, b"\xed\xa0\x80"]
                )
            case 4:
                data[a:b] = piece[::-1]
    return bytes(data[: 1 << 16]) or b"x"


def send(channel: grpc.Channel, method: str, data: bytes) -> tuple[grpc.StatusCode, str]:
    try:
        channel.unary_unary(SERVICE + method)(data, timeout=60)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def make_requests(program: bytes) -> list[tuple[str, Message]]:
    case = pb.TestCase(arguments="1", expected=pb.Value(literal="2"))
    fed = pb.TestCase(stdin=b"1\n", expected_stdout=b"2\n")
    return [
        ("ValidateTask", pb.ValidateTaskRequest(program=program, arguments=["1"], runs=2, draws=2, limits=LIMITS)),
        ("RunCases", pb.RunCasesRequest(program=program, cases=[case] * 2, limits=LIMITS)),
        ("RunCases", pb.RunCasesRequest(program=program, cases=[fed], reads_stdin=True, limits=LIMITS)),
        ("RunScript", pb.RunScriptRequest(program=program, script=b"assert f(1) == 2", limits=LIMITS)),
        ("Execute", pb.ExecuteRequest(program=program, stdin=b"x", limits=LIMITS)),
    ]


def test_no_program_makes_a_status(server: ServerProcess, draw: random.Random) -> None:
    """Random bytes, mutated real programs, mutated attacks: every one is answered with data."""
    seen: Counter[grpc.StatusCode] = Counter()
    deadline = time.monotonic() + SECONDS
    with grpc.insecure_channel(server.address) as channel:
        while time.monotonic() < deadline:
            match draw.randrange(3):
                case 0:
                    program = draw.randbytes(draw.randint(1, 300))
                case 1:
                    program = mutate(draw, draw.choice(REAL))
                case _:
                    program = mutate(draw, draw.choice(HOSTILE))
            method, request = draw.choice(make_requests(program))
            status, details = send(channel, method, request.SerializeToString())
            assert status in PROGRAM_STATUSES, (status, details, method, program)
            seen[status] += 1
    assert seen[grpc.StatusCode.OK] > 50


def fill(draw: random.Random, message: Message, depth: int = 0) -> None:
    """Set random fields to extreme values."""
    for field in message.DESCRIPTOR.fields:
        if draw.random() < 0.4 or depth > 4:
            continue
        count = draw.choice([0, 1, 2, 5]) if field.is_repeated else 1
        for _ in range(count):
            if field.message_type is not None:
                inner = getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name)
                fill(draw, inner, depth + 1)
                if not field.is_repeated:
                    inner.SetInParent()
            elif field.is_repeated:
                getattr(message, field.name).append(extreme(draw, field))
            else:
                setattr(message, field.name, extreme(draw, field))


def extreme(draw: random.Random, field: object) -> object:
    kinds = {
        field.CPPTYPE_DOUBLE: [0.0, -1.0, float("nan"), float("inf"), 1e308, 0.05],
        field.CPPTYPE_INT32: [0, -1, 1, 3, 2**31 - 1, -(2**31)],
        field.CPPTYPE_INT64: [0, -1, 1 << 20, 64 << 20, 2**63 - 1, -(2**63)],
        field.CPPTYPE_BOOL: [True, False],
        field.CPPTYPE_ENUM: [0, 1, 2, 3, 99],
    }
    if field.cpp_type in kinds:
        return draw.choice(kinds[field.cpp_type])
    if field.type == field.TYPE_BYTES:
        return draw.choice([b"", b"\0", b"I\0\1\1", b"def f(x): return 2", b"E\3NNN", b"\xff" * 50, draw.randbytes(30)])
    return draw.choice(
        ["", "f", "1", "[" * 500, "1, x=2", "'" * 70_000, "-" * 9000 + "1", "\0", "{1: {}}", "f.g", "__class__"]
    )


def test_no_request_makes_anything_but_an_answer_or_a_refusal(server: ServerProcess, draw: random.Random) -> None:
    seen: Counter[grpc.StatusCode] = Counter()
    deadline = time.monotonic() + SECONDS
    with grpc.insecure_channel(server.address) as channel:
        while time.monotonic() < deadline:
            method, kind = draw.choice(list(REQUESTS.items()))
            message = kind()
            fill(draw, message)
            limits = message.limits if "limits" in kind.DESCRIPTOR.fields_by_name else None
            if limits is not None and draw.random() < 0.8:
                limits.CopyFrom(LIMITS)
            status, details = send(channel, method, message.SerializeToString())
            assert status in REQUEST_STATUSES, (status, details, method, message)
            seen[status] += 1
    assert min(seen[status] for status in REQUEST_STATUSES) > 10, seen


def test_bytes_that_are_no_message_do_no_harm(server: ServerProcess, draw: random.Random) -> None:
    """What the gRPC library cannot parse it answers itself; the service is never reached, and lives."""
    valid = [(method, request.SerializeToString()) for method, request in make_requests(b"def f(x): return 2")]
    deadline = time.monotonic() + SECONDS / 2
    with grpc.insecure_channel(server.address) as channel:
        while time.monotonic() < deadline:
            method, data = draw.choice(valid)
            data = mutate(draw, data) if draw.random() < 0.7 else draw.randbytes(draw.randint(0, 200))
            status, details = send(channel, method, data)
            is_unparsed = status is grpc.StatusCode.UNKNOWN and "DecodeError" in details
            assert status in REQUEST_STATUSES or is_unparsed, (status, details, method, data)


def test_streams_of_noise_end_with_answers(server: ServerProcess, client: VerifierClient, draw: random.Random) -> None:
    items = []
    for number in range(150):
        item = pb.StreamRequest(id=str(number))
        fill(draw, item)
        item.id = str(number)
        item.timeout_s = draw.choice([0.0, 5.0, -1.0])
        for kind in ("validate_task", "judge_answer", "execute", "run_cases", "run_script"):
            if item.WhichOneof("item") == kind:
                getattr(item, kind).limits.CopyFrom(LIMITS)
        items.append(item)
    cancels = {item.id for item in items if item.WhichOneof("item") == "cancel"}
    replies = [reply.id for reply in client.stream(items)]
    assert sorted(replies) == sorted({item.id for item in items} - cancels)
