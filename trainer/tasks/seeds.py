"""Our own seed tasks: small programs, checked by hand, that start the buffer and teach the formats."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from trainer.domain import Problem, TaskKind, Value

_FILE = Path(__file__).with_name("seeds.yaml")


@dataclass(frozen=True, slots=True)
class Seed:
    """One program with a description and argument lists."""

    program: str
    message: str
    inputs: tuple[str, ...]


def load_seeds() -> list[Seed]:
    """Return all seed tasks in file order."""
    entries: Any = OmegaConf.to_container(OmegaConf.load(_FILE))
    return [Seed(entry["program"].rstrip("\n"), entry["message"], tuple(entry["inputs"])) for entry in entries]


def make_problems(
    number: int, seed: Seed, values: Sequence[Value], ast_hash: str, kinds: Sequence[TaskKind]
) -> list[Problem]:
    """Return a seed's problems: one per input for deduction and abduction, one over all inputs for induction."""
    problems = []
    for kind in kinds:
        if kind is TaskKind.INDUCTION:
            cases = [tuple(range(len(seed.inputs)))]
        else:
            cases = [(i,) for i in range(len(seed.inputs))]
        for case in cases:
            problems.append(
                Problem(
                    uid=f"seed-{number}-{kind}-{case[0]}",
                    kind=kind,
                    program=seed.program,
                    arguments=tuple(seed.inputs[i] for i in case),
                    values=tuple(values[i] for i in case),
                    message=seed.message if kind is TaskKind.INDUCTION else "",
                    ast_hash=ast_hash,
                )
            )
    return problems
