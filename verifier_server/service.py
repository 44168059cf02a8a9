"""The gRPC face: reads requests, takes turns, writes audit records, maps errors to statuses.

Each method is a small coroutine that turns one request message into one response message; unary calls and the
items of a stream share them.
"""

import asyncio
import math
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import structlog
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from populora.verifier.v1 import verifier_pb2 as pb
from populora.verifier.v1 import verifier_pb2_grpc as pb_grpc

from verifier_server import convert
from verifier_server.audit.records import AuditLog
from verifier_server.domain import AbductionQuestion, CaseRun, Context, InductionQuestion
from verifier_server.errors import (
    InvalidRequestError,
    NotReadyError,
    QueueFullError,
    SandboxError,
    ServiceError,
)
from verifier_server.evaluator import Evaluator
from verifier_server.sandbox.base import EngineInfo
from verifier_server.scheduler import Scheduler, Turn

_LOG = structlog.get_logger()
_MAX_STREAM_ITEMS = 1024
_LARGE_BYTES = 64 << 10
_DEFECT = "defect of the verifier, see its log"
_TENANT = "local"  # loopback and Unix sockets only: there are no tokens yet

_STATUS: dict[type[ServiceError], grpc.StatusCode] = {
    InvalidRequestError: grpc.StatusCode.INVALID_ARGUMENT,
    QueueFullError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    NotReadyError: grpc.StatusCode.UNAVAILABLE,
    SandboxError: grpc.StatusCode.UNAVAILABLE,
}


@dataclass(slots=True)
class ServiceState:
    """What GetServerInfo reports besides the scheduler."""

    info: EngineInfo
    protections: list[pb.Protection]
    ready: bool = False
    requests: int = 0
    started: float = 0.0


@dataclass(slots=True)
class _Reply:
    """What a handler found out, before it becomes a message."""

    verdict: str
    program: bytes
    runs: tuple[CaseRun, ...]
    detail: str
    write: Callable[[pb.Provenance], Any]


