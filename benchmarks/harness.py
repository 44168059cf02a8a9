"""What the commands share: the data folder, a verifier of their own under a memory cap, parallel requests, tables."""

import argparse
import contextlib
import gzip
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from populora.verifier import VerifierClient
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from verifier_server.sandbox.cgroups import find_hierarchies

CAP_BYTES = 8 << 30
Item = TypeVar("Item")
Result = TypeVar("Result")


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every command has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", help="a running verifier (default: start one)")
    parser.add_argument("--data", default=os.environ.get("POPULORA_DATA"), help="folder of data sets")
    parser.add_argument("--limit", type=int, help="use only the first N rows of each data set")
    return parser


def find_data(options: argparse.Namespace, name: str) -> Path:
    """Return the path of a data file; without a data folder, end the program visibly."""
    if not options.data:
        print("SKIPPED: no data. Give --data FOLDER or set POPULORA_DATA; docs/operations.md says what it holds.")
        print(json.dumps({"skipped": "no data folder"}))
        sys.exit(0)
    path = Path(options.data) / name
    if not path.exists():
        sys.exit(f"error: {path} does not exist: --data (POPULORA_DATA) must be a folder with {name}")
    return path


def read_rows(path: Path, limit: int | None = None) -> list[dict[str, Any]]:
    """Read JSON lines, compressed or not."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return [json.loads(line) for line in lines if line.strip()][:limit]


class MemoryCap:
    """A memory cgroup. What this process starts while `inside` stays there; the process itself goes back.

    Hostile programs must never run without one: a defect of the sandbox would take the whole machine down.
    """

    def __init__(self, limit_bytes: int = CAP_BYTES) -> None:
        mounts, membership = (Path(f"/proc/self/{name}").read_text() for name in ("mounts", "cgroup"))
        self._home = find_hierarchies(mounts, membership)["memory"]
        self._group = self._home.path / f"capped-{secrets.token_hex(4)}"
        self._group.mkdir()
        limit = "memory.limit_in_bytes" if self._home.version == 1 else "memory.max"
        (self._group / limit).write_text(str(limit_bytes))

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Be in the group for the block."""
        (self._group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (self._home.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        """Remove the group once it is empty; a child may still be ending."""
        for _ in range(500):
            with contextlib.suppress(OSError):
                self._group.rmdir()
                return
            time.sleep(0.01)


@dataclass(frozen=True)
class Verifier:
    """A verifier that is ready; `pid` only if it was started here."""

    address: str
    pid: int | None = None


@contextlib.contextmanager
def open_verifier(address: str | None, *arguments: str) -> Iterator[Verifier]:
    """Yield a verifier that is ready: the one at `address`, or one started for the block under a memory cap."""
    if address:
        yield Verifier(address)
        return
    state = Path(tempfile.mkdtemp(prefix="populora-benchmark-", dir="/var/tmp"))
    state.chmod(0o755)
    address = f"unix:{state}/verifier.sock"
    command = [sys.executable, "-m", "verifier_server", "serve", "--address", address, "--state-dir", str(state)]
    cap = MemoryCap()
    with (state / "server.log").open("wb") as log, cap.inside():
        process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log)
    try:
        _wait_until_ready(address, process, state / "server.log")
        yield Verifier(address, process.pid)
    finally:
        process.terminate()
        process.wait(timeout=60)
        cap.remove()
        shutil.rmtree(state, ignore_errors=True)


def _wait_until_ready(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    with VerifierClient(address, patience_s=60) as client:
        while not client.server_info().protections:  # filled in by the self-test
            if process.poll() is not None:
                sys.exit(f"error: the verifier did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)


def map_parallel(
    function: Callable[[Item], Result], items: Sequence[Item], *, workers: int, title: str
) -> list[Result]:
    """Call `function` on every item, `workers` at a time, in order, with a progress bar on stderr."""
    with Progress(console=Console(stderr=True)) as progress, ThreadPoolExecutor(workers) as pool:
        task = progress.add_task(title, total=len(items))
        results = []
        for result in pool.map(function, items):
            results.append(result)
            progress.advance(task)
        return results


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table to stdout; hostile text stays harmless."""
    print(f"\n{title}")
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_disarm(str(cell)) for cell in row))
    if not table.row_count:
        print("  none")
        return
    Console(width=160, markup=False, highlight=False).print(table)


def _disarm(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def print_result(**figures: object) -> None:
    """Print the figures as the last line."""
    print(json.dumps(figures))
