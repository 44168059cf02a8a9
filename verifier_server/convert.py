"""Between protobuf and the domain: pure functions. Range checks of requests live here."""

import itertools
from collections.abc import Sequence

from populora.verifier.v1 import verifier_pb2 as pb

from verifier_server.audit import events
from verifier_server.domain import (
    AbductionQuestion,
    AnswerQuestion,
    AnswerReport,
    CaseInput,
    CaseQuestion,
    CaseRun,
    CasesQuestion,
    CasesReport,
    Comparator,
    Context,
    DeductionQuestion,
    Evidence,
    HookEvent,
    InductionQuestion,
    Limits,
    Mode,
    Outcome,
    Preset,
    ScriptReport,
    TaskQuestion,
    TaskReport,
    Verdict,
)
from verifier_server.errors import InvalidRequestError
from verifier_server.judging import codec, literals
from verifier_server.judging.cases import OUTPUT_PRESETS, VALUE_PRESETS
from verifier_server.sandbox import limits as limits_table

_MAX_CONTEXT_CHARACTERS = 256
_MAX_VALUES_WITH_LITERALS = 1 << 20


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


def read_program(program: bytes, field: str = "program") -> bytes:
    """Check the size of a program."""
    if not 1 <= len(program) <= limits_table.MAX_PROGRAM_BYTES:
        raise InvalidRequestError(
            f"{field} has {len(program)} bytes, allowed are 1 to {limits_table.MAX_PROGRAM_BYTES}"
        )
    return program


def read_entry_point(name: str, *, dotted: bool = False) -> str:
    """Check a function name, or `Class.method` where dots are allowed; empty means `f`."""
    name = name or "f"
    parts = name.split(".") if dotted else [name]
    if len(parts) > 2 or len(name) > 100 or not all(part.isidentifier() for part in parts):
        kind = "a Python identifier or Class.method" if dotted else "a Python identifier"
        raise InvalidRequestError(f"entry_point {name[:100]!r} is not {kind}")
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
    if message.runs:
        _check_count("runs", message.runs, limits_table.MAX_RUNS)
    draws = message.draws or limits_table.DEFAULT_DRAWS
    _check_count("draws", draws, limits_table.MAX_DRAWS)
    _check_modules(message.allowed_modules)
    limits = read_limits(message.limits)
    _check_response_size("arguments", len(message.arguments), limits)
    return TaskQuestion(
        program=read_program(message.program),
        entry_point=read_entry_point(message.entry_point),
        arguments=tuple(message.arguments),
        limits=limits,
        runs=message.runs or None,
        draws=draws,
        allowed_modules=tuple(message.allowed_modules),
    )


def _check_modules(names: Sequence[str]) -> None:
    if len(names) > 1000:
        raise InvalidRequestError(f"allowed_modules has {len(names)} names, at most 1000 are allowed")
    for name in names:
        if not name.isidentifier() or len(name) > 100:
            raise InvalidRequestError(f"allowed_modules: {name[:100]!r} is not the name of a top-level module")


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


def read_stdin(data: bytes, field: str = "stdin") -> bytes:
    """Check the size of a standard input."""
    if len(data) > limits_table.MAX_STDIN_BYTES:
        raise InvalidRequestError(f"{field} has {len(data)} bytes, at most {limits_table.MAX_STDIN_BYTES} are allowed")
    return data


def read_cases(message: pb.RunCasesRequest) -> CasesQuestion:
    """Read a RunCases request."""
    mode = Mode.SCRIPT if message.reads_stdin else Mode.CALL
    _check_count("cases", len(message.cases), limits_table.MAX_TEST_CASES)
    limits = read_limits(message.limits)
    if message.return_outputs:
        _check_response_size(
            "cases", len(message.cases), limits, "value_bytes" if mode is Mode.CALL else "output_bytes"
        )
    comparator = _read_comparator(message.comparator, mode)
    needs_expected = not (message.reference or comparator.checker)
    return CasesQuestion(
        program=read_program(message.program),
        entry_point=read_entry_point(message.entry_point, dotted=True),
        mode=mode,
        cases=tuple(_read_case(case, i, mode, needs_expected) for i, case in enumerate(message.cases)),
        reference=read_program(message.reference, "reference") if message.reference else b"",
        comparator=comparator,
        limits=limits,
        stop_at_first_failure=message.stop_at_first_failure,
        return_outputs=message.return_outputs,
    )


