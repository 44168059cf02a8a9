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
    UNJUDGED = "unjudged"


class Preset(StrEnum):
    """A rule for when outputs are equal. Each is explained in the proto file under the same name."""

    EXACT = "exact"
    PYTHON_EQ = "python_eq"
    EVALPLUS = "evalplus"
    STDIN_TOKENS = "stdin_tokens"
    STDIN_LINES = "stdin_lines"


class Severity(StrEnum):
    """How much an event should interest an operator."""

    INFO = "info"
    NOTICE = "notice"
    WARNING = "warning"
    ALERT = "alert"


class ScriptStatus(StrEnum):
    """How far an assert-style script came; deliberately no Verdict."""

    FINISHED = "finished"
    FAILED = "failed"
    NO_RESULT = "no_result"


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
    """Call the entry point, return its value."""
    SCRIPT = "script"
    """Run as `__main__` with standard input."""
    ASSERT = "assert"
    """Like SCRIPT, then run a second text in the same namespace."""
    ANALYZE = "analyze"
    """Parse, never run."""


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
    """What one case feeds the program: encoded arguments (call) or standard input and script (script, assert)."""

    positional: bytes = b"U\0"
    keywords: bytes = b"M\0"
    stdin: bytes = b""
    script: bytes = b""


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
    lenient: bool = False
    """Whether returned values may be instances of subclasses or opaque, see `judging.codec`."""
    preload: bool = False
    """Whether common modules are imported once for all cases. A program can see it, so not where tasks are validated
    or answers judged: there all runs look alike."""
    allowed_modules: tuple[str, ...] = ()
    """For ANALYZE: modules that are no finding; empty means the guest's own list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvent:
    """Something a program tried, as its own interpreter reported it."""

    event: str
    detail: str
    count: int


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
    denied_syscall: str = ""
    """From the kernel's audit record, if there was one; also of a child process, whatever the outcome."""
    tries: int = 1
    """2 if the case ran again because the first try was ended by a SIGKILL that nothing explained."""
    hook_events: tuple[HookEvent, ...] = ()
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
    runs: int = 0
    draws: int = 0


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
    runs: int | None = None
    """Fresh interpreters; None: as the program's text demands."""
    draws: int = 48
    allowed_modules: tuple[str, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparator:
    """When an output is right. Fields as in the proto."""

    preset: Preset = Preset.EXACT
    absolute_tolerance: float = 0.0
    relative_tolerance: float = 0.0
    as_sets: bool = False
    not_none: bool = False
    checker: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseQuestion:
    """One case of a benchmark; `expected` is a canonical value or stdout, None if a reference or checker decides."""

    inputs: CaseInput
    expected: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CasesQuestion:
    """A program, cases, and how to compare."""

    program: bytes
    entry_point: str
    mode: Mode
    cases: tuple[CaseQuestion, ...]
    reference: bytes = b""
    comparator: Comparator
    limits: Limits
    stop_at_first_failure: bool = False
    return_outputs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredCase:
    """Verdict of one case and what it rests on."""

    verdict: Verdict
    run: CaseRun
    reference_outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CasesReport:
    """Everything RunCases says; `asked` counts the cases of the question, also those not run."""

    cases: tuple[ScoredCase, ...]
    asked: int

    @property
    def verdict(self) -> Verdict:
        """CORRECT if every case is; else the first failure, else UNJUDGED."""
        verdicts = [case.verdict for case in self.cases]
        failures = [v for v in verdicts if v not in (Verdict.CORRECT, Verdict.UNJUDGED)]
        if failures:
            return failures[0]
        return Verdict.CORRECT if verdicts and set(verdicts) == {Verdict.CORRECT} else Verdict.UNJUDGED


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptReport:
    """Everything RunScript says."""

    status: ScriptStatus
    run: CaseRun
