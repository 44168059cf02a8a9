"""Everything that a run needs to go on, written atomically, without pickle.

    checkpoints/step-<N>/
        state.json                  step, members, ratings, buffer, random state, record lengths, config
        <uid>.adapter.safetensors   weights
        <uid>.optimizer.safetensors moments

The folder gets its name only when all of it is on the disk, so a checkpoint exists whole or not at all.
"""

import json
import random
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from trainer.config import ConfigError, TrainerConfig, check_config, find_changes
from trainer.domain import Member, Problem, Rating, Role, TaskKind, Value
from trainer.learning.adapters import AdapterBank
from trainer.store import DiskError, RunStore, StoreError, commit_folder, remove_folder


@dataclass(slots=True)
class RunState:
    """What changes from step to step, besides the tensors of the adapters."""

    step: int
    """Completed steps."""
    members: list[Member]
    problems: list[Problem]
    generator: random.Random
    next_adapter_number: int = 1
    known: list[tuple[TaskKind, str]] = field(default_factory=list)
    """What the buffer has seen, also what left it."""
    next_uid: dict[str, int] = field(default_factory=dict)
    """Next free number of each role's uids: a uid is never given twice."""

    def of_role(self, role: Role) -> list[Member]:
        """Return the members of a role, in order."""
        return [member for member in self.members if member.role is role]


def save(store: RunStore, state: RunState, adapters: AdapterBank, config: TrainerConfig) -> Path:
    """Write a checkpoint and drop the oldest beyond `run.keep_checkpoints`.

    Raises:
        DiskError: the disk refused; earlier checkpoints are untouched.
    """
    parent = store.folder / "checkpoints"
    draft, final = parent / f".draft-{state.step}", name_folder(store, state.step)
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        for member in state.members:
            save_file(adapters.get_weights(member.uid), draft / f"{member.uid}.adapter.safetensors")
            save_file(adapters.get_optimizer_tensors(member.uid), draft / f"{member.uid}.optimizer.safetensors")
        (draft / "state.json").write_text(json.dumps(_dump(state, store.measure_lengths(), config)))
        commit_folder(draft, final)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise DiskError(f"cannot write checkpoint {final}: {error}. Free some space and use --resume") from error
    for old in list_checkpoints(store)[: -config.run.keep_checkpoints]:
        remove_folder(old)
    return final


def name_folder(store: RunStore, step: int) -> Path:
    """Return where the checkpoint of a step is."""
    return store.folder / "checkpoints" / f"step-{step:06d}"


def list_checkpoints(store: RunStore) -> list[Path]:
    """Return the complete checkpoints, oldest first."""
    return sorted((store.folder / "checkpoints").glob("step-*"))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was read and checked, but changed nothing yet."""

    state: RunState
    tensors: dict[str, tuple[dict[str, Any], dict[str, Any]]]
    """Weights and optimizer moments by uid."""
    record_lengths: dict[str, int]


def read(store: RunStore, config: TrainerConfig) -> Checkpoint:
    """Read the newest checkpoint.

    Raises:
        StoreError: there is no checkpoint, or it is damaged.
        ConfigError: it was made with other settings.
    """
    found = list_checkpoints(store)
    if not found:
        raise StoreError(f"{store.folder} holds no checkpoint: start a new run")
    folder = found[-1]
    try:
        raw = json.loads((folder / "state.json").read_text())
        tensors = {
            member["uid"]: (
                load_file(folder / f"{member['uid']}.adapter.safetensors"),
                load_file(folder / f"{member['uid']}.optimizer.safetensors"),
            )
            for member in raw["members"]
        }
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise StoreError(f"checkpoint {folder} is damaged: {error}. Remove it to use the one before") from error
    changes = find_changes(check_config(raw["config"]), config)
    if changes:
        raise ConfigError("the checkpoint was made with other settings:\n  " + "\n  ".join(changes))
    return Checkpoint(_restore(raw), tensors, raw["record_lengths"])


def restore(found: Checkpoint, store: RunStore, adapters: AdapterBank) -> RunState:
    """Put a checkpoint into an empty bank of adapters and cut the records back to it."""
    for member in found.state.members:
        weights, moments = found.tensors[member.uid]
        adapters.add(member.uid, seed=0)
        try:
            adapters.set_weights(member.uid, weights)
            adapters.set_optimizer_tensors(member.uid, moments)
        except (ValueError, KeyError) as error:
            raise StoreError(f"the checkpoint of {member.uid} does not fit: {error}") from error
    store.cut_to(found.record_lengths)
    return found.state


def _dump(state: RunState, lengths: Mapping[str, int], config: TrainerConfig) -> dict[str, Any]:
    return {
        "step": state.step,
        "members": [asdict(member) for member in state.members],
        "problems": [asdict(problem) for problem in state.problems],
        "random_state": state.generator.getstate(),
        "next_adapter_number": state.next_adapter_number,
        "next_uid": state.next_uid,
        "known": [list(entry) for entry in state.known],
        "record_lengths": dict(lengths),
        "config": config.model_dump(mode="json"),
    }


def _restore(raw: Mapping[str, Any]) -> RunState:
    generator = random.Random()
    version, internal, gauss = raw["random_state"]
    generator.setstate((version, tuple(internal), gauss))
    return RunState(
        step=raw["step"],
        members=[_restore_member(entry) for entry in raw["members"]],
        problems=[restore_problem(entry) for entry in raw["problems"]],
        generator=generator,
        next_adapter_number=raw["next_adapter_number"],
        next_uid=dict(raw["next_uid"]),
        known=[(TaskKind(kind), ast_hash) for kind, ast_hash in raw["known"]],
    )


def _restore_member(entry: Mapping[str, Any]) -> Member:
    changed = {"role": Role(entry["role"]), "rating": Rating(**entry["rating"]), "parents": tuple(entry["parents"])}
    return Member(**{**entry, **changed})


def restore_problem(entry: Mapping[str, Any]) -> Problem:
    """Return the problem that `asdict` described."""
    changed = {
        "kind": TaskKind(entry["kind"]),
        "arguments": tuple(entry["arguments"]),
        "values": tuple(Value(**value) for value in entry["values"]),
    }
    return Problem(**{**entry, **changed})
