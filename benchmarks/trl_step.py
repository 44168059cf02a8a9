"""Tokens per second of an update: ours against the training step of TRL's GRPO trainer on the same samples.

Both get the embedded model in bfloat16 with float32 adapters on all linear layers, the same threads, micro-batches of
as many padded tokens, no gradient checkpointing, and samples that are already there, eight of each prompt. TRL may
choose its attention.
"""

import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch

from benchmarks import harness
from benchmarks.update_batch import LORA, UID, make_learner, make_samples
from trainer.config import LearningConfig
from trainer.domain import Sample
from trainer.model import resolve_model

_COUNT, _MICRO_BATCH, _GROUP, _REPEATS = 32, 8, 8, 3
_PROMPT, _COMPLETION = (80, 200), (8, 96)


def measure() -> dict[str, float]:
    """Return completion tokens per second by who updates; medians, the first update only warms up."""
    samples = make_samples(_COUNT, _PROMPT, _COMPLETION, per_prompt=_GROUP)
    advantages_S = torch.randn(_COUNT, generator=torch.Generator().manual_seed(1))
    tokens = sum(len(sample.completion_ids) for sample in samples)
    longest = max(len(s.prompt_ids) + len(s.completion_ids) for s in samples)
    learning = LearningConfig(advantage="grpo", micro_batch_tokens=_MICRO_BATCH * longest)
    learner = make_learner(learning, _COMPLETION[1])
    updates: dict[str, Callable[[], object]] = {
        "ours": lambda: learner.update(UID, samples, advantages_S, temperature=1.0)
    }
    for attention in ("eager", "sdpa"):
        step = TrlStep(attention, samples, advantages_S)
        updates[f"TRL, {attention} attention"] = step.run
    times: dict[str, list[float]] = {who: [] for who in updates}
    for _ in range(1 + _REPEATS):  # in turns, so that noise of the machine hits all
        for who, update in updates.items():
            start = time.monotonic()
            update()
            times[who].append(time.monotonic() - start)
    return {who: tokens / median(several[1:]) for who, several in times.items()}


class TrlStep:
    """TRL's GRPO trainer, fed with samples that it would otherwise generate."""

    def __init__(self, attention: str, samples: Sequence[Sample], advantages_S: torch.Tensor) -> None:
        warnings.simplefilter("ignore")
        from datasets import Dataset
        from peft import LoraConfig
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from trl import GRPOConfig, GRPOTrainer

        path = resolve_model("embedded")
        arguments = GRPOConfig(
            output_dir=tempfile.mkdtemp(), per_device_train_batch_size=_MICRO_BATCH, num_generations=_GROUP,
            gradient_accumulation_steps=_COUNT // _MICRO_BATCH, max_completion_length=_COMPLETION[1], report_to=[],
            use_cpu=True, bf16=True, gradient_checkpointing=False, loss_type="grpo", beta=0.0,
        )  # fmt: skip
        make_trainer: Any = GRPOTrainer
        self._trainer = make_trainer(
            model=AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, attn_implementation=attention),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": ["x"] * _COUNT}),
            processing_class=AutoTokenizer.from_pretrained(path),
            peft_config=LoraConfig(
                r=LORA.rank, lora_alpha=LORA.alpha, target_modules=list(LORA.target_modules), task_type="CAUSAL_LM"
            ),
        )
        self._trainer._prepare_inputs = lambda inputs: inputs
        self._trainer.current_gradient_accumulation_steps = _COUNT // _MICRO_BATCH
        self._parameters = [p for p in self._trainer.model.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(self._parameters, lr=1e-5)
        # TRL pads the whole generation batch, then splits it.
        self._batch = _pad(samples, advantages_S)

    def run(self) -> None:
        """Make one optimizer step."""
        model = self._trainer.model.train()
        for start in range(0, _COUNT, _MICRO_BATCH):
            inputs = {name: tensor[start : start + _MICRO_BATCH] for name, tensor in self._batch.items()}
            inputs["num_items_in_batch"] = self._batch["completion_mask"].sum()
            self._trainer.training_step(model, inputs, None)
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()


def _pad(samples: Sequence[Sample], advantages_S: torch.Tensor) -> dict[str, torch.Tensor]:
    prompts, completions = ([getattr(s, name) for s in samples] for name in ("prompt_ids", "completion_ids"))
    wide, long = max(map(len, prompts)), max(map(len, completions))
    return {
        "prompt_ids": torch.tensor([[0] * (wide - len(p)) + list(p) for p in prompts]),
        "prompt_mask": torch.tensor([[0] * (wide - len(p)) + [1] * len(p) for p in prompts]),
        "completion_ids": torch.tensor([list(c) + [0] * (long - len(c)) for c in completions]),
        "completion_mask": torch.tensor([[1] * len(c) + [0] * (long - len(c)) for c in completions]),
        "advantages": advantages_S,
    }


def report(speeds: dict[str, float]) -> dict[str, Any]:
    """Print the table; returns the figures."""
    rows = [(who, f"{speed:.0f}", f"{speeds['ours'] / speed:.2f}") for who, speed in speeds.items()]
    harness.print_table("completion tokens per second of an update", ("who", "tokens/s", "ours against it"), rows)
    fastest = max(speed for who, speed in speeds.items() if who != "ours")
    return {
        "update_tok_s": {who: round(speed, 1) for who, speed in speeds.items()},
        "update_ratio_to_trl": round(speeds["ours"] / fastest, 2),
    }
