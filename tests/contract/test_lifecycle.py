"""Cancel, deadline, queue, streams, start, kill, audit, settings: the service over time."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from populora.verifier import VerifierClient, VerifierUnavailableError
from populora.verifier.client import read_retry_delay_s
from populora.verifier.v1 import verifier_pb2 as pb
from populora.verifier.v1 import verifier_pb2_grpc as pb_grpc

from tests.conftest import ROOT, ServerProcess
from tests.contract.helpers import SLEEP, find_jailed, value, wait_until

pytestmark = pytest.mark.nsjail


@pytest.fixture(scope="module", autouse=True)
def pinging(server) -> Iterator[tuple[float, list[grpc.ChannelConnectivity]]]:
    """A client that pings and asks nothing while all tests of this module run: (its start, its connection's states)."""
    states: list[grpc.ChannelConnectivity] = []
    options = [("grpc.keepalive_time_ms", 10_000), ("grpc.http2.max_pings_without_data", 0)]
    with grpc.insecure_channel(server.address, options=options) as channel:
        channel.subscribe(states.append)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        next(watch)
        yield time.monotonic(), states
        watch.cancel()


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
    assert ["socket.__new__", "2, 1", 1, "warning"] in record["runs"][0]["hook_events"]
    assert record["runs"][0]["severity"] == "warning"
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


def test_a_state_folder_that_jails_cannot_reach_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    command = [sys.executable, "-m", "verifier_server", "serve", "--state-dir", f"{closed}/state"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert result.returncode == 2
    assert "chmod o+x" in result.stderr


def test_memory_of_large_requests_is_given_back(state_dir: Path) -> None:
    """glibc kept and fragmented it: found by a soak whose last thousand runs needed more than its first."""
    server = ServerProcess(f"unix:{state_dir}/memory.sock", state_dir)
    server.start()

    def measure_mib() -> float:
        return int(Path(f"/proc/{server.process.pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024

    def send(size: int) -> None:
        with VerifierClient(server.address, patience_s=60) as client, ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda _: client.execute("pass", stdin=b"x" * size), range(20)))

    try:
        send(1)
        before = measure_mib()
        for _ in range(8):
            send(3 << 20)
            send(1)
        # The service hands free memory back every five seconds.
        wait_until(lambda: measure_mib() < before + 16, timeout_s=12)
    finally:
        server.stop()


def test_a_client_that_only_pings_keeps_its_connection(pinging) -> None:
    """Clients ping every 30 s, here every 10 s; gRPC's default ends a connection at the fourth ping without data."""
    start, states = pinging
    time.sleep(max(0.0, start + 50 - time.monotonic()))
    assert states[-1] is grpc.ChannelConnectivity.READY
    assert states.count(grpc.ChannelConnectivity.READY) == 1
