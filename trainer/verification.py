"""The trainer's only door to the verifier: asks about many proposals and answers at once.

Three-valued on purpose: a result, or None when the verifier could not say. None is never scored.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from populora.verifier import (
    RequestRefusedError,
    VerifierClient,
    VerifierDefectError,
    VerifierError,
    VerifierTimeoutError,
)
from populora.verifier.v1 import verifier_pb2 as pb

from trainer.config import ConfigError, VerifierConfig
from trainer.domain import Grade, Problem, Proposal, TaskKind, Value

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Asker:
    """For whom a question is asked; goes into the verifier's audit log."""

    member: str
    role: str
    step: int


@dataclass(frozen=True, slots=True)
class Validation:
    """What the verifier says about a proposal."""

    valid: bool
    values: tuple[Value, ...]
    ast_hash: str
    detail: str
    """Reasons and details for people; empty if valid."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the verifier says about an answer."""

    grade: Grade
    detail: str


_GRADES = {
    pb.VERDICT_CORRECT: Grade.CORRECT,
    pb.VERDICT_WRONG: Grade.WRONG,
    pb.VERDICT_FAILED: Grade.WRONG,
    pb.VERDICT_MALFORMED: Grade.MALFORMED,
}


# So many answers, none of them usable, are no accident: the run ends and can be resumed. Fewer are masked.
_MANY = 8


class ImageChangedError(VerifierError):
    """Another verifier image answers than at the start of the run."""


class _GarbageError(Exception):
    """A response that the contract does not allow; the sample is masked."""


def _name(enum: Any, number: int) -> str:
    """Return the bare lower-case name of an enum value, or its number if a newer service knows more."""
    known = enum.DESCRIPTOR.values_by_number.get(number)
    return str(known.name.split("_", 1)[1].lower() if known else number)


class Verification:
    """Validates and judges through one client, `in_flight` requests at a time.

    Every method raises VerifierUnavailableError if the verifier stays away longer than the patience,
    VerifierDefectError if it fails on all requests of a large batch, and ImageChangedError if it is another one.
    """

    def __init__(self, config: VerifierConfig, *, on_trouble: Callable[[str], None]) -> None:
        self._config = config
        self.run = ""
        """Name of the run, for the audit log."""
        self.pinned_digest = ""
        """Image that must answer; another one may judge differently."""
        self._on_trouble = on_trouble
        try:
            self._client = VerifierClient(
                config.address,
                timeout_s=config.timeout_s,
                patience_s=config.patience_s,
                on_retry=self._note_retry,
            )
        except ValueError as error:
            raise ConfigError(f"verifier.address: {error}") from error
        self._limits = pb.Limits(cpu_time_s=config.cpu_time_s, memory_bytes=config.memory_bytes)
        self._pool = ThreadPoolExecutor(config.in_flight, thread_name_prefix="verifier")
        self.retries = 0

    def get_server_info(self) -> dict[str, str]:
        """Return what identifies the verifier: versions, engine and image digest."""
        info = self._client.server_info()
        names = ("server_version", "engine", "image_digest", "python_version")
        return {name: getattr(info, name) for name in names} | {"degraded": ",".join(info.degraded)}

    def submit_proposal(self, proposal: Proposal, asker: Asker, *, runs: int = 0) -> "Future[Validation | None]":
        """Have a proposal validated; the result is None if the verifier failed. `runs` 0 is the config's number."""
        count = runs or self._config.determinism_runs
        return self._submit(lambda: self._validate_one(proposal, asker, count))

    def submit_answer(self, problem: Problem, answer: str, asker: Asker) -> "Future[Judgement | None]":
        """Have an answer text judged; the result is None if the verifier failed."""
        return self._submit(lambda: self._judge_one(problem, answer, asker))

    def collect(self, futures: "Sequence[Future[Result | None]]") -> list[Result | None]:
        """Wait for submitted questions and return their results in order."""
        results = [future.result() for future in futures]
        if len(results) >= _MANY and all(result is None for result in results):
            raise VerifierDefectError(f"the verifier at {self._config.address} failed on all {len(results)} requests")
        return results

    def close(self) -> None:
        """End all waiting and close the client."""
        self._client.close()
        self._pool.shutdown(cancel_futures=True)

    def _submit(self, ask: Callable[[], Result]) -> "Future[Result | None]":
        def guarded() -> Result | None:
            try:
                return ask()
            except (VerifierDefectError, VerifierTimeoutError, RequestRefusedError, _GarbageError) as error:
                self._on_trouble(f"a sample is masked: {error}")
                return None

        return self._pool.submit(guarded)

    def _check_image(self, provenance: pb.Provenance) -> None:
        if not provenance.image_digest:
            raise _GarbageError("a reply without an image digest")
        if self.pinned_digest and provenance.image_digest != self.pinned_digest:
            raise ImageChangedError(
                f"the verifier at {self._config.address} now has image {provenance.image_digest[:12]}, the run began "
                f"with {self.pinned_digest[:12]}: its verdicts may differ. Start the old one, or go on with "
                "verifier.pin_image=false"
            )

    def _validate_one(self, proposal: Proposal, asker: Asker, runs: int) -> Validation:
        response = self._client.validate_task(
            proposal.program,
            proposal.arguments,
            runs=runs,
            draws=self._config.determinism_draws,
            limits=self._limits,
            context=self._make_context(asker, proposal.kind),
        )
        self._check_image(response.provenance)
        if response.valid and len(response.results) != len(proposal.arguments):
            raise _GarbageError(f"{len(response.results)} values for {len(proposal.arguments)} inputs")
        values = tuple(Value(r.value.canonical.hex(), r.value.literal) for r in response.results)
        reasons = [_name(pb.Reason, reason) for reason in response.reasons]
        detail = f"{', '.join(reasons)}: {response.detail}" if reasons else ""
        return Validation(response.valid, values if response.valid else (), response.features.ast_hash, detail)

    def _judge_one(self, problem: Problem, answer: str, asker: Asker) -> Judgement:
        context = self._make_context(asker, problem.kind)
        expected = [pb.Value(canonical=bytes.fromhex(value.canonical)) for value in problem.values]
        if problem.kind is TaskKind.DEDUCTION:
            response = self._client.judge_deduction(expected[0], answer, context=context)
        elif problem.kind is TaskKind.ABDUCTION:
            response = self._client.judge_abduction(
                problem.program, expected[0], answer, limits=self._limits, context=context
            )
        else:
            cases = zip(problem.arguments, expected, strict=True)
            response = self._client.judge_induction(answer, cases, limits=self._limits, context=context)
        self._check_image(response.provenance)
        if response.verdict not in _GRADES:
            raise _GarbageError(f"verdict {response.verdict} is unknown")
        return Judgement(_GRADES[response.verdict], response.detail or _name(pb.Outcome, response.outcome))

    def _make_context(self, asker: Asker, kind: TaskKind) -> pb.RequestContext:
        return pb.RequestContext(
            run=self.run, step=asker.step, member=asker.member, role=asker.role, task_type=str(kind)
        )

    def _note_retry(self, attempt: int, wait_s: float, reason: str) -> None:
        self.retries += 1
        if ("RESOURCE_EXHAUSTED" not in reason and attempt in (1, 3)) or attempt % 10 == 0:
            self._on_trouble(
                f"waiting for the verifier at {self._config.address} (attempt {attempt}, next in {wait_s:.1f} s): "
                f"{reason}. Start one with: make serve-verifier"
            )
