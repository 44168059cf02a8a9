"""The policy-gradient loss, as pure functions of log-probabilities.

Shapes: _B samples of a micro-batch, _S samples of an optimizer batch, _T the flat axis of all completion tokens of a
micro-batch, sample after sample.
"""

from dataclasses import dataclass

import torch

from trainer.config import Aggregation, LearningConfig

_LOG_RATIO_MAX = 20.0
MISSING = "sampling/missing_fraction"
DIFFERENCE = "sampling/sampling_logp_difference/mean"
"""Over the tokens whose log-probability the sampler reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """What the loss of a micro-batch is made of; all but the first two are constants."""

    logprobs_T: torch.Tensor
    """Of the sampled tokens under the adapter now, with gradient."""
    entropies_T: torch.Tensor
    """Of the whole distributions, in nats, with gradient if the loss needs one."""
    old_logprobs_T: torch.Tensor
    """Under the adapter at the start of the update."""
    sampler_logprobs_T: torch.Tensor
    """As the engine reported them; NaN where it did not."""
    advantages_T: torch.Tensor
    weights_T: torch.Tensor
    """Share of each token in the mean of the optimizer batch, see `weigh_samples`."""
    lengths_B: torch.Tensor
    """Completion tokens of each sample; they sum up to T."""
    num_tokens: int
    """Completion tokens of the whole optimizer batch."""
    reference_logprobs_T: torch.Tensor | None = None
    """Under the frozen base; only needed with a KL term."""


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """The micro-batch's share of the loss, and statistics: sums over its tokens, or extremes if the name says so."""

    loss: torch.Tensor
    statistics: dict[str, float]


def weigh_samples(lengths_S: torch.Tensor, aggregation: Aggregation, *, max_tokens: int) -> torch.Tensor:
    """Return the weight of each token of each sample, float [S], so that sums over micro-batches give the mean.

    Args:
        lengths_S: completion tokens of the samples of the whole optimizer batch.
        aggregation:
            `token_mean`: 1 / sum of lengths (DAPO, arXiv:2503.14476, eq. 8; REINFORCE++);
            `sequence_mean`: 1 / (S T_i) (GRPO, arXiv:2402.03300, eq. 3);
            `constant`: 1 / (S max_tokens) (Dr. GRPO, arXiv:2503.20783).
        max_tokens: longest completion that could have been sampled.
    """
    lengths_S = lengths_S.float()
    if aggregation == "token_mean":
        return torch.ones_like(lengths_S) / lengths_S.sum()
    if aggregation == "sequence_mean":
        return 1 / (len(lengths_S) * lengths_S)
    return torch.ones_like(lengths_S) / (len(lengths_S) * max_tokens)


def policy_loss(tokens: TokenBatch, config: LearningConfig) -> PolicyLoss:
    """Return sum_t weight_t (c_t L_t + kl D_t) - entropy mean_t H_t.

    L is PPO's clipped loss (`clip_objective`), c corrects for the sampler (`correct_importance`), D is the divergence
    from the frozen base (`estimate_kl`) and H the entropy, each with its coefficient in the config. The entropy is a
    mean over tokens whatever the aggregation, as in TRL.
    """
    ratio_T = (tokens.logprobs_T - tokens.old_logprobs_T).clamp(-_LOG_RATIO_MAX, _LOG_RATIO_MAX).exp()
    objective_T = clip_objective(ratio_T, tokens.advantages_T, config)
    correction_T, difference_T = correct_importance(tokens, config)
    loss_T = -correction_T * objective_T
    statistics = _measure(ratio_T.detach(), tokens, correction_T, difference_T, config)
    if tokens.reference_logprobs_T is not None:
        kl_T = estimate_kl(tokens.logprobs_T, tokens.reference_logprobs_T, config.kl_estimator)
        statistics["kl"] = float(kl_T.detach().sum())
        # Only weighted by the ratio is the gradient that of the reverse divergence (arXiv:2512.02556, section 3.1).
        weighted_T = kl_T * ratio_T if config.kl_estimator == "k3_weighted" else kl_T
        loss_T = loss_T + config.kl_coefficient * weighted_T
    loss = (tokens.weights_T * loss_T).sum()
    if config.entropy_coefficient:
        loss = loss - config.entropy_coefficient * tokens.entropies_T.sum() / tokens.num_tokens
    return PolicyLoss(loss, statistics)


