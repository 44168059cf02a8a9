"""Asks members questions and hands every sample on as soon as it is there, so that judging overlaps with sampling."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer.config import RolloutConfig
from trainer.domain import Problem, Role, Sample, TaskKind
from trainer.rollout.engine import AdapterVersion, Engine, GenerationRequest
from trainer.rollout.prompts import ChatFormat


@dataclass(frozen=True, slots=True)
class Speaker:
    """A member as a sampler sees it; `adapter` None is the untouched base."""

    uid: str
    version: int
    adapter: AdapterVersion | None
    content_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One prompt for one member, to be answered several times; the answers are a group."""

    speaker: Speaker
    role: Role
    kind: TaskKind
    group: str
    prompt_ids: tuple[int, ...]
    num_samples: int
    problem: Problem | None = None
    """What is to be solved; None if a proposal is wanted."""


OnSample = Callable[[Question, Sample], None]


class Sampler:
    """Turns questions into samples through an engine."""

    def __init__(self, engine: Engine, chat: ChatFormat, rollout: RolloutConfig) -> None:
        self._engine = engine
        self._chat = chat
        self._rollout = rollout

    def sample(
        self, questions: Sequence[Question], generator: random.Random, on_sample: OnSample
    ) -> list[tuple[Question, Sample]]:
        """Answer all questions in one batch, all members mixed.

        Args:
            generator: gives each request the seed that a deterministic engine samples from.
            on_sample: called with each sample when its group is complete, in the order in which groups finish.

        Returns:
            All samples in the order of the questions.
        """
        requests = [
            GenerationRequest(
                prompt_ids=question.prompt_ids,
                adapter=question.speaker.adapter,
                num_samples=question.num_samples,
                max_tokens=self._rollout.max_new_tokens,
                temperature=self._rollout.temperature,
                seed=generator.randrange(2**31),
            )
            for question in questions
        ]
        answered: dict[int, list[Sample]] = {}
        for index, completions in self._engine.generate(requests):
            question = questions[index]
            answered[index] = [
                Sample(
                    member=question.speaker.uid,
                    version=question.speaker.version,
                    role=question.role,
                    kind=question.kind,
                    group=question.group,
                    prompt_ids=question.prompt_ids,
                    completion_ids=completion.token_ids,
                    logprobs=completion.logprobs,
                    finish_reason=completion.finish_reason,
                    text=self._chat.decode(completion.token_ids),
                    problem=question.problem.uid if question.problem else "",
                    content_hash=question.speaker.content_hash,
                )
                for completion in completions
            ]
            for sample in answered[index]:
                on_sample(question, sample)
        return [(question, sample) for i, question in enumerate(questions) for sample in answered[i]]
