"""What a member learns from: its judged samples with their advantages, less what says nothing. Pure."""

from collections.abc import Sequence

import torch

from trainer.config import LearningConfig, RewardsConfig
from trainer.domain import Sample
from trainer.learning.advantages import compute_advantages, find_uniform


def select_samples(
    samples: Sequence[Sample], learning: LearningConfig, overlong: RewardsConfig
) -> tuple[list[Sample], torch.Tensor]:
    """Return samples and their advantages, float [S].

    Args:
        samples: of one member, all with a reward.
        overlong: with its `overlong` "mask", truncated completions count in the baseline of their group and are then
            left out (overlong filtering, arXiv:2503.14476; `mask_truncated_completions` of TRL).

    With `zero_variance` "drop" groups without a difference are left out first, so that neither whitening nor the
    divisor of the loss sees them (DAPO's dynamic sampling, without sampling again).
    """
    rewards_S = torch.tensor([float(sample.reward or 0.0) for sample in samples])
    if learning.zero_variance == "drop" and learning.advantage != "trr_pp":
        uniform_S = find_uniform(rewards_S, [sample.group for sample in samples])
        samples = [s for s, uniform in zip(samples, uniform_S.tolist(), strict=True) if not uniform]
        rewards_S = rewards_S[~uniform_S]
    if not samples:
        return [], rewards_S
    advantages_S = compute_advantages(
        learning.advantage,
        rewards_S,
        groups_S=[sample.group for sample in samples],
        kinds_S=[sample.kind for sample in samples],
        lengths_S=torch.tensor([len(sample.completion_ids) for sample in samples]),
    )
    kept = [i for i, s in enumerate(samples) if not (overlong.overlong == "mask" and s.finish_reason == "length")]
    return [samples[i] for i in kept], advantages_S[kept]
