"""What does a training step cost: eight adapters against one, the update's memory, and the update against TRL's?

    python -m benchmarks.step                  # all parts, about twelve minutes on two cores
    python -m benchmarks.step --parts memory

phases   the same number of rollouts by one student and by eight: real verifier, vLLM and updates
memory   peak memory of an update of 2,048 and 8,192 completion tokens, with logits in chunks and whole
trl      tokens per second of an update: ours against TRL's GRPO step, same model, adapter shape, batch and threads
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import harness, trl_step, update_memory
from trainer.store import read_records

CONFIG = Path(__file__).parent.parent / "configs/seed_deduction.yaml"
_COUNTS = (1, 8)
_PHASES = {
    "sample": ("propose", "solve"),
    "verify": ("validate", "judge"),
    "learn": ("learn",),
    "publish": ("publish",),
}
_PARTS = ("phases", "memory", "trl")


def main() -> None:
    """Measure what is asked for and print tables and one JSON line."""
    parser = harness.make_parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS)
    parser.add_argument("--rollouts", type=int, default=512, help="completions per step, by all members together")
    parser.add_argument("--steps", type=int, default=3, help="steps that count; one more before them warms up")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    if "memory" in options.parts:
        figures |= update_memory.report(update_memory.measure_all())
    if "trl" in options.parts:
        figures |= trl_step.report(trl_step.measure())
    if "phases" in options.parts:
        with harness.open_verifier(options.address) as verifier, tempfile.TemporaryDirectory() as folder:
            steps = {
                count: train(Path(folder), count, options.rollouts, options.steps, verifier.address)
                for count in _COUNTS
            }
        figures |= report_phases(steps)
    harness.print_result(benchmark="step", rollouts=options.rollouts, **figures)


def train(folder: Path, count: int, rollouts: int, steps: int, address: str) -> list[dict[str, float]]:
    """Run `count` students that share the rollouts; returns the metrics of the steps that count."""
    settings = [
        f"run.name=students-{count}", f"run.folder={folder}", f"run.steps={steps + 1}", f"verifier.address={address}",
        f"population.students={count}", f"tasks.problems_per_student={rollouts // 8 // count}",
        "tasks.attempts_per_problem=8", "verifier.in_flight=16",
        # Everything that is sampled is learned from, so that both populations learn from as many tokens.
        "learning.zero_variance=keep", "learning.learning_rate=1e-5",
    ]  # fmt: skip
    command = [sys.executable, "-m", "trainer.run", "--config", str(CONFIG), *settings]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return read_records(folder / f"students-{count}-001/metrics.jsonl")[1:]


def summarize(step: Mapping[str, float]) -> dict[str, float]:
    """Return seconds per phase and tokens of a step."""
    seconds = {phase: sum(step[f"time/{name}_s"] for name in names) for phase, names in _PHASES.items()}
    sampled = step["student/samples"] * step["student/completions/mean_length"]
    learned = sum(value for name, value in step.items() if name.endswith("/num_tokens"))
    return {**seconds, "all": step["time/step_s"], "sampled": sampled, "learned": learned}


def report_phases(steps: Mapping[int, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Print phases of one and of eight adapters side by side; returns the figures."""
    one, eight = (
        {name: median(summary[name] for summary in map(summarize, steps[count])) for name in summarize(steps[count][0])}
        for count in _COUNTS
    )
    tokens = {"sample": "sampled", "verify": "sampled", "learn": "learned", "publish": "learned", "all": "sampled"}
    rows = []
    for phase, kind in tokens.items():
        speeds = [found[kind] / found[phase] for found in (one, eight)]
        rows.append(
            (phase, f"{one[phase]:.2f}", f"{eight[phase]:.2f}", *(f"{speed:.0f}" for speed in speeds),
             f"{eight[phase] / one[phase]:.2f}")
        )  # fmt: skip
    harness.print_table(
        "a step with the same number of rollouts, medians",
        ("phase", "1 adapter, s", "8 adapters, s", "1 adapter, tokens/s", "8 adapters, tokens/s", "8 to 1"),
        rows,
    )
    rss = {count: max(step["mem/rss_gb"] for step in steps[count]) for count in _COUNTS}
    per_token = [mean(s["all"] / s["sampled"] for s in map(summarize, steps[count])) for count in _COUNTS]
    return {
        "ratio_8_to_1": round(eight["all"] / one["all"], 3),
        "ratio_8_to_1_per_token": round(per_token[1] / per_token[0], 3),
        "seconds_1": {phase: round(one[phase], 2) for phase in tokens},
        "seconds_8": {phase: round(eight[phase], 2) for phase in tokens},
        "tokens_sampled": [round(found["sampled"]) for found in (one, eight)],
        "trainer_rss_gib": [round(rss[count], 2) for count in _COUNTS],
    }


def run_alone(module: str, *arguments: str) -> dict[str, Any]:
    """Run a measurement in a process of its own; returns the JSON that it prints last."""
    found = subprocess.run([sys.executable, "-m", module, *arguments], check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(found.stdout.strip().splitlines()[-1])
    return result


if __name__ == "__main__":
    main()
