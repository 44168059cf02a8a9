"""All members' adapters on one frozen base model, each with an optimizer of its own.

Exactly one adapter is active per forward and backward pass. Parameter lists are taken when an adapter is made, so
that the optimizer of one member can never touch another.
"""

import hashlib
from collections.abc import Iterator, Mapping
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

from trainer.config import ConfigError, LoraConfig

_BETAS = (0.9, 0.999)
Weights = dict[str, torch.Tensor]


@dataclass(slots=True)
class _Adapter:
    parameters: dict[str, torch.nn.Parameter]
    optimizer: torch.optim.AdamW = field(repr=False)


class AdapterBank:
    """Makes, activates, reads, writes and forgets adapters by uid.

    Args:
        model: causal language model of transformers; frozen here.
        lora: shape of every adapter.
        learning_rate: of every optimizer.
    """

    def __init__(self, model: Any, lora: LoraConfig, *, learning_rate: float) -> None:
        self.model = model
        self._learning_rate = learning_rate
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

    def __contains__(self, uid: str) -> bool:
        return uid in self._adapters

    def add(self, uid: str, *, seed: int) -> None:
        """Make a fresh adapter: A random, B zero, so the member begins as the base model.

        Raises:
            ConfigError: the model has none of `lora.target_modules`.
        """
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            try:
                if self._peft is None:
                    self._peft = get_peft_model(self.model, self._peft_config, adapter_name=uid)
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
        if self._adapters:
            self._peft.set_adapter(next(iter(self._adapters)))
        self._peft.delete_adapter(uid)

    def activate(self, uid: str) -> None:
        """Let the next passes go through this adapter, and only its gradients flow."""
        self._peft.set_adapter(uid)

    @contextmanager
    def base(self) -> Iterator[None]:
        """Passes inside go through the frozen base alone: the reference policy needs no second model."""
        if self._peft is None:
            yield
            return
        with self._peft.disable_adapter():
            yield

    @contextmanager
    def precision(self) -> Iterator[None]:
        """With a bfloat16 base, cast the small fp32 adapters down instead of every activation up (twice as fast)."""
        if self.model.dtype is not torch.bfloat16 or self._peft is None:
            yield
            return
        with disable_input_dtype_casting(self._peft), torch.autocast(self.model.device.type, dtype=torch.bfloat16):
            yield

    # --- weights -------------------------------------------------------------------------------------------

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

    def save(self, uid: str, folder: Path) -> str:
        """Write an adapter in PEFT format; returns the hash of its tensors."""
        weights = self.get_weights(uid)
        folder.mkdir(parents=True)
        save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        self._peft.peft_config[uid].save_pretrained(str(folder))
        return hash_weights(weights)

    # --- optimizers ----------------------------------------------------------------------------------------

    def step(self, uid: str, *, max_grad_norm: float, learning_rate: float | None = None) -> float:
        """Clip the adapter's gradients, make an optimizer step, clear; returns the norm before clipping.

        A norm that is not finite changes no weight.
        """
        adapter = self._adapters[uid]
        rate = self._learning_rate if learning_rate is None else learning_rate
        adapter.optimizer.param_groups[0]["lr"] = rate
        norm = torch.nn.utils.clip_grad_norm_(list(adapter.parameters.values()), max_grad_norm)
        if torch.isfinite(norm):
            adapter.optimizer.step()
        adapter.optimizer.zero_grad(set_to_none=True)
        return float(norm)

    def forget_gradients(self, uid: str) -> None:
        """Clear what `step` would have used."""
        self._adapters[uid].optimizer.zero_grad(set_to_none=True)

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
        return torch.optim.AdamW(parameters.values(), lr=self._learning_rate, betas=_BETAS, weight_decay=0.0)


def hash_weights(weights: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of tensors by name and bytes."""
    state = hashlib.sha256()
    for name in sorted(weights):
        state.update(name.encode())
        state.update(weights[name].detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
