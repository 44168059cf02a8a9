"""Advantages, losses and log-probabilities against numbers computed by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import LearningConfig, LoraConfig
from trainer.domain import Role, Sample, TaskKind
from trainer.learning.advantages import center_groups, grpo, reinforce_pp_baseline
from trainer.learning.learner import Learner, hash_weights
from trainer.learning.logprobs import TokenSequence, compute_logprobs, plan_micro_batches
from trainer.learning.losses import clipped_policy_loss

# --- advantages ----------------------------------------------------------------------------------------------


def test_reinforce_pp_baseline_by_hand() -> None:
    # Groups a: 1, -1 (mean 0) and b: 1, 0 (mean 0.5): centred 1, -1, 0.5, -0.5.
    # Lengths 1, 1, 2, 4 of 8 tokens: mean = (1 - 1 + 2*0.5 - 4*0.5) / 8 = -1/8.
    # Variance = (1*(9/8)^2 + 1*(7/8)^2 + 2*(5/8)^2 + 4*(3/8)^2) / 8 = (81 + 49 + 50 + 36) / 64 / 8 = 216/512.
    found = reinforce_pp_baseline(torch.tensor([1.0, -1.0, 1.0, 0.0]), ["a", "a", "b", "b"], torch.tensor([1, 1, 2, 4]))
    std = math.sqrt(216 / 512)
    assert found.tolist() == pytest.approx([1.125 / std, -0.875 / std, 0.625 / std, -0.375 / std])


def test_a_batch_without_differences_inside_groups_teaches_nothing() -> None:
    found = reinforce_pp_baseline(
        torch.tensor([1.0, 1.0, -1.0, -1.0]), ["a", "a", "b", "b"], torch.tensor([3, 4, 5, 6])
    )
    assert found.tolist() == [0.0] * 4


def test_grpo_by_hand() -> None:
    # Rewards 1, 0, 0: mean 1/3, unbiased variance (4/9 + 1/9 + 1/9) / 2 = 1/3. A group of one has 0.
    found = grpo(torch.tensor([1.0, 0.0, 0.0, 5.0]), ["a", "a", "a", "b"], torch.ones(4))
    std = math.sqrt(1 / 3) + 1e-4
    assert found.tolist() == pytest.approx([2 / 3 / std, -1 / 3 / std, -1 / 3 / std, 0.0])


rewards = st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=20)


@given(rewards, st.floats(-5, 5))
def test_a_constant_added_to_a_groups_rewards_changes_nothing(
    batch: list[tuple[float, int, int]], shift: float
) -> None:
    values, groups, lengths = (list(column) for column in zip(*batch, strict=True))
    plain = reinforce_pp_baseline(torch.tensor(values, dtype=torch.float64), groups, torch.tensor(lengths))
    moved = [v + shift * (g == 0) for v, g in zip(values, groups, strict=True)]
    shifted = reinforce_pp_baseline(torch.tensor(moved, dtype=torch.float64), groups, torch.tensor(lengths))
    assert torch.allclose(plain, shifted, atol=1e-4, rtol=1e-3)


@given(rewards)
def test_every_group_is_centred_on_zero(batch: list[tuple[float, int, int]]) -> None:
    values, groups, _ = (list(column) for column in zip(*batch, strict=True))
    centred = center_groups(torch.tensor(values, dtype=torch.float64), groups)
    for group in set(groups):
        assert sum(c for c, g in zip(centred.tolist(), groups, strict=True) if g == group) == pytest.approx(0, abs=1e-9)


# --- the loss ------------------------------------------------------------------------------------------------


def loss_of(now: list[float], old: list[float], sampler: list[float], advantages: list[float]):
    return clipped_policy_loss(
        torch.tensor(now, requires_grad=True),
        torch.tensor(old),
        torch.tensor(sampler),
        torch.tensor(advantages),
        clip_low=0.2,
        clip_high=0.28,
        importance_cap=2.0,
    )


def test_the_clipped_loss_by_hand() -> None:
    # ratio 1.5, A 1: min(1.5, 1.28) = 1.28, clipped.   ratio 0.5, A 1: min(0.5, 0.8) = 0.5.
    # ratio 1.5, A -1: min(-1.5, -1.28) = -1.5.          ratio 0.5, A -1: min(-0.5, -0.8) = -0.8, clipped.
    up, down = math.log(1.5), math.log(0.5)
    found = loss_of([up, down, up, down], [0.0] * 4, [0.0] * 4, [1.0, 1.0, -1.0, -1.0])
    assert found.loss_sum.item() == pytest.approx(-(1.28 + 0.5 - 1.5 - 0.8))
    assert found.clipped_sum == 2


def test_importance_weights_are_truncated_and_measured() -> None:
    # old - sampler = log 3, log 0.5: weights min(3, 2) = 2 and 0.5; ratio 1, A 1: loss = -(2 + 0.5).
    found = loss_of([0.0, 0.0], [0.0, 0.0], [-math.log(3), math.log(2)], [1.0, 1.0])
    assert found.loss_sum.item() == pytest.approx(-2.5)
    assert (found.weight_max, found.weight_sum) == pytest.approx((2.0, 2.5))
    assert found.difference_max == pytest.approx(math.log(3))


def test_the_gradient_at_ratio_one_is_weight_times_advantage() -> None:
    now = torch.tensor([-1.0, -2.0], requires_grad=True)
    found = clipped_policy_loss(
        now,
        now.detach(),
        torch.tensor([-1.0, -2.0 + math.log(2)]),
        torch.tensor([3.0, 4.0]),
        clip_low=0.2,
        clip_high=0.2,
        importance_cap=2.0,
    )
    found.loss_sum.backward()
    assert now.grad.tolist() == pytest.approx([-3.0, -2.0])  # weights 1 and 0.5


# --- log-probabilities and the learner (a tiny random model) --------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        attn_implementation="eager",
    )
    return LlamaForCausalLM(config).eval()


def make_learner(model, **learning) -> Learner:
    import copy

    return Learner(copy.deepcopy(model), lora=LoraConfig(rank=4, alpha=8), learning=LearningConfig(**learning))


SEQUENCES = [
    TokenSequence((1, 2, 3), (4, 5, 2)),
    TokenSequence((7,), (8, 9, 10, 11, 12)),
    TokenSequence((5, 6, 7, 8), (2,)),
]


def test_log_probabilities_are_those_of_a_plain_forward_pass(tiny) -> None:
    found = compute_logprobs(tiny, SEQUENCES, temperature=0.7).split([3, 5, 1])
    for sequence, ours in zip(SEQUENCES, found, strict=True):
        ids = torch.tensor([sequence.prompt_ids + sequence.completion_ids])
        logits = tiny(input_ids=ids).logits[0] / 0.7
        start = len(sequence.prompt_ids) - 1
        expected = torch.log_softmax(logits[start:-1], -1).gather(1, torch.tensor(sequence.completion_ids)[:, None])[
            :, 0
        ]
        assert torch.allclose(ours, expected, atol=1e-5)


def test_micro_batches_hold_every_sequence_once_within_the_budget() -> None:
    sequences = [TokenSequence((1,) * n, (1,)) for n in (3, 50, 7, 7, 20, 4)]
    batches = plan_micro_batches(sequences, 24)
    assert sorted(i for batch in batches for i in batch) == list(range(6))
    for batch in batches:
        assert len(batch) == 1 or max(len(sequences[i]) for i in batch) * len(batch) <= 24


def make_samples(rewards: list[float]) -> list[Sample]:
    return [
        Sample(
            member="t00",
            version=0,
            role=Role.STUDENT,
            kind=TaskKind.DEDUCTION,
            group="g",
            prompt_ids=(1, 2, 3 + i),
            completion_ids=tuple(range(4, 4 + i + 2)),
            logprobs=(-4.5,) * (i + 2),
            finish_reason="stop",
            text="",
            reward=r,
        )
        for i, r in enumerate(rewards)
    ]


def test_an_update_touches_its_own_adapter_and_nothing_else(tiny) -> None:
    learner = make_learner(tiny)
    for uid in ("t00", "t01"):
        learner.add(uid, seed=1)
    base = hash_weights({n: p for n, p in learner._base.named_parameters() if "lora" not in n})
    before = {uid: hash_weights(learner.get_weights(uid)) for uid in ("t00", "t01")}
    learner.update("t00", make_samples([1.0, -1.0]), torch.tensor([1.0, -1.0]), temperature=1.0)
    assert hash_weights(learner.get_weights("t00")) != before["t00"]
    assert hash_weights(learner.get_weights("t01")) == before["t01"]
    assert base == hash_weights({n: p for n, p in learner._base.named_parameters() if "lora" not in n})


def test_an_update_raises_what_was_rewarded(tiny) -> None:
    learner = make_learner(tiny, learning_rate=1e-2)
    learner.add("t00", seed=1)
    samples = make_samples([1.0, -1.0])
    sequences = [TokenSequence(s.prompt_ids, s.completion_ids) for s in samples]

    def totals() -> list[float]:
        return [float(p.sum()) for p in learner.compute_logprobs("t00", sequences, temperature=1.0)]

    before = totals()
    for _ in range(3):
        learner.update("t00", samples, torch.tensor([1.0, -1.0]), temperature=1.0)
    after = totals()
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_micro_batches_do_not_change_the_update(tiny) -> None:
    """Neither the gradient (its norm is reported) nor the weights; Adam alone would hide a wrong denominator."""
    norms, weights = [], []
    for tokens in (64, 2048):
        learner = make_learner(tiny, micro_batch_tokens=tokens)
        learner.add("t00", seed=1)
        many = make_samples([1.0, -1.0, 0.5, -0.5] * 5)
        found = learner.update("t00", many, torch.tensor([s.reward for s in many]), temperature=1.0)
        norms.append(found["grad_norm"])
        weights.append(learner.get_weights("t00"))
    assert norms[0] == pytest.approx(norms[1], rel=1e-3)
    assert all(torch.allclose(weights[0][n], weights[1][n], atol=1e-4) for n in weights[0])


def test_samples_without_advantage_still_count_in_the_mean(tiny) -> None:
    """Two samples of 2 and 3 tokens, the second with advantage 0: the loss is divided by 5 tokens, not by 2."""
    learner = make_learner(tiny)
    learner.add("t00", seed=1)
    samples = make_samples([1.0, 0.0])
    sequence = TokenSequence(samples[0].prompt_ids, samples[0].completion_ids)
    ours = learner.compute_logprobs("t00", [sequence], temperature=1.0)[0]
    weights = (ours + 4.5).exp().clamp_max(2.0)
    found = learner.update("t00", samples, torch.tensor([1.0, 0.0]), temperature=1.0)
    assert found["loss"] == pytest.approx(-float(weights.sum()) / 5, rel=1e-4)


def test_a_batch_of_zero_advantages_is_skipped(tiny) -> None:
    learner = make_learner(tiny)
    learner.add("t00", seed=1)
    before = hash_weights(learner.get_weights("t00"))
    assert learner.update("t00", make_samples([1.0, 1.0]), torch.zeros(2), temperature=1.0) == {"skipped": 1.0}
    assert hash_weights(learner.get_weights("t00")) == before


def test_a_fresh_adapter_is_the_base_model(tiny) -> None:
    learner = make_learner(tiny)
    learner.add("t00", seed=1)
    ours = learner.compute_logprobs("t00", SEQUENCES, temperature=1.0)
    plain = compute_logprobs(tiny, SEQUENCES, temperature=1.0).split([3, 5, 1])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, plain, strict=True))


def test_an_adapter_of_another_rank_is_refused_by_name(tiny) -> None:
    learner = make_learner(tiny)
    learner.add("t00", seed=1)
    wrong = {name: torch.zeros(2, 2) for name in learner.get_weights("t00")}
    with pytest.raises(ValueError, match=r"lora\.rank"):
        learner.set_weights("t00", wrong)


def test_saved_adapters_load_in_stock_peft(tiny, tmp_path) -> None:
    import copy

    from peft import PeftModel

    learner = make_learner(tiny, learning_rate=1e-2)
    learner.add("t00", seed=1)
    learner.update("t00", make_samples([1.0, -1.0]), torch.tensor([1.0, -1.0]), temperature=1.0)
    content = learner.save_adapter("t00", tmp_path / "adapter")
    assert content == hash_weights(learner.get_weights("t00"))
    stock = PeftModel.from_pretrained(copy.deepcopy(tiny), str(tmp_path / "adapter")).eval()
    theirs = compute_logprobs(stock.base_model.model, SEQUENCES, temperature=1.0).split([3, 5, 1])
    ours = learner.compute_logprobs("t00", SEQUENCES, temperature=1.0)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs, strict=True))


def test_optimizer_state_survives_save_and_load(tiny) -> None:
    """Two updates in a row equal one update, a move of all state to another learner, and one update."""
    samples, advantages = make_samples([1.0, -1.0]), torch.tensor([1.0, -1.0])
    straight, moved = make_learner(tiny, learning_rate=1e-2), make_learner(tiny, learning_rate=1e-2)
    straight.add("t00", seed=1)
    straight.update("t00", samples, advantages, temperature=1.0)
    weights, moments = straight.get_weights("t00"), straight.get_optimizer_tensors("t00")
    straight.update("t00", samples, advantages, temperature=1.0)
    moved.add("t00", seed=2)
    moved.set_weights("t00", weights)
    moved.set_optimizer_tensors("t00", moments)
    moved.update("t00", samples, advantages, temperature=1.0)
    assert hash_weights(moved.get_weights("t00")) == hash_weights(straight.get_weights("t00"))
