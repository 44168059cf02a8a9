"""Records that cross modules: plain and JSON-serialisable by field."""

from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """What a member does."""

    TEACHER = "teacher"
    STUDENT = "student"


class TaskKind(StrEnum):
    """What is asked of a student about a program f: its output, an input, or f itself."""

    DEDUCTION = "deduction"
    ABDUCTION = "abduction"
    INDUCTION = "induction"


class FormatError(StrEnum):
    """Why a model's text is not a proposal or an answer."""

    TRUNCATED = "truncated"
    NO_PROGRAM = "no_program"
    NO_INPUT = "no_input"
    NO_OUTPUT = "no_output"
    REPEATED_BLOCK = "repeated_block"
    TOO_FEW_INPUTS = "too_few_inputs"


class Grade(StrEnum):
    """What became of an attempt or a proposal. UNJUDGED is the verifier's trouble and never scored."""

    CORRECT = "correct"
    WRONG = "wrong"
    MALFORMED = "malformed"
    VALID = "valid"
    INVALID = "invalid"
    DUPLICATE = "duplicate"
    UNJUDGED = "unjudged"


@dataclass(frozen=True, slots=True)
class Value:
    """A value as the verifier encodes it: canonical bytes as hex, and the literal that prompts show."""

    canonical: str
    literal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A well-formed proposal of a teacher, not yet validated."""

    kind: TaskKind
    program: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A valid task: program, inputs, and the values the verifier saw."""

    uid: str
    kind: TaskKind
    program: str
    arguments: tuple[str, ...]
    values: tuple[Value, ...]
    message: str = ""
    ast_hash: str = ""
    teacher: str = ""
    """Uid of the teacher that proposed it; empty for a seed."""
    step: int = 0


@dataclass(slots=True, kw_only=True)
class Sample:
    """One completion of one member, from sampling to learning."""

    member: str
    version: int
    role: Role
    kind: TaskKind
    group: str
    """Samples of one prompt share a group; it is the baseline of the advantage."""
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of the completion under the sampler, [T]."""
    finish_reason: str
    text: str
    grade: Grade = Grade.UNJUDGED
    detail: str = ""
    problem: str = ""
    """Uid of the problem that was proposed or attempted."""
    reward: float | None = None
    """None: not judged, not learned from."""
    content_hash: str = ""
    """Of the adapter that sampled it."""


@dataclass(frozen=True, slots=True)
class Rating:
    """TrueSkill belief about a member's skill."""

    mu: float
    sigma: float

    def lower_bound(self, z: float) -> float:
        """Mu - z sigma."""
        return self.mu - z * self.sigma


@dataclass(frozen=True, slots=True)
class Match:
    """A teacher and the student drawn for it."""

    teacher: str
    student: str
    expected: float
    """Probability that the student wins, from the ratings at the start of the step."""


@dataclass(slots=True, kw_only=True)
class Member:
    """One adapter of the population."""

    uid: str
    role: Role
    rating: Rating
    version: int = 0
    """Grows with each learned or evolved change of the weights."""
    born_step: int = 0
    parents: tuple[str, ...] = ()
    operator: str = "init"
    games: int = 0
    content_hash: str = ""
    """SHA-256 of the adapter's tensors at this version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """One member replaced by a child."""

    culled: str
    child: str
    role: Role
    parents: tuple[str, ...]
    operator: str
    age_steps: int
    """Of the culled member: newborns must not be recycled."""
    details: dict[str, float] = field(default_factory=dict)
