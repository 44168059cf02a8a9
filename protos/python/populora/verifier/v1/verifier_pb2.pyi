from google.rpc import status_pb2 as _status_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_NOT_RUN: _ClassVar[Outcome]
    OUTCOME_COMPLETED: _ClassVar[Outcome]
    OUTCOME_SYNTAX_ERROR: _ClassVar[Outcome]
    OUTCOME_NO_ENTRY_POINT: _ClassVar[Outcome]
    OUTCOME_EXCEPTION: _ClassVar[Outcome]
    OUTCOME_NO_RESULT: _ClassVar[Outcome]
    OUTCOME_INVALID_RESULT: _ClassVar[Outcome]
    OUTCOME_SIGNALED: _ClassVar[Outcome]
    OUTCOME_CPU_TIMEOUT: _ClassVar[Outcome]
    OUTCOME_WALL_TIMEOUT: _ClassVar[Outcome]
    OUTCOME_MEMORY_LIMIT: _ClassVar[Outcome]
    OUTCOME_OUTPUT_LIMIT: _ClassVar[Outcome]
    OUTCOME_VALUE_LIMIT: _ClassVar[Outcome]
    OUTCOME_PROCESS_LIMIT: _ClassVar[Outcome]
    OUTCOME_SYSCALL_DENIED: _ClassVar[Outcome]

