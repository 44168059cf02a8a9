"""LoRA products for vLLM on a CPU, per adapter instead of per token; a plugin of vLLM (`vllm.general_plugins`).

vLLM 0.32's own operations copy A and B once per *token* and read slot -1, which marks requests without an adapter, as
the last slot: such requests get that adapter's weights (vllm PR 48421). Here tokens are grouped by adapter, and those
without one are in no group. The plugin is loaded in every process of vLLM; it does nothing on another platform, with a
version it was not tested with, if its self-test fails, or with POPULORA_STOCK_LORA=1.

Shapes: _T tokens, _G adapters in the batch, _M tokens of the one with most, _I inputs, _O outputs, _R rank.
"""

import os
from dataclasses import dataclass
from typing import Any

import torch

TESTED_VERSIONS = ("0.32.0",)
_SWITCH = "POPULORA_STOCK_LORA"
# Up to this many tokens a step costs calls rather than arithmetic, and all adapters go through one batched product.
_SMALL_STEP_TOKENS = 256
_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Groups:
    """The tokens of a step by adapter."""

    slots_G: torch.Tensor
    rows: list[torch.Tensor | slice]
    """Rows of each adapter; a slice where they are neighbours."""
    padded: "Padded | None" = None
    """None if one product for all adapters does not pay."""


@dataclass(frozen=True, slots=True)
class Padded:
    """Rows of all adapters as one rectangle."""

    rows_GM: torch.Tensor
    """Filled up with row T."""
    real_GM: torch.Tensor
    """Which entries are rows."""
    order_N: torch.Tensor
    """The rows in order of the groups."""


def group_tokens(slots_T: torch.Tensor) -> Groups:
    """Group tokens by the slot of their adapter; slot -1 (no adapter) is left out."""
    slots = slots_T.tolist()
    rows_of: dict[int, list[int]] = {}
    for row, slot in enumerate(slots):
        if slot >= 0:
            rows_of.setdefault(slot, []).append(row)
    slots_G = torch.tensor(list(rows_of), dtype=torch.long)
    rows = [_as_rows(found) for found in rows_of.values()]
    longest = max(map(len, rows_of.values()), default=0)
    count = sum(map(len, rows_of.values()))
    if len(rows_of) < 2 or len(slots) > _SMALL_STEP_TOKENS or longest * len(rows_of) > 2 * count:
        return Groups(slots_G, rows)
    rows_GM = torch.tensor([found + [len(slots)] * (longest - len(found)) for found in rows_of.values()])
    order_N = torch.tensor([row for found in rows_of.values() for row in found])
    return Groups(slots_G, rows, Padded(rows_GM, rows_GM < len(slots), order_N))


def add_products(
    groups: Groups,
    output_TO: torch.Tensor,
    input_TI: torch.Tensor,
    a_stacked: tuple[torch.Tensor, ...],
    b_stacked: tuple[torch.Tensor, ...],
    scale: float,
    output_slices: tuple[int, ...],
) -> None:
    """Add scale * x A^T B^T of each token's adapter to `output_TO`, in place.

    Args:
        a_stacked: per output slice (q, k, v, ...) the A of all slots, [slots, 1, R, I].
        b_stacked: likewise B, [slots, 1, slice, R].
        output_slices: widths of the slices.
    """
    if not groups.rows:
        return
    padded, x_GMI = groups.padded, input_TI
    if padded is not None:
        x_GMI = torch.cat([input_TI, input_TI.new_zeros(1, input_TI.shape[1])])[padded.rows_GM]
    start = 0
    for a_S1RI, b_S1OR, width in zip(a_stacked, b_stacked, output_slices, strict=True):
        columns = slice(start, start + min(width, b_S1OR.shape[2]))
        if padded is not None:
            low_GMR = torch.bmm(x_GMI, a_S1RI[groups.slots_G, 0].transpose(1, 2)).mul_(scale)
            high_GMO = torch.bmm(low_GMR, b_S1OR[groups.slots_G, 0, : columns.stop - start].transpose(1, 2))
            output_TO[:, columns].index_add_(0, padded.order_N, high_GMO[padded.real_GM])
        else:
            for slot, rows in zip(groups.slots_G.tolist(), groups.rows, strict=True):
                low_NR = (input_TI[rows] @ a_S1RI[slot, 0].T).mul_(scale)
                output_TO[rows, columns] += low_NR @ b_S1OR[slot, 0, : columns.stop - start].T
        start += width


def _as_rows(rows: list[int]) -> torch.Tensor | slice:
    if rows[-1] - rows[0] + 1 == len(rows):
        return slice(rows[0], rows[-1] + 1)
    return torch.tensor(rows)


def check_products() -> float:
    """Return the largest deviation from dense products on a mixed batch, by both ways of computing."""
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(3, 1, 4, 6, generator=generator), torch.randn(3, 1, 5, 4, generator=generator)
    worst = 0.0
    for slots in ([0, 2, -1, 2, 0], [2, 2, 2, -1, 0], [-1, -1], [1]):
        x = torch.randn(len(slots), 6, generator=generator)
        found, expected = torch.ones(len(slots), 10), torch.ones(len(slots), 10)
        add_products(group_tokens(torch.tensor(slots)), found, x, (a, a), (b, -b), 0.5, (5, 5))
        for row, slot in enumerate(slots):
            if slot >= 0:
                product = 0.5 * b[slot, 0] @ (a[slot, 0] @ x[row])
                expected[row] += torch.cat([product, -product])
        worst = max(worst, float((found - expected).abs().max()))
    return worst


def register() -> None:
    """Put these products in place of vLLM's. Called by vLLM in each of its processes."""
    import vllm
    from vllm.logger import init_logger
    from vllm.platforms import current_platform

    logger = init_logger("vllm.populora")
    if not current_platform.is_cpu() or os.environ.get(_SWITCH):
        return
    if not vllm.__version__.startswith(TESTED_VERSIONS):
        logger.warning("LoRA products of populora are not used: not tested with vLLM %s", vllm.__version__)
        return
    deviation = check_products()
    if not deviation < _TOLERANCE:
        logger.error("LoRA products of populora are not used: their self-test is off by %g", deviation)
        return
    _replace()
    logger.info("LoRA products of populora are in use")


def _replace() -> None:
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    stock_update = PunicaWrapperCPU.update_metadata

    def update_metadata(self: Any, *args: Any, **kwargs: Any) -> None:
        stock_update(self, *args, **kwargs)
        self.populora_groups = group_tokens(self.token_lora_indices)

    def add_lora_linear(
        self: Any,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: tuple[torch.Tensor, ...],
        lora_b_stacked: tuple[torch.Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        **_: Any,
    ) -> None:
        flat_TO, flat_TI = y.view(-1, y.shape[-1]), x.reshape(-1, x.shape[-1])
        add_products(self.populora_groups, flat_TO, flat_TI, lora_a_stacked, lora_b_stacked, scale, output_slices)

    for method in (update_metadata, add_lora_linear):
        setattr(PunicaWrapperCPU, method.__name__, method)
