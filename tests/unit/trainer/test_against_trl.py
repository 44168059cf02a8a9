"""Our loss and its gradient against an independent implementation, TRL's GRPO trainer, on the same model and tensors."""

import copy

import pytest
import torch

from trainer.config import LearningConfig, LoraConfig
from trainer.domain import Role, Sample, TaskKind
from trainer.learning.learner import Learner

pytestmark = pytest.mark.filterwarnings("ignore")
TEMPERATURE = 0.7
LENGTHS = [(3, 5), (6, 2), (2, 7), (4, 1)]  # tokens of prompt and completion
ADVANTAGES = [1.5, -0.5, -1.0, 0.25]
MAX_TOKENS = 8


@pytest.fixture(scope="module")
def model():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, attn_implementation="eager", pad_token_id=0, eos_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def make_learner(model, **settings: object) -> Learner:
    learning = LearningConfig(micro_batch_tokens=64, clip_dual=None, max_grad_norm=1e9, **settings)
    learner = Learner(
        copy.deepcopy(model), lora=LoraConfig(rank=4, alpha=8), learning=learning, max_new_tokens=MAX_TOKENS
    )
    learner.adapters.add("t00", seed=1)
    generator = torch.Generator().manual_seed(2)
    weights = learner.adapters.get_weights("t00")
    learner.adapters.set_weights(
        "t00", {n: torch.randn(w.shape, generator=generator) * 0.2 for n, w in weights.items()}
    )
    return learner


def make_samples(learner: Learner) -> list[Sample]:
    """Random tokens; the sampler's log-probabilities are off by up to 1."""
    generator = torch.Generator().manual_seed(3)
    samples = []
    for prompt, completion in LENGTHS:
        ids = torch.randint(3, 97, (prompt + completion,), generator=generator).tolist()
        sample = Sample(
            member="t00", version=0, role=Role.STUDENT, kind=TaskKind.DEDUCTION, group="g",
            prompt_ids=tuple(ids[:prompt]), completion_ids=tuple(ids[prompt:]), logprobs=(0.0,) * completion,
            finish_reason="stop", text="", reward=0.0,
        )  # fmt: skip
        samples.append(sample)
    sequences = [learner_sequence(sample) for sample in samples]
    for sample, ours in zip(samples, learner.compute_logprobs("t00", sequences, temperature=TEMPERATURE), strict=True):
        noise = torch.rand(len(ours), generator=generator) * 2 - 1
        sample.logprobs = tuple((ours + noise).tolist())
    return samples


def learner_sequence(sample: Sample):
    from trainer.learning.logprobs import TokenSequence

    return TokenSequence(sample.prompt_ids, sample.completion_ids)


def make_trl(model, folder, *, beta: float = 0.0, **settings: object):
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{i}": i for i in range(3, 97)}}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<pad>")), eos_token="</s>", pad_token="<pad>"
    )
    arguments = GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=4, num_generations=4, max_completion_length=MAX_TOKENS,
        report_to=[], use_cpu=True, bf16=False, beta=0.0, epsilon=0.2, epsilon_high=0.28, temperature=TEMPERATURE, **settings,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["w3"] * 4}),
        processing_class=tokenizer,
    )
    trainer.model.eval()  # no accumulation to divide by
    trainer.beta = beta
    return trainer


def pad(rows: list[tuple], *, left: bool = False, value: float = 0) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor(
        [[value] * (width - len(r)) + list(r) if left else [*r, *[value] * (width - len(r))] for r in rows]
    )


def compute_trl(trainer, learner: Learner, samples: list[Sample], *, old: list, reference: list, importance: bool):
    """Return TRL's loss on our adapter and the gradients it leaves there."""
    prompts, completions = [s.prompt_ids for s in samples], [s.completion_ids for s in samples]
    inputs = {
        "prompt_ids": pad(prompts, left=True),
        "prompt_mask": pad([(1,) * len(p) for p in prompts], left=True),
        "completion_ids": pad(completions),
        "completion_mask": pad([(1,) * len(c) for c in completions]),
        "advantages": torch.tensor(ADVANTAGES),
        "num_items_in_batch": torch.tensor(float(sum(map(len, completions)))),
        "old_per_token_logps": pad([tuple(o.tolist()) for o in old]),
        "ref_per_token_logps": pad([tuple(r.tolist()) for r in reference]),
    }
    if importance:
        trainer.use_vllm, trainer.vllm_importance_sampling_correction = True, True
        sampler = pad([s.logprobs for s in samples])
        inputs["importance_sampling_ratio"] = (inputs["old_per_token_logps"] - sampler).exp().clamp(max=2.0)
    learner.adapters.activate("t00")
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    return float(loss), take_gradients(learner)


def take_gradients(learner: Learner) -> dict[str, torch.Tensor]:
    found = {}
    for name, parameter in learner.adapters._adapters["t00"].parameters.items():
        found[name] = parameter.grad.clone()
        parameter.grad = None
    return found


CASES = {
    "grpo": ({"loss_type": "grpo"}, {"advantage": "grpo"}),
    "dr_grpo": ({"loss_type": "dr_grpo"}, {"advantage": "dr_grpo"}),
    "token mean (dapo)": ({"loss_type": "dapo"}, {"advantage": "reinforce_pp_baseline"}),
    "grpo with a divergence": (
        {"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False},
        {"advantage": "grpo", "kl_coefficient": 0.04},
    ),
    "grpo with a weighted divergence": (
        {"loss_type": "grpo", "beta": 0.04},
        {"advantage": "grpo", "kl_coefficient": 0.04, "kl_estimator": "k3_weighted"},
    ),
    "importance weights": ({"loss_type": "dapo"}, {"advantage": "reinforce_pp_baseline"}),
    "entropy bonus": (
        {"loss_type": "dapo", "entropy_coef": 0.1},
        {"advantage": "reinforce_pp_baseline", "entropy_coefficient": 0.1},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_are_those_of_trl(model, tmp_path, case: str) -> None:
    """Also where the ratio is not 1 and clips: the old log-probabilities are those of a slightly different adapter."""
    theirs, ours = CASES[case]
    importance = case == "importance weights"
    learner = make_learner(model, **ours, importance="token_truncate" if importance else "off")
    samples = make_samples(learner)
    sequences = [learner_sequence(sample) for sample in samples]
    old = [
        p + 0.3 * torch.sin(torch.arange(len(p)))
        for p in learner.compute_logprobs("t00", sequences, temperature=TEMPERATURE)
    ]
    reference = learner.compute_logprobs(None, sequences, temperature=TEMPERATURE)
    loss, gradients = compute_trl(
        make_trl(learner.adapters._peft, tmp_path, **theirs),
        learner,
        samples,
        old=old,
        reference=reference,
        importance=importance,
    )
    found, own = compute_ours(learner, samples, old)
    assert found == pytest.approx(loss, rel=1e-4, abs=1e-6)
    assert any(float(g.abs().max()) > 1e-4 for g in gradients.values())
    for name, gradient in gradients.items():
        assert torch.allclose(own[name], gradient, rtol=1e-3, atol=1e-6), name


def compute_ours(learner: Learner, samples: list[Sample], old: list[torch.Tensor]):
    """Make an update whose optimizer step is replaced by taking the gradients."""
    taken = {}

    def take(uid: str, **_: object) -> float:
        taken.update(take_gradients(learner))
        return 1.0

    learner.adapters.step = take
    found = learner.update("t00", samples, torch.tensor(ADVANTAGES), temperature=TEMPERATURE, old=old)
    return found["loss"], taken
