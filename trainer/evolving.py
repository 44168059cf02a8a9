"""The evolution phase: weak members are replaced by children of others."""

import random
from dataclasses import dataclass

import torch

from trainer.checkpoint import RunState
from trainer.config import EvolutionConfig, TrainerConfig
from trainer.domain import Member, Rating, Replacement, Role
from trainer.evolution import operators
from trainer.evolution.lowrank import is_zero, read_update, write_update
from trainer.learning.adapters import AdapterBank
from trainer.population.replacement import choose_culled, choose_parents


@dataclass(frozen=True, slots=True)
class Birth:
    """A child that took the place of a culled member."""

    member: Member
    record: Replacement


def evolve(state: RunState, adapters: AdapterBank, config: TrainerConfig, *, step: int) -> list[Birth]:
    """Replace the weakest of each role; changes members and adapters in place and returns what happened."""
    births = []
    for role in Role:
        members = state.of_role(role)
        culled = choose_culled(members, fraction=config.evolution.fraction, z=config.evolution.z)
        candidates = members if config.evolution.parents == "population" else [m for m in members if m not in culled]
        # Members that still equal the base have nothing to inherit.
        candidates = [m for m in candidates if not is_zero(read_update(adapters.get_weights(m.uid)))]
        # All children first: a parent may be culled itself.
        children = [_conceive(member, candidates, state, adapters, config) for member in culled]
        for member, conception in zip(culled, children, strict=True):
            if conception is not None:
                births.append(_replace(member, conception, state, adapters, config, step))
    return births


@dataclass(frozen=True, slots=True)
class _Conception:
    parents: list[Member]
    child: operators.Child
    operator: str


def _conceive(
    culled: Member, candidates: list[Member], state: RunState, adapters: AdapterBank, config: TrainerConfig
) -> _Conception | None:
    """Draw parents and make the child; None if nobody can be a parent."""
    others = [member for member in candidates if member is not culled]
    if not others:
        return None
    parents = choose_parents(
        candidates, crossover_probability=config.evolution.crossover_probability, generator=state.generator
    )
    if parents == [culled]:  # a member is not replaced by its own mutation
        parents = [state.generator.choice(others)]
    child, operator = make_child(parents, adapters, config.evolution, state.generator)
    return _Conception(parents, child, operator)


def make_child(
    parents: list[Member], adapters: AdapterBank, config: EvolutionConfig, generator: random.Random
) -> tuple[operators.Child, str]:
    """Return the child of one parent (mutation) or two (crossover, the weaker first), and the operator's name."""
    updates = [read_update(adapters.get_weights(parent.uid)) for parent in parents]
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


def _replace(
    culled: Member, conception: _Conception, state: RunState, adapters: AdapterBank, config: TrainerConfig, step: int
) -> Birth:
    newborn = Member(
        uid=make_uid(state, culled.role),
        role=culled.role,
        rating=Rating(config.rating.mu, config.rating.sigma),
        born_step=step,
        parents=tuple(parent.uid for parent in conception.parents),
        operator=conception.operator,
    )
    adapters.add(newborn.uid, seed=0)
    adapters.set_weights(newborn.uid, write_update(conception.child.update))
    adapters.drop(culled.uid)
    state.members[state.members.index(culled)] = newborn
    record = Replacement(
        culled=culled.uid,
        child=newborn.uid,
        role=culled.role,
        parents=newborn.parents,
        operator=conception.operator,
        age_steps=step - culled.born_step,
        details=conception.child.details,
    )
    return Birth(newborn, record)


def make_uid(state: RunState, role: Role) -> str:
    """Return a uid that was never used in this run: t00, t01, ... and s00, s01, ..."""
    number = state.next_uid.get(str(role), 0)
    state.next_uid[str(role)] = number + 1
    return f"{role[0]}{number:02d}"
