"""The policy-gradient loss, as a pure function of log-probabilities.

Shapes: _T is the flat axis of all completion tokens of a micro-batch.
"""

from dataclasses import dataclass

import torch

_LOG_RATIO_MAX = 20.0


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Sum of token losses (divide by the tokens of the whole optimizer batch) and statistics, as sums over tokens."""

    loss_sum: torch.Tensor
    clipped_sum: float
    weight_sum: float
    weight_max: float
    difference_sum: float
    """Sum of |log-probability difference| between learner and sampler."""
    difference_max: float


def clipped_policy_loss(
    logprobs_T: torch.Tensor,
    old_logprobs_T: torch.Tensor,
    sampler_logprobs_T: torch.Tensor,
    advantages_T: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    importance_cap: float,
) -> PolicyLoss:
    """PPO's clipped objective (arXiv:1707.06347, eq. 7) with clip-higher and truncated importance weights.

    loss = - sum_t w_t min(rho_t A_t, clip(rho_t, 1 - low, 1 + high) A_t), with rho = pi / pi_old and
    w = min(pi_old / pi_sampler, cap), both from log-probabilities; w carries no gradient. w corrects for the
    sampler's other precision and kernels (token-level TIS, Yao et al. 2025).

    Args:
        logprobs_T: of the sampled tokens under the adapter now, with gradient.
        old_logprobs_T: under the adapter at the start of the update.
        sampler_logprobs_T: as reported by the engine.
        advantages_T: of each token's sample.
    """
    ratio_T = (logprobs_T - old_logprobs_T).clamp(-_LOG_RATIO_MAX, _LOG_RATIO_MAX).exp()
    clipped_T = ratio_T.clamp(1 - clip_low, 1 + clip_high)
    objective_T = torch.minimum(ratio_T * advantages_T, clipped_T * advantages_T)
    with torch.no_grad():
        # Where the sampler reports no number there is nothing to correct for.
        difference_T = (old_logprobs_T - sampler_logprobs_T).nan_to_num(nan=0.0, posinf=_LOG_RATIO_MAX)
        weight_T = difference_T.clamp(-_LOG_RATIO_MAX, _LOG_RATIO_MAX).exp().clamp_max(importance_cap)
        is_clipped_T = ratio_T * advantages_T > clipped_T * advantages_T
    return PolicyLoss(
        loss_sum=-(weight_T * objective_T).sum(),
        clipped_sum=float(is_clipped_T.sum()),
        weight_sum=float(weight_T.sum()),
        weight_max=float(weight_T.max()),
        difference_sum=float(difference_T.abs().sum()),
        difference_max=float(difference_T.abs().max()),
    )
