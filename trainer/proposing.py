"""The proposal phase: teachers invent, the verifier validates while others still invent."""

import random
from collections.abc import Sequence
from concurrent.futures import Future

from trainer.config import TrainerConfig
from trainer.domain import FormatError, Grade, Problem, Proposal, Role, Sample, TaskKind
from trainer.rollout.parsing import parse_proposal
from trainer.rollout.prompts import ChatFormat, ask_for_answer, ask_for_proposal
from trainer.sampling import Question, Speaker
from trainer.tasks.buffer import ProblemBuffer
from trainer.verification import Asker, Validation, Verification


def plan_proposals(
    speakers: Sequence[Speaker],
    chat: ChatFormat,
    buffer: ProblemBuffer,
    config: TrainerConfig,
    *,
    step: int,
    prompts_per_speaker: int,
    generator: random.Random,
) -> list[Question]:
    """Return the proposal prompts of each speaker; task types take turns."""
    tasks = config.tasks
    questions = []
    for speaker in speakers:
        for number in range(prompts_per_speaker):
            kind = TaskKind(tasks.types[(number + step) % len(tasks.types)])
            references = buffer.draw_references(tasks.reference_programs, generator)
            ids = chat.encode(ask_for_proposal(kind, references, num_cases=tasks.induction_cases))
            if len(ids) > config.rollout.max_prompt_tokens:
                ids = chat.encode(ask_for_proposal(kind, [], num_cases=tasks.induction_cases))
            questions.append(
                Question(
                    speaker=speaker,
                    role=Role.TEACHER,
                    kind=kind,
                    group=f"{step}:{speaker.uid}:{number}",
                    prompt_ids=ids,
                    num_samples=tasks.proposals_per_prompt,
                )
            )
    return questions


class ProposalGrader:
    """Has every proposal validated as soon as it is sampled, and makes problems of the valid ones."""

    def __init__(
        self, verification: Verification, chat: ChatFormat, buffer: ProblemBuffer, config: TrainerConfig, *, step: int
    ) -> None:
        self._verification = verification
        self._chat = chat
        self._buffer = buffer
        self._config = config
        self._step = step
        self._asked: dict[int, tuple[Proposal, Future[Validation | None]]] = {}

    def submit(self, _: Question, sample: Sample) -> None:
        """Parse a sample and ask the verifier about it; does not wait."""
        proposal = parse_proposal(
            sample.text, sample.kind, finish_reason=sample.finish_reason, num_cases=self._config.tasks.induction_cases
        )
        if isinstance(proposal, FormatError):
            sample.grade, sample.detail = Grade.MALFORMED, str(proposal)
            return
        asker = Asker(sample.member, str(sample.role), self._step)
        self._asked[id(sample)] = (proposal, self._verification.submit_proposal(proposal, asker))

    def finish(self, samples: Sequence[Sample]) -> list[Problem]:
        """Wait for the verifier, grade the samples that were submitted, and return their problems in order."""
        asked = [(sample, *self._asked[id(sample)]) for sample in samples if id(sample) in self._asked]
        results = self._verification.collect([future for *_, future in asked])
        problems: list[Problem] = []
        seen: set[tuple[TaskKind, str]] = set()
        for number, ((sample, proposal, _), result) in enumerate(zip(asked, results, strict=True)):
            if result is not None:
                problems += self._grade(sample, proposal, result, number, seen)
        return problems

    def _grade(
        self, sample: Sample, proposal: Proposal, result: Validation, number: int, seen: set[tuple[TaskKind, str]]
    ) -> list[Problem]:
        key = (proposal.kind, result.ast_hash)
        if not result.valid:
            sample.grade, sample.detail = Grade.INVALID, result.detail
            return []
        if self._config.tasks.duplicates == "reject" and (key in seen or self._buffer.knows(*key)):
            sample.grade = Grade.DUPLICATE
            return []
        problem = Problem(
            uid=f"{self._step}-{sample.member}-{number}",
            kind=proposal.kind,
            program=proposal.program,
            arguments=proposal.arguments,
            values=result.values,
            ast_hash=result.ast_hash,
            teacher=sample.member,
            step=self._step,
        )
        if len(self._chat.encode(ask_for_answer(problem))) > self._config.rollout.max_prompt_tokens:
            sample.grade, sample.detail = Grade.INVALID, "too long to be asked (rollout.max_prompt_tokens)"
            return []
        seen.add(key)
        sample.grade, sample.problem = Grade.VALID, problem.uid
        return [problem]
