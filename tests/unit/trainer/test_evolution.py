"""Weight-space operators: exact in B A, whatever the factors."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.evolution import lowrank, operators
from trainer.evolution.lowrank import LowRank

SEEDS = st.integers(0, 2**31 - 1)


def draw(seed: int, rank: int = 3, rows: int = 7, columns: int = 5) -> LowRank:
    generator = torch.Generator().manual_seed(seed)
    return LowRank(
        torch.randn(rank, columns, generator=generator, dtype=torch.float64),
        torch.randn(rows, rank, generator=generator, dtype=torch.float64),
    )


def full(low: LowRank) -> torch.Tensor:
    return low.b_OR @ low.a_RI


def noise(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(SEEDS, st.floats(-2, 2), st.floats(-2, 2))
@settings(deadline=None)
def test_combination_is_the_combination_of_the_full_matrices(seed: int, x: float, y: float) -> None:
    one, two = draw(seed), draw(seed + 1)
    assert torch.allclose(full(lowrank.combine([(x, one), (y, two)])), x * full(one) + y * full(two), atol=1e-9)


@given(SEEDS)
@settings(deadline=None)
def test_truncation_is_the_best_approximation_and_reports_its_error(seed: int) -> None:
    stacked = lowrank.combine([(1.0, draw(seed)), (1.0, draw(seed + 1))])
    small, error = lowrank.truncate(stacked, 3)
    u, s, v = torch.linalg.svd(full(stacked))
    best = u[:, :3] @ torch.diag(s[:3]) @ v[:3]
    assert torch.allclose(full(small), best, atol=1e-8)
    assert error == pytest.approx(float(s[3:].norm() / s.norm()), abs=1e-9)


@given(SEEDS)
@settings(deadline=None)
def test_the_norm_is_that_of_the_full_matrix(seed: int) -> None:
    low = draw(seed)
    assert lowrank.measure_norm(low) == pytest.approx(float(full(low).norm()))


def test_truncation_to_a_larger_rank_keeps_the_update() -> None:
    small, error = lowrank.truncate(draw(1), 6)
    assert small.rank == 6
    assert torch.allclose(full(small), full(draw(1)), atol=1e-9)
    assert error == 0.0


@given(SEEDS, st.floats(0.01, 0.5))
@settings(deadline=None)
def test_a_mutation_has_the_stated_strength(seed: int, strength: float) -> None:
    parent = {"m": draw(seed), "n": draw(seed + 9)}
    child = operators.mutate_gaussian(parent, strength=strength, generator=noise())
    for module in parent:
        distance = (full(child.update[module]) - full(parent[module])).norm() / full(parent[module]).norm()
        # To first order the distance is `strength`; the second-order term is at most about its square.
        assert strength - 2 * strength**2 <= float(distance) <= strength + 2 * strength**2
        assert child.update[module].rank == 3


def test_a_mutation_does_not_depend_on_how_the_parent_is_factored() -> None:
    low, turn = draw(3), torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=noise(5))).Q * 4.0
    same = LowRank(torch.linalg.inv(turn) @ low.a_RI, low.b_OR @ turn)
    one = operators.mutate_gaussian({"m": low}, strength=0.1, generator=noise()).update["m"]
    two = operators.mutate_gaussian({"m": same}, strength=0.1, generator=noise()).update["m"]
    assert torch.allclose(full(one), full(two), atol=1e-8)


def test_extrapolation_by_hand() -> None:
    # Rank 1, one by one: weaker 2, fitter 3, eta 1.5: 2 + 1.5 (3 - 2) = 3.5.
    one = LowRank(torch.tensor([[1.0]], dtype=torch.float64), torch.tensor([[2.0]], dtype=torch.float64))
    two = LowRank(torch.tensor([[3.0]], dtype=torch.float64), torch.tensor([[1.0]], dtype=torch.float64))
    child = operators.cross_extrapolate({"m": one}, {"m": two}, eta=1.5)
    assert full(child.update["m"]).item() == pytest.approx(3.5)
    assert child.details["norm_ratio"] == pytest.approx(3.5 / 3)


@given(SEEDS)
@settings(deadline=None)
def test_crossing_a_parent_with_itself_gives_the_parent(seed: int) -> None:
    parent = {"m": draw(seed)}
    for cross in operators.CROSSOVERS.values():
        child = cross(parent, parent, eta=1.3)
        assert torch.allclose(full(child.update["m"]), full(parent["m"]), atol=1e-8)
        assert child.details["truncation_error"] == pytest.approx(0, abs=1e-9)


def test_the_norm_of_a_child_is_capped() -> None:
    parent = {"m": draw(1)}
    grown = operators.Child({"m": lowrank.scale(parent["m"], 3.0)}, {"truncation_error": 0.0, "norm_ratio": 3.0})
    capped = operators.cap_norm(grown, parent, 1.5)
    assert capped.details["norm_ratio"] == pytest.approx(1.5)


def test_zero_adapters_do_not_evolve() -> None:
    zero = {"m": LowRank(draw(1).a_RI, torch.zeros(7, 3, dtype=torch.float64))}
    with pytest.raises(operators.NotEvolvableError):
        operators.mutate_gaussian(zero, strength=0.1, generator=noise())
    with pytest.raises(operators.NotEvolvableError):
        operators.cross_extrapolate(zero, zero, eta=1.2)


def test_an_adapter_survives_reading_and_writing() -> None:
    weights = {"x.lora_A.weight": torch.randn(3, 5), "x.lora_B.weight": torch.randn(7, 3)}
    again = lowrank.write_update(lowrank.read_update(weights))
    assert all(torch.equal(weights[name], again[name]) for name in weights)
