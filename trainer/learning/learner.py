"""The learner: scores tokens under members, and updates one member at a time on its own samples."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from trainer.config import ConfigError, LearningConfig, LoraConfig
from trainer.domain import Sample
from trainer.learning.adapters import AdapterBank
from trainer.learning.logprobs import Row, TokenSequence, check_scores, plan_micro_batches, score_tokens
from trainer.learning.losses import DIFFERENCE, MISSING, TokenBatch, policy_loss, weigh_samples


class LearningError(RuntimeError):
    """A step made no sense numerically."""


@dataclass(slots=True)
class _Batch:
    """An optimizer batch: S samples with what the loss needs of each."""

    samples: list[Sample]
    sequences: list[TokenSequence]
    advantages_S: torch.Tensor
    weights_S: torch.Tensor
    num_tokens: int
    """Completion tokens, those of samples that are not computed included."""
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
            Metrics, averaged over the epochs; means are over the tokens that were computed. `skipped` if there was
            nothing to learn, `nonfinite_grad` if an epoch had to be left out, with all after it.

        Samples with advantage 0 are not computed, but count in the mean (unless a KL or entropy term needs them).
        """
        learning = self._learning
        everything = learning.regularised
        if not everything and not advantages_S.any():
            return {"skipped": 1.0}
        lengths_S = torch.tensor([len(sample.completion_ids) for sample in samples])
        weights_S = weigh_samples(lengths_S, learning.resolved_aggregation, max_tokens=self._max_new_tokens)
        kept = [i for i, advantage in enumerate(advantages_S.tolist()) if advantage != 0.0 or everything]
        chosen = [samples[i] for i in kept]
        batch = _Batch(
            samples=chosen,
            sequences=[TokenSequence(sample.prompt_ids, sample.completion_ids) for sample in chosen],
            advantages_S=advantages_S[kept],
            weights_S=weights_S[kept],
            num_tokens=int(lengths_S.sum()),
            old=[old[i] for i in kept] if old else None,
        )
        if learning.kl_coefficient > 0:
            batch.reference = self.compute_logprobs(None, batch.sequences, temperature=temperature)
        return self._run_epochs(uid, batch, temperature)

    def _run_epochs(self, uid: str, batch: _Batch, temperature: float) -> dict[str, float]:
        passes: list[dict[str, float]] = []
        flags: dict[str, float] = {}
        for _ in range(self._learning.epochs):
            found = self._pass(uid, batch, temperature)
            if not math.isfinite(found["grad_norm"]):
                flags["nonfinite_grad"] = 1.0
                break
            if found["sampling/masked_fraction"] == 1 and not self._learning.regularised:
                flags["sampling/masked_fraction"] = 1.0
                break
            passes.append(found)
        if not passes:
            return {"skipped": 1.0, **flags}
        computed = sum(len(sequence.completion_ids) for sequence in batch.sequences)
        return {
            **{name: _join(name)(found[name] for found in passes) for name in passes[0]},
            **flags,
            "num_tokens": float(computed * len(passes)),
            "lr": self._learning.learning_rate,
        }

    def imitate(self, uid: str, sequences: Sequence[TokenSequence], *, learning_rate: float) -> float:
        """Make one supervised step on completions; returns the mean loss per token. Raises: LearningError."""
        self.adapters.activate(uid)
        num_tokens = sum(len(sequence.completion_ids) for sequence in sequences)
        total = 0.0
        for rows in plan_micro_batches(sequences, self._learning.micro_batch_tokens):
            with self.adapters.precision():
                logprobs_T, _ = score_tokens(
                    self._model,
                    rows,
                    temperature=1.0,
                    chunk_tokens=self._learning.logit_chunk_tokens,
                )
            loss = -logprobs_T.sum() / num_tokens
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        norm = self.adapters.step(uid, max_grad_norm=self._learning.max_grad_norm, learning_rate=learning_rate)
        if not math.isfinite(norm):
            raise LearningError(f"the gradient of {uid} is {norm} in a supervised step; its weights are unchanged")
        return total

    def _score(self, sequences: Sequence[TokenSequence], temperature: float) -> list[torch.Tensor]:
        results: list[torch.Tensor] = [torch.empty(0)] * len(sequences)
        with torch.no_grad(), self.adapters.precision():
            for rows in plan_micro_batches(sequences, self._learning.micro_batch_tokens):
                logprobs_T, _ = score_tokens(
                    self._model, rows, temperature=temperature, chunk_tokens=self._learning.logit_chunk_tokens
                )
                _place(results, rows, logprobs_T)
        return results

    def _pass(self, uid: str, batch: _Batch, temperature: float) -> dict[str, float]:
        """Go once over a batch and make an optimizer step."""
        self.adapters.activate(uid)
        parts: list[dict[str, float]] = []
        found: list[torch.Tensor] = [torch.empty(0)] * len(batch.samples)
        for rows in plan_micro_batches(batch.sequences, self._learning.micro_batch_tokens):
            loss, statistics, logprobs_T = self._backward(batch, rows, temperature)
            _place(found, rows, logprobs_T)
            parts.append({"loss": loss, **statistics})
        batch.old = batch.old or found
        tokens = sum(len(sequence.completion_ids) for sequence in batch.sequences)
        metrics = _summarize(parts, tokens)
        if metrics["sampling/masked_fraction"] == 1 and not self._learning.regularised:
            # A step without a gradient would still move by the optimizer's momentum.
            self.adapters.forget_gradients(uid)
            return {**metrics, "grad_norm": 0.0}
        return {**metrics, "grad_norm": self.adapters.step(uid, max_grad_norm=self._learning.max_grad_norm)}

    def _backward(
        self, batch: _Batch, rows: Sequence[Row], temperature: float
    ) -> tuple[float, dict[str, float], torch.Tensor]:
        """Add the gradient of a micro-batch; returns its share of the loss, statistics, and log-probabilities."""
        learning = self._learning
        with self.adapters.precision():
            logprobs_T, entropies_T = score_tokens(
                self._model,
                rows,
                temperature=temperature,
                chunk_tokens=learning.logit_chunk_tokens,
                entropy_gradient=learning.entropy_coefficient > 0,
            )
        part = [index for row in rows for index in row.indices]
        lengths_B = torch.tensor([len(batch.samples[i].completion_ids) for i in part])

        def spread(values_S: torch.Tensor) -> torch.Tensor:
            return values_S[part].repeat_interleave(lengths_B).to(logprobs_T)

        tokens = TokenBatch(
            logprobs_T=logprobs_T,
            entropies_T=entropies_T,
            old_logprobs_T=torch.cat([batch.old[i] for i in part]) if batch.old else logprobs_T.detach(),
            sampler_logprobs_T=torch.tensor([p for i in part for p in batch.samples[i].logprobs]).to(logprobs_T),
            advantages_T=spread(batch.advantages_S),
            weights_T=spread(batch.weights_S),
            lengths_B=lengths_B,
            num_tokens=batch.num_tokens,
            reference_logprobs_T=torch.cat([batch.reference[i] for i in part]) if batch.reference else None,
        )
        found = policy_loss(tokens, learning)
        found.loss.backward()  # type: ignore[no-untyped-call]
        return float(found.loss.detach()), found.statistics, logprobs_T.detach()


