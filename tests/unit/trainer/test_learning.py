"""Log-probabilities and updates of a tiny random model."""

import pytest
import torch

from trainer.config import LearningConfig, LoraConfig
from trainer.domain import Role, Sample, TaskKind
from trainer.learning.adapters import hash_weights
from trainer.learning.learner import Learner
from trainer.learning.logprobs import TokenSequence, pack_rows, plan_micro_batches
from trainer.learning.logprobs import score_tokens as score_rows


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
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def make_learner(model, **learning) -> Learner:
    import copy

    return Learner(
        copy.deepcopy(model), lora=LoraConfig(rank=4, alpha=8), learning=LearningConfig(**learning), max_new_tokens=8
    )


SEQUENCES = [
    TokenSequence((1, 2, 3), (4, 5, 2)),
    TokenSequence((7,), (8, 9, 10, 11, 12)),
    TokenSequence((5, 6, 7, 8), (2,)),
]


def score_tokens(model, sequences: list[TokenSequence], *, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Each sequence in a row of its own, in order."""
    return score_rows(model, [pack_rows([sequence])[0] for sequence in sequences], temperature=temperature)


def test_packed_completions_are_scored_as_if_they_were_alone(tiny) -> None:
    """Three completions of one prompt and one of another; only the work is shared, gradients included."""
    sequences = [
        TokenSequence((1, 2, 3), (4, 5, 2)), TokenSequence((7, 8), (9, 10)), TokenSequence((1, 2, 3), (6,)),
        TokenSequence((1, 2, 3), (4, 5, 9, 2)),
    ]  # fmt: skip
    rows = pack_rows(sequences)
    assert [row.indices for row in rows] == [(0, 2, 3), (1,)]
    assert [len(row) for row in rows] == [3 + 8, 4]
    learner = make_learner(tiny)
    add_shaken(learner)
    gradients = []
    for batch, order in ((rows, [0, 2, 3, 1]), ([pack_rows([s])[0] for s in sequences], [0, 1, 2, 3])):
        logprobs_T, entropies_T = score_rows(learner._model, batch, temperature=0.7, entropy_gradient=True)
        lengths = [len(sequences[i].completion_ids) for i in order]
        pieces = dict(zip(order, logprobs_T.split(lengths), strict=True))
        entropies = dict(zip(order, entropies_T.split(lengths), strict=True))
        loss = sum((i + 1) * (pieces[i].sum() + entropies[i].square().sum()) for i in range(4))
        loss.backward()
        parameters = learner.adapters._adapters["t00"].parameters
        gradients.append({n: p.grad.clone() for n, p in parameters.items()})
        learner.adapters.forget_gradients("t00")
        plain = torch.cat([pieces[i] for i in range(4)])
        assert torch.allclose(plain, score_tokens(learner._model, sequences, temperature=0.7)[0], atol=1e-5)
    assert all(torch.allclose(gradients[0][n], gradients[1][n], rtol=1e-3, atol=1e-5) for n in gradients[0])


def test_long_completions_are_not_packed_without_end() -> None:
    """A row is at most twice as long as its longest sequence (here 1100), or 512 tokens."""
    long = [TokenSequence((1,) * 100, (5,) * 1000)] * 8
    assert [len(row) for row in pack_rows(long)] == [2100] * 4
    short = [TokenSequence((1,) * 100, (5,) * 10)] * 100
    assert [len(row) for row in pack_rows(short)] == [510, 510, 280]


def test_log_probabilities_are_those_of_a_plain_forward_pass(tiny) -> None:
    found = score_tokens(tiny, SEQUENCES, temperature=0.7)[0].split([3, 5, 1])
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
    assert sorted(i for batch in batches for row in batch for i in row.indices) == list(range(6))
    for batch in batches:
        assert len(batch) == 1 or max(map(len, batch)) * len(batch) <= 24


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
        learner.adapters.add(uid, seed=1)
    base = hash_weights({n: p for n, p in learner._model.named_parameters() if "lora" not in n})
    before = {uid: hash_weights(learner.adapters.get_weights(uid)) for uid in ("t00", "t01")}
    learner.update("t00", make_samples([1.0, -1.0]), torch.tensor([1.0, -1.0]), temperature=1.0)
    assert hash_weights(learner.adapters.get_weights("t00")) != before["t00"]
    assert hash_weights(learner.adapters.get_weights("t01")) == before["t01"]
    assert base == hash_weights({n: p for n, p in learner._model.named_parameters() if "lora" not in n})


def test_an_update_raises_what_was_rewarded(tiny) -> None:
    learner = make_learner(tiny, learning_rate=1e-2)
    learner.adapters.add("t00", seed=1)
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


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"importance": "sequence_truncate", "kl_coefficient": 0.1, "entropy_coefficient": 0.01},
        {"advantage": "dr_grpo", "entropy_coefficient": 0.1},
        {"epochs": 2, "advantage": "grpo"},
    ],
)
def test_micro_batches_and_chunks_do_not_change_the_update(tiny, settings: dict) -> None:
    """Neither the gradient (its norm is reported) nor the weights; Adam alone would hide a wrong denominator."""
    norms, weights = [], []
    for tokens, chunk in ((64, 256), (2048, 256), (2048, 3), (64, 1)):
        learner = make_learner(tiny, micro_batch_tokens=tokens, logit_chunk_tokens=chunk, **settings)
        add_shaken(learner)
        many = make_samples([1.0, -1.0, 0.5, -0.5] * 5)
        found = learner.update("t00", many, torch.tensor([s.reward for s in many]), temperature=1.0)
        norms.append(found["grad_norm"])
        weights.append(learner.adapters.get_weights("t00"))
    assert norms == pytest.approx([norms[0]] * len(norms), rel=1e-3)
    for other in weights[1:]:
        assert all(torch.allclose(weights[0][n], other[n], atol=1e-4) for n in weights[0])


def add_shaken(learner: Learner, uid: str = "t00") -> None:
    """Add an adapter that differs from the base, so that references and divergences are not trivial."""
    learner.adapters.add(uid, seed=1)
    generator = torch.Generator().manual_seed(2)
    weights = learner.adapters.get_weights(uid)
    learner.adapters.set_weights(uid, {n: torch.randn(w.shape, generator=generator) * 0.2 for n, w in weights.items()})


def score(learner: Learner, uid: str | None, samples: list[Sample]) -> list[torch.Tensor]:
    sequences = [TokenSequence(s.prompt_ids, s.completion_ids) for s in samples]
    return learner.compute_logprobs(uid, sequences, temperature=1.0)


def test_the_reference_is_the_base_and_not_the_adapter(tiny) -> None:
    learner = make_learner(tiny)
    add_shaken(learner)
    samples = make_samples([1.0, 0.0])
    sequences = [TokenSequence(s.prompt_ids, s.completion_ids) for s in samples]
    plain = score_tokens(tiny, sequences, temperature=1.0)[0]
    assert torch.allclose(torch.cat(score(learner, None, samples)), plain, atol=1e-5)
    assert float((torch.cat(score(learner, "t00", samples)) - plain).abs().max()) > 0.01


def test_a_divergence_also_holds_samples_without_advantage(tiny) -> None:
    """2 and 3 tokens, advantages 1 and 0: loss = (sum of -c over the first + 0.5 sum of k3 over both) / 5."""
    learner = make_learner(tiny, kl_coefficient=0.5)
    add_shaken(learner)
    samples = make_samples([1.0, 0.0])
    ours, base = (torch.cat(score(learner, uid, samples)) for uid in ("t00", None))
    divergence = (base - ours).exp() - (base - ours) - 1
    weights = (ours[:2] + 4.5).exp().clamp_max(2.0)
    found = learner.update("t00", samples, torch.tensor([1.0, 0.0]), temperature=1.0)
    assert found["loss"] == pytest.approx(float(-weights.sum() + 0.5 * divergence.sum()) / 5, rel=1e-4)
    assert found["kl"] == pytest.approx(float(divergence.mean()), rel=1e-4)


def test_a_divergence_is_learned_from_even_if_no_reward_differs(tiny) -> None:
    learner = make_learner(tiny, kl_coefficient=0.5)
    add_shaken(learner)
    assert "loss" in learner.update("t00", make_samples([1.0, 1.0]), torch.zeros(2), temperature=1.0)


def test_a_second_epoch_takes_its_ratio_to_the_policy_before_the_first(tiny) -> None:
    """Two epochs equal two updates, the second told the log-probabilities from before the first.

    The longest sample comes first, so that micro-batches change the order.
    """
    samples, advantages = make_samples([1.0, -1.0, 0.5])[::-1], torch.tensor([1.0, -1.0, 0.5])
    settings = {"learning_rate": 0.05, "clip_low": 0.05, "clip_high": 0.05, "importance": "off"}
    both, single = make_learner(tiny, epochs=2, **settings), make_learner(tiny, **settings)
    for learner in (both, single):
        add_shaken(learner)
    old = score(single, "t00", samples)
    found = both.update("t00", samples, advantages, temperature=1.0)
    first = single.update("t00", samples, advantages, temperature=1.0)
    second = single.update("t00", samples, advantages, temperature=1.0, old=old)
    weights = [learner.adapters.get_weights("t00") for learner in (both, single)]
    assert all(torch.allclose(weights[0][n], weights[1][n], atol=1e-5) for n in weights[0])
    assert second["clip_ratio/region_mean"] > 0
    assert found["clip_ratio/region_mean"] == pytest.approx(second["clip_ratio/region_mean"] / 2)
    assert found["grad_norm"] == pytest.approx((first["grad_norm"] + second["grad_norm"]) / 2, rel=1e-3)
    assert found["num_tokens"] == 2 * first["num_tokens"] == 2 * 9


def test_gradient_checkpointing_changes_no_number(tiny) -> None:
    norms = []
    for checkpointing in (False, True):
        learner = make_learner(tiny, gradient_checkpointing=checkpointing)
        add_shaken(learner)
        found = learner.update("t00", make_samples([1.0, -1.0]), torch.tensor([1.0, -1.0]), temperature=1.0)
        norms.append((found["loss"], found["grad_norm"]))
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_a_bfloat16_base_gives_nearly_the_numbers_of_a_float32_one(tiny) -> None:
    import copy

    found = []
    for dtype in (torch.float32, torch.bfloat16):
        learner = make_learner(copy.deepcopy(tiny).to(dtype))
        assert len(score(learner, None, make_samples([1.0]))) == 1  # also before there is an adapter
        add_shaken(learner)
        metrics = learner.update("t00", make_samples([1.0, -1.0]), torch.tensor([1.0, -1.0]), temperature=1.0)
        found.append([metrics["loss"], metrics["grad_norm"], metrics["entropy"]])
        assert all(w.dtype is torch.float32 for w in learner.adapters.get_weights("t00").values())
    assert found[0] == pytest.approx(found[1], rel=0.1)
    assert found[0][2] == pytest.approx(found[1][2], rel=2e-3)  # entropies are summed in float32


def test_gradients_are_clipped_to_their_norm(tiny) -> None:
    """Adam's first moment after one step is (1 - 0.9) times the clipped gradient."""
    learner = make_learner(tiny)
    learner.adapters.add("t00", seed=1)
    for parameter in learner.adapters._adapters["t00"].parameters.values():
        parameter.grad = torch.ones_like(parameter)
    count = sum(w.numel() for w in learner.adapters.get_weights("t00").values())
    assert learner.adapters.step("t00", max_grad_norm=0.5) == pytest.approx(count**0.5)
    moments = [t for n, t in learner.adapters.get_optimizer_tensors("t00").items() if n.startswith("exp_avg|")]
    assert sum(float(m.square().sum()) for m in moments) ** 0.5 == pytest.approx(0.1 * 0.5, rel=1e-3)


def test_a_gradient_that_is_no_number_changes_nothing_and_is_said(tiny) -> None:
    learner = make_learner(tiny)
    add_shaken(learner)
    before = hash_weights(learner.adapters.get_weights("t00"))
    found = learner.update("t00", make_samples([1.0, -1.0]), torch.tensor([float("inf"), -1.0]), temperature=1.0)
    assert found == {"skipped": 1.0, "nonfinite_grad": 1.0}
    assert hash_weights(learner.adapters.get_weights("t00")) == before
    assert learner.adapters.get_optimizer_tensors("t00") == {}
    assert "loss" in learner.update("t00", make_samples([1.0, -1.0]), torch.tensor([1.0, -1.0]), temperature=1.0)


def test_a_batch_whose_tokens_are_all_masked_does_not_move_by_momentum(tiny) -> None:
    learner = make_learner(tiny, importance="sequence_mask", importance_cap=1.5, importance_floor=0.5)
    add_shaken(learner)
    samples, advantages = make_samples([1.0, -1.0]), torch.tensor([1.0, -1.0])
    for sample, ours in zip(samples, score(learner, "t00", samples), strict=True):
        sample.logprobs = tuple(ours.tolist())
    assert "loss" in learner.update("t00", samples, advantages, temperature=1.0)
    before = hash_weights(learner.adapters.get_weights("t00"))
    for sample in samples:
        sample.logprobs = tuple(p - 9.0 for p in sample.logprobs)
    found = learner.update("t00", samples, advantages, temperature=1.0)
    assert found == {"skipped": 1.0, "sampling/masked_fraction": 1.0}
    assert hash_weights(learner.adapters.get_weights("t00")) == before


def test_differences_to_the_sampler_are_measured_where_it_reported_numbers(tiny) -> None:
    learner = make_learner(tiny)
    add_shaken(learner)
    (sample,) = make_samples([1.0])
    ours = score(learner, "t00", [sample])[0].tolist()
    sample.logprobs = (ours[0] - 0.25, float("nan"))
    found = learner.update("t00", [sample], torch.tensor([1.0]), temperature=1.0)
    assert found["sampling/sampling_logp_difference/mean"] == pytest.approx(0.25, rel=1e-3)
    assert found["sampling/missing_fraction"] == 0.5
    sample.logprobs = (float("nan"), float("nan"))
    found = learner.update("t00", [sample], torch.tensor([1.0]), temperature=1.0)
    assert found["sampling/sampling_logp_difference/mean"] != found["sampling/sampling_logp_difference/mean"]


def test_samples_without_advantage_still_count_in_the_mean(tiny) -> None:
    """Two samples of 2 and 3 tokens, the second with advantage 0: the loss is divided by 5 tokens, not by 2."""
    learner = make_learner(tiny)
    learner.adapters.add("t00", seed=1)
    samples = make_samples([1.0, 0.0])
    sequence = TokenSequence(samples[0].prompt_ids, samples[0].completion_ids)
    ours = learner.compute_logprobs("t00", [sequence], temperature=1.0)[0]
    weights = (ours + 4.5).exp().clamp_max(2.0)
    found = learner.update("t00", samples, torch.tensor([1.0, 0.0]), temperature=1.0)
    assert found["loss"] == pytest.approx(-float(weights.sum()) / 5, rel=1e-4)


def test_a_batch_of_zero_advantages_is_skipped(tiny) -> None:
    learner = make_learner(tiny)
    learner.adapters.add("t00", seed=1)
    before = hash_weights(learner.adapters.get_weights("t00"))
    assert learner.update("t00", make_samples([1.0, 1.0]), torch.zeros(2), temperature=1.0) == {"skipped": 1.0}
    assert hash_weights(learner.adapters.get_weights("t00")) == before


def test_a_fresh_adapter_is_the_base_model(tiny) -> None:
    learner = make_learner(tiny)
    learner.adapters.add("t00", seed=1)
    ours = learner.compute_logprobs("t00", SEQUENCES, temperature=1.0)
    plain = score_tokens(tiny, SEQUENCES, temperature=1.0)[0].split([3, 5, 1])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, plain, strict=True))


