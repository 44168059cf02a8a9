"""Trouble between trainer and verifier: it is waited for, or the sample is masked; it never becomes a grade."""

import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from populora.verifier import VerifierDefectError, VerifierUnavailableError
from populora.verifier.v1 import verifier_pb2 as pb

from tests.chaos import ChaosProxy, Fault
from tests.conftest import ServerProcess
from trainer.config import VerifierConfig
from trainer.domain import Grade, Problem, TaskKind, Value
from trainer.verification import Asker, ImageChangedError, Verification

pytestmark = pytest.mark.nsjail
ASKER = Asker("s00", "student", 1)
PROBLEM = Problem(
    uid="p", kind=TaskKind.ABDUCTION, program="def f(x):\n    return x + 1", arguments=("1",), values=(Value("", "2"),)
)


@pytest.fixture
def proxy(server: ServerProcess, tmp_path: Path) -> Iterator[ChaosProxy]:
    proxy = ChaosProxy(server.address, f"unix:{tmp_path}/chaos.sock")
    yield proxy
    proxy.stop()


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def make(proxy: ChaosProxy, notices: list[str]) -> Iterator:
    made = []

    def make(fault: Fault | None = None, **settings: object) -> Verification:
        verification = Verification(
            VerifierConfig(**{"address": proxy.address, "patience_s": 20, "timeout_s": 20, **settings}),
            on_trouble=notices.append,
        )
        made.append(verification)
        proxy.calls = 0
        proxy.fault = fault or (lambda number, method: None)
        return verification

    yield make
    for verification in made:
        verification.close()


@pytest.fixture(scope="module")
def problem(server: ServerProcess) -> Problem:
    from dataclasses import replace

    from populora.verifier import VerifierClient

    with VerifierClient(server.address) as client:
        response = client.validate_task(PROBLEM.program, PROBLEM.arguments, runs=1, draws=1)
    value = response.results[0].value
    return replace(PROBLEM, values=(Value(value.canonical.hex(), value.literal),))


def judge(verification: Verification, problem: Problem, answers: list[str]) -> list[Grade | None]:
    futures = [verification.submit_answer(problem, answer, ASKER) for answer in answers]
    return [result.grade if result else None for result in verification.collect(futures)]


ANSWERS = ["1", "2"] * 5
RIGHT = [Grade.CORRECT, Grade.WRONG] * 5


@pytest.mark.parametrize(
    "status",
    [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAUTHENTICATED],
)
def test_an_outage_is_waited_for_and_every_answer_gets_its_grade(make, problem, notices, status) -> None:
    """Ten answers, the first twelve calls fail: an outage, a full queue, a token that expired and is renewed."""
    verification = make(lambda number, method: status if number <= 12 else None)
    assert judge(verification, problem, ANSWERS) == RIGHT
    assert verification.retries == 12


def test_an_outage_is_shown_to_the_person_who_watches(make, problem, notices) -> None:
    judge(make(lambda number, method: grpc.StatusCode.UNAVAILABLE if number <= 12 else None), problem, ANSWERS)
    assert any("waiting for the verifier" in notice and "make serve-verifier" in notice for notice in notices)


def test_an_outage_longer_than_the_patience_ends_the_run_without_a_grade(make, problem) -> None:
    verification = make(lambda number, method: grpc.StatusCode.UNAVAILABLE, patience_s=1)
    start = time.monotonic()
    with pytest.raises(VerifierUnavailableError):
        judge(verification, problem, ANSWERS)
    assert time.monotonic() - start < 15


@pytest.mark.parametrize("status", [grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS, grpc.StatusCode.UNKNOWN])
def test_a_request_on_which_the_service_fails_is_masked_and_the_others_are_judged(make, problem, status) -> None:
    """The first request fails, also when it is asked again."""
    verification = make(lambda number, method: status if number in (1, 2) else None, in_flight=1)
    assert judge(verification, problem, ANSWERS) == [None, *RIGHT[1:]]


def test_a_slow_answer_is_masked_after_three_deadlines(make, problem) -> None:
    verification = make(lambda number, method: 1.5 if number <= 3 else None, in_flight=1, timeout_s=0.5)
    assert judge(verification, problem, ANSWERS) == [None, *RIGHT[1:]]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff",
        b"",
        pb.JudgeAnswerResponse(verdict=99).SerializeToString(),
        pb.ServerInfo(engine="nsjail").SerializeToString(),
    ],
    ids=["no message", "empty", "unknown verdict", "another message"],
)
def test_a_garbage_reply_is_masked(make, problem, garbage) -> None:
    verification = make(lambda number, method: garbage if number in (1, 2) else None, in_flight=1)
    found = judge(verification, problem, ANSWERS)
    assert found[0] is None
    assert found[2:] == RIGHT[2:]


def test_a_service_that_fails_on_everything_ends_the_run(make, problem) -> None:
    with pytest.raises(VerifierDefectError, match="all 10"):
        judge(make(lambda number, method: grpc.StatusCode.INTERNAL), problem, ANSWERS)


def test_a_few_requests_on_which_the_service_fails_are_only_masked(make, problem) -> None:
    assert judge(make(lambda number, method: grpc.StatusCode.INTERNAL), problem, ANSWERS[:3]) == [None] * 3


def test_another_image_than_the_runs_is_refused(make, problem) -> None:
    verification = make()
    verification.pinned_digest = "0" * 64
    with pytest.raises(ImageChangedError, match="pin_image"):
        judge(verification, problem, ANSWERS)


def test_with_one_of_three_servers_dead_the_others_answer(server: ServerProcess, problem, notices) -> None:
    """The third is killed while it is being asked; calls it had go to the others."""
    proxies = [ChaosProxy(server.address, "127.0.0.1:0") for _ in range(3)]
    addresses = ",".join(proxy.address for proxy in proxies)
    verification = Verification(VerifierConfig(address=addresses, patience_s=20), on_trouble=notices.append)
    try:
        assert judge(verification, problem, ANSWERS) == RIGHT
        assert all(proxy.calls for proxy in proxies)
        proxies[2].stop()
        before = [proxy.calls for proxy in proxies]
        assert judge(verification, problem, ANSWERS) == RIGHT
        assert proxies[2].calls == before[2]
        assert all(proxy.calls > count for proxy, count in zip(proxies[:2], before, strict=False))
    finally:
        verification.close()
        for proxy in proxies[:2]:
            proxy.stop()


def test_a_list_of_addresses_with_a_mistake_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'nonsense'"):
        Verification(VerifierConfig(address="127.0.0.1:1,nonsense"), on_trouble=print)
