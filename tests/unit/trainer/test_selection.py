"""What a member learns from, and what the length of a completion does to its reward."""

import pytest

from trainer.config import ConfigError, LearningConfig, RewardsConfig, load_config
from trainer.domain import Role, Sample, TaskKind
from trainer.learning.selection import select_samples
from trainer.rewards import punish_length


def make_sample(group: str, reward: float, *, cut: bool = False, length: int = 4, kind=TaskKind.DEDUCTION) -> Sample:
    return Sample(
        member="s00", version=0, role=Role.STUDENT, kind=kind, group=group, prompt_ids=(1,),
        completion_ids=(5,) * length, logprobs=(0.0,) * length, finish_reason="length" if cut else "stop", text="",
        reward=reward,
    )  # fmt: skip


def select(samples: list[Sample], *, overlong: str = "keep", **learning: object) -> tuple[list[int], list[float]]:
    chosen, advantages = select_samples(samples, LearningConfig(**learning), RewardsConfig(overlong=overlong))
    return [next(i for i, s in enumerate(samples) if s is c) for c in chosen], advantages.tolist()


MIXED, EQUAL = [make_sample("a", 1.0), make_sample("a", 0.0)], [make_sample("b", 1.0), make_sample("b", 1.0)]


def test_groups_without_a_difference_are_left_out_before_whitening() -> None:
    """The rest is 0.5 and -0.5: mean 0, deviation 0.5."""
    assert select(MIXED + EQUAL) == ([0, 1], pytest.approx([1.0, -1.0]))


def test_groups_without_a_difference_can_be_kept_as_published() -> None:
    """0.5, -0.5, 0, 0: deviation sqrt(0.125)."""
    assert select(MIXED + EQUAL, zero_variance="keep") == (
        [0, 1, 2, 3],
        pytest.approx([0.5 / 0.125**0.5, -0.5 / 0.125**0.5, 0, 0]),
    )


def test_trr_pp_compares_across_groups_and_keeps_all() -> None:
    """1, 0, 1, 1: mean 0.75, deviation sqrt(0.1875)."""
    deviation = 0.1875**0.5
    expected = [0.25 / deviation, -0.75 / deviation, 0.25 / deviation, 0.25 / deviation]
    assert select(MIXED + EQUAL, advantage="trr_pp") == ([0, 1, 2, 3], pytest.approx(expected))


def test_truncated_completions_count_in_the_baseline_and_are_then_left_out() -> None:
    """1, 0 and a truncated -1: mean 0; without the third it would be 0.5."""
    samples = [make_sample("a", 1.0), make_sample("a", 0.0), make_sample("a", -1.0, cut=True)]
    assert select(samples, overlong="mask", advantage="dr_grpo") == ([0, 1], [1.0, 0.0])
    assert select(samples, advantage="dr_grpo") == ([0, 1, 2], [1.0, 0.0, -1.0])


def test_nothing_is_selected_of_nothing() -> None:
    assert select(EQUAL) == ([], [])


@pytest.mark.parametrize(("length", "expected"), [(80, 1.0), (81, 0.95), (90, 0.5), (100, 0.0)])
def test_length_is_punished_linearly_inside_the_margin(length: int, expected: float) -> None:
    """Limit 100, margin 20: 0 up to 80, then (80 - length) / 20, at most -1."""
    rewards = RewardsConfig(overlong_margin_tokens=20)
    assert punish_length(make_sample("a", 1.0, length=length), rewards, max_tokens=100) == pytest.approx(expected)


def test_without_a_margin_and_without_a_reward_nothing_is_punished() -> None:
    sample = make_sample("a", 1.0, length=100)
    assert punish_length(sample, RewardsConfig(), max_tokens=100) == 1.0
    sample.reward = None
    assert punish_length(sample, RewardsConfig(overlong_margin_tokens=20), max_tokens=100) is None


def test_a_margin_longer_than_completions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"overlong_margin_tokens = 200 is more than rollout\.max_new_tokens = 128"):
        load_config([], ["rewards.overlong_margin_tokens=200", "rollout.max_new_tokens=128"])