def _read_case(message: pb.TestCase, number: int, mode: Mode, needs_expected: bool) -> CaseQuestion:
    field = f"cases[{number}]"
    _check_style(message, field, mode)
    if mode is Mode.SCRIPT:
        inputs = CaseInput(stdin=read_stdin(message.stdin, f"{field}.stdin"))
        if message.HasField("expected_stdout"):
            return CaseQuestion(inputs=inputs, expected=message.expected_stdout)
        if needs_expected:
            raise InvalidRequestError(f"{field}.expected_stdout is not set, and there is no reference and no checker")
        return CaseQuestion(inputs=inputs)
    try:
        parsed = literals.parse_arguments(message.arguments, limits_table.MAX_ARGUMENT_BYTES)
    except literals.MalformedLiteralError as error:
        raise InvalidRequestError(f"{field}.arguments: {error}") from error
    inputs = CaseInput(positional=parsed.positional, keywords=parsed.keywords)
    if not message.HasField("expected"):
        if needs_expected:
            raise InvalidRequestError(f"{field}.expected is not set, and there is no reference and no checker")
        return CaseQuestion(inputs=inputs)
    return CaseQuestion(inputs=inputs, expected=read_value(message.expected, f"{field}.expected"))


def _check_style(message: pb.TestCase, field: str, mode: Mode) -> None:
    """Refuse fields of the other style: they would be ignored, and what was meant would not be judged."""
    foreign = ("arguments", "expected") if mode is Mode.SCRIPT else ("stdin", "expected_stdout")
    for name in foreign:
        if message.HasField(name) if name.startswith("expected") else getattr(message, name):
            style = "with reads_stdin" if mode is Mode.SCRIPT else "without reads_stdin"
            raise InvalidRequestError(f"{field}.{name} is set, but has no meaning {style}")


def _read_comparator(message: pb.Comparator, mode: Mode) -> Comparator:
    default = Preset.EXACT if mode is Mode.CALL else Preset.STDIN_TOKENS
    name = pb.Comparator.Preset.Name(message.preset) if message.preset in pb.Comparator.Preset.values() else ""
    preset = Preset[name.removeprefix("PRESET_")] if message.preset and name else default
    if (message.preset and not name) or preset not in (VALUE_PRESETS if mode is Mode.CALL else OUTPUT_PRESETS):
        style = "calls" if mode is Mode.CALL else "standard input"
        raise InvalidRequestError(f"comparator.preset = {name or message.preset} does not compare results of {style}")
    for field, maximum in (("absolute_tolerance", 1e300), ("relative_tolerance", 1.0)):
        value = getattr(message, field)
        if not 0 <= value <= maximum:  # NaN fails, too
            raise InvalidRequestError(f"comparator.{field} = {value:g} is outside 0 to {maximum:g}")
    _check_effect(message, preset)
    return Comparator(
        preset=preset,
        absolute_tolerance=message.absolute_tolerance,
        relative_tolerance=message.relative_tolerance,
        as_sets=message.as_sets,
        not_none=message.not_none,
        checker=read_program(message.checker, "comparator.checker") if message.checker else b"",
    )


def _check_effect(message: pb.Comparator, preset: Preset) -> None:
    """Refuse fields that would have no effect: who sets them expects one."""
    tolerance = [name for name in ("absolute_tolerance", "relative_tolerance") if getattr(message, name)]
    shape = [name for name in ("as_sets", "not_none") if getattr(message, name)]
    ignored = shape if preset not in (Preset.PYTHON_EQ, Preset.EVALPLUS) else shape[1:]
    if shape or preset in (Preset.EXACT, Preset.STDIN_LINES):
        ignored = ignored + tolerance
    if message.checker:
        ignored = shape + tolerance + (["preset"] if message.preset else [])
    if ignored:
        rival = "a checker" if message.checker else f"preset {preset.upper()}{' and ' + shape[0] if shape else ''}"
        raise InvalidRequestError(f"comparator.{ignored[0]} has no effect with {rival}")


def _check_count(field: str, count: int, maximum: int) -> None:
    if not 1 <= count <= maximum:
        raise InvalidRequestError(f"{field} = {count} is outside 1 to {maximum}")


