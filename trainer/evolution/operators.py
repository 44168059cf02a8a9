"""Mutations and crossovers of adapters. Names and formulas after the PopuLoRA operators (docs/algorithms.md).

Every operator works on weight updates B A, returns an adapter of the same rank, and reports what it did.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainer.evolution.lowrank import (
    LowRank,
    Update,
    combine,
    is_zero,
    measure_norm,
    measure_total_norm,
    scale,
    truncate,
)


class NotEvolvableError(ValueError):
    """An adapter is still zero: there is nothing to mutate or cross."""


@dataclass(frozen=True, slots=True)
class Child:
    """A new adapter and how far it is from its parent (of two: the fitter)."""

    update: Update
    details: dict[str, float]
    """`truncation_error` (largest relative error of a module), `distance` and `norm_ratio` to the parent."""


def mutate_gaussian(parent: Update, *, strength: float, generator: torch.Generator) -> Child:
    """M4, full Gaussian, tensor-adaptive: noise on both factors in proportion to their spread.

    Departures: it acts on the balanced factors, so that the result depends on B A and not on how it is factored,
    and the noise is scaled so that to first order |child - parent| = strength * |parent| for every module.

    Raises:
        NotEvolvableError: the parent is zero.
    """
    _require_nonzero(parent)
    child = {module: _add_noise(low, strength, generator) for module, low in parent.items()}
    return _finish(child, parent, 0.0)


def copy_parent(parent: Update, *, strength: float, generator: torch.Generator) -> Child:
    """Control: the child is the parent."""
    return _finish(dict(parent), parent, 0.0)


def cross_extrapolate(weaker: Update, fitter: Update, *, eta: float) -> Child:
    """X4, extrapolative task arithmetic: weaker + eta (fitter - weaker), exact in B A, then truncated to the rank.

    Raises:
        NotEvolvableError: both parents are zero.
    """
    return _cross(fitter, [(1.0 - eta, weaker), (eta, fitter)])


def cross_linear_half(weaker: Update, fitter: Update, *, eta: float) -> Child:
    """Control `linear_0_5`: the midpoint of both parents; eta plays no part."""
    return _cross(fitter, [(0.5, weaker), (0.5, fitter)])


MUTATIONS: dict[str, Callable[..., Child]] = {"gaussian": mutate_gaussian, "copy_parent": copy_parent}
CROSSOVERS: dict[str, Callable[..., Child]] = {"extrapolate": cross_extrapolate, "linear_0_5": cross_linear_half}


def cap_norm(child: Child, parent: Update, cap: float) -> Child:
    """Scale a child down if its norm exceeds `cap` times its parent's: repeated extrapolation would grow it."""
    ratio = child.details["norm_ratio"]
    if ratio <= cap:
        return child
    shrunk = {module: scale(low, cap / ratio) for module, low in child.update.items()}
    return _finish(shrunk, parent, child.details["truncation_error"])


def _add_noise(low: LowRank, strength: float, generator: torch.Generator) -> LowRank:
    balanced, _ = truncate(low, low.rank)
    norm = measure_norm(balanced)
    if norm == 0.0:
        return low
    noise_a = _draw_like(balanced.a_RI, generator)
    noise_b = _draw_like(balanced.b_OR, generator)
    first_order = LowRank(torch.cat([balanced.a_RI, noise_a]), torch.cat([noise_b, balanced.b_OR], dim=1))
    step = strength * norm / measure_norm(first_order)
    return LowRank(balanced.a_RI + step * noise_a, balanced.b_OR + step * noise_b)


def _draw_like(factor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(factor.shape, generator=generator, dtype=torch.float64) * factor.std()


def _cross(fitter: Update, terms: list[tuple[float, Update]]) -> Child:
    _require_nonzero(*(update for _, update in terms))
    child, worst = {}, 0.0
    for module, low in fitter.items():
        child[module], error = truncate(combine([(w, update[module]) for w, update in terms]), low.rank)
        worst = max(worst, error)
    return _finish(child, fitter, worst)


def _require_nonzero(*updates: Update) -> None:
    if all(is_zero(update) for update in updates):
        raise NotEvolvableError("the parent adapters are still zero: evolve after the first update")


def _finish(child: Update, parent: Update, truncation_error: float) -> Child:
    difference = {m: combine([(1.0, child[m]), (-1.0, parent[m])]) for m in parent}
    parent_norm = measure_total_norm(parent)
    ratio = measure_total_norm(child) / parent_norm if parent_norm else 1.0
    distance = measure_total_norm(difference) / parent_norm if parent_norm else 0.0
    return Child(child, {"truncation_error": truncation_error, "distance": distance, "norm_ratio": ratio})
