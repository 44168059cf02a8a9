"""The evolution phase: weak members are replaced by children of others."""

import random
from dataclasses import dataclass

import torch

from trainer.checkpoint import RunState
from trainer.config import EvolutionConfig, TrainerConfig
from trainer.domain import Member, Rating, Replacement, Role
from trainer.evolution import operators
from trainer.evolution.lowrank import read_update, write_update
from trainer.learning.learner import Learner
from trainer.population.replacement import choose_culled, choose_parents


@dataclass(frozen=True, slots=True)
class Birth:
    """A child that took the place of a culled member."""

    member: Member
    record: Replacement


def evolve(state: RunState, learner: Learner, config: TrainerConfig, *, step: int) -> list[Birth]:
    """Replace the weakest of each role; changes members and learner in place and returns what happened."""
    births = []
    for role in Role:
        members = state.of_role(role)
        for culled in choose_culled(members, fraction=config.evolution.fraction, z=config.evolution.z):
            births.append(_replace(culled, state, learner, config, step))
    return births


def make_child(
    parents: list[Member], learner: Learner, config: EvolutionConfig, generator: random.Random
) -> tuple[operators.Child, str]:
    """Return the child of one parent (mutation) or two (crossover, the weaker first), and the operator's name."""
    updates = [read_update(learner.get_weights(parent.uid)) for parent in parents]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # thin QR and SVD are much slower with more
    try:
        if len(updates) == 1:
            noise = torch.Generator().manual_seed(generator.randrange(2**31))
            name: str = config.mutation
            child = operators.MUTATIONS[name](updates[0], strength=config.mutation_scale, generator=noise)
        else:
            name = config.crossover
            eta = generator.uniform(*config.extrapolation)
            child = operators.CROSSOVERS[name](*updates, eta=eta)
        return operators.cap_norm(child, updates[-1], config.norm_cap), name
    finally:
        torch.set_num_threads(threads)


def _replace(culled: Member, state: RunState, learner: Learner, config: TrainerConfig, step: int) -> Birth:
    settings, generator = config.evolution, state.generator
    candidates = state.of_role(culled.role)
    if settings.parents == "survivors":
        candidates = [member for member in candidates if member is not culled]
    parents = choose_parents(candidates, crossover_probability=settings.crossover_probability, generator=generator)
    if parents == [culled]:  # a member cannot replace itself by its own mutation
        parents = [next(member for member in candidates if member is not culled)]
    child, operator = make_child(parents, learner, settings, generator)
    newborn = Member(
        uid=make_uid(state, culled.role),
        role=culled.role,
        rating=Rating(config.rating.mu, config.rating.sigma),
        born_step=step,
        parents=tuple(parent.uid for parent in parents),
        operator=operator,
    )
    learner.add(newborn.uid, seed=0)
    learner.set_weights(newborn.uid, write_update(child.update))
    learner.drop(culled.uid)
    state.members[state.members.index(culled)] = newborn
    record = Replacement(
        culled=culled.uid,
        child=newborn.uid,
        role=culled.role,
        parents=newborn.parents,
        operator=operator,
        age_steps=step - culled.born_step,
        details=child.details,
    )
    return Birth(newborn, record)


def make_uid(state: RunState, role: Role) -> str:
    """Return a uid that was never used in this run: t00, t01, ... and s00, s01, ..."""
    number = state.next_uid.get(str(role), 0)
    state.next_uid[str(role)] = number + 1
    return f"{role[0]}{number:02d}"
