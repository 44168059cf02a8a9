"""Log-probabilities of completions under a causal model, in micro-batches of similar lengths.

Shapes: _B sequences of a micro-batch, _L padded positions, _T flat completion tokens, _D hidden, _V vocabulary.
Masks come from lengths, never from token values: the end token a model sampled is part of its completion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainer.learning.projection import project

CHUNK_TOKENS = 256
_SCORE_TOLERANCE = 1e-2


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


def score_tokens(
    model: Any,
    sequences: Sequence[TokenSequence],
    *,
    temperature: float,
    chunk_tokens: int = CHUNK_TOKENS,
    entropy_gradient: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropies of all completion tokens, float32 [T] each, in order of the sequences.

    Args:
        model: a causal language model of transformers (adapters injected).
        sequences: the micro-batch; the completions are predicted, the prompts only condition.
        temperature: the logits are divided by it, as the sampler did.
        chunk_tokens: see `projection.project`, as `entropy_gradient`.
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
    hidden_BLD = model.base_model(input_ids=ids_BL.to(device), use_cache=False).last_hidden_state
    return project(
        model.get_output_embeddings(),
        hidden_BLD[predicts_BL.to(device)],
        targets_T,
        temperature=temperature,
        chunk_tokens=chunk_tokens,
        entropy_gradient=entropy_gradient,
    )


@torch.no_grad()
def check_scores(model: Any) -> None:
    """Compare `score_tokens` with the model's own logits on a few tokens.

    Raises:
        ValueError: they differ: the model does something to its logits (caps or scales them) that is not done here.
    """
    ids = tuple(range(3, 11))
    ours_T, _ = score_tokens(model, [TokenSequence(ids[:1], ids[1:])], temperature=1.0)
    logits_LV = model(input_ids=torch.tensor([ids], device=ours_T.device), use_cache=False).logits[0].float()
    theirs_T = logits_LV[:-1].log_softmax(-1).gather(1, torch.tensor(ids[1:], device=ours_T.device)[:, None])[:, 0]
    difference = float((ours_T - theirs_T).abs().max())
    if difference > _SCORE_TOLERANCE:
        raise ValueError(f"log-probabilities of this kind of model cannot be computed here: off by {difference:.2g}")
