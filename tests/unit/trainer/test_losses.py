"""The loss against numbers computed by hand."""

import math

import pytest
import torch

from trainer.config import LearningConfig
from trainer.learning.losses import TokenBatch, estimate_kl, policy_loss, weigh_samples

UP, DOWN = math.log(1.5), math.log(0.5)


def make_tokens(now: list[float], advantages: list[float], **changes: object) -> TokenBatch:
    count = len(now)
    values = {
        "entropies_T": torch.zeros(count),
        "old_logprobs_T": torch.zeros(count),
        "sampler_logprobs_T": torch.zeros(count),
        "weights_T": torch.ones(count),
        "lengths_B": torch.tensor([count]),
        "num_tokens": count,
    }
    tensors = {name: torch.tensor(value) if isinstance(value, list) else value for name, value in changes.items()}
    return TokenBatch(
        logprobs_T=torch.tensor(now, requires_grad=True), advantages_T=torch.tensor(advantages), **(values | tensors)
    )


def config(**settings: object) -> LearningConfig:
    return LearningConfig(clip_low=0.2, clip_high=0.28, **{"importance_cap": 2.0, "importance_floor": 0.5, **settings})


def test_the_clipped_loss_by_hand() -> None:
    # ratio 1.5, A 1: min(1.5, 1.28) = 1.28, clipped high.   ratio 0.5, A 1: min(0.5, 0.8) = 0.5.
    # ratio 1.5, A -1: min(-1.5, -1.28) = -1.5.              ratio 0.5, A -1: min(-0.5, -0.8) = -0.8, clipped low.
    # The sampler agrees with the old policy.
    found = policy_loss(make_tokens([UP, DOWN, UP, DOWN], [1.0, 1.0, -1.0, -1.0]), config())
    assert found.loss.item() == pytest.approx(-(1.28 + 0.5 - 1.5 - 0.8))
    assert found.statistics["clip_ratio/high_mean"] == 1
    assert found.statistics["clip_ratio/low_mean"] == 1


def test_the_dual_clip_bounds_what_a_negative_advantage_can_cost() -> None:
    # ratio 5, A -1: -5 without, -3 with a bound of 3. ratio 5, A 1: 1.28 in both.
    tokens = make_tokens([math.log(5), math.log(5)], [-1.0, 1.0])
    assert policy_loss(tokens, config(clip_dual=3.0)).loss.item() == pytest.approx(3 - 1.28)
    assert policy_loss(tokens, config(clip_dual=None)).loss.item() == pytest.approx(5 - 1.28)


def test_clipped_tokens_have_no_gradient() -> None:
    tokens = make_tokens([UP, DOWN, math.log(5)], [1.0, -1.0, -1.0])
    policy_loss(tokens, config()).loss.backward()
    assert tokens.logprobs_T.grad.tolist() == [0.0, 0.0, 0.0]


def test_the_gradient_at_ratio_one_is_weight_times_advantage() -> None:
    # Sampler twice as likely on the second token: its weight is 0.5.
    tokens = make_tokens([0.0, 0.0], [3.0, 4.0], sampler_logprobs_T=[0.0, math.log(2)])
    policy_loss(tokens, config()).loss.backward()
    assert tokens.logprobs_T.grad.tolist() == pytest.approx([-3.0, -2.0])


# Differences log 3, log 0.5 | log 1.5: per token 3, 0.5, 1.5; per sequence 1.5, 1.5.
DIFFERENCES = {"sampler_logprobs_T": [-math.log(3), math.log(2), -UP], "lengths_B": torch.tensor([2, 1])}


@pytest.mark.parametrize(
    ("importance", "expected"),
    [
        ("off", [1.0, 1.0, 1.0]),
        ("token_truncate", [2.0, 0.5, 1.5]),
        ("token_mask", [0.0, 0.5, 1.5]),
        ("sequence_truncate", [1.5, 1.5, 1.5]),
        ("sequence_mask", [1.5, 1.5, 1.5]),
    ],
)
def test_importance_corrections_by_hand(importance: str, expected: list[float]) -> None:
    tokens = make_tokens([0.0] * 3, [1.0, 2.0, 4.0], **DIFFERENCES)
    found = policy_loss(tokens, config(importance=importance))
    assert found.loss.item() == pytest.approx(-(expected[0] + 2 * expected[1] + 4 * expected[2]))
    assert found.statistics["sampling/importance_sampling_ratio/mean"] == pytest.approx(sum(expected))
    assert found.statistics["sampling/sampling_logp_difference/max"] == pytest.approx(math.log(3))


