"""Reads samples of a run: what was asked, what was answered, how it was judged, and what it earned.

python -m trainer.samples runs/tiny-001 --step 3 --role student --grade wrong --limit 5
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from trainer.config import ConfigError, load_config
from trainer.console import escape_controls
from trainer.domain import Grade, Role
from trainer.model import ModelError, load_tokenizer, resolve_model
from trainer.store import StoreError, find_run, read_records


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 2 if there is nothing to read."""
    parser = argparse.ArgumentParser(prog="python -m trainer.samples", description=__doc__.splitlines()[0])
    parser.add_argument("run", help="folder of the run, or latest")
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="where `latest` is looked for")
    parser.add_argument("--step", type=int, help="default: the last one")
    parser.add_argument("--role", choices=[str(role) for role in Role])
    parser.add_argument("--member", help="uid")
    parser.add_argument("--grade", choices=[str(grade) for grade in Grade])
    parser.add_argument("--limit", type=int, default=10)
    options = parser.parse_args(arguments)
    try:
        folder = find_run(options.run, options.folder)
        samples = select(read_records(folder / "attempts.jsonl"), options)
        tokenizer = load_tokenizer(resolve_model(load_config([folder / "config.yaml"]).model.name))
    except (StoreError, ConfigError, ModelError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not samples:
        print(f"error: {folder} has no such samples", file=sys.stderr)
        return 2
    Console(soft_wrap=False).print(make_table(samples, tokenizer))
    return 0


def select(samples: Sequence[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the samples that the options name, of one step, each group together."""
    if not samples:
        return []
    wanted = {
        "step": samples[-1]["step"] if options.step is None else options.step,
        **{key: getattr(options, key) for key in ("role", "member", "grade") if getattr(options, key)},
    }
    return [s for s in samples if all(s[key] == value for key, value in wanted.items())][: options.limit]


def make_table(samples: Sequence[dict[str, Any]], tokenizer: Any) -> Table:
    """Return a table with one row per sample; the same prompt is shown once. Hostile text stays harmless."""
    table = Table(title=f"step {samples[0]['step']}", show_lines=True)
    for name, ratio in (("who", 1), ("prompt", 4), ("completion", 4), ("grade", 2), ("reward", 1)):
        table.add_column(name, ratio=ratio, overflow="fold")
    group = None
    for sample in samples:
        prompt = "" if sample["group"] == group else tokenizer.decode(sample["prompt_ids"], skip_special_tokens=True)
        group = sample["group"]
        reward = "-" if sample["reward"] is None else f"{sample['reward']:+.2f}"
        cells = (f"{sample['member']}@{sample['version']}\n{sample['kind']}", prompt, sample["text"])
        table.add_row(*map(_disarm, (*cells, f"{sample['grade']}\n{sample['detail']}", reward)))
    return table


def _disarm(text: str) -> str:
    from rich.markup import escape

    return escape("\n".join(escape_controls(line) for line in text.split("\n")))


if __name__ == "__main__":
    sys.exit(main())
