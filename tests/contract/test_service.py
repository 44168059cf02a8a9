"""The service as clients see it: real process, real gRPC, real jails."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from populora.verifier import RequestRefusedError, VerifierClient, VerifierUnavailableError
from populora.verifier.client import read_retry_delay_s
from populora.verifier.v1 import verifier_pb2 as pb
from populora.verifier.v1 import verifier_pb2_grpc as pb_grpc

from tests.conftest import ROOT, ServerProcess

pytestmark = pytest.mark.nsjail
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


def wait_until(condition: object, timeout_s: float = 5.0) -> float:
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < timeout_s
        time.sleep(0.005)
    return time.monotonic() - start


# --- the methods -------------------------------------------------------------------------------------------


def test_a_valid_task_comes_back_with_values_and_features(client: VerifierClient) -> None:
    response = client.validate_task("def f(xs, k=1):\n    return [x * k for x in xs]", ["[1, 2]", "[3], k=2"])
    assert response.valid
    assert not response.reasons
    assert [r.value.literal for r in response.results] == ["[1, 2]", "[6]"]
    features = response.features
    assert len(features.ast_hash) == 64
    assert features.type_signature == "(list) -> list"
    assert (features.lines, features.variables, features.cyclomatic_complexity) == (2, 1, 2)
    assert response.provenance.engine == "nsjail"
    assert len(response.provenance.image_digest) == 64


@pytest.mark.parametrize(
    ("program", "arguments", "reason"),
    [
        ("def f(x): return x", ["y"], pb.REASON_MALFORMED_ARGUMENTS),
        ("def f(x) return x", ["1"], pb.REASON_SYNTAX_ERROR),
        ("def g(x): return x", ["1"], pb.REASON_NO_ENTRY_POINT),
        ("def f(x): return 1 / x", ["1", "0"], pb.REASON_RUN_FAILED),
        ("def f(x): return object()", ["1"], pb.REASON_RUN_FAILED),
        ("def f(x): return 'x' * 20000", ["1"], pb.REASON_RUN_FAILED),
        ("import random\ndef f(x): return random.random()", ["1"], pb.REASON_NONDETERMINISTIC),
        ("def f(x): return str({'a', 'b', 'c', 'd', 'e'})", ["1"], pb.REASON_NONDETERMINISTIC),
        ("def f(x): return hash('a')", ["1"], pb.REASON_NONDETERMINISTIC),
        ("def f(x): return id(object())", ["1"], pb.REASON_NONDETERMINISTIC),
        ("import time\ndef f(x): return time.strftime('%j')", ["1"], pb.REASON_NONDETERMINISTIC),
        ("from datetime import date\ndef f(x): return date.today().isoformat()", ["1"], pb.REASON_NONDETERMINISTIC),
        ("import os\ndef f(x): return os.getcwd()", ["1"], pb.REASON_NONDETERMINISTIC),
        ("import socket\ndef f(x): return socket.gethostname()", ["1"], pb.REASON_NONDETERMINISTIC),
        ("def f(x):\n  return " + "-" * 50_000 + "1", ["1"], pb.REASON_TOO_DEEP),
    ],
)
def test_an_invalid_task_has_a_reason(client: VerifierClient, program: str, arguments: list[str], reason: int) -> None:
    response = client.validate_task(program, arguments, runs=4)
    assert not response.valid
    assert list(response.reasons) == [reason], response.detail


def test_findings_are_remarks_and_not_reasons(client: VerifierClient) -> None:
    response = client.validate_task("import sys\nimport random\ndef f(x, y):\n    return 1", ["1, 2", "3, 4"])
    assert response.valid
    assert {f.code for f in response.findings} == {
        "introspects",
        "reads_entropy",
        "unused_parameter",
        "constant_output",
    }


def test_programs_that_differ_only_in_names_have_one_hash(client: VerifierClient) -> None:
    one = client.validate_task("def f(a):\n    '''doc'''\n    b = a + 1\n    return b", ["1"], runs=1)
    two = client.validate_task("def f(x):  # comment\n    y = x + 1\n    return y", ["1"], runs=1)
    three = client.validate_task("def f(x):\n    y = x + 2\n    return y", ["1"], runs=1)
    assert one.features.ast_hash == two.features.ast_hash != three.features.ast_hash


@pytest.mark.parametrize(
    ("expected", "answer", "verdict"),
    [
        ("[1, 2]", "[1,2]", pb.VERDICT_CORRECT),
        ("[1, 2]", "(1, 2)", pb.VERDICT_WRONG),
        ("1", "True", pb.VERDICT_WRONG),
        ("1", "1.0", pb.VERDICT_WRONG),
        ("0.3", "0.1 + 0.2", pb.VERDICT_MALFORMED),
        ("nan", "nan", pb.VERDICT_CORRECT),
        ("{1, 2}", "{2, 1}", pb.VERDICT_CORRECT),
        ("4", "__import__('os').getpid()", pb.VERDICT_MALFORMED),
        ("'a'", "a", pb.VERDICT_MALFORMED),
        ("(1, 2)", "1, 2", pb.VERDICT_CORRECT),
        ("'\\ud800'", "'\\ud800'", pb.VERDICT_CORRECT),
        ("1000", "10**3", pb.VERDICT_MALFORMED),
        ("1", "", pb.VERDICT_MALFORMED),
    ],
)
def test_deduction(client: VerifierClient, expected: str, answer: str, verdict: int) -> None:
    response = client.judge_deduction(value(expected), answer)
    assert response.verdict == verdict
    assert response.outcome == pb.OUTCOME_NOT_RUN


@pytest.mark.parametrize(
    ("answer", "verdict", "outcome"),
    [
        ("7", pb.VERDICT_CORRECT, pb.OUTCOME_COMPLETED),
        ("x=2", pb.VERDICT_CORRECT, pb.OUTCOME_COMPLETED),
        ("3", pb.VERDICT_WRONG, pb.OUTCOME_COMPLETED),
        ("'a'", pb.VERDICT_FAILED, pb.OUTCOME_EXCEPTION),
        ("1, 2", pb.VERDICT_FAILED, pb.OUTCOME_EXCEPTION),
        ("0) or (2", pb.VERDICT_MALFORMED, pb.OUTCOME_NOT_RUN),
        ("globals().__setitem__('f', lambda x: 2)", pb.VERDICT_MALFORMED, pb.OUTCOME_NOT_RUN),
    ],
)
def test_abduction(client: VerifierClient, answer: str, verdict: int, outcome: int) -> None:
    response = client.judge_abduction("def f(x):\n    return x % 5 + 0", value("2"), answer)
    assert (response.verdict, response.outcome) == (verdict, outcome)


@pytest.mark.parametrize(
    ("program", "verdict", "outcome"),
    [
        ("def f(x): return x * 2", pb.VERDICT_CORRECT, pb.OUTCOME_COMPLETED),
        ("def f(x): return x + 1", pb.VERDICT_WRONG, pb.OUTCOME_COMPLETED),
        ("def f(x): return 2 if x == 1 else 0", pb.VERDICT_WRONG, pb.OUTCOME_COMPLETED),
        ("def f(x) return", pb.VERDICT_FAILED, pb.OUTCOME_SYNTAX_ERROR),
        ("import os; os._exit(0)", pb.VERDICT_FAILED, pb.OUTCOME_NO_RESULT),
        (
            "class A:\n  def __eq__(s, o): return True\ndef f(x): return A()",
            pb.VERDICT_FAILED,
            pb.OUTCOME_INVALID_RESULT,
        ),
    ],
)
def test_induction(client: VerifierClient, program: str, verdict: int, outcome: int) -> None:
    response = client.judge_induction(program, [("1", value("2")), ("5", value("10"))])
    assert (response.verdict, response.outcome) == (verdict, outcome)
    assert len(response.cases) == 2


def test_execute_returns_streams_and_status(client: VerifierClient) -> None:
    response = client.execute("import sys\nprint(input())\nprint('e', file=sys.stderr)\nsys.exit(3)", stdin=b"hello")
    assert (response.stdout, response.stderr, response.result.exit_status) == (b"hello\n", b"e\n", 3)
    assert response.result.outcome == pb.OUTCOME_NO_RESULT


def test_server_info_tells_protections_and_limits(client: VerifierClient) -> None:
    info = client.server_info()
    assert all(p.active for p in info.protections)
    assert len(info.protections) >= 20
    assert {row.name: row.maximum for row in info.limits}["memory_bytes"] == 4 << 30
    assert not info.degraded
    assert (info.live_jails, info.live_run_cgroups, info.zombies) == (0, 0, 0)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.ValidateTaskRequest(arguments=["1"]), "program"),
        (pb.ValidateTaskRequest(program=b"x" * (1 << 20) + b"x", arguments=["1"]), "program"),
        (pb.ValidateTaskRequest(program=b"x"), "arguments"),
        (pb.ValidateTaskRequest(program=b"x", arguments=["1"] * 101), "arguments"),
        (pb.ValidateTaskRequest(program=b"x", arguments=["1"], runs=33), "runs"),
        (pb.ValidateTaskRequest(program=b"x", arguments=["1"], entry_point="f()"), "entry_point"),
        (pb.ValidateTaskRequest(program=b"x", arguments=["1"], limits=pb.Limits(memory_bytes=1)), "memory_bytes"),
        (
            pb.ValidateTaskRequest(program=b"x", arguments=["1"], context=pb.RequestContext(run="r" * 300)),
            "context.run",
        ),
        (pb.JudgeAnswerRequest(), "question"),
        (pb.JudgeAnswerRequest(deduction=pb.Deduction(answer="1")), "expected"),
        (pb.JudgeAnswerRequest(deduction=pb.Deduction(expected=pb.Value(canonical=b"Q"), answer="1")), "expected"),
        (pb.JudgeAnswerRequest(induction=pb.Induction(program=b"x")), "cases"),
        (pb.JudgeAnswerRequest(induction=pb.Induction(program=b"x", cases=[pb.Case(arguments="y")])), "cases[0]"),
        (pb.ExecuteRequest(program=b"x", stdin=b"x" * (1 << 20) + b"x"), "stdin"),
    ],
)
def test_a_wrong_request_is_refused_by_name(client: VerifierClient, request_: object, field: str) -> None:
    method = {
        pb.ValidateTaskRequest: "ValidateTask",
        pb.JudgeAnswerRequest: "JudgeAnswer",
        pb.ExecuteRequest: "Execute",
    }
    with pytest.raises(RequestRefusedError, match=field.replace("[", r"\[")):
        client.call(getattr(client._stub, method[type(request_)]), request_)


def test_health_and_reflection_answer(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "populora.verifier.v1.Verifier"):
            reply = health.Check(health_pb2.HealthCheckRequest(service=service))
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        services = ProtoReflectionDescriptorDatabase(channel).get_services()
        assert {"populora.verifier.v1.Verifier", "grpc.health.v1.Health"} <= set(services)


# --- cancel, deadline, queue, stream -----------------------------------------------------------------------


def test_a_cancelled_call_empties_its_jail(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        call = pb_grpc.VerifierStub(channel).Execute.future(pb.ExecuteRequest(program=SLEEP))
        wait_until(lambda: len(find_jailed()) >= 2)
        call.cancel()
        assert wait_until(lambda: not find_jailed(), 2.0) < 0.5


def test_a_client_that_disappears_empties_its_jail(server: ServerProcess) -> None:
    code = (
        "import grpc\nfrom populora.verifier.v1 import verifier_pb2 as pb, verifier_pb2_grpc as g\n"
        f"g.VerifierStub(grpc.insecure_channel({server.address!r})).Execute(pb.ExecuteRequest(program={SLEEP!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: len(find_jailed()) >= 2, 20.0)
    process.kill()
    process.wait()
    assert wait_until(lambda: not find_jailed(), 2.0) < 1.0


def test_the_clients_deadline_ends_the_run(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        start = time.monotonic()
        with pytest.raises(grpc.RpcError) as error:
            pb_grpc.VerifierStub(channel).Execute(pb.ExecuteRequest(program=SLEEP), timeout=0.5)
        assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert time.monotonic() - start < 1.0
        wait_until(lambda: not find_jailed(), 2.0)


def test_a_full_queue_refuses_with_a_delay(tmp_path: Path, state_dir: Path) -> None:
    server = ServerProcess(f"unix:{tmp_path}/v.sock", state_dir, ("--slots", "1", "--queue-capacity", "1"))
    server.start()
    try:
        with grpc.insecure_channel(server.address) as channel:
            stub = pb_grpc.VerifierStub(channel)
            calls = [stub.Execute.future(pb.ExecuteRequest(program=SLEEP))]
            wait_until(lambda: len(find_jailed()) >= 2)
            calls.append(stub.Execute.future(pb.ExecuteRequest(program=SLEEP)))
            wait_until(lambda: stub.GetServerInfo(pb.GetServerInfoRequest()).queued == 1)
            with pytest.raises(grpc.RpcError) as error:
                stub.Execute(pb.ExecuteRequest(program=SLEEP))
            assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert read_retry_delay_s(error.value) > 0
            for call in calls:
                call.cancel()
            wait_until(lambda: stub.GetServerInfo(pb.GetServerInfoRequest()).queued == 0)
    finally:
        assert server.stop() == 0


def test_stream_items_are_answered_once_each_and_can_be_cancelled(client: VerifierClient) -> None:
    cancelled = threading.Event()

    def items() -> object:
        yield pb.StreamRequest(id="sleep", execute=pb.ExecuteRequest(program=SLEEP))
        yield pb.StreamRequest(id="late", timeout_s=0.3, execute=pb.ExecuteRequest(program=SLEEP))
        yield pb.StreamRequest(id="bad", execute=pb.ExecuteRequest())
        yield pb.StreamRequest(id="sleep", execute=pb.ExecuteRequest(program=b"1"))
        cancelled.wait(10)
        yield pb.StreamRequest(id="sleep", cancel=pb.Cancel())
        yield pb.StreamRequest(id="unknown", cancel=pb.Cancel())
        for number in range(5):
            question = pb.JudgeAnswerRequest(deduction=pb.Deduction(expected=value(str(number)), answer=str(number)))
            yield pb.StreamRequest(id=f"d{number}", judge_answer=question)

    replies: dict[str, list[pb.StreamResponse]] = {}
    for reply in client.stream(items()):
        replies.setdefault(reply.id, []).append(reply)
        if reply.id == "late":
            cancelled.set()
    codes = {key: sorted(r.status.code for r in several) for key, several in replies.items()}
    assert codes["late"] == [grpc.StatusCode.DEADLINE_EXCEEDED.value[0]]
    assert codes["bad"] == [grpc.StatusCode.INVALID_ARGUMENT.value[0]]
    # The second item of the same id is refused, the first is cancelled.
    assert codes["sleep"] == [grpc.StatusCode.CANCELLED.value[0], grpc.StatusCode.INVALID_ARGUMENT.value[0]]
    assert all(replies[f"d{n}"][0].judge_answer.verdict == pb.VERDICT_CORRECT for n in range(5))
    assert "unknown" not in replies
    wait_until(lambda: not find_jailed(), 2.0)


# --- life and death ----------------------------------------------------------------------------------------


def test_the_server_is_ready_within_five_seconds(tmp_path: Path, state_dir: Path, server: ServerProcess) -> None:
    second = ServerProcess(f"unix:{tmp_path}/v.sock", state_dir)
    assert second.start() < 5.0
    assert second.stop() == 0


def test_no_jail_survives_a_killed_server_and_the_next_start_cleans_up(tmp_path: Path) -> None:
    state = Path(f"/var/tmp/populora-killed-{os.getpid()}")
    state.mkdir()
    server = ServerProcess(f"unix:{tmp_path}/v.sock", state)
    server.start()
    try:
        channel = grpc.insecure_channel(server.address)
        call = pb_grpc.VerifierStub(channel).Execute.future(pb.ExecuteRequest(program=SLEEP))
        wait_until(lambda: len(find_jailed()) >= 2)
        lock = next((state / "instances").glob("*.lock"))
        left = Path("/sys/fs/cgroup").glob(f"**/{lock.stem}")
        assert list(left)
        server.kill()
        # What is dead but not reaped yet is the business of the host's init.
        assert wait_until(lambda: not find_jailed(zombies=False), 2.0) < 1.0
        assert isinstance(call.exception(), grpc.RpcError)
        channel.close()
        server.start()
        assert not list(Path("/sys/fs/cgroup").glob(f"**/{lock.stem}"))
        assert not lock.exists()
    finally:
        assert server.stop() == 0
        subprocess.run(["rm", "-rf", str(state)], check=True)


def test_sigterm_lets_a_running_request_finish(tmp_path: Path, state_dir: Path) -> None:
    server = ServerProcess(f"unix:{tmp_path}/v.sock", state_dir)
    server.start()
    with grpc.insecure_channel(server.address) as channel:
        call = pb_grpc.VerifierStub(channel).Execute.future(
            pb.ExecuteRequest(program=b"import time\ntime.sleep(1)\nprint(7)")
        )
        wait_until(lambda: len(find_jailed()) >= 2)
        server.process.send_signal(signal.SIGTERM)
        assert call.result(timeout=10).stdout == b"7\n"
    assert server.process.wait(timeout=10) == 0


def test_audit_records_say_who_asked_and_keep_the_program(client: VerifierClient, state_dir: Path) -> None:
    import hashlib
    import json

    program = "import socket\ndef f():\n    return socket.socket()  # audited"
    context = pb.RequestContext(
        request_id="req-1", run="run-9", step=3, member="t01", role="teacher", task_type="deduction"
    )
    client.validate_task(program, [""], context=context)
    records = [json.loads(line) for line in (state_dir / "audit/records.jsonl").read_text().splitlines()]
    record = next(r for r in records if r["request_id"] == "req-1")
    who = {key: record[key] for key in ("tenant", "run", "step", "member", "role", "task_type")}
    assert who == {
        "tenant": "local",
        "run": "run-9",
        "step": 3,
        "member": "t01",
        "role": "teacher",
        "task_type": "deduction",
    }
    assert record["runs"][0]["hook_events"][0][0] == "socket.__new__"
    name = hashlib.sha256(program.encode()).hexdigest()
    assert record["program"] == name
    assert (state_dir / "audit/programs" / name[:2] / name).read_text() == program


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--address", "0.0.0.0:50051"], "not loopback"),
        (["--address", "nonsense"], "neither HOST:PORT nor unix:PATH"),
        (["--slots", "0"], "slots"),
        (["--nsjail", "/no/such/nsjail"], "nsjail not found"),
        (["--nsjail", "/bin/true"], "does not run"),
        (["--python", "/no/such/python"], "not found"),
    ],
)
def test_wrong_settings_are_explained(tmp_path: Path, state_dir: Path, arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "verifier_server", "serve", "--state-dir", str(state_dir)]
    if "--address" not in arguments:
        command += ["--address", f"unix:{tmp_path}/v.sock"]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_an_address_in_use_is_explained(server: ServerProcess, state_dir: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "verifier_server",
        "serve",
        "--state-dir",
        str(state_dir),
        "--address",
        server.address,
    ]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert result.returncode == 2
    assert "in use" in result.stderr


def test_without_the_right_to_make_cgroups_the_server_says_so(tmp_path: Path) -> None:
    """As an ordinary user; the folder of the project must not matter for the message."""
    command = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "/usr/bin/python3",
        "-c",
        "import os; print(os.geteuid())",
    ]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("setpriv cannot change the user here")
    from verifier_server.errors import SetupError
    from verifier_server.sandbox.nsjail import NsjailEngine

    pid = os.fork()
    if pid == 0:
        os.setresuid(65534, 65534, 65534)
        try:
            NsjailEngine(state_dir=tmp_path, python="/usr/bin/python3").start()
        except SetupError as error:
            os._exit(0 if "root" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0


# --- the client --------------------------------------------------------------------------------------------


def test_the_client_waits_for_a_server_and_says_so(tmp_path: Path, state_dir: Path) -> None:
    server = ServerProcess(f"unix:{tmp_path}/v.sock", state_dir)
    notices: list[str] = []
    threading.Timer(1.0, server.start).start()
    with VerifierClient(server.address, patience_s=20, on_retry=lambda *a: notices.append(a[2])) as client:
        assert client.execute("print(1)").stdout == b"1\n"
    assert notices
    assert "UNAVAILABLE" in notices[0]
    server.stop()


def test_the_client_gives_up_after_its_patience(tmp_path: Path) -> None:
    with VerifierClient(f"unix:{tmp_path}/nobody.sock", patience_s=0.5) as client:
        start = time.monotonic()
        with pytest.raises(VerifierUnavailableError, match=r"nobody\.sock"):
            client.server_info()
        assert time.monotonic() - start < 8


# --- what reviews found -------------------------------------------------------------------------------------


def test_a_forged_hook_event_cannot_turn_a_failure_into_a_status(client: VerifierClient) -> None:
    forge = "import os\ndata = b'[\"\\\\ud800\", \"x\"]'\nos.write(3, b'H' + len(data).to_bytes(4, 'little') + data)\n"
    assert client.judge_induction(forge + "def f(x): return 0", [("1", value("2"))]).verdict == pb.VERDICT_WRONG
    assert client.execute(forge).result.outcome == pb.OUTCOME_COMPLETED


@pytest.mark.parametrize("text", ["1" * 400 + "+1j", "1+" * 1500 + "1", "-\\\n" * 1500 + "1"])
def test_no_answer_text_becomes_a_status(client: VerifierClient, text: str) -> None:
    assert client.judge_deduction(value("1"), text).verdict == pb.VERDICT_MALFORMED
    assert client.judge_abduction("def f(x): return x", value("1"), text).verdict == pb.VERDICT_MALFORMED
    assert list(client.validate_task("def f(x): return x", [text]).reasons) == [pb.REASON_MALFORMED_ARGUMENTS]


@pytest.mark.parametrize(
    "program", ["def f(n): return '-' * n", "def f(n): return '(' * n", "def f(n): return [['['] * n]"]
)
def test_the_literal_of_every_valid_value_is_a_right_answer(client: VerifierClient, program: str) -> None:
    response = client.validate_task(program, ["70"], runs=1)
    assert response.valid
    found = response.results[0].value
    assert client.judge_deduction(found, found.literal).verdict == pb.VERDICT_CORRECT


def test_a_value_that_nobody_could_write_down_is_rejected_at_validation(client: VerifierClient) -> None:
    response = client.validate_task("def f(): return [None] * 16000", [""])
    assert list(response.reasons) == [pb.REASON_RUN_FAILED]
    assert "literal" in response.detail


def test_a_program_with_a_huge_constant_is_no_syntax_error(client: VerifierClient) -> None:
    assert client.validate_task(f"def f(x): return x & 0x{'f' * 8000}", ["5"]).valid


def test_the_hash_does_not_depend_on_any_chosen_name(client: VerifierClient) -> None:
    form = "def f({a}, {b}=1):\n    try:\n        return g({b}={a})\n    except ValueError as {e}:\n        return {b}\ndef g({b}):\n    return {b}"
    names = ({"a": "x", "b": "y", "e": "z"}, {"a": "sum", "b": "k", "e": "error"})
    hashes = {client.validate_task(form.format(**n), ["1"], runs=1).features.ast_hash for n in names}
    assert len(hashes) == 1


def test_a_large_value_does_not_stop_the_service_for_others(server: ServerProcess) -> None:
    """A value of 1 MiB, nested 62 deep, is checked while other requests are answered."""
    nested = "def f():\n  x = tuple(range(250000))\n  for _ in range(62): x = frozenset({x})\n  return x"
    with grpc.insecure_channel(server.address) as channel:
        stub = pb_grpc.VerifierStub(channel)
        request = pb.ValidateTaskRequest(
            program=nested.encode(), arguments=[""], runs=1, limits=pb.Limits(value_bytes=2 << 20)
        )
        call = stub.ValidateTask.future(request)
        slowest = 0.0
        while not call.done():
            start = time.monotonic()
            stub.GetServerInfo(pb.GetServerInfoRequest())
            slowest = max(slowest, time.monotonic() - start)
            time.sleep(0.01)
        assert not call.result().valid  # too long to be written down
        assert slowest < 1.0


def test_many_expired_deadlines_leave_no_jail(client: VerifierClient, server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        stub = pb_grpc.VerifierStub(channel)
        calls = [
            stub.Execute.future(pb.ExecuteRequest(program=b"print(1)"), timeout=0.03 + 0.01 * i) for i in range(30)
        ]
        for call in calls:
            call.exception()
    wait_until(lambda: client.server_info().running == 0, 10.0)
    info = client.server_info()
    assert (info.live_jails, info.live_run_cgroups, info.zombies) == (0, 0, 0)


def test_cancelled_items_are_answered_even_if_nobody_reads(client: VerifierClient) -> None:
    count = 120

    def items() -> object:
        for number in range(count):
            yield pb.StreamRequest(id=str(number), execute=pb.ExecuteRequest(program=SLEEP))
        time.sleep(0.5)
        for number in range(count):
            yield pb.StreamRequest(id=str(number), cancel=pb.Cancel())

    replies = client.stream(items())
    time.sleep(1.5)
    codes = [reply.status.code for reply in replies]
    assert codes == [grpc.StatusCode.CANCELLED.value[0]] * count


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), float("inf")])
def test_a_timeout_that_is_no_time_is_refused(client: VerifierClient, timeout: float) -> None:
    item = pb.StreamRequest(id="a", timeout_s=timeout, execute=pb.ExecuteRequest(program=b"1"))
    assert [r.status.code for r in client.stream([item])] == [grpc.StatusCode.INVALID_ARGUMENT.value[0]]


def test_a_file_at_the_socket_path_is_not_removed(tmp_path: Path, state_dir: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("keep")
    command = [
        sys.executable,
        "-m",
        "verifier_server",
        "serve",
        "--state-dir",
        str(state_dir),
        "--address",
        f"unix:{precious}",
    ]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (result.returncode, precious.read_text()) == (2, "keep")


def test_values_that_cannot_fit_into_a_response_are_refused_at_once(client: VerifierClient) -> None:
    with pytest.raises(RequestRefusedError, match="value_bytes"):
        client.validate_task("def f(): return 1", [""] * 100, limits=pb.Limits(value_bytes=1 << 20))