class VerifierService(pb_grpc.VerifierServicer):
    """Implements populora.verifier.v1.Verifier."""

    def __init__(self, evaluator: Evaluator, scheduler: Scheduler, audit: AuditLog, state: ServiceState) -> None:
        self._evaluator = evaluator
        self._scheduler = scheduler
        self._audit = audit
        self.state = state

    # --- the methods of the proto ------------------------------------------------------------------------

    async def ValidateTask(self, request: pb.ValidateTaskRequest, context: Any) -> pb.ValidateTaskResponse:
        """See the proto."""
        response: pb.ValidateTaskResponse = await self._unary(request, context)
        return response

    async def JudgeAnswer(self, request: pb.JudgeAnswerRequest, context: Any) -> pb.JudgeAnswerResponse:
        """See the proto."""
        response: pb.JudgeAnswerResponse = await self._unary(request, context)
        return response

    async def Execute(self, request: pb.ExecuteRequest, context: Any) -> pb.ExecuteResponse:
        """See the proto."""
        response: pb.ExecuteResponse = await self._unary(request, context)
        return response

    async def RunCases(self, request: pb.RunCasesRequest, context: Any) -> pb.RunCasesResponse:
        """See the proto."""
        response: pb.RunCasesResponse = await self._unary(request, context)
        return response

    async def RunScript(self, request: pb.RunScriptRequest, context: Any) -> pb.RunScriptResponse:
        """See the proto."""
        response: pb.RunScriptResponse = await self._unary(request, context)
        return response

    async def Stream(self, requests: AsyncIterator[pb.StreamRequest], context: Any) -> AsyncIterator[pb.StreamResponse]:
        """See the proto."""
        # Unbounded, so that an answer is never lost; `_read_items` reads no further while many wait.
        replies: asyncio.Queue[pb.StreamResponse | None] = asyncio.Queue()
        items: dict[str, asyncio.Task[None]] = {}
        reader = asyncio.create_task(self._read_items(requests, items, replies))
        try:
            while (reply := await replies.get()) is not None:
                yield reply
        finally:
            tasks = [reader, *items.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def GetServerInfo(self, request: pb.GetServerInfoRequest, context: Any) -> pb.ServerInfo:
        """See the proto."""
        from verifier_server.status import describe_server

        return describe_server(self.state, self._scheduler, self._evaluator.sandbox.count_live())

    # --- one request ---------------------------------------------------------------------------------------

    async def _unary(self, request: Any, context: Any) -> Any:
        try:
            return await self._answer(request)
        except ServiceError as error:
            status = make_status(error)
            details = (("grpc-status-details-bin", status.SerializeToString()),)
            await context.abort(_STATUS[type(error)], status.message, trailing_metadata=details)
        except Exception as error:
            await context.abort(grpc.StatusCode.INTERNAL, f"{_DEFECT}: {type(error).__name__}")

    async def _answer(self, request: Any) -> Any:
        """Answer one request message of any kind; every request ends in one log line."""
        method = type(request).__name__.removesuffix("Request")
        start = time.monotonic()
        log = _LOG.bind(method=method)
        try:
            if not self.state.ready:
                raise NotReadyError("the verifier is not ready: starting, shutting down, or failed its self-test")
            who = convert.read_context(request.context, tenant=_TENANT, request_id=uuid.uuid4().hex)
            log = log.bind(request_id=who.request_id, run=who.run, step=who.step, member=who.member)
            if request.ByteSize() > _LARGE_BYTES:  # parsing takes a while: not on the event loop
                handler = await asyncio.to_thread(self._make_handler, request)
            else:
                handler = self._make_handler(request)
            async with self._scheduler.turn() as turn:
                begin = time.monotonic()
                reply = await handler(turn)
                run_s = time.monotonic() - begin
            return await self._finish(log, who, method, reply, turn, run_s)
        except ServiceError as error:
            log.warning("request_refused", error=str(error), status=_STATUS[type(error)].name)
            raise
        except asyncio.CancelledError:
            log.info("request_cancelled", wall_s=round(time.monotonic() - start, 4))
            raise
        except Exception:
            log.exception("request_failed")
            raise

    async def _finish(self, log: Any, who: Context, method: str, reply: _Reply, turn: Turn, run_s: float) -> Any:
        self._audit.append(
            who, method=method, program=reply.program, verdict=reply.verdict, runs=reply.runs, detail=reply.detail
        )
        self.state.requests += 1
        info = self.state.info
        provenance = pb.Provenance(
            request_id=who.request_id,
            queue_s=turn.queue_s,
            run_s=run_s,
            engine=info.engine,
            image_digest=info.image_digest,
            python_version=info.python_version,
            degraded=info.degraded,
        )
        log.info(
            "request_answered",
            verdict=reply.verdict,
            queue_s=round(turn.queue_s, 4),
            run_s=round(run_s, 4),
            outcomes=sorted({str(run.outcome) for run in reply.runs}),
        )
        if sum(len(run.value or b"") for run in reply.runs) > _LARGE_BYTES:
            return await asyncio.to_thread(reply.write, provenance)
        return reply.write(provenance)

    def _make_handler(self, request: Any) -> Callable[[Turn], Awaitable[_Reply]]:
        """Read the request now, before it waits; return what to do with a slot."""
        if isinstance(request, pb.ValidateTaskRequest):
            return self._make_validation(request)
        if isinstance(request, pb.JudgeAnswerRequest):
            return self._make_judgement(request)
        if isinstance(request, pb.RunCasesRequest):
            return self._make_scoring(request)
        if isinstance(request, pb.RunScriptRequest):
            return self._make_script_run(request)
        return self._make_execution(request)

    def _make_validation(self, request: pb.ValidateTaskRequest) -> Callable[[Turn], Awaitable[_Reply]]:
        question = convert.read_task(request)

        async def handle(turn: Turn) -> _Reply:
            report = await self._evaluator.validate(question, slot=turn.slot)
            verdict = "valid" if not report.reasons else ",".join(report.reasons)
            return _Reply(
                verdict, question.program, report.results, report.detail, lambda p: convert.write_task_report(report, p)
            )

        return handle

    def _make_judgement(self, request: pb.JudgeAnswerRequest) -> Callable[[Turn], Awaitable[_Reply]]:
        question = convert.read_question(request)
        program = question.program if isinstance(question, AbductionQuestion | InductionQuestion) else b""

        async def handle(turn: Turn) -> _Reply:
            report = await self._evaluator.judge(question, slot=turn.slot)
            runs = tuple(run for _, run in report.cases)
            return _Reply(
                str(report.verdict), program, runs, report.detail, lambda p: convert.write_answer_report(report, p)
            )

        return handle

    def _make_execution(self, request: pb.ExecuteRequest) -> Callable[[Turn], Awaitable[_Reply]]:
        program, stdin = convert.read_program(request.program), convert.read_stdin(request.stdin)
        limits = convert.read_limits(request.limits)

        async def handle(turn: Turn) -> _Reply:
            run = await self._evaluator.execute(program, stdin, limits, slot=turn.slot)

            def write(provenance: pb.Provenance) -> pb.ExecuteResponse:
                result = convert.write_run(run)
                return pb.ExecuteResponse(provenance=provenance, result=result, stdout=run.stdout, stderr=run.stderr)

            return _Reply(str(run.outcome), program, (run,), "", write)

        return handle

    def _make_scoring(self, request: pb.RunCasesRequest) -> Callable[[Turn], Awaitable[_Reply]]:
        question = convert.read_cases(request)

        async def handle(turn: Turn) -> _Reply:
            report = await self._evaluator.score(question, slot=turn.slot)
            runs = tuple(case.run for case in report.cases)

            def write(provenance: pb.Provenance) -> pb.RunCasesResponse:
                return convert.write_cases_report(report, provenance, with_outputs=question.return_outputs)

            return _Reply(str(report.verdict), question.program, runs, "", write)

        return handle

    def _make_script_run(self, request: pb.RunScriptRequest) -> Callable[[Turn], Awaitable[_Reply]]:
        program, script = convert.read_program(request.program), convert.read_program(request.script, "script")
        stdin, limits = convert.read_stdin(request.stdin), convert.read_limits(request.limits)

        async def handle(turn: Turn) -> _Reply:
            report = await self._evaluator.run_script(program, script, stdin, limits, slot=turn.slot)
            return _Reply(
                f"script_{report.status}", program, (report.run,), "", lambda p: convert.write_script_report(report, p)
            )

        return handle

    # --- streams -------------------------------------------------------------------------------------------

    async def _read_items(
        self,
        requests: AsyncIterator[pb.StreamRequest],
        items: dict[str, asyncio.Task[None]],
        replies: "asyncio.Queue[pb.StreamResponse | None]",
    ) -> None:
        """Start a task for each item; when the client has sent all, wait for them and end the replies."""
        try:
            async for request in requests:
                self._start_item(request, items, replies)
                while replies.qsize() >= _MAX_STREAM_ITEMS:
                    await asyncio.sleep(0.01)
            await asyncio.gather(*items.values(), return_exceptions=True)
        finally:
            replies.put_nowait(None)

    def _start_item(
        self,
        request: pb.StreamRequest,
        items: dict[str, asyncio.Task[None]],
        replies: "asyncio.Queue[pb.StreamResponse | None]",
    ) -> None:
        if request.WhichOneof("item") == "cancel":
            if request.id in items:
                items[request.id].cancel()
            return
        problem = _find_item_problem(request, items)
        if problem is not None:
            replies.put_nowait(pb.StreamResponse(id=request.id, status=make_status(problem)))
            return
        task = asyncio.create_task(self._answer_item(request, replies))
        items[request.id] = task
        task.add_done_callback(partial(_forget, items, request.id, replies))

    async def _answer_item(self, request: pb.StreamRequest, replies: "asyncio.Queue[pb.StreamResponse | None]") -> None:
        """Answer one item; a cancelled task is answered by `_forget`."""
        kind = str(request.WhichOneof("item"))
        try:
            async with asyncio.timeout(request.timeout_s or None):
                answer = await self._answer(getattr(request, kind))
            reply = pb.StreamResponse(id=request.id, **{kind: answer})
        except ServiceError as error:
            reply = pb.StreamResponse(id=request.id, status=make_status(error))
        except TimeoutError:
            status = status_pb2.Status(code=code_pb2.DEADLINE_EXCEEDED, message="the item's timeout_s passed")
            reply = pb.StreamResponse(id=request.id, status=status)
        except Exception as error:
            status = status_pb2.Status(code=code_pb2.INTERNAL, message=f"{_DEFECT}: {type(error).__name__}")
            reply = pb.StreamResponse(id=request.id, status=status)
        replies.put_nowait(reply)


def _forget(
    items: dict[str, Any],
    key: str,
    replies: "asyncio.Queue[pb.StreamResponse | None]",
    task: "asyncio.Task[None]",
) -> None:
    """Drop a finished item; a cancelled one has not been answered yet, even if it never began to run."""
    if items.get(key) is task:
        del items[key]
    if task.cancelled():
        status = status_pb2.Status(code=code_pb2.CANCELLED, message="cancelled by the client")
        replies.put_nowait(pb.StreamResponse(id=key, status=status))


def _find_item_problem(request: pb.StreamRequest, items: dict[str, Any]) -> InvalidRequestError | QueueFullError | None:
    if not 1 <= len(request.id) <= 256:
        return InvalidRequestError(f"id has {len(request.id)} characters, allowed are 1 to 256")
    if request.id in items:
        return InvalidRequestError(f"id {request.id!r} is already open on this stream")
    if request.WhichOneof("item") is None:
        return InvalidRequestError("item is not set")
    if not (math.isfinite(request.timeout_s) and request.timeout_s >= 0):
        return InvalidRequestError(f"timeout_s = {request.timeout_s:g} is not a time")
    return QueueFullError(0.5) if len(items) >= _MAX_STREAM_ITEMS else None


def make_status(error: ServiceError) -> status_pb2.Status:
    """Return the google.rpc.Status of an error, with RetryInfo where the caller should wait."""
    status = status_pb2.Status(code=_STATUS[type(error)].value[0], message=str(error))
    if isinstance(error, QueueFullError):
        nanos = int(error.retry_after_s * 1e9)
        delay = duration_pb2.Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        status.details.append(detail)
    return status
