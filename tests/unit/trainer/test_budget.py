"""The memory estimate, by hand, and the refusal of a run that cannot fit."""

import json
from pathlib import Path

import pytest
import torch

from trainer import budget
from trainer.config import ConfigError, load_config
from trainer.model import load_config as load_model_config
from trainer.startup import Watcher, check_memory

ROOT = Path(__file__).parents[3]
# The sizes of Qwen2.5-Coder-7B, from its public config.json.
QWEN = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "tie_word_embeddings": False, "max_position_embeddings": 32768,
}  # fmt: skip


@pytest.fixture
def qwen(tmp_path: Path) -> Path:
    """A folder with a config and no weights: a budget needs no more."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    return tmp_path


def test_parameters_of_model_and_adapter_are_counted_exactly(qwen: Path) -> None:
    """Per block: q and o 3584 x 3584, k and v 3584 x 512, gate, up and down 3584 x 18944.

    28 blocks x 233,046,016 + 2 x 152064 x 3584 = 7,615,283,200 (7.62 B as published, norms and biases left out).
    Rank 32: 28 x 32 x (2 x 7168 + 2 x 4096 + 3 x 22528) = 80,740,352, as others count for this model.
    """
    shape = budget.Shape.of(load_model_config(str(qwen)))
    assert shape.parameters == 7_615_283_200
    assert shape.count_adapter(32, load_config([]).lora.target_modules) == 80_740_352


def test_the_published_setting_fits_a_gpu_of_80_gb_and_not_one_of_24(qwen: Path) -> None:
    config = load_config([ROOT / "configs/paper.yaml"])
    shape = budget.Shape.of(load_model_config(str(qwen)))
    needs = budget.estimate(shape, config, learner_bytes=2, sampler_bytes=int(0.6 * (80 << 30)))
    assert needs["base in the learner"] == 7_615_283_200 * 2
    # 8 adapters, three float32 copies each.
    assert needs["adapters and optimizers"] == 8 * 80_740_352 * 12
    budget.check_fits(needs, 80 << 30, "the GPU")
    with pytest.raises(ConfigError, match=r"needs about .* the GPU has 24\.00 GiB"):
        budget.check_fits(needs, 24 << 30, "the GPU")


def test_taking_turns_saves_the_smaller_of_what_each_needs(qwen: Path) -> None:
    shape = budget.Shape.of(load_model_config(str(qwen)))
    config = load_config([ROOT / "configs/paper.yaml"])
    both = budget.estimate(shape, load_config([ROOT / "configs/paper.yaml"], ["rollout.sleep=false"]), learner_bytes=2)
    turns = budget.estimate(shape, config, learner_bytes=2)
    sampling = both["base in the sampler"] + both["keys and values"]
    learning = sum(both[n] for n in ("gradients of one adapter", "activations of a micro-batch", "logits of a chunk"))
    assert sum(both.values()) - sum(turns.values()) == min(sampling, learning)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_a_run_that_cannot_fit_is_refused_with_its_budget_before_anything_is_loaded(qwen: Path) -> None:
    lines: list[str] = []
    config = load_config([ROOT / "configs/paper.yaml"], [f"model.name={qwen}", "rollout.sleep=false", "lora.rank=512"])
    with pytest.raises(ConfigError, match=r"learning\.gradient_checkpointing=true.*run\.check_memory=false"):
        check_memory(config, Watcher(lines.append, lambda *_: None))
    assert any("base in the learner" in line and "14.18 GiB" in line for line in lines)  # 7.615e9 x 2 / 2^30
    assert "total" in lines[-1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_sleep_without_a_gpu_is_refused_by_name(qwen: Path) -> None:
    config = load_config([], [f"model.name={qwen}", "rollout.sleep=true"])
    with pytest.raises(ConfigError, match=r"rollout\.sleep needs a GPU"):
        check_memory(config, Watcher(lambda line: None, lambda *_: None))
