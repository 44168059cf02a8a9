"""Between protobuf and the domain: pure functions. Range checks of requests live here."""

from collections.abc import Sequence

from populora.verifier.v1 import verifier_pb2 as pb

from verifier_server.domain import (
    AbductionQuestion,
    AnswerQuestion,
    AnswerReport,
    CaseInput,
    CaseRun,
    Context,
    DeductionQuestion,
    Evidence,
    InductionQuestion,
    Limits,
    Outcome,
    TaskQuestion,
    TaskReport,
)
from verifier_server.errors import InvalidRequestError
from verifier_server.judging import codec, literals
from verifier_server.sandbox import limits as limits_table

_MAX_CONTEXT_CHARACTERS = 256


def read_context(message: pb.RequestContext, *, tenant: str, request_id: str) -> Context:
    """Read who asks; `request_id` is used if the caller gave none."""
    texts = {name: getattr(message, name) for name in ("request_id", "run", "member", "role", "task_type")}
    for name, text in texts.items():
        if len(text) > _MAX_CONTEXT_CHARACTERS:
            raise InvalidRequestError(f"context.{name} has {len(text)} characters, at most 256 are allowed")
    return Context(tenant=tenant, step=message.step, **{**texts, "request_id": texts["request_id"] or request_id})


def read_limits(message: pb.Limits) -> Limits:
    """Read limits, filling in defaults."""
    return limits_table.resolve({name: getattr(message, name) for name in limits_table.TABLE})


def read_program(program: bytes) -> bytes:
    """Check the size of a program."""
    if not 1 <= len(program) <= limits_table.MAX_PROGRAM_BYTES:
        raise InvalidRequestError(
            f"program has {len(program)} bytes, allowed are 1 to {limits_table.MAX_PROGRAM_BYTES}"
        )
    return program


def read_entry_point(name: str) -> str:
    """Check a function name; empty means `f`."""
    name = name or "f"
    if not name.isidentifier() or len(name) > 100:
        raise InvalidRequestError(f"entry_point {name[:100]!r} is not a Python identifier")
    return name


def read_value(message: pb.Value, field: str) -> bytes:
    """Read a canonical value, from its bytes or else its literal."""
    try:
        if message.canonical:
            codec.check(message.canonical, max_bytes=int(limits_table.TABLE["value_bytes"][2]))
            return message.canonical
        return literals.parse_value(message.literal)
    except (codec.EncodingError, literals.MalformedLiteralError) as error:
        raise InvalidRequestError(f"{field} is not a value: {error}") from error


def read_task(message: pb.ValidateTaskRequest) -> TaskQuestion:
    """Read a ValidateTask request."""
    _check_count("arguments", len(message.arguments), limits_table.MAX_CASES)
    runs = message.runs or limits_table.DEFAULT_RUNS
    _check_count("runs", runs, limits_table.MAX_RUNS)
    limits = read_limits(message.limits)
    _check_response_size("arguments", len(message.arguments), limits)
    return TaskQuestion(
        program=read_program(message.program),
        entry_point=read_entry_point(message.entry_point),
        arguments=tuple(message.arguments),
        limits=limits,
        runs=runs,
    )


def read_question(message: pb.JudgeAnswerRequest) -> AnswerQuestion:
    """Read a JudgeAnswer request."""
    kind = message.WhichOneof("question")
    if kind == "deduction":
        return DeductionQuestion(
            expected=read_value(message.deduction.expected, "deduction.expected"), answer=message.deduction.answer
        )
    limits = read_limits(message.limits)
    if kind == "abduction":
        return AbductionQuestion(
            program=read_program(message.abduction.program),
            entry_point=read_entry_point(message.abduction.entry_point),
            expected=read_value(message.abduction.expected, "abduction.expected"),
            answer=message.abduction.answer,
            limits=limits,
        )
    if kind == "induction":
        return _read_induction(message.induction, limits)
    raise InvalidRequestError("question is not set: one of deduction, abduction, induction is needed")


