"""Prioritised fictitious self-play: near-balanced matches are drawn more often."""

import random
from collections.abc import Sequence

from trainer.domain import Match, Member
from trainer.population.ratings import win_probability


def draw_matches(
    teachers: Sequence[Member], students: Sequence[Member], *, beta: float, generator: random.Random
) -> list[Match]:
    """Give each teacher, in order, a student drawn with weight p (1 - p), p the student's win probability.

    Without replacement within the step; when all students are taken, all are available again.
    """
    matches: list[Match] = []
    available: list[Member] = []
    for teacher in teachers:
        if not available:
            available = list(students)
        chances = [win_probability(student.rating, teacher.rating, beta=beta) for student in available]
        weights = [p * (1 - p) for p in chances]
        index = generator.choices(range(len(available)), weights)[0]
        matches.append(Match(teacher.uid, available.pop(index).uid, chances[index]))
    return matches
