"""Exact arithmetic on low-rank weight updates W = B A, never forming the full matrix.

Shapes: _RI is A (rank x inputs), _OR is B (outputs x rank). All members share alpha / rank, so the scale of PEFT
cancels. Computed in float64; one thread is fastest for these tall, thin matrices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

_A_SUFFIX, _B_SUFFIX = ".lora_A.weight", ".lora_B.weight"


@dataclass(frozen=True, slots=True)
class LowRank:
    """One module's weight update as two factors, float64."""

    a_RI: torch.Tensor
    b_OR: torch.Tensor

    @property
    def rank(self) -> int:
        """Number of components."""
        return self.a_RI.shape[0]


Update = dict[str, LowRank]
"""A whole adapter: module name -> weight update."""


def read_update(weights: Mapping[str, torch.Tensor]) -> Update:
    """Return an adapter's tensors (PEFT names) as low-rank updates."""
    modules = sorted(name.removesuffix(_A_SUFFIX) for name in weights if name.endswith(_A_SUFFIX))
    return {m: LowRank(weights[m + _A_SUFFIX].double(), weights[m + _B_SUFFIX].double()) for m in modules}


def write_update(update: Update) -> dict[str, torch.Tensor]:
    """Return the tensors of an adapter, float32, PEFT names."""
    weights: dict[str, torch.Tensor] = {}
    for module, low in update.items():
        weights[module + _A_SUFFIX] = low.a_RI.float().contiguous()
        weights[module + _B_SUFFIX] = low.b_OR.float().contiguous()
    return weights


def combine(terms: Sequence[tuple[float, LowRank]]) -> LowRank:
    """Return sum of weight * update exactly; the ranks add up.

    (Combining the factors themselves would give cross terms B1 A2.)
    """
    return LowRank(
        torch.cat([low.a_RI for _, low in terms], dim=0),
        torch.cat([weight * low.b_OR for weight, low in terms], dim=1),
    )


def measure_norm(low: LowRank) -> float:
    """Return the Frobenius norm of B A through the R factors of thin QR (stable for ill-conditioned factors)."""
    r_b = torch.linalg.qr(low.b_OR, mode="r").R
    r_a = torch.linalg.qr(low.a_RI.T, mode="r").R
    return float(torch.linalg.norm(r_b @ r_a.T))


def truncate(low: LowRank, rank: int) -> tuple[LowRank, float]:
    """Return the best approximation of `rank` with balanced factors (U sqrt S, sqrt S V^T), and its relative error.

    Thin QR of both factors, then the SVD of a small core. Missing components (rank above the input's) are zero.
    """
    q_b, r_b = torch.linalg.qr(low.b_OR)
    q_a, r_a = torch.linalg.qr(low.a_RI.T)
    u, s, v_t = torch.linalg.svd(r_b @ r_a.T)
    kept = min(rank, len(s))
    root = s[:kept].sqrt()
    left_OR, right_IR = q_b @ u[:, :kept], q_a @ v_t[:kept].T
    # An SVD leaves the sign of each component open; fix it, so that equal updates have equal factors.
    signs = torch.sign(left_OR.gather(0, left_OR.abs().argmax(0, keepdim=True)))[0]
    b_OR = torch.zeros(low.b_OR.shape[0], rank, dtype=torch.float64)
    a_RI = torch.zeros(rank, low.a_RI.shape[1], dtype=torch.float64)
    b_OR[:, :kept] = left_OR * root * signs
    a_RI[:kept] = (right_IR * root * signs).T
    total = float(torch.linalg.norm(s))
    error = float(torch.linalg.norm(s[kept:])) / total if total > 0 else 0.0
    return LowRank(a_RI, b_OR), error


def scale(low: LowRank, factor: float) -> LowRank:
    """Return factor * update, split evenly so that balanced factors stay balanced."""
    root = abs(factor) ** 0.5
    return LowRank(low.a_RI * root, low.b_OR * (root if factor >= 0 else -root))


def is_zero(update: Update) -> bool:
    """Whether the adapter still equals the base model (fresh adapters have B = 0)."""
    return all(not low.b_OR.any() for low in update.values())


def measure_total_norm(update: Update) -> float:
    """Return the Frobenius norm over all modules."""
    return float(sum(measure_norm(low) ** 2 for low in update.values()) ** 0.5)
