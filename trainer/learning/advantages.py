"""From rewards to advantages, for one adapter's samples at a time: whitening across adapters would couple learners.

Shapes: _S samples. Samples of one prompt share a group label. Every function returns float [S], one advantage for all
tokens of a sample. docs/algorithms.md tells them apart.
"""

from collections.abc import Hashable, Sequence

import torch

from trainer.config import Advantage

_MIN_STD = 1e-6
_GRPO_EPSILON = 1e-4


def compute_advantages(
    name: Advantage,
    rewards_S: torch.Tensor,
    *,
    groups_S: Sequence[Hashable],
    kinds_S: Sequence[Hashable],
    lengths_S: torch.Tensor,
) -> torch.Tensor:
    """Return the advantages of the estimator that the config names.

    Args:
        rewards_S: float [S].
        groups_S: S labels of prompts.
        kinds_S: S task types; only `trr_pp` looks at them.
        lengths_S: completion tokens, [S].
    """
    if name == "grpo":
        return grpo(rewards_S, groups_S)
    if name == "dr_grpo":
        return dr_grpo(rewards_S, groups_S)
    if name == "trr_pp":
        return trr_pp(rewards_S, kinds_S, lengths_S)
    return reinforce_pp_baseline(rewards_S, groups_S, lengths_S)


def find_uniform(rewards_S: torch.Tensor, groups_S: Sequence[Hashable]) -> torch.Tensor:
    """Return bool [S]: whether all rewards of a sample's group are equal, so that comparing them teaches nothing."""
    uniform_S = torch.zeros(len(rewards_S), dtype=torch.bool)
    for index in _index(groups_S):
        uniform_S[index] = bool((rewards_S[index].max() - rewards_S[index].min()) <= _MIN_STD)
    return uniform_S


def dr_grpo(rewards_S: torch.Tensor, groups_S: Sequence[Hashable]) -> torch.Tensor:
    """Dr. GRPO (arXiv:2503.20783, section 3.2): subtract each group's mean reward, and do not divide.

    A group of one, or one without a difference, gets exactly 0, not what rounding leaves: an optimizer would scale that
    up. The other half of Dr. GRPO is the constant divisor of the loss (`losses.weigh_samples`).
    """
    centered_S = torch.empty_like(rewards_S)
    for index in _index(groups_S):
        centered_S[index] = rewards_S[index] - rewards_S[index].mean()
    return centered_S.masked_fill(find_uniform(rewards_S, groups_S), 0.0)


def grpo(rewards_S: torch.Tensor, groups_S: Sequence[Hashable]) -> torch.Tensor:
    """GRPO (arXiv:2402.03300, section 4.1): (r - mean) / (std + 1e-4) within each group, std unbiased as in TRL."""
    advantages_S = dr_grpo(rewards_S, groups_S)
    for index in _index(groups_S):
        std = rewards_S[index].std() if len(index) > 1 else torch.tensor(0.0)
        advantages_S[index] /= std + _GRPO_EPSILON
    return advantages_S


def reinforce_pp_baseline(
    rewards_S: torch.Tensor, groups_S: Sequence[Hashable], lengths_S: torch.Tensor
) -> torch.Tensor:
    """REINFORCE++ with baseline (arXiv:2501.03262, "w/ Baseline"): subtract the group mean, whiten over the batch.

    Our departures: the batch is one adapter's, and a batch without any difference inside its groups gives zeros
    instead of amplified noise.
    """
    return _whiten(dr_grpo(rewards_S, groups_S), lengths_S)


def trr_pp(rewards_S: torch.Tensor, kinds_S: Sequence[Hashable], lengths_S: torch.Tensor) -> torch.Tensor:
    """Task-relative REINFORCE++ (Absolute Zero, arXiv:2505.03335, eq. 8): whiten the rewards of each task and role.

    The role is the adapter's, so only task types are told apart here. There is no group baseline. Our departures: the
    variance is divided by the number of tokens, not by one less; a task type without any difference gives zeros.
    """
    advantages_S = torch.zeros_like(rewards_S)
    for index in _index(kinds_S):
        advantages_S[index] = _whiten(rewards_S[index], lengths_S[index])
    return advantages_S


def _whiten(values_S: torch.Tensor, lengths_S: torch.Tensor) -> torch.Tensor:
    """Return (x - mean) / std over tokens: a completion of T tokens counts T times, as in OpenRLHF and verl."""
    if not values_S.max() - values_S.min() > _MIN_STD:
        return torch.zeros_like(values_S)
    weights_S = lengths_S.to(values_S.dtype) / lengths_S.sum()
    mean = (weights_S * values_S).sum()
    variance = (weights_S * (values_S - mean) ** 2).sum()
    return (values_S - mean) / variance.sqrt().clamp_min(_MIN_STD)


def _index(labels_S: Sequence[Hashable]) -> list[list[int]]:
    positions: dict[Hashable, list[int]] = {}
    for position, label in enumerate(labels_S):
        positions.setdefault(label, []).append(position)
    return list(positions.values())
