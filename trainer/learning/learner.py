"""The learner: scores tokens under members, and updates one member at a time on its own samples."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from trainer.config import ConfigError, LearningConfig, LoraConfig
from trainer.domain import Sample
from trainer.learning.adapters import AdapterBank
from trainer.learning.logprobs import TokenSequence, check_scores, plan_micro_batches, score_tokens
from trainer.learning.losses import TokenBatch, policy_loss, weigh_samples


class LearningError(RuntimeError):
    """An update made no sense numerically; the weights are as before."""


@dataclass(slots=True)
class _Batch:
    """An optimizer batch: S samples with what the loss needs of each."""

    samples: list[Sample]
    sequences: list[TokenSequence]
    advantages_S: torch.Tensor
    weights_S: torch.Tensor
    old: list[torch.Tensor] | None = None
    """Log-probabilities at the start of the update; None until a first pass found them."""
    reference: list[torch.Tensor] | None = None


class Learner:
    """Holds the base model with all adapters.

    Args:
        model: causal language model of transformers; frozen here.
        lora: shape of every adapter.
        learning: how updates are made.
        max_new_tokens: longest completion that is sampled; the divisor of the `constant` aggregation.

    Raises:
        ConfigError: the model does something to its logits that is not done here.
    """

    def __init__(self, model: Any, *, lora: LoraConfig, learning: LearningConfig, max_new_tokens: int) -> None:
        self.adapters = AdapterBank(model, lora, learning_rate=learning.learning_rate)
        self._model = model
        self._learning = learning
        self._max_new_tokens = max_new_tokens
        try:
            check_scores(model)
        except ValueError as error:
            raise ConfigError(f"model.name: {error}") from error
        if learning.gradient_checkpointing:
            _checkpoint_activations(model)

    def compute_logprobs(
        self, uid: str | None, sequences: Sequence[TokenSequence], *, temperature: float
    ) -> list[torch.Tensor]:
        """Return log-probabilities per sequence, [T] each, without gradient; `uid` None is the frozen base."""
        if uid is None:
            with self.adapters.base():
                return self._score(sequences, temperature)
        self.adapters.activate(uid)
        return self._score(sequences, temperature)

    def update(
        self,
        uid: str,
        samples: Sequence[Sample],
        advantages_S: torch.Tensor,
        *,
        temperature: float,
        old: Sequence[torch.Tensor] | None = None,
    ) -> dict[str, float]:
        """Make `learning.epochs` optimizer steps on a member's samples.

        Args:
            old: log-probabilities of the policy that the ratio is taken to, [T] each; None is the adapter as it is now.

        Returns:
            Metrics, or `skipped` if there is nothing to learn. Means are over the tokens that were learned from.

        Raises:
            LearningError: a gradient is not finite.

        Samples with advantage 0 are not computed, but count in the mean (unless a KL or entropy term needs them).
        """
        learning = self._learning
        lengths_S = torch.tensor([len(sample.completion_ids) for sample in samples])
        weights_S = weigh_samples(lengths_S, learning.resolved_aggregation, max_tokens=self._max_new_tokens)
        everything = learning.kl_coefficient > 0 or learning.entropy_coefficient > 0
        kept = [i for i, advantage in enumerate(advantages_S.tolist()) if advantage != 0.0 or everything]
        if not advantages_S.any():
            return {"skipped": 1.0}
        chosen = [samples[i] for i in kept]
        sequences = [TokenSequence(sample.prompt_ids, sample.completion_ids) for sample in chosen]
        batch = _Batch(chosen, sequences, advantages_S[kept], weights_S[kept], [old[i] for i in kept] if old else None)
        if learning.kl_coefficient > 0:
            batch.reference = self.compute_logprobs(None, sequences, temperature=temperature)
        metrics: dict[str, float] = {}
        for _ in range(learning.epochs):
            metrics = self._pass(uid, batch, temperature)
        return {**metrics, "num_tokens": float(lengths_S.sum()), "lr": learning.learning_rate}

    def imitate(self, uid: str, sequences: Sequence[TokenSequence], *, learning_rate: float) -> float:
        """Make one supervised step on completions; returns the mean loss per token."""
        self.adapters.activate(uid)
        num_tokens = sum(len(sequence.completion_ids) for sequence in sequences)
        total = 0.0
        for part in plan_micro_batches(sequences, self._learning.micro_batch_tokens):
            with self.adapters.precision():
                logprobs_T, _ = score_tokens(self._model, [sequences[i] for i in part], temperature=1.0)
            loss = -logprobs_T.sum() / num_tokens
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        self._step(uid, learning_rate)
        return total

    def _score(self, sequences: Sequence[TokenSequence], temperature: float) -> list[torch.Tensor]:
        results: list[torch.Tensor] = [torch.empty(0)] * len(sequences)
        with torch.no_grad(), self.adapters.precision():
            for part in plan_micro_batches(sequences, self._learning.micro_batch_tokens):
                chosen = [sequences[i] for i in part]
                logprobs_T, _ = score_tokens(
                    self._model, chosen, temperature=temperature, chunk_tokens=self._learning.logit_chunk_tokens
                )
                for index, piece in zip(part, _split(logprobs_T, chosen), strict=True):
                    results[index] = piece
        return results

    def _pass(self, uid: str, batch: _Batch, temperature: float) -> dict[str, float]:
        """Go once over a batch and make an optimizer step."""
        self.adapters.activate(uid)
        sums: dict[str, float] = defaultdict(float)
        maxima: dict[str, float] = {}
        found: list[torch.Tensor] = [torch.empty(0)] * len(batch.samples)
        for part in plan_micro_batches(batch.sequences, self._learning.micro_batch_tokens):
            loss, statistics, logprobs_T = self._backward(batch, part, temperature)
            for index, piece in zip(part, _split(logprobs_T, [batch.sequences[i] for i in part]), strict=True):
                found[index] = piece
            sums["loss"] += loss
            for name, value in statistics.items():
                if name.endswith("max"):
                    maxima[name] = max(maxima.get(name, value), value)
                else:
                    sums[name] += value
        batch.old = batch.old or found
        tokens = sum(len(sequence.completion_ids) for sequence in batch.sequences)
        means = {name: value / tokens for name, value in sums.items() if name != "loss"}
        return {"loss": sums["loss"], **means, **maxima, "grad_norm": self._step(uid)}

    def _backward(
        self, batch: _Batch, part: Sequence[int], temperature: float
    ) -> tuple[float, dict[str, float], torch.Tensor]:
        """Add the gradient of a micro-batch; returns its share of the loss, statistics, and log-probabilities."""
        learning = self._learning
        with self.adapters.precision():
            logprobs_T, entropies_T = score_tokens(
                self._model,
                [batch.sequences[i] for i in part],
                temperature=temperature,
                chunk_tokens=learning.logit_chunk_tokens,
                entropy_gradient=learning.entropy_coefficient > 0,
            )
        lengths_B = torch.tensor([len(batch.samples[i].completion_ids) for i in part])

        def spread(values_S: torch.Tensor) -> torch.Tensor:
            return values_S[list(part)].repeat_interleave(lengths_B).to(logprobs_T)

        tokens = TokenBatch(
            logprobs_T=logprobs_T,
            entropies_T=entropies_T,
            old_logprobs_T=torch.cat([batch.old[i] for i in part]) if batch.old else logprobs_T.detach(),
            sampler_logprobs_T=torch.tensor([p for i in part for p in batch.samples[i].logprobs]).to(logprobs_T),
            advantages_T=spread(batch.advantages_S),
            weights_T=spread(batch.weights_S),
            lengths_B=lengths_B,
            reference_logprobs_T=torch.cat([batch.reference[i] for i in part]) if batch.reference else None,
        )
        found = policy_loss(tokens, learning)
        found.loss.backward()  # type: ignore[no-untyped-call]
        return float(found.loss.detach()), found.statistics, logprobs_T.detach()

    def _step(self, uid: str, learning_rate: float | None = None) -> float:
        norm = self.adapters.step(uid, max_grad_norm=self._learning.max_grad_norm, learning_rate=learning_rate)
        if not norm < float("inf"):
            raise LearningError(f"the gradient of {uid} is {norm}; its weights are unchanged")
        return norm


def _split(flat_T: torch.Tensor, sequences: Sequence[TokenSequence]) -> Iterator[torch.Tensor]:
    yield from flat_T.split([len(sequence.completion_ids) for sequence in sequences])


def _checkpoint_activations(model: Any) -> None:
    """Turn gradient checkpointing on. Only its layers are put in training mode: dropout inside them stays off."""
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = True
