"""Log-probabilities of completions under a causal model, in micro-batches of similar lengths.

Shapes: _B rows of a micro-batch, _L padded positions, _T flat completion tokens, _D hidden, _V vocabulary.
Masks come from lengths, never from token values: the end token a model sampled is part of its completion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainer.learning.projection import project

CHUNK_TOKENS = 256
# A packed row is at most this long, or this many times as long as its longest sequence.
_ROW_TOKENS = 512
_ROW_GROWTH = 2
_PADDING = -1
_SCORE_TOLERANCE = 1e-2


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """A prompt and its completion as token ids."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids)


@dataclass(frozen=True, slots=True)
class Row:
    """Sequences with the same prompt, packed: the prompt once, then one completion after the other.

    Groups of samples share their prompt, and with short completions most tokens of a batch are prompts. Completions
    see the prompt and themselves, and each counts its positions from the end of the prompt, so that nothing is changed
    but the work.
    """

    indices: tuple[int, ...]
    """Positions of the sequences in the batch."""
    prompt_ids: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.prompt_ids) + sum(map(len, self.completions))


def pack_rows(sequences: Sequence[TokenSequence]) -> list[Row]:
    """Pack sequences that share a prompt, as far as it pays: attention grows with the square of a row's length."""
    rows: list[Row] = []
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for index, sequence in enumerate(sequences):
        by_prompt.setdefault(sequence.prompt_ids, []).append(index)
    for prompt_ids, indices in by_prompt.items():
        longest = max(len(sequences[i]) for i in indices)
        room, size = max(_ROW_TOKENS, _ROW_GROWTH * longest), len(prompt_ids)
        taken: list[int] = []
        for index in indices:
            length = len(sequences[index].completion_ids)
            if taken and size + length > room:
                rows.append(_make_row(sequences, taken))
                taken, size = [], len(prompt_ids)
            taken.append(index)
            size += length
        rows.append(_make_row(sequences, taken))
    return rows


def _make_row(sequences: Sequence[TokenSequence], indices: Sequence[int]) -> Row:
    completions = tuple(sequences[i].completion_ids for i in indices)
    return Row(tuple(indices), sequences[indices[0]].prompt_ids, completions)


def plan_micro_batches(sequences: Sequence[TokenSequence], max_tokens: int) -> list[list[Row]]:
    """Pack sequences into rows and group rows of similar length, with at most `max_tokens` padded tokens or one row."""
    batches: list[list[Row]] = []
    for row in sorted(pack_rows(sequences), key=len):
        if batches and len(row) * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def score_tokens(
    model: Any,
    rows: Sequence[Row],
    *,
    temperature: float,
    chunk_tokens: int = CHUNK_TOKENS,
    entropy_gradient: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropies of all completion tokens, float32 [T] each, in order of rows.

    Args:
        model: a causal language model of transformers (adapters injected).
        rows: the micro-batch; the completions are predicted, the prompts only condition.
        temperature: the logits are divided by it, as the sampler did.
        chunk_tokens: see `projection.project`, as `entropy_gradient`.
    """
    first = next(model.parameters())
    layout = _lay_out(rows)
    hidden_BLD = model.base_model(
        input_ids=layout.ids_BL.to(first.device),
        position_ids=layout.places_BL.to(first.device),
        attention_mask=_make_mask(layout.segments_BL, first.dtype).to(first.device),
        use_cache=False,
    ).last_hidden_state
    return project(
        model.get_output_embeddings(),
        hidden_BLD.flatten(0, 1)[torch.tensor(layout.predictors, device=first.device)],
        torch.tensor(layout.targets, device=first.device),
        temperature=temperature,
        chunk_tokens=chunk_tokens,
        entropy_gradient=entropy_gradient,
    )


@dataclass(slots=True)
class _Layout:
    """Rows as rectangles."""

    ids_BL: torch.Tensor
    places_BL: torch.Tensor
    """Positions as the model counts them."""
    segments_BL: torch.Tensor
    """0 the prompt, 1 .. the completions."""
    predictors: list[int]
    """Where in the flat [B L] the token before each completion token is, [T]."""
    targets: list[int]


def _lay_out(rows: Sequence[Row]) -> _Layout:
    shape = (len(rows), max(map(len, rows)))
    ids_BL, places_BL = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    layout = _Layout(ids_BL, places_BL, torch.full(shape, _PADDING), [], [])
    for number, row in enumerate(rows):
        length, begin = len(row.prompt_ids), number * shape[1]
        start = 0
        for segment, tokens in enumerate((row.prompt_ids, *row.completions)):
            window = slice(start, start + len(tokens))
            layout.ids_BL[number, window] = torch.tensor(tokens)
            layout.segments_BL[number, window] = segment
            place = length if segment else 0
            layout.places_BL[number, window] = torch.arange(place, place + len(tokens))
            if segment:
                # The first token of a completion is predicted by the last one of the prompt.
                layout.predictors += [begin + length - 1, *range(begin + window.start, begin + window.stop - 1)]
                layout.targets += tokens
            start = window.stop
    return layout


def _make_mask(segments_BL: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return what is added to attention scores, [B, 1, L, L]: tokens see the prompt and their own completion so far."""
    queries_BL1, keys_B1L = segments_BL[:, :, None], segments_BL[:, None, :]
    length = segments_BL.shape[1]
    sees_BLL = (queries_BL1 == keys_B1L) | ((keys_B1L == 0) & (queries_BL1 > 0))
    sees_BLL &= torch.ones(length, length, dtype=torch.bool).tril()
    mask_BLL = torch.zeros(sees_BLL.shape, dtype=dtype).masked_fill_(~sees_BLL, torch.finfo(dtype).min)
    return mask_BLL[:, None]


@torch.no_grad()
def check_scores(model: Any) -> None:
    """Compare `score_tokens` with the model's own logits on a few tokens.

    Raises:
        ValueError: they differ: the model does something to its logits (caps or scales them) or to its attention mask
            that is not done here.
    """
    prompt, completions = (3, 4), ((5, 6, 7, 8), (9, 10))
    row = Row((0, 1), prompt, completions)
    ours_T, _ = score_tokens(model, [row], temperature=1.0)
    theirs = []
    for completion in completions:
        ids_1L = torch.tensor([prompt + completion], device=ours_T.device)
        log_LV = model(input_ids=ids_1L, use_cache=False).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
        theirs.append(log_LV.gather(1, ids_1L[0, len(prompt) :, None])[:, 0])
    difference = float((ours_T - torch.cat(theirs)).abs().max())
    if difference > _SCORE_TOLERANCE:
        raise ValueError(f"log-probabilities of this kind of model cannot be computed here: off by {difference:.2g}")
