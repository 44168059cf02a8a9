"""Who is culled and who becomes a parent."""

import random
from collections.abc import Sequence

from trainer.domain import Member


def choose_culled(members: Sequence[Member], *, fraction: float, z: float) -> list[Member]:
    """Return the members with the lowest mu - z sigma: max(1, floor(N * fraction)), and at most N - 1.

    A population of one is never culled.
    """
    count = min(max(1, int(len(members) * fraction)), len(members) - 1)
    return sorted(members, key=lambda member: (member.rating.lower_bound(z), member.uid))[:count]


def choose_parents(
    candidates: Sequence[Member], *, crossover_probability: float, generator: random.Random
) -> list[Member]:
    """Return one parent (mutation) or two distinct ones, the weaker (by mu) first (crossover), drawn uniformly."""
    if len(candidates) > 1 and generator.random() < crossover_probability:
        return sorted(generator.sample(list(candidates), 2), key=lambda member: member.rating.mu)
    return [generator.choice(list(candidates))]
