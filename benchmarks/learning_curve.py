"""Does the solve rate rise? A student learns deduction on the seed tasks, against a control with learning rate 0.

For each seed a run with the learning rate of configs/seed_deduction.yaml and one without, otherwise equal. Runs go one
after the other and are resumed where they were; hours on two cores, so this is for the background.

    python -m benchmarks.learning_curve --folder runs/learning-curve          # run or go on, then report
    python -m benchmarks.learning_curve --folder runs/learning-curve --report # only what is there
"""

import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from benchmarks import harness
from trainer.store import read_records

CONFIG = Path(__file__).parent.parent / "configs/seed_deduction.yaml"
ARMS: dict[str, list[str]] = {"learning": [], "control": ["learning.learning_rate=0"]}
# Two-sided 95 % quantile of Student's t by degrees of freedom.
_T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def main() -> None:
    """Run what is missing and report."""
    parser = harness.make_parser(__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/learning-curve"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--window", type=int, default=20, help="steps at the beginning and end that are compared")
    parser.add_argument("--report", action="store_true", help="run nothing")
    options = parser.parse_args()
    if not options.report:
        with harness.open_verifier(options.address) as verifier:
            for seed in range(options.seeds):
                for arm in ARMS:
                    train(options.folder, arm, seed, options.steps, verifier.address)
    report(options.folder, options.seeds, options.window)


def train(folder: Path, arm: str, seed: int, steps: int, address: str) -> None:
    """Run one arm with one seed up to a step, or go on with it."""
    run = find_run(folder, arm, seed)
    settings = [f"run.steps={steps}", f"run.folder={folder}", f"verifier.address={address}"]
    if run is not None and (run / "environment.json").exists() and any((run / "checkpoints").glob("step-*")):
        if len(read_correct(run)) >= steps:
            return
        command = ["--resume", str(run), *settings]
    else:
        command = ["--config", str(CONFIG), f"run.name={arm}-{seed}", f"run.seed={seed}", *ARMS[arm], *settings]
    subprocess.run([sys.executable, "-m", "trainer.run", *command], check=True, stdout=sys.stderr)


def find_run(folder: Path, arm: str, seed: int) -> Path | None:
    """Return the newest run folder of an arm and seed."""
    return max(folder.glob(f"{arm}-{seed}-*"), default=None)


def read_correct(run: Path) -> list[float]:
    """Return the share of correct attempts of each step."""
    return [row["student/correct"] for row in read_records(run / "metrics.jsonl")]


def estimate(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean over seeds and half the width of its 95 % confidence interval (Student's t)."""
    if len(values) < 2:
        return mean(values), math.nan
    return mean(values), _T95[len(values) - 1] * stdev(values) / math.sqrt(len(values))


def report(folder: Path, seeds: int, window: int) -> None:
    """Print shares of correct attempts in the first and last steps, and the difference between the arms.

    Both arms of a seed draw the same problems in the same steps, so their difference by step is free of the luck of the
    draw, and the mean over the last steps is what a seed contributes.
    """
    curves = {arm: [read_correct(run) for seed in range(seeds) if (run := find_run(folder, arm, seed))] for arm in ARMS}
    rows = []
    for arm, several in curves.items():
        parts = [[mean(c[:window]) for c in several], [mean(c[-window:]) for c in several]]
        rows.append(
            (arm, len(several), min(map(len, several)), *("{:.3f} ± {:.3f}".format(*estimate(p)) for p in parts))
        )
    pairs = [
        [a - b for a, b in zip(learning, control, strict=False)]
        for learning, control in zip(curves["learning"], curves["control"], strict=False)
    ]
    gains = [mean(differences[-window:]) for differences in pairs]
    gain, half = estimate(gains)
    harness.print_table(
        f"share of correct attempts, mean over seeds ± 95 % interval, windows of {window} steps",
        ("arm", "seeds", "steps", "first", "last"),
        [*rows, ("learning - control", len(gains), "", "", f"{gain:.3f} ± {half:.3f}")],
    )
    harness.print_result(
        benchmark="learning_curve",
        seeds=len(gains),
        steps=min(len(c) for several in curves.values() for c in several),
        window=window,
        gain_by_seed=[round(value, 4) for value in gains],
        gain=round(gain, 4),
        gain_ci95=[round(gain - half, 4), round(gain + half, 4)] if len(gains) > 1 else None,
        curves={arm: [[round(v, 3) for v in c] for c in several] for arm, several in curves.items()},
    )


if __name__ == "__main__":
    main()
