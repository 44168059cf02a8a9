"""TrueSkill ratings of teachers and students, and what counts as a game."""

import math
from collections.abc import Iterable
from enum import StrEnum

import trueskill

from trainer.config import RatingConfig
from trainer.domain import Rating

_DRAW_MARGIN = 1e-9


class Winner(StrEnum):
    """Result of one game."""

    TEACHER = "teacher"
    STUDENT = "student"
    DRAW = "draw"


def win_probability(student: Rating, teacher: Rating, *, beta: float) -> float:
    """P(student beats teacher) = Phi((mu_s - mu_t) / sqrt(2 beta^2 + sigma_s^2 + sigma_t^2))."""
    spread = math.sqrt(2 * beta**2 + student.sigma**2 + teacher.sigma**2)
    return 0.5 * (1 + math.erf((student.mu - teacher.mu) / (spread * math.sqrt(2))))


def decide(solve_rate: float, expected: float) -> Winner:
    """The student wins a game if it solves more than its win probability predicts (ours: docs/algorithms.md)."""
    if abs(solve_rate - expected) < _DRAW_MARGIN:
        return Winner.DRAW
    return Winner.STUDENT if solve_rate > expected else Winner.TEACHER


def rate(teacher: Rating, student: Rating, games: Iterable[Winner], config: RatingConfig) -> tuple[Rating, Rating]:
    """Return both ratings after games in a recorded order."""
    environment = trueskill.TrueSkill(
        mu=config.mu,
        sigma=config.sigma,
        beta=config.beta,
        tau=config.tau,
        draw_probability=config.draw_probability,
    )
    t = environment.create_rating(teacher.mu, teacher.sigma)
    s = environment.create_rating(student.mu, student.sigma)
    for winner in games:
        if winner is Winner.STUDENT:
            s, t = trueskill.rate_1vs1(s, t, env=environment)
        else:
            t, s = trueskill.rate_1vs1(t, s, drawn=winner is Winner.DRAW, env=environment)
    return Rating(float(t.mu), float(t.sigma)), Rating(float(s.mu), float(s.sigma))
