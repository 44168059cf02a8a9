"""Advantages against numbers computed by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.learning.advantages import compute_advantages, dr_grpo, find_uniform, grpo, reinforce_pp_baseline, trr_pp


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
    found = grpo(torch.tensor([1.0, 0.0, 0.0, 5.0]), ["a", "a", "a", "b"])
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
    centred = dr_grpo(torch.tensor(values, dtype=torch.float64), groups)
    for group in set(groups):
        assert sum(c for c, g in zip(centred.tolist(), groups, strict=True) if g == group) == pytest.approx(0, abs=1e-9)


def test_dr_grpo_by_hand() -> None:
    # Group a: 1, 0, 0 minus 1/3; a group of one has 0.
    found = dr_grpo(torch.tensor([1.0, 0.0, 0.0, 5.0]), ["a", "a", "a", "b"])
    assert found.tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3, 0.0])


def test_trr_pp_by_hand() -> None:
    # Task x: rewards 1, -1 with 1 and 3 tokens: mean (1 - 3) / 4 = -0.5; variance (1.5^2 + 3 * 0.5^2) / 4 = 0.75.
    # Task y: rewards 0.5, 0.5: nothing differs. Groups play no part.
    found = trr_pp(torch.tensor([1.0, 0.5, -1.0, 0.5]), ["x", "y", "x", "y"], torch.tensor([1, 2, 3, 4]))
    std = math.sqrt(0.75)
    assert found.tolist() == pytest.approx([1.5 / std, 0.0, -0.5 / std, 0.0])


@pytest.mark.parametrize("estimator", [dr_grpo, grpo])
def test_equal_rewards_give_exactly_zero_and_not_what_rounding_leaves(estimator) -> None:
    """The float32 mean of eight times 0.7 is not 0.7, and an optimizer scales whatever is left."""
    assert estimator(torch.tensor([0.7] * 8), ["a"] * 8).tolist() == [0.0] * 8


def test_uniform_groups_are_found() -> None:
    found = find_uniform(torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0]), ["a", "b", "b", "a", "c"])
    assert found.tolist() == [True, False, False, True, True]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dr_grpo", [0.5, -0.5, 0.0]),
        ("grpo", [0.5 / (math.sqrt(0.5) + 1e-4), -0.5 / (math.sqrt(0.5) + 1e-4), 0.0]),
        # One token each: mean 0, variance (0.25 + 0.25 + 0) / 3.
        ("reinforce_pp_baseline", [0.5 / math.sqrt(0.5 / 3), -0.5 / math.sqrt(0.5 / 3), 0.0]),
        # Task x: 1 and 0; task y alone.
        ("trr_pp", [1.0, -1.0, 0.0]),
    ],
)
def test_every_estimator_is_chosen_by_its_name(name: str, expected: list[float]) -> None:
    found = compute_advantages(
        name,
        torch.tensor([1.0, 0.0, 1.0]),
        groups_S=["a", "a", "b"],
        kinds_S=["x", "x", "y"],
        lengths_S=torch.tensor([1, 1, 1]),
    )
    assert found.tolist() == pytest.approx(expected)
