"""From rewards to advantages, for one adapter's samples at a time: whitening across adapters would couple learners.

Shapes: _S samples. Samples of one prompt share a group label.
"""

from collections.abc import Hashable, Sequence

import torch

_MIN_STD = 1e-6
_GRPO_EPSILON = 1e-4


def center_groups(rewards_S: torch.Tensor, groups_S: Sequence[Hashable]) -> torch.Tensor:
    """Subtract each group's mean reward; a group of one gets 0.

    Args:
        rewards_S: float [S].
        groups_S: S labels.

    Returns:
        float [S].
    """
    centered_S = torch.empty_like(rewards_S)
    for index in _index_groups(groups_S):
        centered_S[index] = rewards_S[index] - rewards_S[index].mean()
    return centered_S


def reinforce_pp_baseline(
    rewards_S: torch.Tensor, groups_S: Sequence[Hashable], lengths_S: torch.Tensor
) -> torch.Tensor:
    """REINFORCE++ with baseline (arXiv:2501.03262, "w/ Baseline"): subtract the group mean, whiten over the batch.

    Mean and standard deviation are taken over tokens (a completion of T tokens counts T times, variance divided by
    the number of tokens), as in OpenRLHF. Our departures: the batch is one adapter's, and a batch without any
    difference inside its groups gives zeros instead of amplified noise.

    Args:
        rewards_S: float [S].
        groups_S: S labels.
        lengths_S: completion tokens, [S].

    Returns:
        float [S], the same advantage for every token of a sample.
    """
    centered_S = center_groups(rewards_S, groups_S)
    if not centered_S.abs().max() > _MIN_STD:
        return torch.zeros_like(centered_S)
    weights_S = lengths_S.to(centered_S.dtype) / lengths_S.sum()
    mean = (weights_S * centered_S).sum()
    variance = (weights_S * (centered_S - mean) ** 2).sum()
    return (centered_S - mean) / variance.sqrt().clamp_min(_MIN_STD)


def grpo(rewards_S: torch.Tensor, groups_S: Sequence[Hashable], lengths_S: torch.Tensor) -> torch.Tensor:
    """GRPO (arXiv:2402.03300, section 4.1): (r - mean) / (std + 1e-4) within each group, std unbiased as in TRL.

    Args and returns as in `reinforce_pp_baseline`; the lengths play no part.
    """
    centered_S = center_groups(rewards_S, groups_S)
    for index in _index_groups(groups_S):
        std = rewards_S[index].std() if len(index) > 1 else torch.tensor(0.0)
        centered_S[index] /= std + _GRPO_EPSILON
    return centered_S


ESTIMATORS = {"reinforce_pp_baseline": reinforce_pp_baseline, "grpo": grpo}


def _index_groups(groups_S: Sequence[Hashable]) -> list[list[int]]:
    members: dict[Hashable, list[int]] = {}
    for position, group in enumerate(groups_S):
        members.setdefault(group, []).append(position)
    return list(members.values())
