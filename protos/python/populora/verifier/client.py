"""A synchronous client. Thread-safe: one client serves as many threads as there are requests in flight.

Retries: UNAVAILABLE, RESOURCE_EXHAUSTED and UNAUTHENTICATED until `patience_s` has passed, with jitter, and at least
as long as the service's RetryInfo says; DEADLINE_EXCEEDED twice; INTERNAL and unknown statuses once. Every method of
the service may be retried safely. `close` ends all waiting.
"""

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TypeVar

import grpc
import tenacity
from google.rpc import error_details_pb2, status_pb2
from populora.verifier.errors import (
    RequestRefusedError,
    VerifierDefectError,
    VerifierTimeoutError,
    VerifierUnavailableError,
)
from populora.verifier.v1 import verifier_pb2 as pb
from populora.verifier.v1 import verifier_pb2_grpc as pb_grpc

DEFAULT_ADDRESS = "127.0.0.1:50051"
_MAX_MESSAGE_BYTES = 64 << 20
_OPTIONS = [
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    # A restarted server is found again within about a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 30_000),
    # Of several servers those that are reachable and SERVING take turns.
    (
        "grpc.service_config",
        json.dumps({"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}),
    ),
]
_BUSY = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNAUTHENTICATED,  # a token that expired may be renewed while a run waits
}
_MAX_DEADLINES = 3
_MAX_DEFECTS = 2
_REFUSED = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.UNIMPLEMENTED}
_JITTER = tenacity.wait_random_exponential(multiplier=0.2, max=5.0)

Response = TypeVar("Response")
RetryNotice = Callable[[int, float, str], None]


