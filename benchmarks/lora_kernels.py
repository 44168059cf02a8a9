"""How fast does vLLM on a CPU sample through adapters: its own products against ours (`trainer.rollout.lora_kernels`)?

Two engines, one after the other, read prompts (one new token each) and write completions (short prompts) with the base,
with one adapter, and with eight mixed in each batch. Ratios are within this run.

    python -m benchmarks.lora_kernels
"""

import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks import harness
from trainer.config import LoraConfig, PopulationConfig, RolloutConfig, TrainerConfig
from trainer.learning.adapters import AdapterBank
from trainer.model import load_base, resolve_model
from trainer.rollout.engine import AdapterVersion, GenerationRequest, VllmEngine, generate_all
from trainer.startup import make_engine_settings

_SWITCH = "POPULORA_STOCK_LORA"
_ADAPTERS = 8


def main() -> None:
    """Measure and print."""
    parser = harness.make_parser(__doc__)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=64, help="requests per batch")
    options = parser.parse_args()
    model_path = resolve_model("embedded")
    lora = LoraConfig(rank=options.rank, alpha=2 * options.rank)
    with tempfile.TemporaryDirectory() as folder:
        adapters = make_adapters(model_path, lora, Path(folder))
        speeds = {}
        for kernels in ("stock", "ours"):
            os.environ.pop(_SWITCH, None)
            if kernels == "stock":
                os.environ[_SWITCH] = "1"
            speeds[kernels] = measure_engine(
                model_path, lora, adapters, options.prompts, Path(folder) / f"{kernels}.log"
            )
    report(speeds, options.rank)


def make_adapters(model_path: str, lora: LoraConfig, folder: Path) -> list[AdapterVersion]:
    """Write random adapters; every one changes the model a little."""
    bank = AdapterBank(load_base(model_path, "bfloat16"), lora, learning_rate=0.0)
    generator = torch.Generator().manual_seed(0)
    versions = []
    for number in range(1, _ADAPTERS + 1):
        uid = f"a{number}"
        bank.add(uid, seed=number)
        weights = bank.get_weights(uid)
        bank.set_weights(uid, {n: torch.randn(w.shape, generator=generator) * 0.01 for n, w in weights.items()})
        bank.save(uid, folder / uid)
        versions.append(AdapterVersion(f"{uid}@0", number, str(folder / uid)))
    return versions


def measure_engine(
    model_path: str, lora: LoraConfig, adapters: list[AdapterVersion], count: int, log_path: Path
) -> dict[tuple[str, str], float]:
    """Return tokens per second by phase and by who answers."""
    config = TrainerConfig(
        lora=lora,
        population=PopulationConfig(teachers=_ADAPTERS // 2, students=_ADAPTERS // 2),
        rollout=RolloutConfig(max_num_seqs=count, max_prompt_tokens=256, max_new_tokens=128),
    )
    settings = make_engine_settings(config, model_path, os.cpu_count() or 1, 0)
    engine = VllmEngine(settings, log_path=log_path)
    speeds: dict[tuple[str, str], float] = {}
    try:
        for adapter in adapters:
            engine.publish(adapter)
        speakers: dict[str, Sequence[AdapterVersion | None]] = {
            "base": [None],
            "1 adapter": adapters[:1],
            "8 adapters": adapters,
        }
        for repeat in range(3):  # the first only warms up
            for phase, prompt, new in (("read", 128, 1), ("write", 8, 64)):
                for who, several in speakers.items():
                    seed = f"{phase} {who} {repeat}"
                    found = measure_batch(engine, several, count, prompt, new, random.Random(seed))
                    if repeat:
                        speeds[phase, who] = max(found, speeds.get((phase, who), 0.0))
    finally:
        engine.close()
    return speeds


def measure_batch(
    engine: VllmEngine,
    speakers: Sequence[AdapterVersion | None],
    count: int,
    prompt: int,
    new: int,
    generator: random.Random,
) -> float:
    """Return tokens per second of a batch of new random prompts: prompt tokens if one is asked for, else new ones."""
    requests = [
        GenerationRequest(
            prompt_ids=tuple(generator.randrange(1000, 40000) for _ in range(prompt)),
            adapter=speakers[i * len(speakers) // count],
            num_samples=1,
            max_tokens=new,
            temperature=1.0,
        )
        for i in range(count)
    ]
    start = time.monotonic()
    completions = generate_all(engine, requests)
    seconds = time.monotonic() - start
    tokens = count * prompt if new == 1 else sum(len(several[0].token_ids) for several in completions)
    return tokens / seconds


def report(speeds: dict[str, dict[tuple[str, str], float]], rank: int) -> None:
    """Print table and figures."""
    rows, figures = [], {}
    for phase, who in speeds["stock"]:
        stock, ours = speeds["stock"][phase, who], speeds["ours"][phase, who]
        rows.append((phase, who, f"{stock:.0f}", f"{ours:.0f}", f"{ours / stock:.2f}"))
        figures[f"{phase}_{who.replace(' ', '_')}_ratio"] = round(ours / stock, 2)
    harness.print_table(f"tokens per second, rank {rank}", ("phase", "who", "stock", "ours", "ours / stock"), rows)
    base = speeds["ours"]["read", "base"]
    harness.print_result(
        benchmark="lora_kernels",
        rank=rank,
        **figures,
        read_8_adapters_share_of_base=round(speeds["ours"]["read", "8 adapters"] / base, 2),
        write_8_adapters_share_of_base=round(
            speeds["ours"]["write", "8 adapters"] / speeds["ours"]["write", "base"], 2
        ),
    )


if __name__ == "__main__":
    main()
