"""What the measurements of updates share: the embedded model with one adapter, and made-up samples for it."""

import os
import random
from typing import Any

import torch

from trainer.config import LearningConfig, LoraConfig
from trainer.domain import Role, Sample, TaskKind
from trainer.learning.learner import Learner
from trainer.model import load_base, resolve_model

LORA = LoraConfig(rank=8, alpha=16)
UID = "s00"


def make_learner(learning: LearningConfig, max_new_tokens: int) -> Learner:
    """Return a learner with one adapter that differs from the base."""
    torch.set_num_threads(os.cpu_count() or 1)
    model: Any = load_base(resolve_model("embedded"), "bfloat16")
    learner = Learner(model, lora=LORA, learning=learning, max_new_tokens=max_new_tokens)
    learner.adapters.add(UID, seed=0)
    generator = torch.Generator().manual_seed(0)
    weights = learner.adapters.get_weights(UID)
    learner.adapters.set_weights(UID, {n: torch.randn(w.shape, generator=generator) * 0.01 for n, w in weights.items()})
    return learner


def make_samples(
    count: int, prompt: tuple[int, int], completion: tuple[int, int], *, per_prompt: int = 1
) -> list[Sample]:
    """Return samples of random tokens, several of each prompt; lengths are drawn from the two ranges."""
    generator = random.Random(0)
    samples = []

    def draw(bounds: tuple[int, int]) -> tuple[int, ...]:
        return tuple(generator.randrange(1000, 40000) for _ in range(generator.randint(*bounds)))

    for number in range(count):
        if number % per_prompt == 0:
            prompt_ids = draw(prompt)
        completion_ids = draw(completion)
        samples.append(
            Sample(
                member=UID, version=0, role=Role.STUDENT, kind=TaskKind.DEDUCTION, group="g", prompt_ids=prompt_ids,
                completion_ids=completion_ids, logprobs=(-10.0,) * len(completion_ids),
                finish_reason="stop", text="", reward=0.0,
            )
        )  # fmt: skip
    return samples
