"""The audit log: one JSON line per request, and each program's text once under its hash.

<folder>/records.jsonl          one line per answered request
<folder>/programs/ab/abcd...    program text by SHA-256
"""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from verifier_server.audit import events
from verifier_server.domain import CaseRun, Context
from verifier_server.errors import NotReadyError, SetupError

_MAX_RUNS = 100


class AuditLog:
    """Appends records. If it cannot be written, the service must not answer."""

    def __init__(self, folder: Path) -> None:
        self._programs = folder / "programs"
        self._path = folder / "records.jsonl"
        try:
            self._programs.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise SetupError(f"audit folder {folder} is not writable: {error}") from error

    def append(
        self, context: Context, *, method: str, program: bytes, verdict: str, runs: Sequence[CaseRun], detail: str
    ) -> None:
        """Write one record; it survives a kill of the service when this returns.

        Raises:
            NotReadyError: the disk refused it.
        """
        record = {
            "time": time.time(),
            **asdict(context),
            "method": method,
            "verdict": verdict,
            "program": self._keep_program(program) if program else "",
            "runs": [_describe(run) for run in runs[:_MAX_RUNS]],
            "detail": detail,
        }
        try:
            self._file.write(json.dumps(record).encode("utf-8", "backslashreplace") + b"\n")
        except OSError as error:
            raise NotReadyError(f"the audit log cannot be written: {error}") from error

    def _keep_program(self, program: bytes) -> str:
        name = hashlib.sha256(program).hexdigest()
        path = self._programs / name[:2] / name
        if not path.exists():
            draft = path.with_name(f".{name}.{os.getpid()}")
            try:
                path.parent.mkdir(exist_ok=True)
                draft.write_bytes(program)
                draft.rename(path)
            except OSError as error:
                raise NotReadyError(f"the audit log cannot be written: {error}") from error
        return name

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _describe(run: CaseRun) -> dict[str, object]:
    return {
        "outcome": str(run.outcome),
        "evidence": str(run.evidence),
        "claim": run.claim,
        "exit_status": run.exit_status,
        "signal": run.signal,
        "wall_s": round(run.usage.wall_s, 4),
        "cpu_s": round(run.usage.cpu_s, 4),
        "peak_memory_bytes": run.usage.peak_memory_bytes,
        "denied_syscall": run.denied_syscall,
        "tries": run.tries,
        "severity": str(events.rate_run(run)),
        "hook_events": [
            [event.event, event.detail, event.count, str(events.rate(event.event, event.detail))]
            for event in run.hook_events
        ],
    }
