"""Supervised warm-up on the seed tasks: one adapter per role learns the formats, then becomes the members.

A small model rarely emits a well-formed proposal or answer at first; with this it does, and reward has something to
compare. Off for models that follow instructions.
"""

import random
from collections.abc import Callable, Sequence

import torch

from trainer.config import TrainerConfig
from trainer.domain import Member, Problem, Proposal, Role
from trainer.evolution.lowrank import read_update, write_update
from trainer.evolution.operators import mutate_gaussian
from trainer.learning.learner import Learner
from trainer.learning.logprobs import TokenSequence
from trainer.rollout import prompts

Notice = Callable[[Role, int, float], None]


def make_examples(
    role: Role, seeds: Sequence[Problem], chat: prompts.ChatFormat, config: TrainerConfig, generator: random.Random
) -> list[TokenSequence]:
    """Return what the role should say to seed questions, in random order."""
    programs = list(dict.fromkeys(problem.program for problem in seeds))
    examples = []
    for problem in seeds:
        if role is Role.STUDENT:
            question, answer = prompts.ask_for_answer(problem), prompts.write_answer(problem)
        else:
            others = [program for program in programs if program != problem.program]
            references = generator.sample(others, min(config.tasks.reference_programs, len(others)))
            question = prompts.ask_for_proposal(problem.kind, references, num_cases=config.tasks.induction_cases)
            answer = prompts.write_proposal(
                Proposal(kind=problem.kind, program=problem.program, arguments=problem.arguments)
            )
        examples.append(TokenSequence(chat.encode(question), chat.encode_answer(answer)))
    generator.shuffle(examples)
    return examples


def plan_batches(
    examples: Sequence[TokenSequence], num_batches: int, batch_size: int, generator: random.Random
) -> list[list[TokenSequence]]:
    """Return batches of examples of similar length, in random order: padding would cost a third of the time."""
    chosen = [examples[i % len(examples)] for i in range(num_batches * batch_size)]
    chosen.sort(key=len)
    batches = [chosen[i * batch_size : (i + 1) * batch_size] for i in range(num_batches)]
    generator.shuffle(batches)
    return batches


def warm_up(
    role: Role,
    members: Sequence[Member],
    examples: Sequence[TokenSequence],
    learner: Learner,
    config: TrainerConfig,
    *,
    generator: random.Random,
    notice: Notice,
) -> None:
    """Teach one adapter and clone it to the members, each with its own small perturbation.

    Args:
        notice: called after each step with (role, step, loss per token).
    """
    settings = config.warmup
    uid = f"warmup-{role}"
    learner.adapters.add(uid, seed=generator.randrange(2**31))
    batches = plan_batches(examples, settings.steps, settings.batch_size, generator)
    for step, batch in enumerate(batches):
        rate = settings.learning_rate * (1 - step / settings.steps)
        notice(role, step + 1, learner.imitate(uid, batch, learning_rate=rate))
    taught = read_update(learner.adapters.get_weights(uid))
    for member in members:
        noise = torch.Generator().manual_seed(generator.randrange(2**31))
        child = mutate_gaussian(taught, strength=settings.perturbation, generator=noise)
        learner.adapters.set_weights(member.uid, write_update(child.update))
    learner.adapters.drop(uid)
