"""What a run will need in memory, from the model's config alone, before anything is loaded.

An estimate, meant to be right within a third: weights and slots are exact, activations are a rule of thumb
(docs/results/trainer.md compares it with measurements).
"""

from dataclasses import dataclass
from typing import Any

from trainer.config import ConfigError, TrainerConfig

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_ADAM_COPIES = 3  # float32 weights and two moments
_GRADIENT_COPIES = 1  # only of the adapter that is being updated
# Values per token and layer that the backward pass needs, in units of the hidden and the intermediate size.
_HIDDEN_KEPT, _INTERMEDIATE_KEPT = 12, 5
_LOGIT_COPIES = 3  # float32 logits, probabilities, and their product with the head in flight
_PROCESS_BYTES = 1 << 30  # Python, torch, vLLM: two processes


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a causal language model."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool

    @classmethod
    def of(cls, config: Any) -> "Shape":
        """Read a config of transformers."""
        heads = config.num_attention_heads
        return cls(
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=heads,
            kv_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            vocabulary=config.vocab_size,
            tied=bool(config.tie_word_embeddings),
        )

    @property
    def linear_sizes(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of the linear layers that every block has."""
        inner, outer = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q_proj": (self.hidden, inner),
            "k_proj": (self.hidden, outer),
            "v_proj": (self.hidden, outer),
            "o_proj": (inner, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }

    @property
    def parameters(self) -> int:
        """Number of parameters, norms and biases left out."""
        block = sum(inputs * outputs for inputs, outputs in self.linear_sizes.values())
        return self.layers * block + self.vocabulary * self.hidden * (1 if self.tied else 2)

    def count_adapter(self, rank: int, targets: tuple[str, ...]) -> int:
        """Number of parameters of one adapter."""
        sizes = self.linear_sizes
        return self.layers * rank * sum(sum(sizes[name]) for name in targets if name in sizes)


def estimate(
    shape: Shape, config: TrainerConfig, *, learner_bytes: int, sampler_bytes: int | None = None
) -> dict[str, int]:
    """Return bytes by purpose.

    Args:
        learner_bytes: bytes per parameter of the base in the learner.
        sampler_bytes: what the sampler takes at least, all in all; None is what it needs.
    """
    learning = config.learning
    members = config.population.teachers + config.population.students
    adapter = shape.count_adapter(config.lora.rank, config.lora.target_modules)
    slot = shape.count_adapter(config.served_rank, config.lora.target_modules)
    kept = _HIDDEN_KEPT * shape.hidden + _INTERMEDIATE_KEPT * shape.intermediate
    layers_kept = 1 if learning.gradient_checkpointing else shape.layers
    per_token = layers_kept * kept + (shape.layers * shape.hidden if learning.gradient_checkpointing else 0)
    sampler_width = _BYTES[config.model.sampler_dtype]
    sampler = {
        "base in the sampler": shape.parameters * sampler_width,
        "adapter slots of the sampler": config.max_loras * slot * sampler_width,
    }
    kv_cache_bytes = config.rollout.kv_cache_bytes
    if sampler_bytes is not None:
        kv_cache_bytes = max(0, sampler_bytes - sum(sampler.values()))
    needs = {
        "base in the learner": shape.parameters * learner_bytes,
        "adapters and optimizers": members * adapter * 4 * _ADAM_COPIES,
        "gradients of one adapter": adapter * 4 * _GRADIENT_COPIES,
        "activations of a micro-batch": learning.micro_batch_tokens * per_token * learner_bytes,
        "logits of a chunk": learning.logit_chunk_tokens * shape.vocabulary * 4 * _LOGIT_COPIES,
        **sampler,
        "keys and values": kv_cache_bytes,
        "processes": _PROCESS_BYTES,
    }
    if config.rollout.sleep:
        sampling = needs["base in the sampler"] + needs["keys and values"]
        learning_now = (
            needs["gradients of one adapter"] + needs["activations of a micro-batch"] + needs["logits of a chunk"]
        )
        needs["used in turns"] = -min(sampling, learning_now)
    return needs


def check_fits(needs: dict[str, int], available_bytes: int, where: str) -> None:
    """Refuse a run that cannot fit.

    Raises:
        ConfigError: names the largest needs and what to change.
    """
    total = sum(needs.values())
    if total <= available_bytes:
        return
    largest = sorted(needs.items(), key=lambda item: -item[1])[:3]
    raise ConfigError(
        f"this run needs about {_gib(total)} of memory, {where} has {_gib(available_bytes)}: "
        + ", ".join(f"{name} {_gib(size)}" for name, size in largest)
        + ". Use a smaller model.name, learning.micro_batch_tokens, lora.rank or population, "
        "learning.gradient_checkpointing=true, or another machine; run.check_memory=false tries nevertheless"
    )


def describe(needs: dict[str, int], available_bytes: int, where: str) -> list[str]:
    """Return one line per purpose and the total."""
    lines = [f"{name:<30} {_gib(size):>10}" for name, size in needs.items()]
    return [*lines, f"{'total':<30} {_gib(sum(needs.values())):>10}   of {_gib(available_bytes)} in {where}"]


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
