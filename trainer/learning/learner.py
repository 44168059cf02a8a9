"""The learner: one frozen base model, every member's adapter on it, one optimizer per adapter.

Exactly one adapter is active per forward and backward pass. Parameter lists are taken when an adapter is made, so
that the optimizer of one member can never touch another.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import get_peft_model
from peft.helpers import disable_input_dtype_casting
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import save_file

from trainer.config import ConfigError, LearningConfig, LoraConfig
from trainer.domain import Sample
from trainer.learning.logprobs import TokenSequence, compute_logprobs, plan_micro_batches
from trainer.learning.losses import clipped_policy_loss

_BETAS = (0.9, 0.999)
Weights = dict[str, torch.Tensor]


class LearningError(RuntimeError):
    """An update made no sense numerically; the weights are as before."""


@dataclass(slots=True)
class _Adapter:
    parameters: dict[str, torch.nn.Parameter]
    optimizer: torch.optim.AdamW = field(repr=False)


class Learner:
    """Holds base, adapters and optimizers.

    Args:
        model: causal language model of transformers; frozen here.
        lora: shape of every adapter.
        learning: how updates are made.
    """

    def __init__(self, model: Any, *, lora: LoraConfig, learning: LearningConfig) -> None:
        self._base = model
        self._learning = learning
        self._peft_config = PeftLoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            target_modules=list(lora.target_modules),
            lora_dropout=0.0,
            bias="none",
            task_type="CAUSAL_LM",
        )
        self._peft: Any = None
        self._adapters: dict[str, _Adapter] = {}
        model.requires_grad_(False)

    # --- adapters ------------------------------------------------------------------------------------------

    def add(self, uid: str, *, seed: int) -> None:
        """Make a fresh adapter: A random, B zero, so the member begins as the base model."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                if self._peft is None:
                    self._peft = get_peft_model(self._base, self._peft_config, adapter_name=uid)
                else:
                    self._peft.add_adapter(uid, self._peft_config)
            except ValueError as error:
                raise ConfigError(f"lora.target_modules do not fit this model: {error}") from error
        self._peft.set_adapter(uid)
        marker = f".{uid}."
        parameters = {
            name.replace(marker, "."): parameter
            for name, parameter in self._peft.named_parameters()
            if marker in name and "lora_" in name
        }
        self._adapters[uid] = _Adapter(parameters, self._make_optimizer(parameters))

    def drop(self, uid: str) -> None:
        """Forget an adapter and its optimizer."""
        del self._adapters[uid]
        if len(self._adapters) > 0:
            self._peft.set_adapter(next(iter(self._adapters)))
        self._peft.delete_adapter(uid)

    def get_weights(self, uid: str) -> Weights:
        """Return a copy of an adapter's tensors by PEFT name."""
        state = get_peft_model_state_dict(self._peft, adapter_name=uid)
        return {name: tensor.detach().clone().cpu().contiguous() for name, tensor in state.items()}

    def set_weights(self, uid: str, weights: Mapping[str, torch.Tensor]) -> None:
        """Overwrite an adapter; its optimizer starts anew, because its moments belong to other weights.

        Raises:
            ValueError: the tensors do not fit this population's rank and modules.
        """
        expected = {name: tuple(tensor.shape) for name, tensor in self.get_weights(uid).items()}
        got = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        if expected != got:
            wrong = next((n for n in expected if got.get(n) != expected[n]), None) or next(iter(got.keys() - expected))
            raise ValueError(
                f"adapter tensor {wrong} has shape {got.get(wrong)}, this run needs {expected.get(wrong)}: "
                "lora.rank or lora.target_modules differ"
            )
        set_peft_model_state_dict(self._peft, dict(weights), adapter_name=uid)
        adapter = self._adapters[uid]
        adapter.optimizer = self._make_optimizer(adapter.parameters)

    def save_adapter(self, uid: str, folder: Path) -> str:
        """Write an adapter in PEFT format; returns the hash of its tensors."""
        weights = self.get_weights(uid)
        folder.mkdir(parents=True)
        save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        self._peft.peft_config[uid].save_pretrained(str(folder))
        return hash_weights(weights)

    # --- optimizer state -----------------------------------------------------------------------------------

    def get_optimizer_tensors(self, uid: str) -> Weights:
        """Return the moments and step counts of an adapter's optimizer as named tensors."""
        adapter = self._adapters[uid]
        tensors: Weights = {}
        for name, parameter in adapter.parameters.items():
            for key, value in adapter.optimizer.state.get(parameter, {}).items():
                tensors[f"{key}|{name}"] = torch.as_tensor(value).detach().clone().cpu().contiguous()
        return tensors

    def set_optimizer_tensors(self, uid: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore what `get_optimizer_tensors` returned."""
        adapter = self._adapters[uid]
        for key, tensor in tensors.items():
            kind, name = key.split("|", 1)
            parameter = adapter.parameters[name]
            adapter.optimizer.state[parameter][kind] = tensor.clone() if kind == "step" else tensor.to(parameter.device)

    def _make_optimizer(self, parameters: Mapping[str, torch.nn.Parameter]) -> torch.optim.AdamW:
        rate = self._learning.learning_rate
        return torch.optim.AdamW(parameters.values(), lr=rate, betas=_BETAS, weight_decay=0.0)

    # --- learning ------------------------------------------------------------------------------------------

    def compute_logprobs(
        self, uid: str, sequences: Sequence[TokenSequence], *, temperature: float
    ) -> list[torch.Tensor]:
        """Return log-probabilities per sequence, [T] each, without gradient."""
        self._activate(uid)
        results: list[torch.Tensor] = [torch.empty(0)] * len(sequences)
        with torch.no_grad(), self._precision():
            for batch in plan_micro_batches(sequences, self._learning.micro_batch_tokens):
                chosen = [sequences[i] for i in batch]
                flat_T = compute_logprobs(self._base, chosen, temperature=temperature)
                pieces = flat_T.split([len(s.completion_ids) for s in chosen])
                for index, piece in zip(batch, pieces, strict=True):
                    results[index] = piece
        return results

    def update(
        self, uid: str, samples: Sequence[Sample], advantages_S: torch.Tensor, *, temperature: float
    ) -> dict[str, float]:
        """Make one optimizer step on a member's samples; returns metrics, or `skipped` if there is nothing to learn.

        Raises:
            LearningError: the gradient is not finite.

        The loss is the mean over all completion tokens of the batch, whatever the micro-batches. With a single step
        per batch the old log-probabilities are the current ones, so no extra forward pass is needed.
        """
        kept = [i for i, advantage in enumerate(advantages_S.tolist()) if advantage != 0.0]
        if not kept:
            return {"skipped": 1.0}
        chosen = [samples[i] for i in kept]
        sequences = [TokenSequence(sample.prompt_ids, sample.completion_ids) for sample in chosen]
        # Samples without an advantage still count in the mean.
        num_tokens = sum(len(sample.completion_ids) for sample in samples)
        self._activate(uid)
        totals = {"loss": 0.0, "clip_fraction": 0.0, "importance_mean": 0.0, "logp_difference_mean": 0.0}
        maxima = {"importance_max": 0.0, "logp_difference_max": 0.0}
        for batch in plan_micro_batches(sequences, self._learning.micro_batch_tokens):
            part = self._backward(
                [chosen[i] for i in batch], advantages_S[[kept[i] for i in batch]], temperature, num_tokens
            )
            for name in totals:
                totals[name] += part[name]
            for name in maxima:
                maxima[name] = max(maxima[name], part[name])
        learned = sum(len(sample.completion_ids) for sample in chosen)
        means = {name: value / learned for name, value in totals.items() if name != "loss"}
        return {"loss": totals["loss"], **means, **maxima, "grad_norm": self._step(uid), "tokens": float(num_tokens)}

    def _backward(
        self, samples: Sequence[Sample], advantages_B: torch.Tensor, temperature: float, num_tokens: int
    ) -> dict[str, float]:
        sequences = [TokenSequence(sample.prompt_ids, sample.completion_ids) for sample in samples]
        with self._precision():
            logprobs_T = compute_logprobs(self._base, sequences, temperature=temperature)
        sampler_T = torch.tensor([p for sample in samples for p in sample.logprobs]).to(logprobs_T)
        lengths_B = torch.tensor([len(sample.completion_ids) for sample in samples])
        loss = clipped_policy_loss(
            logprobs_T,
            logprobs_T.detach(),
            sampler_T,
            advantages_B.repeat_interleave(lengths_B).to(logprobs_T),
            clip_low=self._learning.clip_low,
            clip_high=self._learning.clip_high,
            importance_cap=self._learning.importance_cap,
        )
        (loss.loss_sum / num_tokens).backward()  # type: ignore[no-untyped-call]
        return {
            "loss": float(loss.loss_sum.detach()) / num_tokens,
            "clip_fraction": loss.clipped_sum,
            "importance_mean": loss.weight_sum,
            "importance_max": loss.weight_max,
            "logp_difference_mean": loss.difference_sum,
            "logp_difference_max": loss.difference_max,
        }

    def imitate(self, uid: str, sequences: Sequence[TokenSequence], *, learning_rate: float) -> float:
        """Make one supervised step on completions; returns the mean loss per token."""
        self._activate(uid)
        num_tokens = sum(len(sequence.completion_ids) for sequence in sequences)
        total = 0.0
        for batch in plan_micro_batches(sequences, self._learning.micro_batch_tokens):
            with self._precision():
                logprobs_T = compute_logprobs(self._base, [sequences[i] for i in batch], temperature=1.0)
            loss = -logprobs_T.sum() / num_tokens
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        self._step(uid, learning_rate)
        return total

    def _step(self, uid: str, learning_rate: float | None = None) -> float:
        """Clip, step, clear; returns the gradient norm before clipping."""
        adapter = self._adapters[uid]
        adapter.optimizer.param_groups[0]["lr"] = learning_rate or self._learning.learning_rate
        norm = torch.nn.utils.clip_grad_norm_(list(adapter.parameters.values()), self._learning.max_grad_norm)
        if torch.isfinite(norm):
            adapter.optimizer.step()
        adapter.optimizer.zero_grad(set_to_none=True)
        if not torch.isfinite(norm):
            raise LearningError(f"the gradient of {uid} is {float(norm)}; its weights are unchanged")
        return float(norm)

    def _activate(self, uid: str) -> None:
        self._peft.set_adapter(uid)

    @contextmanager
    def _precision(self) -> Iterator[None]:
        """With a bfloat16 base, cast the small fp32 adapters down instead of every activation up (twice as fast)."""
        if self._base.dtype is not torch.bfloat16:
            yield
            return
        with disable_input_dtype_casting(self._peft), torch.autocast(self._base.device.type, dtype=torch.bfloat16):
            yield


def hash_weights(weights: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of tensors by name and bytes."""
    state = hashlib.sha256()
    for name in sorted(weights):
        state.update(name.encode())
        state.update(weights[name].detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