def _summarize(parts: Sequence[dict[str, float]], tokens: int) -> dict[str, float]:
    """Turn sums over the tokens of micro-batches into means; losses add up, extremes stay extremes."""
    metrics: dict[str, float] = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        if name.endswith(("/min", "/max")):
            metrics[name] = _join(name)(values)
        else:
            metrics[name] = sum(values) if name == "loss" else sum(values) / tokens
    reported = 1 - metrics[MISSING]
    metrics[DIFFERENCE] = metrics[DIFFERENCE] / reported if reported else math.nan
    return metrics


def _join(name: str) -> Callable[[Iterable[float]], float]:
    """Return how values of a metric become one."""
    if name.endswith("/min"):
        return min
    return max if name.endswith("/max") else mean


def _place(results: list[torch.Tensor], rows: Sequence[Row], flat_T: torch.Tensor) -> None:
    """Put the numbers of each completion where its sequence is in the batch."""
    indices = [index for row in rows for index in row.indices]
    lengths = [len(completion) for row in rows for completion in row.completions]
    for index, piece_T in zip(indices, flat_T.split(lengths), strict=True):
        results[index] = piece_T


def _checkpoint_activations(model: Any) -> None:
    """Turn gradient checkpointing on. Only its layers are put in training mode: dropout inside them stays off."""
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = True