def clip_objective(ratio_T: torch.Tensor, advantages_T: torch.Tensor, config: LearningConfig) -> torch.Tensor:
    """PPO's clipped objective (arXiv:1707.06347, eq. 7), to be maximised: min(rho A, clip(rho, 1 - low, 1 + high) A).

    With two bounds, so that the upper can be higher (arXiv:2503.14476), and for A < 0 no lower than dual * A (dual
    clip, arXiv:1912.09729, eq. 5).
    """
    clipped_T = ratio_T.clamp(1 - config.clip_low, 1 + config.clip_high)
    objective_T = torch.minimum(ratio_T * advantages_T, clipped_T * advantages_T)
    if config.clip_dual is None:
        return objective_T
    return torch.where(advantages_T < 0, torch.maximum(objective_T, config.clip_dual * advantages_T), objective_T)


def correct_importance(tokens: TokenBatch, config: LearningConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights that correct for the sampler's other precision and kernels, and the log-probability differences.

    With d = log pi_old - log pi_sampler per token, or its sum over a completion for the `sequence_` forms:
    `truncate` is min(e^d, cap) (truncated importance sampling, Yao et al. 2025), `mask` is e^d where
    floor <= e^d <= cap and else 0 (IcePop; TRL's default is the sequence form without a floor). Both [T], no gradient.
    """
    with torch.no_grad():
        # Where the sampler reports no number there is nothing to correct for.
        difference_T = (tokens.old_logprobs_T - tokens.sampler_logprobs_T).nan_to_num(nan=0.0, posinf=_LOG_RATIO_MAX)
        if config.importance == "off":
            return torch.ones_like(difference_T), difference_T
        log_T = difference_T
        if config.importance.startswith("sequence"):
            sums_B = torch.stack([part.sum() for part in difference_T.split(tokens.lengths_B.tolist())])
            log_T = sums_B.repeat_interleave(tokens.lengths_B.to(sums_B.device))
        weight_T = log_T.clamp(-_LOG_RATIO_MAX, _LOG_RATIO_MAX).exp()
        floor, cap = config.importance_bounds
        if config.importance.endswith("truncate"):
            return weight_T.clamp_max(cap), difference_T
        inside_T = (weight_T >= floor) & (weight_T <= cap)
        return torch.where(inside_T, weight_T, 0.0), difference_T


def estimate_kl(logprobs_T: torch.Tensor, reference_logprobs_T: torch.Tensor, estimator: str) -> torch.Tensor:
    """Estimate KL(pi, reference) per sampled token (Schulman 2020, "Approximating KL divergence"), [T], with gradient.

    With d = log reference - log pi: `k3` is e^d - d - 1 (GRPO), `k2` is d^2 / 2 (REINFORCE++ with baseline).
    """
    difference_T = (reference_logprobs_T - logprobs_T).clamp(-_LOG_RATIO_MAX, _LOG_RATIO_MAX)
    if estimator == "k2":
        return difference_T.square() / 2
    return difference_T.exp() - difference_T - 1


def _measure(
    ratio_T: torch.Tensor,
    tokens: TokenBatch,
    correction_T: torch.Tensor,
    difference_T: torch.Tensor,
    config: LearningConfig,
) -> dict[str, float]:
    is_low_T = (ratio_T < 1 - config.clip_low) & (tokens.advantages_T < 0)
    is_high_T = (ratio_T > 1 + config.clip_high) & (tokens.advantages_T > 0)
    return {
        "entropy": float(tokens.entropies_T.detach().sum()),
        "clip_ratio/low_mean": float(is_low_T.sum()),
        "clip_ratio/high_mean": float(is_high_T.sum()),
        "clip_ratio/region_mean": float((is_low_T | is_high_T).sum()),
        "sampling/importance_sampling_ratio/mean": float(correction_T.sum()),
        "sampling/importance_sampling_ratio/min": float(correction_T.min()),
        "sampling/importance_sampling_ratio/max": float(correction_T.max()),
        "sampling/masked_fraction": float((correction_T == 0).sum()),
        MISSING: float((~tokens.sampler_logprobs_T.isfinite()).sum()),
        DIFFERENCE: float(difference_T.abs().sum()),
        "sampling/sampling_logp_difference/max": float(difference_T.abs().max()),
    }
