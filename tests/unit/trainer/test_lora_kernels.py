"""LoRA products per adapter equal dense products, whoever shares a batch with whom."""

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.rollout import lora_kernels
from trainer.rollout.lora_kernels import add_products, check_products, group_tokens

SLOTS, RANK, INPUTS, WIDTHS = 4, 3, 5, (4, 2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-1, SLOTS - 1), min_size=1, max_size=40), st.integers(0, 2**20), st.booleans())
def test_products_equal_dense_ones_token_by_token(slots: list[int], seed: int, few: bool) -> None:
    """Also where tokens of an adapter are no neighbours, and for those without an adapter nothing changes."""
    generator = torch.Generator().manual_seed(seed)
    a = tuple(torch.randn(SLOTS, 1, RANK, INPUTS, generator=generator) for _ in WIDTHS)
    b = tuple(torch.randn(SLOTS, 1, width, RANK, generator=generator) for width in WIDTHS)
    x_TI = torch.randn(len(slots), INPUTS, generator=generator)
    found = torch.randn(len(slots), sum(WIDTHS), generator=generator)
    expected = found.clone()
    for row, slot in enumerate(slots):
        if slot >= 0:
            parts = [2.0 * b[i][slot, 0] @ a[i][slot, 0] @ x_TI[row] for i in range(len(WIDTHS))]
            expected[row] += torch.cat(parts)
    groups = group_tokens(torch.tensor(slots))
    if few:  # the way of large steps, one product after the other
        groups = lora_kernels.Groups(groups.slots_G, groups.rows)
    add_products(groups, found, x_TI, a, b, 2.0, WIDTHS)
    assert torch.allclose(found, expected, atol=1e-4)


def test_small_mixed_steps_take_the_batched_way_and_large_ones_do_not() -> None:
    assert group_tokens(torch.tensor([0, 1, 2, 0, 1, 2])).padded is not None
    assert group_tokens(torch.tensor([0, 1] * 200)).padded is None
    assert group_tokens(torch.tensor([0] * 30 + [1, 2])).padded is None  # mostly padding
    assert group_tokens(torch.tensor([-1, -1])).rows == []


def test_the_self_test_notices_wrong_products(monkeypatch) -> None:
    assert check_products() < 1e-5
    right = lora_kernels.group_tokens
    # The defect of the stock kernels: slot -1 read as the last one.
    monkeypatch.setattr(lora_kernels, "group_tokens", lambda slots_T: right(slots_T % 3))
    assert check_products() > 1e-2


@pytest.mark.vllm
def test_another_version_a_failed_self_test_or_the_switch_leave_vllm_as_it_is() -> None:
    program = """
import os
import vllm
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from trainer.rollout import lora_kernels

stock, check, version = PunicaWrapperCPU.add_lora_linear, lora_kernels.check_products, vllm.__version__

def register(what):
    lora_kernels.register()
    print(what, "stock" if PunicaWrapperCPU.add_lora_linear is stock else "ours")

os.environ["POPULORA_STOCK_LORA"] = "1"
register("switch")
del os.environ["POPULORA_STOCK_LORA"]
vllm.__version__ = "0.33.0"
register("version")
vllm.__version__, lora_kernels.check_products = version, lambda: 0.5
register("self-test")
lora_kernels.check_products = check
register("nothing")
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120,
        env={**os.environ, "VLLM_LOGGING_STREAM": "ext://sys.stderr"},
    )  # fmt: skip
    lines = found.stdout.splitlines()[-4:]
    assert lines == ["switch stock", "version stock", "self-test stock", "nothing ours"], found.stderr[-2000:]
