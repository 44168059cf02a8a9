"""Peak memory of one update, in a process of its own.

python -m benchmarks.update_memory TOKENS CHUNK CHECKPOINTING
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import harness
from benchmarks.update_batch import UID, make_learner, make_samples
from trainer.config import LearningConfig

_CHUNK = 256
_COMPLETION, _PROMPT = 240, 16
# Completion tokens, rows of logits at once, gradient checkpointing. Activations of 8k tokens fit no small machine.
_CASES = (
    (2048, _CHUNK, False), (2048, 2048, False), (2048, _CHUNK, True), (2048, 2048, True),
    (8192, _CHUNK, True), (8192, 8192, True),
)  # fmt: skip


def measure_all() -> list[dict[str, Any]]:
    """Measure every case, each in a fresh process."""
    from benchmarks.step import run_alone

    return [run_alone("benchmarks.update_memory", *map(str, case)) for case in _CASES]


def measure(tokens: int, chunk: int, checkpointing: bool) -> dict[str, Any]:
    """Return peak memory above what the loaded model takes, and seconds, of an update in one micro-batch."""
    count = tokens // _COMPLETION
    learning = LearningConfig(
        micro_batch_tokens=2 * tokens, logit_chunk_tokens=chunk, gradient_checkpointing=checkpointing
    )
    learner = make_learner(learning, _COMPLETION)
    samples = make_samples(count, (_PROMPT, _PROMPT), (_COMPLETION, _COMPLETION))
    advantages_S = torch.tensor([1.0, -1.0] * count)[:count]
    learner.update(UID, samples[:2], advantages_S[:2], temperature=1.0)  # optimizer state and libraries
    before = _read_status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    start = time.monotonic()
    learner.update(UID, samples, advantages_S, temperature=1.0)
    seconds = time.monotonic() - start
    return {
        "tokens": tokens,
        "chunk": chunk,
        "checkpointing": checkpointing,
        "peak_gib": round((_read_status("VmHWM") - before) / 2**30, 3),
        "seconds": round(seconds, 2),
    }


def report(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Print the table; returns the figures."""
    rows = [
        (case["tokens"], "kept" if not case["checkpointing"] else "computed again",
         f"chunks of {case['chunk']}" if case["chunk"] < case["tokens"] else "whole",
         f"{case['peak_gib']:.2f}", f"{case['seconds']:.1f}")
        for case in found
    ]  # fmt: skip
    columns = ("completion tokens", "activations", "logits", "peak, GiB above the model", "seconds")
    harness.print_table("memory of one update in one micro-batch", columns, rows)
    return {"memory": list(found)}


def _read_status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) << 10
    raise KeyError(name)


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True")))