def test_a_sequence_outside_the_bounds_is_masked_whole() -> None:
    # Sum log 3 + log 0.25 = log 0.75 is inside [0.5, 2]; log 5 is not.
    changes = {"sampler_logprobs_T": [-math.log(3), math.log(4), -math.log(5)], "lengths_B": torch.tensor([2, 1])}
    found = policy_loss(make_tokens([0.0] * 3, [1.0] * 3, **changes), config(importance="sequence_mask"))
    assert found.loss.item() == pytest.approx(-1.5)


def test_a_number_the_sampler_did_not_report_is_not_corrected_for() -> None:
    found = policy_loss(make_tokens([0.0], [1.0], sampler_logprobs_T=[math.nan]), config())
    assert found.loss.item() == -1


def test_the_divergence_by_hand_and_its_gradient() -> None:
    # d = log ref - log pi = log 2: k3 = 2 - log 2 - 1, k2 = log(2)^2 / 2. Gradients: k3 1 - e^d = -1, k2 -d.
    now, reference = torch.tensor([0.0], requires_grad=True), torch.tensor([math.log(2)])
    for estimator, value, slope in (("k3", 1 - math.log(2), -1.0), ("k2", math.log(2) ** 2 / 2, -math.log(2))):
        now.grad = None
        found = estimate_kl(now, reference, estimator)
        found.sum().backward()
        assert found.item() == pytest.approx(value)
        assert now.grad.item() == pytest.approx(slope)


def test_divergence_and_entropy_enter_with_their_coefficients() -> None:
    tokens = make_tokens([0.0], [1.0], reference_logprobs_T=[math.log(2)], entropies_T=[0.7])
    found = policy_loss(tokens, config(kl_coefficient=0.1, entropy_coefficient=0.01))
    assert found.loss.item() == pytest.approx(-1 + 0.1 * (1 - math.log(2)) - 0.01 * 0.7)
    assert found.statistics["kl"] == pytest.approx(1 - math.log(2))


def test_the_entropy_is_a_mean_over_tokens_whatever_the_aggregation() -> None:
    # Two of the batch's five tokens are here: 0.1 * (0.7 + 0.3) / 5.
    tokens = make_tokens([0.0, 0.0], [0.0, 0.0], entropies_T=[0.7, 0.3], weights_T=[9.0, 9.0], num_tokens=5)
    assert policy_loss(tokens, config(entropy_coefficient=0.1)).loss.item() == pytest.approx(-0.02)


@pytest.mark.parametrize(
    ("importance", "bounds"),
    [("token_truncate", (0.5, 2.0)), ("token_mask", (0.5, 2.0)), ("sequence_mask", (0.0, 3.0))],
)
def test_bounds_that_are_not_given_fit_tokens_or_sequences(importance: str, bounds: tuple[float, float]) -> None:
    assert LearningConfig(importance=importance).importance_bounds == bounds
    assert LearningConfig(importance=importance, importance_cap=4, importance_floor=0.1).importance_bounds == (0.1, 4)


def test_masked_tokens_and_extremes_are_counted() -> None:
    tokens = make_tokens([0.0] * 3, [1.0, 2.0, 4.0], **DIFFERENCES)
    found = policy_loss(tokens, config(importance="token_mask")).statistics
    assert found["sampling/masked_fraction"] == 1
    assert found["sampling/importance_sampling_ratio/min"] == 0
    assert found["sampling/importance_sampling_ratio/max"] == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token_mean", [1 / 5, 1 / 5]),
        ("sequence_mean", [1 / (2 * 2), 1 / (2 * 3)]),
        ("constant", [1 / (2 * 8), 1 / (2 * 8)]),
    ],
)
def test_weights_of_two_samples_of_two_and_three_tokens(aggregation: str, expected: list[float]) -> None:
    assert weigh_samples(torch.tensor([2, 3]), aggregation, max_tokens=8).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("advantage", "expected"),
    [
        ("grpo", "sequence_mean"),
        ("dr_grpo", "constant"),
        ("reinforce_pp_baseline", "token_mean"),
        ("trr_pp", "token_mean"),
    ],
)
def test_an_estimator_brings_the_aggregation_it_was_published_with(advantage: str, expected: str) -> None:
    assert LearningConfig(advantage=advantage).resolved_aggregation == expected
    assert LearningConfig(advantage=advantage, aggregation="token_mean").resolved_aggregation == "token_mean"
