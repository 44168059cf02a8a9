"""Shared fixtures: one real engine and one real server per test session; nothing is skipped silently."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from populora.verifier import VerifierClient

from benchmarks.harness import MemoryCap
from verifier_server.domain import CaseInput, CaseRun, Limits, Mode, Run
from verifier_server.judging import literals
from verifier_server.sandbox.nsjail import NsjailEngine

MIB = 1 << 20
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder that mapped users can traverse."""
    folder = Path(f"/var/tmp/populora-tests-{os.getpid()}")
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class EngineThread:
    """An nsjail engine on an event loop of its own, driven synchronously by tests."""

    def __init__(self, state_dir: Path, packages: Path | None = None) -> None:
        self.engine = NsjailEngine(state_dir=state_dir, python="/usr/bin/python3", packages=packages)
        self.info = self.engine.start()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def submit(self, run: Run, slot: int = 0) -> "asyncio.Future":
        return asyncio.run_coroutine_threadsafe(self.engine.run(run, slot=slot), self.loop)

    def run(self, run: Run, slot: int = 0) -> list[CaseRun]:
        return self.submit(run, slot).result(timeout=120)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.engine.close()
        self.loop.close()


@pytest.fixture(scope="session")
def memory_cap() -> Iterator[MemoryCap]:
    """The limit under which everything hostile runs: a defect of the sandbox must not take the machine down."""
    if os.geteuid() != 0:
        pytest.skip("no jails here: making cgroups needs root")
    cap = MemoryCap(4 << 30)
    yield cap
    cap.remove()


@pytest.fixture(scope="session")
def engine(state_dir: Path, memory_cap: MemoryCap) -> Iterator[EngineThread]:
    with memory_cap.inside():  # where the engine starts, there its jails live
        thread = EngineThread(state_dir)
    yield thread
    thread.close()


@pytest.fixture
def call(engine: EngineThread) -> Callable[..., CaseRun]:
    """Run a program as a call of f and return what it did."""

    def run(program: str | bytes, arguments: str = "", **options: object) -> CaseRun:
        return engine.run(make_run(program, arguments, **options))[0]

    return run


def make_run(
    program: str | bytes,
    arguments: str = "",
    *,
    mode: Mode = Mode.CALL,
    stdin: bytes = b"",
    cases: int = 1,
    hash_seed: int = 0,
    clock_shift_s: int = 0,
    entry_point: str = "f",
    **limits: object,
) -> Run:
    parsed = literals.parse_arguments(arguments)
    case = CaseInput(positional=parsed.positional, keywords=parsed.keywords, stdin=stdin)
    defaults = {"cpu_time_s": 2.0, "wall_time_s": 4.0, "memory_bytes": 128 * MIB, "processes": 16, "tmp_bytes": 8 * MIB}
    return Run(
        mode=mode,
        program=program if isinstance(program, bytes) else program.encode("utf-8", "surrogatepass"),
        entry_point=entry_point,
        cases=(case,) * cases,
        limits=Limits(**{**defaults, **limits}),
        hash_seed=hash_seed,
        clock_shift_s=clock_shift_s,
    )


@dataclass
class ServerProcess:
    """A verifier in its own process, as users start it."""

    address: str
    state_dir: Path
    arguments: tuple[str, ...] = ()
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> float:
        """Start and wait until ready; returns the seconds it took."""
        log = Path(tempfile.mkstemp(prefix="server-", suffix=".log", dir=self.state_dir)[1])
        begin = time.monotonic()
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "verifier_server",
                    "serve",
                    "--address",
                    self.address,
                    "--state-dir",
                    str(self.state_dir),
                    *self.arguments,
                ],
                stdout=file,
                stderr=file,
                cwd=ROOT,
            )
        while b"server_ready" not in log.read_bytes():
            if self.process.poll() is not None or time.monotonic() - begin > 30:
                raise RuntimeError(log.read_text())
            time.sleep(0.02)
        return time.monotonic() - begin

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def server(state_dir: Path, memory_cap: MemoryCap) -> Iterator[ServerProcess]:
    server = ServerProcess(f"unix:{state_dir}/verifier.sock", state_dir)
    with memory_cap.inside():
        server.start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def client(server: ServerProcess) -> Iterator[VerifierClient]:
    with VerifierClient(server.address, patience_s=10) as client:
        yield client
