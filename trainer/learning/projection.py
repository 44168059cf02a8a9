"""From hidden states to log-probabilities of given tokens, without a tokens x vocabulary matrix in memory.

The head is frozen and the loss needs two numbers per token, so their gradients with respect to the hidden state are
made right away, chunk by chunk: two products with the head instead of the three of a checkpointed chunk (logits, logits
again, gradient).

Shapes: _T tokens, _C tokens of a chunk, _D hidden, _V vocabulary.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable


def project(
    head: torch.nn.Linear,
    hidden_TD: torch.Tensor,
    targets_T: torch.Tensor,
    *,
    temperature: float,
    chunk_tokens: int,
    entropy_gradient: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities of the targets and entropies of the distributions, both float32 [T].

    Args:
        head: frozen output layer of the model.
        temperature: the logits are divided by it.
        chunk_tokens: rows of logits that exist at the same time; memory grows with it, speed hardly above 256.
        entropy_gradient: whether gradients flow through the entropies too, not only through the log-probabilities.

    Raises:
        ValueError: the head is trainable; its gradient is not computed here.
    """
    if any(parameter.requires_grad for parameter in head.parameters()):
        raise ValueError("the output layer must be frozen")
    logprobs_T, entropies_T = _Projection.apply(  # type: ignore[no-untyped-call]
        hidden_TD, head.weight, head.bias, targets_T, temperature, chunk_tokens, entropy_gradient
    )
    return logprobs_T, entropies_T


class _Projection(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        hidden_TD: torch.Tensor,
        weight_VD: torch.Tensor,
        bias_V: torch.Tensor | None,
        targets_T: torch.Tensor,
        temperature: float,
        chunk_tokens: int,
        entropy_gradient: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs_T, entropies_T = (torch.empty(len(targets_T), device=hidden_TD.device) for _ in range(2))
        wanted = context.needs_input_grad[0]
        # d logprob / d hidden and d entropy / d hidden of each token.
        slopes_TD = torch.empty_like(hidden_TD, dtype=weight_VD.dtype) if wanted else None
        entropy_slopes_TD = torch.empty_like(slopes_TD) if slopes_TD is not None and entropy_gradient else None
        for start in range(0, len(targets_T), chunk_tokens):
            window = slice(start, start + chunk_tokens)
            targets_C1 = targets_T[window, None]
            logits_CV = torch.nn.functional.linear(hidden_TD[window].to(weight_VD.dtype), weight_VD, bias_V).float()
            log_CV = logits_CV.div_(temperature).sub_(logits_CV.logsumexp(-1, keepdim=True))
            probabilities_CV = log_CV.exp()
            logprobs_T[window] = log_CV.gather(1, targets_C1)[:, 0]
            # Not a dot product: autocast would make it one of bfloat16.
            entropies_T[window] = -(probabilities_CV * log_CV).sum(-1)
            if entropy_slopes_TD is not None:
                # dH/dlogits = -p (log p + H)
                rise_CV = log_CV.add_(entropies_T[window, None]).mul_(probabilities_CV).neg_()
                entropy_slopes_TD[window] = (rise_CV.to(weight_VD.dtype) @ weight_VD) / temperature
            if slopes_TD is not None:
                # dlogp/dlogits = onehot - p; subtracted before rounding, for p of the target is often close to 1.
                rise_CV = probabilities_CV.neg_().scatter_add_(1, targets_C1, torch.ones_like(targets_C1).float())
                slopes_TD[window] = (rise_CV.to(weight_VD.dtype) @ weight_VD) / temperature
        context.slopes_TD, context.entropy_slopes_TD, context.dtype = slopes_TD, entropy_slopes_TD, hidden_TD.dtype
        return logprobs_T, entropies_T

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, *gradients_T: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradient_TD = gradients_T[0][:, None] * context.slopes_TD
        if context.entropy_slopes_TD is not None:
            gradient_TD = gradient_TD + gradients_T[1][:, None] * context.entropy_slopes_TD
        return gradient_TD.to(context.dtype), None, None, None, None, None, None
