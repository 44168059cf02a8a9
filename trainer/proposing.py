"""The proposal phase: teachers invent, the verifier validates."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.config import TrainerConfig
from trainer.domain import FormatError, Grade, Problem, Proposal, Role, Sample, TaskKind
from trainer.rollout import prompts
from trainer.rollout.engine import AdapterVersion, Engine, GenerationRequest
from trainer.rollout.parsing import parse_proposal
from trainer.tasks.buffer import ProblemBuffer
from trainer.verification import Asker, Verification


@dataclass(frozen=True, slots=True)
class Speaker:
    """A member as a sampler sees it; `adapter` None is the untouched base."""

    uid: str
    version: int
    adapter: AdapterVersion | None
    content_hash: str = ""


def sample_proposals(
    speakers: Sequence[Speaker],
    engine: Engine,
    chat: prompts.ChatFormat,
    buffer: ProblemBuffer,
    config: TrainerConfig,
    *,
    step: int,
    prompts_per_speaker: int,
    generator: random.Random,
) -> list[Sample]:
    """Sample G proposals for each prompt of each speaker, all in one batch; task types take turns."""
    tasks, rollout = config.tasks, config.rollout
    plan: list[tuple[Speaker, TaskKind, str, GenerationRequest]] = []
    for speaker in speakers:
        for number in range(prompts_per_speaker):
            kind = TaskKind(tasks.types[(number + step) % len(tasks.types)])
            references = buffer.draw_references(tasks.reference_programs, generator)
            question = prompts.ask_for_proposal(kind, references, num_cases=tasks.induction_cases)
            ids = chat.encode(question)
            if len(ids) > rollout.max_prompt_tokens:
                ids = chat.encode(prompts.ask_for_proposal(kind, [], num_cases=tasks.induction_cases))
            request = GenerationRequest(
                prompt_ids=ids,
                adapter=speaker.adapter,
                num_samples=tasks.proposals_per_prompt,
                max_tokens=rollout.max_new_tokens,
                temperature=rollout.temperature,
            )
            plan.append((speaker, kind, f"{step}:{speaker.uid}:{number}", request))
    completions = engine.generate([request for *_, request in plan])
    return [
        Sample(
            member=speaker.uid,
            version=speaker.version,
            role=Role.TEACHER,
            kind=kind,
            group=group,
            prompt_ids=request.prompt_ids,
            completion_ids=completion.token_ids,
            logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            text=chat.decode(completion.token_ids),
            content_hash=speaker.content_hash,
        )
        for (speaker, kind, group, request), several in zip(plan, completions, strict=True)
        for completion in several
    ]


def validate_proposals(
    samples: Sequence[Sample],
    verification: Verification,
    buffer: ProblemBuffer,
    config: TrainerConfig,
    *,
    step: int,
) -> list[Problem]:
    """Grade every sample and return the problems that came of the valid ones."""
    parsed: list[tuple[Sample, Proposal]] = []
    for sample in samples:
        proposal = parse_proposal(
            sample.text, sample.kind, finish_reason=sample.finish_reason, num_cases=config.tasks.induction_cases
        )
        if isinstance(proposal, FormatError):
            sample.grade, sample.detail = Grade.MALFORMED, str(proposal)
        else:
            parsed.append((sample, proposal))
    asked = [(proposal, Asker(sample.member, str(sample.role), step)) for sample, proposal in parsed]
    problems: list[Problem] = []
    seen: set[tuple[TaskKind, str]] = set()
    for number, ((sample, proposal), result) in enumerate(zip(parsed, verification.validate(asked), strict=True)):
        if result is None:
            continue
        key = (proposal.kind, result.ast_hash)
        if not result.valid:
            sample.grade, sample.detail = Grade.INVALID, result.detail
        elif config.tasks.duplicates == "reject" and (key in seen or buffer.knows(*key)):
            sample.grade = Grade.DUPLICATE
        else:
            seen.add(key)
            problem = Problem(
                uid=f"{step}-{sample.member}-{number}",
                kind=proposal.kind,
                program=proposal.program,
                arguments=proposal.arguments,
                values=result.values,
                ast_hash=result.ast_hash,
                teacher=sample.member,
                step=step,
            )
            sample.grade, sample.problem = Grade.VALID, problem.uid
            problems.append(problem)
    return problems
