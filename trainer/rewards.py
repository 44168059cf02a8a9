"""Rewards by table. Pure."""

from collections.abc import Sequence

from trainer.config import RewardsConfig, StudentRewards, TeacherRewards
from trainer.domain import Grade, Sample


def reward_student(grade: Grade, table: StudentRewards) -> float | None:
    """Return the reward of an attempt; None if it was not judged."""
    if grade is Grade.UNJUDGED:
        return None
    return {Grade.CORRECT: table.correct, Grade.WRONG: table.wrong}.get(grade, table.malformed)


def reward_teacher(grade: Grade, solve_rate: float | None, table: TeacherRewards) -> float | None:
    """Return the reward of a proposal.

    Args:
        grade: VALID, or why not.
        solve_rate: rho of the matched student on it, 0 to 1; None if nobody attempted it or too few were judged.

    Returns:
        None if the verifier did not validate it, or it was not attempted.
    """
    if grade is Grade.UNJUDGED or (grade is Grade.VALID and solve_rate is None):
        return None
    if grade is not Grade.VALID:
        return table.invalid
    if solve_rate == 0:
        return table.unsolved
    if solve_rate == 1:
        return table.always_solved
    return table.scale * (1 - float(solve_rate or 0))


def measure_solve_rate(grades: Sequence[Grade], *, judged_fraction: float) -> float | None:
    """Return the share of correct attempts among the judged ones; None if too few were judged."""
    judged = [grade for grade in grades if grade is not Grade.UNJUDGED]
    if not judged or len(judged) < judged_fraction * len(grades):
        return None
    return sum(grade is Grade.CORRECT for grade in judged) / len(judged)


def punish_length(sample: Sample, rewards: RewardsConfig, *, max_tokens: int) -> float | None:
    """Return a sample's reward after what its length does to it.

    With a margin of M tokens the soft punishment of DAPO (arXiv:2503.14476, eq. 13) is added: 0 up to max_tokens - M,
    then (max_tokens - M - length) / M, which is -1 at max_tokens.
    """
    margin = rewards.overlong_margin_tokens
    if sample.reward is None or not margin:
        return sample.reward
    return sample.reward + min(0.0, (max_tokens - margin - len(sample.completion_ids)) / margin)