def _check_response_size(field: str, count: int, limits: Limits, limit: str = "value_bytes") -> None:
    """The outputs of all cases must fit into one response."""
    size = getattr(limits, limit)
    if count * size > limits_table.MAX_RESPONSE_VALUES_BYTES:
        raise InvalidRequestError(
            f"{count} {field} x limits.{limit} = {size} is {count * size} bytes, at most "
            f"{limits_table.MAX_RESPONSE_VALUES_BYTES} fit into a response"
        )


# --- to protobuf -----------------------------------------------------------------------------------------


def write_outcome(outcome: Outcome) -> pb.Outcome:
    """Return the enum value of the same name."""
    return pb.Outcome.Value(f"OUTCOME_{outcome.name}")  # type: ignore[return-value]


def write_evidence(evidence: Evidence | None) -> pb.Evidence:
    """Return the enum value of the same name."""
    return pb.Evidence.Value(f"EVIDENCE_{evidence.name if evidence else 'UNSPECIFIED'}")  # type: ignore[return-value]


def write_run(run: CaseRun, *, with_literal: bool = True) -> pb.RunResult:
    """Return what a program did on one case."""
    return pb.RunResult(
        outcome=write_outcome(run.outcome),
        evidence=write_evidence(run.evidence),
        value=write_value(run.value, with_literal=with_literal) if run.value is not None else None,
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
        hook_events=[write_event(event) for event in run.hook_events],
        denied_syscall=run.denied_syscall,
        tries=run.tries,
    )


def write_value(canonical: bytes, *, with_literal: bool = True) -> pb.Value:
    """Return a value with its literal, if it has one that is short enough to be an answer."""
    try:
        literal = literals.render(canonical) if with_literal else ""
    except codec.EncodingError:  # opaque
        literal = ""
    return pb.Value(canonical=canonical, literal=literal if literals.fits_an_answer(literal) else "")


def write_event(event: HookEvent) -> pb.HookEvent:
    """Return an event with the severity that the service gives it."""
    severity = f"SEVERITY_{events.rate(event.event, event.detail).name}"
    return pb.HookEvent(event=event.event, detail=event.detail, count=event.count, severity=severity)


def write_task_report(report: TaskReport, provenance: pb.Provenance) -> pb.ValidateTaskResponse:
    """Return a ValidateTask response."""
    response = pb.ValidateTaskResponse(
        provenance=provenance,
        valid=not report.reasons,
        reasons=[f"REASON_{reason.name}" for reason in report.reasons],
        results=[write_run(run) for run in report.results],
        findings=[pb.Finding(code=code, detail=detail) for code, detail in report.findings],
        detail=report.detail,
        runs=report.runs,
        draws=report.draws,
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


def write_cases_report(report: CasesReport, provenance: pb.Provenance, *, with_outputs: bool) -> pb.RunCasesResponse:
    """Return a RunCases response."""
    correct = sum(case.verdict is Verdict.CORRECT for case in report.cases)
    unjudged = sum(case.verdict is Verdict.UNJUDGED for case in report.cases)
    judged = report.asked - unjudged
    # Literals can be four times as long as the values; they must not push the response over its limit.
    sizes = itertools.accumulate(len(case.run.value or b"") for case in report.cases)
    return pb.RunCasesResponse(
        provenance=provenance,
        verdict=f"VERDICT_{report.verdict.name}",
        cases=[
            pb.ScoredCase(
                verdict=f"VERDICT_{case.verdict.name}",
                result=write_run(case.run, with_literal=size <= _MAX_VALUES_WITH_LITERALS),
                stdout=case.run.stdout if with_outputs else b"",
                reference_outcome=write_outcome(case.reference_outcome) if case.reference_outcome else None,
            )
            for case, size in zip(report.cases, sizes, strict=True)
        ],
        correct=correct,
        unjudged=unjudged,
        fraction_correct=correct / judged if judged else 0.0,
    )


def write_script_report(report: ScriptReport, provenance: pb.Provenance) -> pb.RunScriptResponse:
    """Return a RunScript response."""
    return pb.RunScriptResponse(
        provenance=provenance,
        status=f"SCRIPT_STATUS_{report.status.name}",
        result=write_run(report.run),
        stdout=report.run.stdout,
        stderr=report.run.stderr,
    )