class VerifierClient:
    """Asks one verifier, or several in turn.

    Args:
        address: HOST:PORT or unix:PATH; several HOST:PORT with commas in between; or what gRPC resolves, such as dns:///NAME.
        timeout_s: deadline of each call, queue included.
        patience_s: how long a request is retried before VerifierUnavailableError.
        on_retry: called before each wait with (attempt number, seconds to wait, reason).
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        timeout_s: float = 120.0,
        patience_s: float = 60.0,
        on_retry: RetryNotice | None = None,
    ) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._on_retry = on_retry
        self._closed = threading.Event()
        self._channel = grpc.insecure_channel(_make_target(address), options=_OPTIONS)
        self._stub = pb_grpc.VerifierStub(self._channel)  # type: ignore[no-untyped-call]

    def validate_task(
        self,
        program: str | bytes,
        arguments: Sequence[str],
        *,
        entry_point: str = "f",
        runs: int = 0,
        draws: int = 0,
        allowed_modules: Iterable[str] = (),
        limits: pb.Limits | None = None,
        context: pb.RequestContext | None = None,
    ) -> pb.ValidateTaskResponse:
        """Check that a program is a valid task for every argument text. Raises: see `call`."""
        request = pb.ValidateTaskRequest(
            context=context,
            program=_to_bytes(program),
            entry_point=entry_point,
            arguments=arguments,
            limits=limits,
            runs=runs,
            draws=draws,
            allowed_modules=allowed_modules,
        )
        response: pb.ValidateTaskResponse = self.call(self._stub.ValidateTask, request)
        return response

    def judge_deduction(
        self, expected: pb.Value, answer: str, *, context: pb.RequestContext | None = None
    ) -> pb.JudgeAnswerResponse:
        """Judge an answer to "what does it return?". Raises: see `call`."""
        deduction = pb.Deduction(expected=expected, answer=_to_text(answer))
        return self.judge_answer(pb.JudgeAnswerRequest(context=context, deduction=deduction))

    def judge_abduction(
        self,
        program: str | bytes,
        expected: pb.Value,
        answer: str,
        *,
        entry_point: str = "f",
        limits: pb.Limits | None = None,
        context: pb.RequestContext | None = None,
    ) -> pb.JudgeAnswerResponse:
        """Judge an answer to "which arguments give this value?". Raises: see `call`."""
        abduction = pb.Abduction(
            program=_to_bytes(program), entry_point=entry_point, expected=expected, answer=_to_text(answer)
        )
        return self.judge_answer(pb.JudgeAnswerRequest(context=context, limits=limits, abduction=abduction))

    def judge_induction(
        self,
        program: str | bytes,
        cases: Iterable[tuple[str, pb.Value]],
        *,
        entry_point: str = "f",
        limits: pb.Limits | None = None,
        context: pb.RequestContext | None = None,
    ) -> pb.JudgeAnswerResponse:
        """Judge a program against (arguments, expected value) cases. Raises: see `call`."""
        induction = pb.Induction(
            program=_to_bytes(program),
            entry_point=entry_point,
            cases=[pb.Case(arguments=arguments, expected=expected) for arguments, expected in cases],
        )
        return self.judge_answer(pb.JudgeAnswerRequest(context=context, limits=limits, induction=induction))

    def judge_answer(self, request: pb.JudgeAnswerRequest) -> pb.JudgeAnswerResponse:
        """Send a ready-made JudgeAnswer request. Raises: see `call`."""
        response: pb.JudgeAnswerResponse = self.call(self._stub.JudgeAnswer, request)
        return response

    def execute(
        self,
        program: str | bytes,
        *,
        stdin: bytes = b"",
        limits: pb.Limits | None = None,
        context: pb.RequestContext | None = None,
    ) -> pb.ExecuteResponse:
        """Run a program as a script. Raises: see `call`."""
        request = pb.ExecuteRequest(context=context, program=_to_bytes(program), stdin=stdin, limits=limits)
        response: pb.ExecuteResponse = self.call(self._stub.Execute, request)
        return response

    def run_cases(self, request: pb.RunCasesRequest) -> pb.RunCasesResponse:
        """Score a program on benchmark cases. Raises: see `call`."""
        response: pb.RunCasesResponse = self.call(self._stub.RunCases, request)
        return response

    def run_script(
        self,
        program: str | bytes,
        script: str | bytes,
        *,
        stdin: bytes = b"",
        limits: pb.Limits | None = None,
        context: pb.RequestContext | None = None,
    ) -> pb.RunScriptResponse:
        """Run a program and then an assert-style script; the answer is no verdict. Raises: see `call`."""
        request = pb.RunScriptRequest(
            context=context, program=_to_bytes(program), script=_to_bytes(script), stdin=stdin, limits=limits
        )
        response: pb.RunScriptResponse = self.call(self._stub.RunScript, request)
        return response

    def server_info(self) -> pb.ServerInfo:
        """Ask for versions, protections, limits and load. Raises: see `call`."""
        info: pb.ServerInfo = self.call(self._stub.GetServerInfo, pb.GetServerInfoRequest())
        return info

    def stream(self, requests: Iterable[pb.StreamRequest]) -> Iterator[pb.StreamResponse]:
        """Send items over one stream and yield replies as they come. Not retried: gRPC errors pass through."""
        yield from self._stub.Stream(iter(requests))

    def call(self, method: Callable[..., Response], request: Any) -> Response:
        """Call a unary method of the stub with deadline and retries.

        Raises:
            RequestRefusedError: a field of the request is wrong.
            VerifierUnavailableError: no answer within `patience_s`.
            VerifierTimeoutError: the request exceeded its deadline three times.
            VerifierDefectError: the service failed twice on this request.
        """
        failures: Counter[grpc.StatusCode] = Counter()
        out_of_patience = tenacity.stop_after_delay(self._patience_s)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_worth_a_retry),
            stop=lambda state: self._closed.is_set() or out_of_patience(state) or _is_hopeless(state, failures),
            sleep=tenacity.sleep_using_event(self._closed),
            wait=_choose_wait,
            before_sleep=self._note_retry,
            reraise=True,
        )
        try:
            return retrying(method, request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise self._translate(error) from error

    def close(self) -> None:
        """Close the channel; requests that wait for a retry fail now."""
        self._closed.set()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note_retry(self, state: tenacity.RetryCallState) -> None:
        if self._on_retry is not None and state.outcome is not None and state.next_action is not None:
            error: Any = state.outcome.exception()
            self._on_retry(state.attempt_number, state.next_action.sleep, f"{error.code().name}: {error.details()}")

    def _translate(self, error: Any) -> Exception:
        text = f"{error.code().name}: {error.details()}"
        if error.code() in _REFUSED:
            return RequestRefusedError(text)
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return VerifierTimeoutError(f"verifier at {self.address}: no answer within {self._timeout_s:g} s, {text}")
        if error.code() in _BUSY:
            return VerifierUnavailableError(f"verifier at {self.address} gave no answer: {text}")
        return VerifierDefectError(f"verifier at {self.address} failed: {text}")


def _make_target(address: str) -> str:
    """Return the gRPC target of an address; a list of hosts is resolved here, once."""
    if "," not in address or ":///" in address:
        return address
    resolved = []
    for one in address.split(","):
        host, _, port = one.strip().rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"verifier address {one!r} of {address!r} is not HOST:PORT")
        try:
            resolved.append(f"{socket.gethostbyname(host)}:{port}")
        except OSError as error:
            raise ValueError(f"verifier address {one!r}: {error}") from error
    return f"ipv4:{','.join(resolved)}"


def read_retry_delay_s(error: Any) -> float:
    """Return the RetryInfo delay of a gRPC error in seconds, 0 if there is none."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.RetryInfo()
                if detail.Unpack(info):
                    return float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
    return 0.0


def _is_worth_a_retry(error: BaseException) -> bool:
    return isinstance(error, grpc.RpcError) and _code(error) not in _REFUSED


def _is_hopeless(state: tenacity.RetryCallState, failures: Counter[grpc.StatusCode]) -> bool:
    """Count what went wrong; being busy is never hopeless."""
    error = state.outcome.exception() if state.outcome else None
    if error is None or _code(error) in _BUSY:
        return False
    failures[_code(error)] += 1
    deadlines = failures[grpc.StatusCode.DEADLINE_EXCEEDED]
    return deadlines >= _MAX_DEADLINES or failures.total() - deadlines >= _MAX_DEFECTS


def _choose_wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    return max(_JITTER(state), read_retry_delay_s(error) if isinstance(error, grpc.RpcError) else 0.0)


def _code(error: Any) -> grpc.StatusCode:
    code: grpc.StatusCode = error.code()
    return code


def _to_bytes(program: str | bytes) -> bytes:
    return program if isinstance(program, bytes) else program.encode("utf-8", "surrogatepass")


def _to_text(answer: str) -> str:
    """A proto string holds no lone surrogates; an answer with one cannot be right, so it may be escaped."""
    return answer.encode("utf-8", "backslashreplace").decode()
