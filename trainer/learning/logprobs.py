"""Log-probabilities of completions under a causal model, without a tokens x vocabulary matrix in memory.

Shapes: _B sequences of a micro-batch, _L padded positions, _T flat completion tokens, _D hidden, _V vocabulary.
Masks come from lengths, never from token values: the end token a model sampled is part of its completion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

_CHUNK_TOKENS = 256


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """A prompt and its completion as token ids."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids)


def plan_micro_batches(sequences: Sequence[TokenSequence], max_tokens: int) -> list[list[int]]:
    """Group indices of similar lengths so that no group has more than `max_tokens` padded tokens (unless single)."""
    batches: list[list[int]] = []
    for index in sorted(range(len(sequences)), key=lambda i: len(sequences[i])):
        longest = len(sequences[index])
        if batches and longest * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def compute_logprobs(model: Any, sequences: Sequence[TokenSequence], *, temperature: float) -> torch.Tensor:
    """Return log-probabilities of all completion tokens, [T], in order of the sequences; gradients flow.

    Args:
        model: a causal language model of transformers (adapters injected).
        sequences: the micro-batch; the completions are predicted, the prompts only condition.
        temperature: the logits are divided by it, as the sampler did.
    """
    device = next(model.parameters()).device
    lengths = [len(sequence) for sequence in sequences]
    ids_BL = torch.zeros(len(sequences), max(lengths), dtype=torch.long)
    predicts_BL = torch.zeros_like(ids_BL, dtype=torch.bool)
    for row, sequence in enumerate(sequences):
        ids_BL[row, : lengths[row]] = torch.tensor(sequence.prompt_ids + sequence.completion_ids)
        # Position t predicts token t + 1.
        predicts_BL[row, len(sequence.prompt_ids) - 1 : lengths[row] - 1] = True
    targets_T = torch.cat([torch.tensor(sequence.completion_ids) for sequence in sequences]).to(device)
    # No attention mask: padding is at the end, and a causal model's earlier positions do not see it.
    hidden_BLD = model.base_model(input_ids=ids_BL.to(device)).last_hidden_state
    hidden_TD = hidden_BLD[predicts_BL.to(device)]
    return _project(model.get_output_embeddings(), hidden_TD, targets_T, temperature)


def _project(head: Any, hidden_TD: torch.Tensor, targets_T: torch.Tensor, temperature: float) -> torch.Tensor:
    """Apply head and log-softmax in chunks; the logits of a chunk are made again in the backward pass."""

    def of_chunk(hidden_CD: torch.Tensor, targets_C: torch.Tensor) -> torch.Tensor:
        logits_CV = head(hidden_CD).float()
        if temperature != 1.0:
            logits_CV = logits_CV / temperature
        return -torch.nn.functional.cross_entropy(logits_CV, targets_C, reduction="none")

    pieces = []
    for start in range(0, len(targets_T), _CHUNK_TOKENS):
        window = slice(start, start + _CHUNK_TOKENS)
        if hidden_TD.requires_grad:
            pieces.append(checkpoint(of_chunk, hidden_TD[window], targets_T[window], use_reentrant=False))
        else:
            pieces.append(of_chunk(hidden_TD[window], targets_T[window]))
    return torch.cat(pieces)