class Evidence(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVIDENCE_UNSPECIFIED: _ClassVar[Evidence]
    EVIDENCE_KERNEL: _ClassVar[Evidence]
    EVIDENCE_SERVER: _ClassVar[Evidence]
    EVIDENCE_GUEST_CLAIM: _ClassVar[Evidence]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_CORRECT: _ClassVar[Verdict]
    VERDICT_WRONG: _ClassVar[Verdict]
    VERDICT_MALFORMED: _ClassVar[Verdict]
    VERDICT_FAILED: _ClassVar[Verdict]
    VERDICT_UNJUDGED: _ClassVar[Verdict]

class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEVERITY_UNSPECIFIED: _ClassVar[Severity]
    SEVERITY_INFO: _ClassVar[Severity]
    SEVERITY_NOTICE: _ClassVar[Severity]
    SEVERITY_WARNING: _ClassVar[Severity]
    SEVERITY_ALERT: _ClassVar[Severity]

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    REASON_MALFORMED_ARGUMENTS: _ClassVar[Reason]
    REASON_SYNTAX_ERROR: _ClassVar[Reason]
    REASON_NO_ENTRY_POINT: _ClassVar[Reason]
    REASON_RUN_FAILED: _ClassVar[Reason]
    REASON_NONDETERMINISTIC: _ClassVar[Reason]
    REASON_TOO_DEEP: _ClassVar[Reason]
    REASON_ANALYSIS_FAILED: _ClassVar[Reason]

class ScriptStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCRIPT_STATUS_UNSPECIFIED: _ClassVar[ScriptStatus]
    SCRIPT_STATUS_FINISHED: _ClassVar[ScriptStatus]
    SCRIPT_STATUS_FAILED: _ClassVar[ScriptStatus]
    SCRIPT_STATUS_NO_RESULT: _ClassVar[ScriptStatus]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_NOT_RUN: Outcome
OUTCOME_COMPLETED: Outcome
OUTCOME_SYNTAX_ERROR: Outcome
OUTCOME_NO_ENTRY_POINT: Outcome
OUTCOME_EXCEPTION: Outcome
OUTCOME_NO_RESULT: Outcome
OUTCOME_INVALID_RESULT: Outcome
OUTCOME_SIGNALED: Outcome
OUTCOME_CPU_TIMEOUT: Outcome
OUTCOME_WALL_TIMEOUT: Outcome
OUTCOME_MEMORY_LIMIT: Outcome
OUTCOME_OUTPUT_LIMIT: Outcome
OUTCOME_VALUE_LIMIT: Outcome
OUTCOME_PROCESS_LIMIT: Outcome
OUTCOME_SYSCALL_DENIED: Outcome
EVIDENCE_UNSPECIFIED: Evidence
EVIDENCE_KERNEL: Evidence
EVIDENCE_SERVER: Evidence
EVIDENCE_GUEST_CLAIM: Evidence
VERDICT_UNSPECIFIED: Verdict
VERDICT_CORRECT: Verdict
VERDICT_WRONG: Verdict
VERDICT_MALFORMED: Verdict
VERDICT_FAILED: Verdict
VERDICT_UNJUDGED: Verdict
SEVERITY_UNSPECIFIED: Severity
SEVERITY_INFO: Severity
SEVERITY_NOTICE: Severity
SEVERITY_WARNING: Severity
SEVERITY_ALERT: Severity
REASON_UNSPECIFIED: Reason
REASON_MALFORMED_ARGUMENTS: Reason
REASON_SYNTAX_ERROR: Reason
REASON_NO_ENTRY_POINT: Reason
REASON_RUN_FAILED: Reason
REASON_NONDETERMINISTIC: Reason
REASON_TOO_DEEP: Reason
REASON_ANALYSIS_FAILED: Reason
SCRIPT_STATUS_UNSPECIFIED: ScriptStatus
SCRIPT_STATUS_FINISHED: ScriptStatus
SCRIPT_STATUS_FAILED: ScriptStatus
SCRIPT_STATUS_NO_RESULT: ScriptStatus

class Value(_message.Message):
    __slots__ = ("canonical", "literal")
    CANONICAL_FIELD_NUMBER: _ClassVar[int]
    LITERAL_FIELD_NUMBER: _ClassVar[int]
    canonical: bytes
    literal: str
    def __init__(self, canonical: _Optional[bytes] = ..., literal: _Optional[str] = ...) -> None: ...

class RequestContext(_message.Message):
    __slots__ = ("request_id", "run", "step", "member", "role", "task_type")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    run: str
    step: int
    member: str
    role: str
    task_type: str
    def __init__(self, request_id: _Optional[str] = ..., run: _Optional[str] = ..., step: _Optional[int] = ..., member: _Optional[str] = ..., role: _Optional[str] = ..., task_type: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("cpu_time_s", "wall_time_s", "memory_bytes", "processes", "tmp_bytes", "output_bytes", "value_bytes")
    CPU_TIME_S_FIELD_NUMBER: _ClassVar[int]
    WALL_TIME_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    TMP_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    cpu_time_s: float
    wall_time_s: float
    memory_bytes: int
    processes: int
    tmp_bytes: int
    output_bytes: int
    value_bytes: int
    def __init__(self, cpu_time_s: _Optional[float] = ..., wall_time_s: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., processes: _Optional[int] = ..., tmp_bytes: _Optional[int] = ..., output_bytes: _Optional[int] = ..., value_bytes: _Optional[int] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("wall_s", "cpu_s", "peak_memory_bytes", "peak_processes", "output_bytes")
    WALL_S_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    PEAK_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PEAK_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    wall_s: float
    cpu_s: float
    peak_memory_bytes: int
    peak_processes: int
    output_bytes: int
    def __init__(self, wall_s: _Optional[float] = ..., cpu_s: _Optional[float] = ..., peak_memory_bytes: _Optional[int] = ..., peak_processes: _Optional[int] = ..., output_bytes: _Optional[int] = ...) -> None: ...

class HookEvent(_message.Message):
    __slots__ = ("event", "detail", "count", "severity")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    event: str
    detail: str
    count: int
    severity: Severity
    def __init__(self, event: _Optional[str] = ..., detail: _Optional[str] = ..., count: _Optional[int] = ..., severity: _Optional[_Union[Severity, str]] = ...) -> None: ...

class RunResult(_message.Message):
    __slots__ = ("outcome", "evidence", "value", "exception", "exit_status", "signal", "usage", "hook_events", "denied_syscall", "tries")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    EXIT_STATUS_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    HOOK_EVENTS_FIELD_NUMBER: _ClassVar[int]
    DENIED_SYSCALL_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    evidence: Evidence
    value: Value
    exception: str
    exit_status: int
    signal: int
    usage: Usage
    hook_events: _containers.RepeatedCompositeFieldContainer[HookEvent]
    denied_syscall: str
    tries: int
    def __init__(self, outcome: _Optional[_Union[Outcome, str]] = ..., evidence: _Optional[_Union[Evidence, str]] = ..., value: _Optional[_Union[Value, _Mapping]] = ..., exception: _Optional[str] = ..., exit_status: _Optional[int] = ..., signal: _Optional[int] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., hook_events: _Optional[_Iterable[_Union[HookEvent, _Mapping]]] = ..., denied_syscall: _Optional[str] = ..., tries: _Optional[int] = ...) -> None: ...

class Provenance(_message.Message):
    __slots__ = ("request_id", "queue_s", "run_s", "engine", "image_digest", "python_version", "degraded")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_S_FIELD_NUMBER: _ClassVar[int]
    RUN_S_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PYTHON_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    queue_s: float
    run_s: float
    engine: str
    image_digest: str
    python_version: str
    degraded: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., queue_s: _Optional[float] = ..., run_s: _Optional[float] = ..., engine: _Optional[str] = ..., image_digest: _Optional[str] = ..., python_version: _Optional[str] = ..., degraded: _Optional[_Iterable[str]] = ...) -> None: ...

class ValidateTaskRequest(_message.Message):
    __slots__ = ("context", "program", "entry_point", "arguments", "limits", "runs", "draws", "allowed_modules")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    ENTRY_POINT_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_MODULES_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    program: bytes
    entry_point: str
    arguments: _containers.RepeatedScalarFieldContainer[str]
    limits: Limits
    runs: int
    draws: int
    allowed_modules: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., program: _Optional[bytes] = ..., entry_point: _Optional[str] = ..., arguments: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., runs: _Optional[int] = ..., draws: _Optional[int] = ..., allowed_modules: _Optional[_Iterable[str]] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("code", "detail")
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    code: str
    detail: str
    def __init__(self, code: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class TaskFeatures(_message.Message):
    __slots__ = ("ast_hash", "node_types", "depth", "nodes", "cyclomatic_complexity", "lines", "variables", "halstead_volume", "halstead_difficulty", "type_signature", "imports")
    AST_HASH_FIELD_NUMBER: _ClassVar[int]
    NODE_TYPES_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CYCLOMATIC_COMPLEXITY_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    HALSTEAD_VOLUME_FIELD_NUMBER: _ClassVar[int]
    HALSTEAD_DIFFICULTY_FIELD_NUMBER: _ClassVar[int]
    TYPE_SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    IMPORTS_FIELD_NUMBER: _ClassVar[int]
    ast_hash: str
    node_types: _containers.RepeatedScalarFieldContainer[str]
    depth: int
    nodes: int
    cyclomatic_complexity: int
    lines: int
    variables: int
    halstead_volume: float
    halstead_difficulty: float
    type_signature: str
    imports: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ast_hash: _Optional[str] = ..., node_types: _Optional[_Iterable[str]] = ..., depth: _Optional[int] = ..., nodes: _Optional[int] = ..., cyclomatic_complexity: _Optional[int] = ..., lines: _Optional[int] = ..., variables: _Optional[int] = ..., halstead_volume: _Optional[float] = ..., halstead_difficulty: _Optional[float] = ..., type_signature: _Optional[str] = ..., imports: _Optional[_Iterable[str]] = ...) -> None: ...

class ValidateTaskResponse(_message.Message):
    __slots__ = ("provenance", "valid", "reasons", "results", "features", "findings", "detail", "runs", "draws")
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    VALID_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    provenance: Provenance
    valid: bool
    reasons: _containers.RepeatedScalarFieldContainer[Reason]
    results: _containers.RepeatedCompositeFieldContainer[RunResult]
    features: TaskFeatures
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    detail: str
    runs: int
    draws: int
    def __init__(self, provenance: _Optional[_Union[Provenance, _Mapping]] = ..., valid: bool = ..., reasons: _Optional[_Iterable[_Union[Reason, str]]] = ..., results: _Optional[_Iterable[_Union[RunResult, _Mapping]]] = ..., features: _Optional[_Union[TaskFeatures, _Mapping]] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., detail: _Optional[str] = ..., runs: _Optional[int] = ..., draws: _Optional[int] = ...) -> None: ...

class JudgeAnswerRequest(_message.Message):
    __slots__ = ("context", "limits", "deduction", "abduction", "induction")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    DEDUCTION_FIELD_NUMBER: _ClassVar[int]
    ABDUCTION_FIELD_NUMBER: _ClassVar[int]
    INDUCTION_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    limits: Limits
    deduction: Deduction
    abduction: Abduction
    induction: Induction
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., deduction: _Optional[_Union[Deduction, _Mapping]] = ..., abduction: _Optional[_Union[Abduction, _Mapping]] = ..., induction: _Optional[_Union[Induction, _Mapping]] = ...) -> None: ...

class Deduction(_message.Message):
    __slots__ = ("expected", "answer")
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    expected: Value
    answer: str
    def __init__(self, expected: _Optional[_Union[Value, _Mapping]] = ..., answer: _Optional[str] = ...) -> None: ...

class Abduction(_message.Message):
    __slots__ = ("program", "entry_point", "expected", "answer")
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    ENTRY_POINT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    program: bytes
    entry_point: str
    expected: Value
    answer: str
    def __init__(self, program: _Optional[bytes] = ..., entry_point: _Optional[str] = ..., expected: _Optional[_Union[Value, _Mapping]] = ..., answer: _Optional[str] = ...) -> None: ...

class Induction(_message.Message):
    __slots__ = ("program", "entry_point", "cases")
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    ENTRY_POINT_FIELD_NUMBER: _ClassVar[int]
    CASES_FIELD_NUMBER: _ClassVar[int]
    program: bytes
    entry_point: str
    cases: _containers.RepeatedCompositeFieldContainer[Case]
    def __init__(self, program: _Optional[bytes] = ..., entry_point: _Optional[str] = ..., cases: _Optional[_Iterable[_Union[Case, _Mapping]]] = ...) -> None: ...

class Case(_message.Message):
    __slots__ = ("arguments", "expected")
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    arguments: str
    expected: Value
    def __init__(self, arguments: _Optional[str] = ..., expected: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...

class CaseResult(_message.Message):
    __slots__ = ("verdict", "result")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    result: RunResult
    def __init__(self, verdict: _Optional[_Union[Verdict, str]] = ..., result: _Optional[_Union[RunResult, _Mapping]] = ...) -> None: ...

class JudgeAnswerResponse(_message.Message):
    __slots__ = ("provenance", "verdict", "outcome", "evidence", "cases", "detail")
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    CASES_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    provenance: Provenance
    verdict: Verdict
    outcome: Outcome
    evidence: Evidence
    cases: _containers.RepeatedCompositeFieldContainer[CaseResult]
    detail: str
    def __init__(self, provenance: _Optional[_Union[Provenance, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., evidence: _Optional[_Union[Evidence, str]] = ..., cases: _Optional[_Iterable[_Union[CaseResult, _Mapping]]] = ..., detail: _Optional[str] = ...) -> None: ...

class ExecuteRequest(_message.Message):
    __slots__ = ("context", "program", "stdin", "limits")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    program: bytes
    stdin: bytes
    limits: Limits
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., program: _Optional[bytes] = ..., stdin: _Optional[bytes] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class ExecuteResponse(_message.Message):
    __slots__ = ("provenance", "result", "stdout", "stderr")
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    provenance: Provenance
    result: RunResult
    stdout: bytes
    stderr: bytes
    def __init__(self, provenance: _Optional[_Union[Provenance, _Mapping]] = ..., result: _Optional[_Union[RunResult, _Mapping]] = ..., stdout: _Optional[bytes] = ..., stderr: _Optional[bytes] = ...) -> None: ...

class RunCasesRequest(_message.Message):
    __slots__ = ("context", "program", "entry_point", "reads_stdin", "cases", "reference", "comparator", "limits", "stop_at_first_failure", "return_outputs")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    ENTRY_POINT_FIELD_NUMBER: _ClassVar[int]
    READS_STDIN_FIELD_NUMBER: _ClassVar[int]
    CASES_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    COMPARATOR_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    STOP_AT_FIRST_FAILURE_FIELD_NUMBER: _ClassVar[int]
    RETURN_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    program: bytes
    entry_point: str
    reads_stdin: bool
    cases: _containers.RepeatedCompositeFieldContainer[TestCase]
    reference: bytes
    comparator: Comparator
    limits: Limits
    stop_at_first_failure: bool
    return_outputs: bool
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., program: _Optional[bytes] = ..., entry_point: _Optional[str] = ..., reads_stdin: bool = ..., cases: _Optional[_Iterable[_Union[TestCase, _Mapping]]] = ..., reference: _Optional[bytes] = ..., comparator: _Optional[_Union[Comparator, _Mapping]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., stop_at_first_failure: bool = ..., return_outputs: bool = ...) -> None: ...

class TestCase(_message.Message):
    __slots__ = ("arguments", "stdin", "expected", "expected_stdout")
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_STDOUT_FIELD_NUMBER: _ClassVar[int]
    arguments: str
    stdin: bytes
    expected: Value
    expected_stdout: bytes
    def __init__(self, arguments: _Optional[str] = ..., stdin: _Optional[bytes] = ..., expected: _Optional[_Union[Value, _Mapping]] = ..., expected_stdout: _Optional[bytes] = ...) -> None: ...

class Comparator(_message.Message):
    __slots__ = ("preset", "absolute_tolerance", "relative_tolerance", "as_sets", "not_none", "checker")
    class Preset(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PRESET_UNSPECIFIED: _ClassVar[Comparator.Preset]
        PRESET_EXACT: _ClassVar[Comparator.Preset]
        PRESET_PYTHON_EQ: _ClassVar[Comparator.Preset]
        PRESET_EVALPLUS: _ClassVar[Comparator.Preset]
        PRESET_STDIN_TOKENS: _ClassVar[Comparator.Preset]
        PRESET_STDIN_LINES: _ClassVar[Comparator.Preset]
    PRESET_UNSPECIFIED: Comparator.Preset
    PRESET_EXACT: Comparator.Preset
    PRESET_PYTHON_EQ: Comparator.Preset
    PRESET_EVALPLUS: Comparator.Preset
    PRESET_STDIN_TOKENS: Comparator.Preset
    PRESET_STDIN_LINES: Comparator.Preset
    PRESET_FIELD_NUMBER: _ClassVar[int]
    ABSOLUTE_TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    AS_SETS_FIELD_NUMBER: _ClassVar[int]
    NOT_NONE_FIELD_NUMBER: _ClassVar[int]
    CHECKER_FIELD_NUMBER: _ClassVar[int]
    preset: Comparator.Preset
    absolute_tolerance: float
    relative_tolerance: float
    as_sets: bool
    not_none: bool
    checker: bytes
    def __init__(self, preset: _Optional[_Union[Comparator.Preset, str]] = ..., absolute_tolerance: _Optional[float] = ..., relative_tolerance: _Optional[float] = ..., as_sets: bool = ..., not_none: bool = ..., checker: _Optional[bytes] = ...) -> None: ...

class ScoredCase(_message.Message):
    __slots__ = ("verdict", "result", "stdout", "reference_outcome")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_OUTCOME_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    result: RunResult
    stdout: bytes
    reference_outcome: Outcome
    def __init__(self, verdict: _Optional[_Union[Verdict, str]] = ..., result: _Optional[_Union[RunResult, _Mapping]] = ..., stdout: _Optional[bytes] = ..., reference_outcome: _Optional[_Union[Outcome, str]] = ...) -> None: ...

class RunCasesResponse(_message.Message):
    __slots__ = ("provenance", "verdict", "cases", "correct", "unjudged", "fraction_correct")
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    CASES_FIELD_NUMBER: _ClassVar[int]
    CORRECT_FIELD_NUMBER: _ClassVar[int]
    UNJUDGED_FIELD_NUMBER: _ClassVar[int]
    FRACTION_CORRECT_FIELD_NUMBER: _ClassVar[int]
    provenance: Provenance
    verdict: Verdict
    cases: _containers.RepeatedCompositeFieldContainer[ScoredCase]
    correct: int
    unjudged: int
    fraction_correct: float
    def __init__(self, provenance: _Optional[_Union[Provenance, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., cases: _Optional[_Iterable[_Union[ScoredCase, _Mapping]]] = ..., correct: _Optional[int] = ..., unjudged: _Optional[int] = ..., fraction_correct: _Optional[float] = ...) -> None: ...

class RunScriptRequest(_message.Message):
    __slots__ = ("context", "program", "script", "stdin", "limits")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    context: RequestContext
    program: bytes
    script: bytes
    stdin: bytes
    limits: Limits
    def __init__(self, context: _Optional[_Union[RequestContext, _Mapping]] = ..., program: _Optional[bytes] = ..., script: _Optional[bytes] = ..., stdin: _Optional[bytes] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class RunScriptResponse(_message.Message):
    __slots__ = ("provenance", "status", "result", "stdout", "stderr")
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    provenance: Provenance
    status: ScriptStatus
    result: RunResult
    stdout: bytes
    stderr: bytes
    def __init__(self, provenance: _Optional[_Union[Provenance, _Mapping]] = ..., status: _Optional[_Union[ScriptStatus, str]] = ..., result: _Optional[_Union[RunResult, _Mapping]] = ..., stdout: _Optional[bytes] = ..., stderr: _Optional[bytes] = ...) -> None: ...

class StreamRequest(_message.Message):
    __slots__ = ("id", "timeout_s", "validate_task", "judge_answer", "execute", "cancel", "run_cases", "run_script")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_TASK_FIELD_NUMBER: _ClassVar[int]
    JUDGE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RUN_CASES_FIELD_NUMBER: _ClassVar[int]
    RUN_SCRIPT_FIELD_NUMBER: _ClassVar[int]
    id: str
    timeout_s: float
    validate_task: ValidateTaskRequest
    judge_answer: JudgeAnswerRequest
    execute: ExecuteRequest
    cancel: Cancel
    run_cases: RunCasesRequest
    run_script: RunScriptRequest
    def __init__(self, id: _Optional[str] = ..., timeout_s: _Optional[float] = ..., validate_task: _Optional[_Union[ValidateTaskRequest, _Mapping]] = ..., judge_answer: _Optional[_Union[JudgeAnswerRequest, _Mapping]] = ..., execute: _Optional[_Union[ExecuteRequest, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., run_cases: _Optional[_Union[RunCasesRequest, _Mapping]] = ..., run_script: _Optional[_Union[RunScriptRequest, _Mapping]] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StreamResponse(_message.Message):
    __slots__ = ("id", "status", "validate_task", "judge_answer", "execute", "run_cases", "run_script")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_TASK_FIELD_NUMBER: _ClassVar[int]
    JUDGE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_FIELD_NUMBER: _ClassVar[int]
    RUN_CASES_FIELD_NUMBER: _ClassVar[int]
    RUN_SCRIPT_FIELD_NUMBER: _ClassVar[int]
    id: str
    status: _status_pb2.Status
    validate_task: ValidateTaskResponse
    judge_answer: JudgeAnswerResponse
    execute: ExecuteResponse
    run_cases: RunCasesResponse
    run_script: RunScriptResponse
    def __init__(self, id: _Optional[str] = ..., status: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., validate_task: _Optional[_Union[ValidateTaskResponse, _Mapping]] = ..., judge_answer: _Optional[_Union[JudgeAnswerResponse, _Mapping]] = ..., execute: _Optional[_Union[ExecuteResponse, _Mapping]] = ..., run_cases: _Optional[_Union[RunCasesResponse, _Mapping]] = ..., run_script: _Optional[_Union[RunScriptResponse, _Mapping]] = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LimitRange(_message.Message):
    __slots__ = ("name", "default", "maximum")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    name: str
    default: float
    maximum: float
    def __init__(self, name: _Optional[str] = ..., default: _Optional[float] = ..., maximum: _Optional[float] = ...) -> None: ...

class Protection(_message.Message):
    __slots__ = ("name", "active", "detail")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    active: bool
    detail: str
    def __init__(self, name: _Optional[str] = ..., active: bool = ..., detail: _Optional[str] = ...) -> None: ...

class ServerInfo(_message.Message):
    __slots__ = ("server_version", "engine", "image_digest", "python_version", "protections", "degraded", "limits", "slots", "running", "queued", "queue_capacity", "uptime_s", "requests", "live_jails", "live_run_cgroups", "open_descriptors", "zombies", "mounts", "packages")
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PYTHON_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTECTIONS_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    LIVE_JAILS_FIELD_NUMBER: _ClassVar[int]
    LIVE_RUN_CGROUPS_FIELD_NUMBER: _ClassVar[int]
    OPEN_DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    ZOMBIES_FIELD_NUMBER: _ClassVar[int]
    MOUNTS_FIELD_NUMBER: _ClassVar[int]
    PACKAGES_FIELD_NUMBER: _ClassVar[int]
    server_version: str
    engine: str
    image_digest: str
    python_version: str
    protections: _containers.RepeatedCompositeFieldContainer[Protection]
    degraded: _containers.RepeatedScalarFieldContainer[str]
    limits: _containers.RepeatedCompositeFieldContainer[LimitRange]
    slots: int
    running: int
    queued: int
    queue_capacity: int
    uptime_s: float
    requests: int
    live_jails: int
    live_run_cgroups: int
    open_descriptors: int
    zombies: int
    mounts: int
    packages: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, server_version: _Optional[str] = ..., engine: _Optional[str] = ..., image_digest: _Optional[str] = ..., python_version: _Optional[str] = ..., protections: _Optional[_Iterable[_Union[Protection, _Mapping]]] = ..., degraded: _Optional[_Iterable[str]] = ..., limits: _Optional[_Iterable[_Union[LimitRange, _Mapping]]] = ..., slots: _Optional[int] = ..., running: _Optional[int] = ..., queued: _Optional[int] = ..., queue_capacity: _Optional[int] = ..., uptime_s: _Optional[float] = ..., requests: _Optional[int] = ..., live_jails: _Optional[int] = ..., live_run_cgroups: _Optional[int] = ..., open_descriptors: _Optional[int] = ..., zombies: _Optional[int] = ..., mounts: _Optional[int] = ..., packages: _Optional[_Iterable[str]] = ...) -> None: ...
