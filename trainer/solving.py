"""The solving phase: students attempt, the verifier judges while others still attempt."""

import random
from collections.abc import Sequence
from concurrent.futures import Future

from trainer.config import TrainerConfig
from trainer.domain import FormatError, Grade, Match, Member, Problem, Role, Sample, TaskKind
from trainer.rollout.parsing import parse_answer
from trainer.rollout.prompts import ChatFormat, ask_for_answer
from trainer.sampling import Question, Speaker
from trainer.tasks.buffer import ProblemBuffer
from trainer.verification import Asker, Judgement, Verification


def assign_problems(
    matches: Sequence[Match],
    students: Sequence[Member],
    fresh: Sequence[Problem],
    buffer: ProblemBuffer,
    config: TrainerConfig,
    generator: random.Random,
) -> dict[str, list[Problem]]:
    """Return each student's problems: all fresh ones of its teacher, then from the buffer up to the batch size.

    Attempts at buffer problems train the student; they are neither rated nor credited to a teacher. Without teachers
    every student has only such; with fewer teachers than students those without a match pause.
    """
    assigned: dict[str, list[Problem]] = {}
    for match in matches:
        assigned.setdefault(match.student, []).extend(p for p in fresh if p.teacher == match.teacher)
    if not matches:
        assigned = {member.uid: [] for member in students}
    for problems in assigned.values():
        taken = {problem.uid for problem in problems}
        for number in range(max(0, config.tasks.problems_per_student - len(problems))):
            kind = TaskKind(config.tasks.types[number % len(config.tasks.types)])
            drawn = [p for p in buffer.draw(kind, len(taken) + 1, generator) if p.uid not in taken][:1]
            problems.extend(drawn)
            taken.update(problem.uid for problem in drawn)
    return assigned


def plan_attempts(
    assigned: Sequence[tuple[Speaker, Sequence[Problem]]], chat: ChatFormat, config: TrainerConfig, *, step: int
) -> list[Question]:
    """Return a question for each problem of each student; problems with too long prompts are left out."""
    questions = []
    for speaker, problems in assigned:
        for problem in problems:
            ids = chat.encode(ask_for_answer(problem))
            if len(ids) > config.rollout.max_prompt_tokens:
                continue
            questions.append(
                Question(
                    speaker=speaker,
                    role=Role.STUDENT,
                    kind=problem.kind,
                    group=f"{step}:{speaker.uid}:{problem.uid}",
                    prompt_ids=ids,
                    num_samples=config.tasks.attempts_per_problem,
                    problem=problem,
                )
            )
    return questions


class AttemptGrader:
    """Has every attempt judged as soon as it is sampled."""

    def __init__(self, verification: Verification, *, step: int) -> None:
        self._verification = verification
        self._step = step
        self._asked: dict[int, Future[Judgement | None]] = {}

    def submit(self, question: Question, sample: Sample) -> None:
        """Parse an attempt and ask the verifier about it; does not wait."""
        problem = question.problem
        assert problem is not None
        answer = parse_answer(sample.text, problem, finish_reason=sample.finish_reason)
        if isinstance(answer, FormatError):
            sample.grade, sample.detail = Grade.MALFORMED, str(answer)
            return
        asker = Asker(sample.member, str(sample.role), self._step)
        self._asked[id(sample)] = self._verification.submit_answer(problem, answer, asker)

    def finish(self, samples: Sequence[Sample]) -> None:
        """Wait for the verifier and grade the samples that were submitted; one it could not judge stays UNJUDGED."""
        asked = [sample for sample in samples if id(sample) in self._asked]
        results = self._verification.collect([self._asked[id(sample)] for sample in asked])
        for sample, result in zip(asked, results, strict=True):
            if result is not None:
                sample.grade, sample.detail = result.grade, result.detail