def _read_induction(message: pb.Induction, limits: Limits) -> InductionQuestion:
    _check_count("induction.cases", len(message.cases), limits_table.MAX_CASES)
    _check_response_size("induction.cases", len(message.cases), limits)
    cases = []
    for number, case in enumerate(message.cases):
        field = f"induction.cases[{number}]"
        try:
            parsed = literals.parse_arguments(case.arguments)
        except literals.MalformedLiteralError as error:
            raise InvalidRequestError(f"{field}.arguments: {error}") from error
        inputs = CaseInput(positional=parsed.positional, keywords=parsed.keywords)
        cases.append((inputs, read_value(case.expected, f"{field}.expected")))
    return InductionQuestion(
        program=read_program(message.program),
        entry_point=read_entry_point(message.entry_point),
        cases=tuple(cases),
        limits=limits,
    )


def read_stdin(data: bytes) -> bytes:
    """Check the size of a standard input."""
    if len(data) > limits_table.MAX_STDIN_BYTES:
        raise InvalidRequestError(f"stdin has {len(data)} bytes, at most {limits_table.MAX_STDIN_BYTES} are allowed")
    return data


def _check_count(field: str, count: int, maximum: int) -> None:
    if not 1 <= count <= maximum:
        raise InvalidRequestError(f"{field} = {count} is outside 1 to {maximum}")


def _check_response_size(field: str, count: int, limits: Limits) -> None:
    """The values of all cases must fit into one response."""
    total = count * limits.value_bytes
    if total > limits_table.MAX_RESPONSE_VALUES_BYTES:
        raise InvalidRequestError(
            f"{count} {field} x limits.value_bytes = {limits.value_bytes} is {total} bytes, at most "
            f"{limits_table.MAX_RESPONSE_VALUES_BYTES} fit into a response"
        )


# --- to protobuf -----------------------------------------------------------------------------------------


def write_outcome(outcome: Outcome) -> pb.Outcome:
    """Return the enum value of the same name."""
    return pb.Outcome.Value(f"OUTCOME_{outcome.name}")  # type: ignore[return-value]


def write_evidence(evidence: Evidence | None) -> pb.Evidence:
    """Return the enum value of the same name."""
    return pb.Evidence.Value(f"EVIDENCE_{evidence.name if evidence else 'UNSPECIFIED'}")  # type: ignore[return-value]


def write_run(run: CaseRun) -> pb.RunResult:
    """Return what a program did on one case."""
    value = None
    if run.value is not None:
        literal = literals.render(run.value)
        value = pb.Value(canonical=run.value, literal=literal if literals.fits_an_answer(literal) else "")
    return pb.RunResult(
        outcome=write_outcome(run.outcome),
        evidence=write_evidence(run.evidence),
        value=value,
        exception=run.claim,
        exit_status=run.exit_status,
        signal=run.signal,
        usage=pb.Usage(
            wall_s=run.usage.wall_s,
            cpu_s=run.usage.cpu_s,
            peak_memory_bytes=run.usage.peak_memory_bytes,
            peak_processes=run.usage.peak_processes,
            output_bytes=run.usage.output_bytes,
        ),
        hook_events=[pb.HookEvent(event=event, detail=detail) for event, detail in run.hook_events],
    )


def write_task_report(report: TaskReport, provenance: pb.Provenance) -> pb.ValidateTaskResponse:
    """Return a ValidateTask response."""
    response = pb.ValidateTaskResponse(
        provenance=provenance,
        valid=not report.reasons,
        reasons=[f"REASON_{reason.name}" for reason in report.reasons],
        results=[write_run(run) for run in report.results],
        findings=[pb.Finding(code=code, detail=detail) for code, detail in report.findings],
        detail=report.detail,
    )
    if report.features is not None:
        features = report.features
        names: Sequence[str] = [field.name for field in pb.TaskFeatures.DESCRIPTOR.fields]
        values = {name: getattr(features, name) for name in names if name != "type_signature"}
        response.features.CopyFrom(pb.TaskFeatures(type_signature=report.type_signature, **values))
    return response


def write_answer_report(report: AnswerReport, provenance: pb.Provenance) -> pb.JudgeAnswerResponse:
    """Return a JudgeAnswer response."""
    return pb.JudgeAnswerResponse(
        provenance=provenance,
        verdict=f"VERDICT_{report.verdict.name}",
        outcome=write_outcome(report.outcome),
        evidence=write_evidence(report.evidence),
        cases=[
            pb.CaseResult(verdict=f"VERDICT_{verdict.name}", result=write_run(run)) for verdict, run in report.cases
        ],
        detail=report.detail,
    )
