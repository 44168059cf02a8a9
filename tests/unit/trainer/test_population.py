"""Ratings, matches and replacement: hand-computed numbers and laws."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import RatingConfig, StudentRewards, TeacherRewards
from trainer.domain import Grade, Member, Rating, Role
from trainer.population.matchmaking import draw_matches
from trainer.population.ratings import Winner, decide, rate, win_probability
from trainer.population.replacement import choose_culled, choose_parents
from trainer.rewards import measure_solve_rate, reward_student, reward_teacher

FRESH = Rating(25.0, 25.0 / 3)


def member(uid: str, mu: float, sigma: float = 1.0, role: Role = Role.STUDENT) -> Member:
    return Member(uid=uid, role=role, rating=Rating(mu, sigma))


def test_win_probability_by_hand() -> None:
    # (30 - 25) / sqrt(2 * 3^2 + 4^2 + 1^2) = 5 / sqrt(35) = 0.84515; Phi = 0.80099.
    assert win_probability(Rating(30, 4), Rating(25, 1), beta=3.0) == pytest.approx(0.80099, abs=1e-4)
    assert win_probability(FRESH, FRESH, beta=25 / 6) == 0.5


def test_trueskill_of_two_newcomers_is_as_published() -> None:
    # The classic example (Herbrich et al.; trueskill's documentation): 29.396 and 20.604, both sigma 7.171.
    student, teacher = FRESH, FRESH
    teacher, student = rate(teacher, student, [Winner.TEACHER], RatingConfig())
    assert (teacher.mu, teacher.sigma) == pytest.approx((29.396, 7.171), abs=1e-3)
    assert (student.mu, student.sigma) == pytest.approx((20.604, 7.171), abs=1e-3)


def test_a_game_is_won_against_the_expectation() -> None:
    assert decide(0.6, 0.5) is Winner.STUDENT
    assert decide(0.6, 0.7) is Winner.TEACHER
    assert decide(0.5, 0.5) is Winner.DRAW


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 999))
def test_every_teacher_plays_once_and_students_share_the_games(teachers: int, students: int, seed: int) -> None:
    matches = draw_matches(
        [member(f"t{i}", 20 + i) for i in range(teachers)],
        [member(f"s{i}", 20 + i) for i in range(students)],
        beta=4.0,
        generator=random.Random(seed),
    )
    assert [match.teacher for match in matches] == [f"t{i}" for i in range(teachers)]
    counts = [sum(m.student == f"s{i}" for m in matches) for i in range(students)]
    assert max(counts) - min(counts) <= 1


def test_balanced_matches_are_drawn_more_often() -> None:
    # beta 1, sigmas 1: spread sqrt(4) = 2. Equal: p = 0.5, weight 0.25. Six ahead: p = Phi(3) = 0.99865, weight 0.00135.
    # So the balanced student comes with 0.25 / 0.25135 = 99.5 %.
    generator = random.Random(0)
    first = [
        draw_matches([member("t", 25)], [member("even", 25), member("strong", 31)], beta=1.0, generator=generator)[
            0
        ].student
        for _ in range(2000)
    ]
    assert 1970 <= first.count("even") <= 2000


def test_the_culled_are_the_lowest_and_somebody_always_stays() -> None:
    members = [member("a", 30, 1), member("b", 20, 1), member("c", 25, 6), member("d", 24, 1)]
    assert [m.uid for m in choose_culled(members, fraction=0.5, z=0)] == ["b", "d"]
    assert [m.uid for m in choose_culled(members, fraction=0.5, z=3)] == ["c", "b"]  # 25 - 18 = 7 and 20 - 3 = 17
    assert len(choose_culled(members, fraction=0.0, z=1)) == 1
    assert len(choose_culled(members[:2], fraction=0.99, z=1)) == 1
    assert choose_culled(members[:1], fraction=0.5, z=1) == []


def test_parents_are_one_or_two_distinct_survivors() -> None:
    members = [member(uid, mu) for uid, mu in (("a", 3), ("b", 1), ("c", 2))]
    generator = random.Random(0)
    for _ in range(50):
        pair = choose_parents(members, crossover_probability=1.0, generator=generator)
        assert len({m.uid for m in pair}) == 2
        assert pair[0].rating.mu < pair[1].rating.mu
    assert len(choose_parents(members, crossover_probability=0.0, generator=generator)) == 1
    assert choose_parents(members[:1], crossover_probability=1.0, generator=generator) == members[:1]


@pytest.mark.parametrize(
    ("grade", "rho", "reward"),
    [
        (Grade.VALID, 0.25, 0.75),
        (Grade.VALID, 0.0, 0.0),
        (Grade.VALID, 1.0, 0.0),
        (Grade.INVALID, None, -1.0),
        (Grade.MALFORMED, None, -1.0),
        (Grade.DUPLICATE, None, -1.0),
        (Grade.UNJUDGED, None, None),
        (Grade.VALID, None, None),
    ],
)
def test_teacher_rewards(grade: Grade, rho: float | None, reward: float | None) -> None:
    assert reward_teacher(grade, rho, TeacherRewards()) == reward


@pytest.mark.parametrize(
    ("grade", "reward"), [(Grade.CORRECT, 1.0), (Grade.WRONG, -0.5), (Grade.MALFORMED, -1.0), (Grade.UNJUDGED, None)]
)
def test_student_rewards(grade: Grade, reward: float | None) -> None:
    assert reward_student(grade, StudentRewards()) == reward


def test_the_solve_rate_counts_judged_attempts_and_needs_half_of_them() -> None:
    C, W, U = Grade.CORRECT, Grade.WRONG, Grade.UNJUDGED
    assert measure_solve_rate([C, W, Grade.MALFORMED, U], judged_fraction=0.5) == pytest.approx(1 / 3)
    assert measure_solve_rate([C, U, U, U], judged_fraction=0.5) is None
    assert measure_solve_rate([], judged_fraction=0.5) is None


def test_culled_members_and_newborns_are_no_parents(monkeypatch) -> None:
    """Four members, two culled at once: parents are the two survivors, whatever the order."""
    from trainer import evolving
    from trainer.checkpoint import RunState
    from trainer.config import load_config

    config = load_config([], ["evolution.fraction=0.5", "evolution.z=0", "evolution.parents=survivors"])

    class Weights:
        def get_weights(self, uid: str):
            import torch

            return {"m.lora_A.weight": torch.ones(2, 3), "m.lora_B.weight": torch.ones(3, 2)}

        def add(self, uid: str, *, seed: int) -> None: ...

        def set_weights(self, uid: str, weights: object) -> None: ...

        def drop(self, uid: str) -> None: ...

    for seed in range(20):
        members = [member(f"{r[0]}{i:02d}", 20 + i, role=r) for r in Role for i in range(4)]
        state = RunState(
            step=1, members=members, problems=[], generator=random.Random(seed), next_uid={"teacher": 4, "student": 4}
        )
        births = evolving.evolve(state, Weights(), config, step=1)
        assert len(births) == 4
        for birth in births:
            assert set(birth.record.parents) <= {f"{birth.record.role[0]}02", f"{birth.record.role[0]}03"}