def test_an_adapter_of_another_rank_is_refused_by_name(tiny) -> None:
    learner = make_learner(tiny)
    learner.adapters.add("t00", seed=1)
    wrong = {name: torch.zeros(2, 2) for name in learner.adapters.get_weights("t00")}
    with pytest.raises(ValueError, match=r"lora\.rank"):
        learner.adapters.set_weights("t00", wrong)


def test_saved_adapters_load_in_stock_peft(tiny, tmp_path) -> None:
    import copy

    from peft import PeftModel

    learner = make_learner(tiny, learning_rate=1e-2)
    learner.adapters.add("t00", seed=1)
    learner.update("t00", make_samples([1.0, -1.0]), torch.tensor([1.0, -1.0]), temperature=1.0)
    content = learner.adapters.save("t00", tmp_path / "adapter")
    assert content == hash_weights(learner.adapters.get_weights("t00"))
    stock = PeftModel.from_pretrained(copy.deepcopy(tiny), str(tmp_path / "adapter")).eval()
    theirs = score_tokens(stock.base_model.model, SEQUENCES, temperature=1.0)[0].split([3, 5, 1])
    ours = learner.compute_logprobs("t00", SEQUENCES, temperature=1.0)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs, strict=True))


def test_optimizer_state_survives_save_and_load(tiny) -> None:
    """Two updates in a row equal one update, a move of all state to another learner, and one update."""
    samples, advantages = make_samples([1.0, -1.0]), torch.tensor([1.0, -1.0])
    straight, moved = make_learner(tiny, learning_rate=1e-2), make_learner(tiny, learning_rate=1e-2)
    straight.adapters.add("t00", seed=1)
    straight.update("t00", samples, advantages, temperature=1.0)
    weights, moments = straight.adapters.get_weights("t00"), straight.adapters.get_optimizer_tensors("t00")
    straight.update("t00", samples, advantages, temperature=1.0)
    moved.adapters.add("t00", seed=2)
    moved.adapters.set_weights("t00", weights)
    moved.adapters.set_optimizer_tensors("t00", moments)
    moved.update("t00", samples, advantages, temperature=1.0)
    assert hash_weights(moved.adapters.get_weights("t00")) == hash_weights(straight.adapters.get_weights("t00"))
