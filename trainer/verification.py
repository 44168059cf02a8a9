"""The trainer's only door to the verifier: asks about many proposals and answers at once.

Three-valued on purpose: a result, or None when the verifier could not say. None is never scored.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from populora.verifier import RequestRefusedError, VerifierClient, VerifierDefectError
from populora.verifier.v1 import verifier_pb2 as pb

from trainer.config import VerifierConfig
from trainer.domain import Grade, Problem, Proposal, TaskKind, Value

Item = TypeVar("Item")
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


class Verification:
    """Validates and judges through one client, `in_flight` requests at a time.

    Raises VerifierUnavailableError out of every method if the verifier stays away longer than the patience.
    """

    def __init__(self, config: VerifierConfig, *, run: str, on_trouble: Callable[[str], None]) -> None:
        self._config = config
        self._run = run
        self._on_trouble = on_trouble
        self._client = VerifierClient(
            config.address,
            timeout_s=config.timeout_s,
            patience_s=config.patience_s,
            on_retry=self._note_retry,
        )
        self._limits = pb.Limits(cpu_time_s=config.cpu_time_s, memory_bytes=config.memory_bytes)
        self._pool = ThreadPoolExecutor(config.in_flight, thread_name_prefix="verifier")
        self.retries = 0

    def get_server_info(self) -> dict[str, str]:
        """Return what identifies the verifier: versions, engine and image digest."""
        info = self._client.server_info()
        names = ("server_version", "engine", "image_digest", "python_version")
        return {name: getattr(info, name) for name in names} | {"degraded": ",".join(info.degraded)}

    def validate(self, items: Sequence[tuple[Proposal, Asker]], *, runs: int = 0) -> list[Validation | None]:
        """Validate proposals; None where the verifier failed."""
        count = runs or self._config.determinism_runs
        return self._map(lambda item: self._validate_one(*item, count), items)

    def judge(self, items: Sequence[tuple[Problem, str, Asker]]) -> list[Judgement | None]:
        """Judge answer texts; None where the verifier failed."""
        return self._map(lambda item: self._judge_one(*item), items)

    def close(self) -> None:
        """Close the client."""
        self._pool.shutdown(cancel_futures=True)
        self._client.close()

    def _map(self, ask: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | None]:
        def guarded(item: Item) -> Result | None:
            try:
                return ask(item)
            except (VerifierDefectError, RequestRefusedError) as error:
                self._on_trouble(f"a sample is masked: {error}")
                return None

        return list(self._pool.map(guarded, items))

    def _validate_one(self, proposal: Proposal, asker: Asker, runs: int) -> Validation:
        response = self._client.validate_task(
            proposal.program,
            proposal.arguments,
            runs=runs,
            limits=self._limits,
            context=self._make_context(asker, proposal.kind),
        )
        values = tuple(Value(r.value.canonical.hex(), r.value.literal) for r in response.results)
        reasons = [pb.Reason.Name(reason).removeprefix("REASON_").lower() for reason in response.reasons]
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
        outcome = pb.Outcome.Name(response.outcome).removeprefix("OUTCOME_").lower()
        return Judgement(_GRADES[response.verdict], response.detail or outcome)

    def _make_context(self, asker: Asker, kind: TaskKind) -> pb.RequestContext:
        return pb.RequestContext(
            run=self._run, step=asker.step, member=asker.member, role=asker.role, task_type=str(kind)
        )

    def _note_retry(self, attempt: int, wait_s: float, reason: str) -> None:
        self.retries += 1
        if ("RESOURCE_EXHAUSTED" not in reason and attempt in (1, 3)) or attempt % 10 == 0:
            self._on_trouble(
                f"waiting for the verifier at {self._config.address} (attempt {attempt}, next in {wait_s:.1f} s): "
                f"{reason}. Start one with: make serve-verifier"
            )
