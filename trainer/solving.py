"""The solving phase: students attempt, the verifier judges."""

import random
from collections.abc import Sequence

from trainer.config import TrainerConfig
from trainer.domain import FormatError, Grade, Match, Problem, Role, Sample, TaskKind
from trainer.proposing import Speaker
from trainer.rollout import prompts
from trainer.rollout.engine import Engine, GenerationRequest
from trainer.rollout.parsing import parse_answer
from trainer.tasks.buffer import ProblemBuffer
from trainer.verification import Asker, Verification


def assign_problems(
    matches: Sequence[Match],
    fresh: Sequence[Problem],
    buffer: ProblemBuffer,
    config: TrainerConfig,
    generator: random.Random,
) -> dict[str, list[Problem]]:
    """Return each student's problems: all fresh ones of its teacher, then from the buffer up to the batch size.

    Attempts at buffer problems train the student; they are neither rated nor credited to a teacher.
    """
    assigned: dict[str, list[Problem]] = {}
    for match in matches:
        assigned.setdefault(match.student, []).extend(p for p in fresh if p.teacher == match.teacher)
    for problems in assigned.values():
        taken = {problem.uid for problem in problems}
        for number in range(max(0, config.tasks.problems_per_student - len(problems))):
            kind = TaskKind(config.tasks.types[number % len(config.tasks.types)])
            drawn = [p for p in buffer.draw(kind, len(taken) + 1, generator) if p.uid not in taken][:1]
            problems.extend(drawn)
            taken.update(problem.uid for problem in drawn)
    return assigned


def sample_attempts(
    assigned: Sequence[tuple[Speaker, Sequence[Problem]]],
    engine: Engine,
    chat: prompts.ChatFormat,
    config: TrainerConfig,
    *,
    step: int,
) -> list[tuple[Sample, Problem]]:
    """Sample n attempts at each problem, all students in one batch; problems with too long prompts are left out."""
    plan: list[tuple[Speaker, Problem, GenerationRequest]] = []
    for speaker, problems in assigned:
        for problem in problems:
            ids = chat.encode(prompts.ask_for_answer(problem))
            if len(ids) > config.rollout.max_prompt_tokens:
                continue
            request = GenerationRequest(
                prompt_ids=ids,
                adapter=speaker.adapter,
                num_samples=config.tasks.attempts_per_problem,
                max_tokens=config.rollout.max_new_tokens,
                temperature=config.rollout.temperature,
            )
            plan.append((speaker, problem, request))
    completions = engine.generate([request for *_, request in plan])
    return [
        (
            Sample(
                member=speaker.uid,
                version=speaker.version,
                role=Role.STUDENT,
                kind=problem.kind,
                group=f"{step}:{speaker.uid}:{problem.uid}",
                prompt_ids=request.prompt_ids,
                completion_ids=completion.token_ids,
                logprobs=completion.logprobs,
                finish_reason=completion.finish_reason,
                text=chat.decode(completion.token_ids),
                problem=problem.uid,
                content_hash=speaker.content_hash,
            ),
            problem,
        )
        for (speaker, problem, request), several in zip(plan, completions, strict=True)
        for completion in several
    ]


def judge_attempts(attempts: Sequence[tuple[Sample, Problem]], verification: Verification, *, step: int) -> None:
    """Grade every attempt; one that could not be judged stays UNJUDGED."""
    asked: list[tuple[Sample, tuple[Problem, str, Asker]]] = []
    for sample, problem in attempts:
        answer = parse_answer(sample.text, problem, finish_reason=sample.finish_reason)
        if isinstance(answer, FormatError):
            sample.grade, sample.detail = Grade.MALFORMED, str(answer)
        else:
            asked.append((sample, (problem, answer, Asker(sample.member, str(sample.role), step))))
    results = verification.judge([question for _, question in asked])
    for (sample, _), result in zip(asked, results, strict=True):
        if result is not None:
            sample.grade, sample.detail = result.grade, result.detail
