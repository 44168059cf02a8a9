"""The words of the service: plain frozen records without protobuf, gRPC or processes."""

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """What a program did. Each value is explained in the proto file under the same name."""

    NOT_RUN = "not_run"
    COMPLETED = "completed"
    SYNTAX_ERROR = "syntax_error"
    NO_ENTRY_POINT = "no_entry_point"
    EXCEPTION = "exception"
    NO_RESULT = "no_result"
    INVALID_RESULT = "invalid_result"
    SIGNALED = "signaled"
    CPU_TIMEOUT = "cpu_timeout"
    WALL_TIMEOUT = "wall_timeout"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    VALUE_LIMIT = "value_limit"
    PROCESS_LIMIT = "process_limit"
    SYSCALL_DENIED = "syscall_denied"


class Evidence(StrEnum):
    """What an outcome rests on."""

    KERNEL = "kernel"
    SERVER = "server"
    GUEST_CLAIM = "guest_claim"


class Verdict(StrEnum):
    """What an outcome means for the question."""

    CORRECT = "correct"
    WRONG = "wrong"
    MALFORMED = "malformed"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a task is not valid."""

    MALFORMED_ARGUMENTS = "malformed_arguments"
    SYNTAX_ERROR = "syntax_error"
    NO_ENTRY_POINT = "no_entry_point"
    RUN_FAILED = "run_failed"
    NONDETERMINISTIC = "nondeterministic"
    TOO_DEEP = "too_deep"
    ANALYSIS_FAILED = "analysis_failed"


class Mode(StrEnum):
    """How a jail treats a program."""

    CALL = "call"
    SCRIPT = "script"
    ANALYZE = "analyze"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one run, resolved: no zeros, all within the service's maxima. Meanings as in the proto."""

    cpu_time_s: float = 5.0
    wall_time_s: float = 15.0
    memory_bytes: int = 512 << 20
    processes: int = 32
    tmp_bytes: int = 32 << 20
    output_bytes: int = 64 << 10
    value_bytes: int = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseInput:
    """What one case feeds the program: canonical arguments (call) or standard input (script)."""

    positional: bytes = b"U\0"
    keywords: bytes = b"M\0"
    stdin: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A program and the cases to run it on, all within one jail unless the jail dies."""

    mode: Mode
    program: bytes
    entry_point: str
    cases: tuple[CaseInput, ...]
    limits: Limits
    hash_seed: int = 0
    clock_shift_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one case used; times from the moment the program is handed to its process."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    peak_processes: int = 0
    output_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRun:
    """What the program did on one case."""

    outcome: Outcome
    evidence: Evidence
    value: bytes | None = None
    """Checked canonical encoding, only for a COMPLETED call."""
    claim: str = ""
    """Exception class and message as the program told them."""
    exit_status: int = 0
    signal: int = 0
    usage: Usage = field(default_factory=Usage)
    hook_events: tuple[tuple[str, str], ...] = ()
    stdout: bytes = b""
    stderr: bytes = b""
    analysis: bytes | None = None
    """JSON of the analysis, only for a COMPLETED analyze."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who asks, for the audit log; the tenant comes from the connection."""

    tenant: str = "local"
    request_id: str = ""
    run: str = ""
    step: int = 0
    member: str = ""
    role: str = ""
    task_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFeatures:
    """Measures of a program's text, range-checked. Fields as in the proto."""

    ast_hash: str
    node_types: tuple[str, ...]
    depth: int
    nodes: int
    cyclomatic_complexity: int
    lines: int
    variables: int
    halstead_volume: float
    halstead_difficulty: float
    imports: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """Everything ValidateTask says about a task."""

    reasons: tuple[Reason, ...]
    results: tuple[CaseRun, ...] = ()
    features: TaskFeatures | None = None
    type_signature: str = ""
    findings: tuple[tuple[str, str], ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReport:
    """Everything JudgeAnswer says about an answer."""

    verdict: Verdict
    outcome: Outcome
    evidence: Evidence | None = None
    cases: tuple[tuple[Verdict, CaseRun], ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQuestion:
    """A program that claims to be a task; `arguments` are texts."""

    program: bytes
    entry_point: str
    arguments: tuple[str, ...]
    limits: Limits
    runs: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeductionQuestion:
    """An answer text against an expected canonical value; no program."""

    expected: bytes
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbductionQuestion:
    """An argument text that should make the program return the expected value."""

    program: bytes
    entry_point: str
    expected: bytes
    answer: str
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class InductionQuestion:
    """A candidate program and the (arguments, expected value) pairs it must satisfy."""

    program: bytes
    entry_point: str
    cases: tuple[tuple[CaseInput, bytes], ...]
    limits: Limits


AnswerQuestion = DeductionQuestion | AbductionQuestion | InductionQuestion
