"""The run folder: where everything in it is, and who may use it.

    config.yaml environment.json            what the run depends on
    metrics.jsonl                           one line per step
    problems.jsonl attempts.jsonl           every proposal that became a problem; every sample with its grade
    matches.jsonl lineage.jsonl events.jsonl
    adapters/<uid>/v<N>/                    PEFT format
    checkpoints/step-<N>/  tensorboard/  logs/

Lines of a step are written together at its end (alarms at once). A checkpoint remembers how long each file was;
resuming cuts off what came after it, so a killed step leaves no half records.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

FORMAT_VERSION = 1
RECORDS = ("metrics", "problems", "attempts", "matches", "lineage", "events")


class StoreError(RuntimeError):
    """The run folder cannot be used; the message says why and the way out."""


class DiskError(StoreError):
    """The disk refused to take something; what was there before is untouched, and the run can be resumed."""


class RunStore:
    """Reads and writes one run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise StoreError(f"{folder} is in use by another trainer: stop it first") from error

    def close(self) -> None:
        """Let others use the folder."""
        os.close(self._lock)

    @classmethod
    def create(cls, parent: Path, name: str) -> "RunStore":
        """Make a new run folder `<parent>/<name>-<number>`."""
        number = 1
        try:
            parent.mkdir(parents=True, exist_ok=True)
            while (folder := parent / f"{name}-{number:03d}").exists():
                number += 1
            folder.mkdir()
        except OSError as error:
            raise StoreError(f"cannot make a run folder in run.folder = {parent}: {error}") from error
        for sub in ("adapters", "checkpoints", "logs", "tensorboard"):
            (folder / sub).mkdir()
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> "RunStore":
        """Open an existing run folder. Raises: StoreError."""
        if not (folder / "environment.json").is_file():
            raise StoreError(f"{folder} is not a run folder: it holds no environment.json")
        version = json.loads((folder / "environment.json").read_text()).get("format_version")
        if version != FORMAT_VERSION:
            raise StoreError(f"{folder} has format {version}, this version reads {FORMAT_VERSION}")
        return cls(folder)

    # --- single files --------------------------------------------------------------------------------------

    def write_config(self, text: str) -> None:
        """Write the resolved config as YAML."""
        write_atomically(self.folder / "config.yaml", text)

    def write_environment(self, facts: Mapping[str, Any]) -> None:
        """Write versions, machine and verifier."""
        text = json.dumps({"format_version": FORMAT_VERSION, **facts}, indent=2)
        write_atomically(self.folder / "environment.json", text)

    def read_environment(self) -> dict[str, Any]:
        """Return what `write_environment` wrote."""
        facts: dict[str, Any] = json.loads((self.folder / "environment.json").read_text())
        return facts

    def log_path(self, name: str) -> Path:
        """Path of a log file."""
        return self.folder / "logs" / f"{name}.log"

    def adapter_folder(self, uid: str, version: int) -> Path:
        """Folder of one version of one member's adapter."""
        return self.folder / "adapters" / uid / f"v{version:06d}"

    def list_adapter_versions(self, uid: str) -> list[int]:
        """Versions of a member that are on disk, ascending."""
        return sorted(int(path.name[1:]) for path in (self.folder / "adapters" / uid).glob("v*"))

    def drop_adapter_versions(self, uid: str, *, current: int, keep: int) -> None:
        """Keep the first version and the last `keep` up to `current`; later ones belong to steps that were undone."""
        versions = self.list_adapter_versions(uid)
        past = [version for version in versions if version <= current]
        for version in set(versions) - set(past[:1] + past[-keep:]):
            remove_folder(self.adapter_folder(uid, version))

    def drop_culled_adapters(self, living: Collection[str], *, keep: int) -> None:
        """Keep the last version of the `keep` members that were culled last, and nothing of those before them."""
        folders = [path for path in (self.folder / "adapters").iterdir() if path.name not in living]
        folders.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for folder in folders[keep:]:
            shutil.rmtree(folder)
        for folder in folders[:keep]:
            for version in self.list_adapter_versions(folder.name)[:-1]:
                remove_folder(self.adapter_folder(folder.name, version))

    # --- records -------------------------------------------------------------------------------------------

    def append(self, name: str, records: Iterable[Any]) -> None:
        """Append records (mappings or dataclasses) to `<name>.jsonl`."""
        if name not in RECORDS:
            raise ValueError(f"unknown record file {name}")
        lines = [json.dumps(_plain(record)) + "\n" for record in records]
        if not lines:
            return
        path = self.folder / f"{name}.jsonl"
        try:
            with path.open("a") as file:
                file.write("".join(lines))
        except OSError as error:
            raise DiskError(f"cannot write {path}: {error}") from error

    def read(self, name: str) -> list[dict[str, Any]]:
        """Return all records of a file; an absent file is empty, a torn last line is left out."""
        return read_records(self.folder / f"{name}.jsonl")

    def measure_lengths(self) -> dict[str, int]:
        """Return the current length of each record file in bytes, after flushing it to the disk."""
        lengths = {}
        for name in RECORDS:
            path = self.folder / f"{name}.jsonl"
            if path.exists():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                lengths[name] = path.stat().st_size
        return lengths

    def cut_to(self, lengths: Mapping[str, int]) -> None:
        """Cut every record file to an earlier length."""
        for name in RECORDS:
            path = self.folder / f"{name}.jsonl"
            if path.exists():
                os.truncate(path, min(path.stat().st_size, lengths.get(name, 0)))


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file of a run folder, also of one that is in use; see `RunStore.read`."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def find_run(folder: str, parent: Path) -> Path:
    """Return the run folder that `--resume` names; `latest` is the newest one in `parent`.

    Raises:
        StoreError: there is none.
    """
    if folder != "latest":
        return Path(folder)
    found = sorted(parent.glob("*/environment.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise StoreError(f"no run to resume in {parent}")
    return found[-1].parent


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that it is either old or new, never half."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    _flush(path.parent)


def commit_folder(draft: Path, final: Path) -> None:
    """Flush a finished draft folder to the disk and give it its name in one step; a folder of that name gives way.

    Whenever this is interrupted, whatever has the name is whole.
    """
    for path in [*draft.rglob("*"), draft]:
        _flush(path)
    if final.exists():
        remove_folder(final)
    draft.rename(final)
    _flush(final.parent)


def remove_folder(folder: Path) -> None:
    """Remove a folder that readers may look for: its name goes first, so it is never seen in part."""
    condemned = folder.with_name(f".draft-old-{folder.name}")
    shutil.rmtree(condemned, ignore_errors=True)
    folder.rename(condemned)
    shutil.rmtree(condemned)


def _flush(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain(record: Any) -> Any:
    return asdict(record) if is_dataclass(record) and not isinstance(record, type) else record
