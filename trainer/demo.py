"""`make demo`: a verifier on a Unix socket, a small real run against it, a summary. Nothing is left running."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trainer.machine import find_memory_cgroup

CONFIG = Path(__file__).parent.parent / "configs/demo.yaml"
_READY_TIMEOUT_S = 60.0


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit status of the training run."""
    parser = argparse.ArgumentParser(prog="python -m trainer.demo", description=__doc__)
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="settings for the run")
    overrides = parser.parse_args(arguments).overrides
    start = time.monotonic()
    log_path = Path(tempfile.mkstemp(prefix="populora-verifier-", suffix=".log")[1])
    with tempfile.TemporaryDirectory(prefix="populora-") as folder:
        address = f"unix:{folder}/verifier.sock"
        verifier = _start_verifier(address, log_path)
        try:
            if not _wait_ready(verifier, log_path):
                print(f"error: the verifier did not start:\n{log_path.read_text()}", file=sys.stderr)
                return 2
            status = _train([*overrides, f"verifier.address={address}"])
        finally:
            verifier.send_signal(signal.SIGTERM)
            verifier.wait(timeout=30)
    print(f"log of the verifier: {log_path}")
    print(f"demo: {time.monotonic() - start:.0f} s of wall time{_describe_memory()}")
    return status


def _train(overrides: list[str]) -> int:
    """Run the trainer; Ctrl-C reaches it directly, SIGTERM is handed on, and it decides when to stop."""
    trainer: list[subprocess.Popen[bytes]] = []

    def hand_on(*_: object) -> None:
        for process in trainer:
            process.terminate()

    # Handlers before the child: it must not be left alone in between (they are reset in it).
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, hand_on)
    trainer.append(subprocess.Popen([sys.executable, "-m", "trainer.run", "--config", str(CONFIG), *overrides]))
    status = trainer[0].wait()
    if status in (1, 130):
        print(
            "To go on where a checkpoint exists, start a verifier with `make serve-verifier`, then in a second shell:\n"
            "  .venv/bin/python -m trainer.run --resume latest verifier.address=127.0.0.1:50051"
        )
    return status


def _start_verifier(address: str, log_path: Path) -> subprocess.Popen[bytes]:
    with log_path.open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "verifier_server", "serve", "--address", address],
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the trainer; the verifier ends after it
        )


def _wait_ready(verifier: subprocess.Popen[bytes], log_path: Path) -> bool:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while time.monotonic() < deadline and verifier.poll() is None:
        if "server_ready" in log_path.read_text():
            return True
        time.sleep(0.1)
    return False


def _describe_memory() -> str:
    """Peak memory of the cgroup that the demo runs in, where it has one of its own."""
    folder = find_memory_cgroup()
    for file in ("memory.peak", "memory.max_usage_in_bytes"):
        if folder is not None and folder.name != "memory" and (folder / file).exists():
            return (
                f", at most {int((folder / file).read_text()) / 2**30:.2f} GiB of memory (cgroup, page cache included)"
            )
    return ""


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
